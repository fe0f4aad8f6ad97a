"""TRL's SFTTrainer with a token weighting: one import and one argument differ from TRL's own.

    python examples/03_trl.py MODEL_FOLDER train.jsonl OUTPUT

TRL's stock trainer reads the output head's weight itself and would train plain SFT beside an attached method; ours
takes the loss from the attached head. Data sets, chat templates, packing, LoRA and launching stay TRL's.
"""

import sys

from datasets import load_dataset
from trl import SFTConfig

from ranktuner.integrations.trl import SFTTrainer

model, data, output = sys.argv[1:4]
rows = load_dataset("json", data_files=data, split="train")  # messages, or prompt and completion
args = SFTConfig(output, max_steps=8, per_device_train_batch_size=4, logging_steps=1, report_to="none", use_cpu=True)
trainer = SFTTrainer(model, args=args, train_dataset=rows, method="ranktuner(prior=uniform)")
trainer.train()
