"""Fine-tuning with token weights in one flat loop: no trainer, nothing hidden.

    python examples/02_loop.py --model MODEL_FOLDER --data train.jsonl --method "ranktuner(prior=uniform)"

`ranktuner train` adds checkpoints, resuming, several processes and telemetry; its numbers are these.
"""

import argparse
import math

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ranktuner as rt
from ranktuner.data.batches import Shuffle, deal, flatten
from ranktuner.data.encode import Encoder
from ranktuner.data.presets import open_data

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True, help="model folder, or hub id")
parser.add_argument("--data", required=True, help="file, folder, preset (gsm8k, alpaca, ...) or PRESET:FILE")
parser.add_argument("--method", default="ranktuner(prior=uniform)", help="any line of `ranktuner methods`")
parser.add_argument("--output", help="folder for the trained model")
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--batch", type=int, default=8, help="sequences of one optimiser step")
parser.add_argument("--micro-batches", type=int, default=2, help="in how many pieces it goes through the model")
parser.add_argument("--learning-rate", type=float, default=5e-5)
parser.add_argument("--max-length", type=int, default=2048)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

# --- data: rows -> token ids, and which of them are learnt ---
tokenizer = AutoTokenizer.from_pretrained(args.model)
encoded = Encoder(tokenizer, args.max_length).encode(open_data([args.data]))
examples = [example for example in encoded if example.supervised]
shuffle = Shuffle(len(examples), args.batch, args.seed)

# --- model, method, optimiser ---
device = "cuda" if torch.cuda.is_available() else "cpu"
model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to(device).train()
attachment = rt.attach(model, args.method)
optimizer = torch.optim.AdamW(model.parameters(), args.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
warmup = math.ceil(0.1 * args.steps)


def learning_rate(step: int) -> float:
    """Cosine from the top to 0 after a linear warm-up, as a factor."""
    if step < warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, args.steps - warmup)))


schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate)
print(attachment)

for step in range(args.steps):
    batch = [examples[place] for place in shuffle.members(step)]
    # Long with long and short with short; laid end to end, no position is spent on padding.
    (pieces,) = deal([len(example) for example in batch], 1, args.micro_batches)
    micro = [
        {name: torch.from_numpy(array).to(device) for name, array in flatten([batch[i] for i in piece]).items()}
        for piece in pieces
    ]
    # The count is that of the whole optimiser batch: a mean of the pieces' means would be another loss.
    num_tokens = sum(int((m["labels"] != -100).sum()) for m in micro)
    if step == 0:
        attachment.prime(micro)  # for methods that look one step back (talr); nothing for the others
    for m in micro:
        # position_ids start again at 0 with each sequence: that keeps attention apart
        model(**m, num_items_in_batch=num_tokens, use_cache=False).loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    attachment.step()
    line = rt.summarize(attachment.pop_metrics())
    print(
        f"step {step + 1}: loss {line['loss']:.6g}  nll {line['nll']:.6g}  mean weight {line['weight_mean']:.6g}  "
        f"effective tokens {line['effective_tokens']:.1%}  top-1 {line['top1']:.1%}  gradient {float(norm):.6g}"
    )

attachment.detach()
if args.output:
    model.save_pretrained(args.output)
    tokenizer.save_pretrained(args.output)
