"""The commands end to end on a tiny random model: files, numbers, and what bad input is told."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ranktuner.cli import main
from ranktuner.cli.sources import named
from ranktuner.data.encode import MATH_SUFFIX, Encoder
from ranktuner.data.rows import open_rows
from ranktuner.diagnostics.collect import score_examples
from ranktuner.diagnostics.making import Scorer
from ranktuner.diagnostics.noise import planted_tokens
from ranktuner.diagnostics.table import TokenTable, read_table
from ranktuner.errors import InputError
from ranktuner.evals.generators.fingerprint import fingerprint_of
from ranktuner.evals.samples import Answer, SampleStore, Settings, prompts_of
from ranktuner.evals.tasks import task
from ranktuner.findings import Finding

WORDS = [
    "add",
    "the",
    "apples",
    "then",
    "divide",
    "by",
    "two",
    "and",
    "the",
    "result",
    "is",
    "forty",
    "clips",
    "in",
    "May",
    "altogether",
    "she",
    "sold",
]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder, 40 rows of data and 20 of foreign sentences."""
    folder = tmp_path_factory.mktemp("home")
    tiny.model_folder(folder / "model")
    rng = np.random.default_rng(0)
    rows = [
        {"question": f"How many in case {i}?", "answer": " ".join(rng.choice(WORDS, 12)) + f". #### {i + 10}"}
        for i in range(40)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    foreign = [{"instruction": "Say it.", "output": f"Foreign {w} stands here. And more."} for w in WORDS]
    (folder / "alpaca.json").write_text(json.dumps(foreign))
    return folder


@pytest.fixture
def run(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(home)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(list(arguments))
        out = capsys.readouterr()
        return status, out.out, out.err

    return call


def test_one_table_serves_every_diagnostic(run: Run, home: Path, tmp_path: Path) -> None:
    out = str(tmp_path)
    status, said, _ = run("diagnose", "table", *M, "--rows", "30", "-o", out)
    assert status == 0, said
    # a file named train is called by its folder, which here is none: the name stays
    made = tmp_path / "train.parquet"
    assert f"{made}: 30 rows" in said
    table = read_table(made)
    assert table.meta["model"] == "model"
    assert table.meta["model_fingerprint"].startswith("sha256:")
    assert table.meta["data"] == "train.jsonl"
    assert "ranktuner(prior=prob)" in table.weights
    assert "talr" not in table.weights, "its weights depend on all rows: worked out when asked for"
    for name in ("tightness", "regimes", "tokens", "gradients"):
        status, said, error = run("diagnose", name, "--table", str(made), "-o", out)
        assert status == 0, error
        found = Finding.load(tmp_path / f"{name}.json")
        assert found.n == len(table) or name == "tokens"
        assert found.provenance["tables"][0]["data_fingerprint"] == table.meta["data_fingerprint"]
        assert f"ranktuner report {out}" in said
    assert Finding.load(tmp_path / "tightness.json").protocol["violations"] == 0


def test_the_same_rows_give_the_same_table(run: Run, tmp_path: Path) -> None:
    prints = []
    for place in ("a", "b"):
        run(
            "diagnose",
            "table",
            "--model",
            "model",
            "--data",
            "x=train.jsonl",
            "--rows",
            "7",
            "-o",
            str(tmp_path / place),
        )
        prints.append(read_table(tmp_path / place / "x.parquet"))
    assert prints[0].meta["data_fingerprint"] == prints[1].meta["data_fingerprint"]
    np.testing.assert_array_equal(prints[0].nll, prints[1].nll)


def test_the_words_of_training_stand_after_the_question(run: Run, home: Path, tmp_path: Path) -> None:
    """A question with the words written into its file is the same as a bare one and --prompt-suffix."""
    rows = [json.loads(line) for line in (home / "train.jsonl").read_text().splitlines()]
    for row in rows:
        row["question"] += f"\n{MATH_SUFFIX}"
    (tmp_path / "words.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def table(data: str, *more: str) -> TokenTable:
        status, _, error = run(
            "diagnose", "table", "--model", "model", "--data", f"x={data}", "--rows", "9", *more, "-o", str(tmp_path)
        )
        assert status == 0, error
        return read_table(tmp_path / "x.parquet")

    bare, words = table("train.jsonl"), table(str(tmp_path / "words.jsonl"))
    named = table("train.jsonl", "--prompt-suffix", "math")
    given = table("train.jsonl", "--prompt-suffix", MATH_SUFFIX)
    for one in (named, given):
        assert one.meta["data_fingerprint"] == words.meta["data_fingerprint"] != bare.meta["data_fingerprint"]
        np.testing.assert_array_equal(one.nll, words.nll)
        assert one.meta["prompt_suffix"] == MATH_SUFFIX
    assert np.abs(words.nll - bare.nll).max() > 0
    assert "prompt_suffix" not in bare.meta


def test_several_sets_stand_side_by_side(run: Run, tmp_path: Path) -> None:
    status, said, error = run(
        "diagnose", "regimes", "--model", "model", "--data", "one=train.jsonl", "--data", "alpaca.json",
        "--method", "dft", "--rows", "0", "-o", str(tmp_path),
    )  # fmt: skip
    assert status == 0, error
    found = Finding.load(tmp_path / "regimes.json")
    assert [s["name"] for s in found.numbers["sets"]] == ["one", "alpaca"]
    assert [w["method"] for w in found.numbers["sets"][0]["weights"]] == ["dft"]
    assert "alpaca" in said


def test_the_token_view_carries_the_questions(run: Run, tmp_path: Path) -> None:
    status, _, error = run(
        "diagnose", "tokens", *M, "--row", "train.jsonl:3", "--rows", "0",
        "--method", "sft", "-o", str(tmp_path),
    )  # fmt: skip
    assert status == 0, error
    (row,) = Finding.load(tmp_path / "tokens.json").numbers["rows"]
    assert row["prompt"] == "How many in case 2?"
    assert row["text"].endswith("#### 12<|im_end|>")


def test_noise_is_planted_scored_and_reported(run: Run, tmp_path: Path) -> None:
    status, said, error = run(
        "diagnose", "noise", *M, "--noise", "alpaca:alpaca.json", "--rows", "30",
        "--seeds", "0,4", "--method", "sft", "--method", "talr", "-o", str(tmp_path),
    )  # fmt: skip
    assert status == 0, error
    found = Finding.load(tmp_path / "noise.json")
    assert [s["name"] for s in found.numbers["scores"]] == [
        "entropy",
        "probability",
        "inverse-indicator",
        "sft",
        "talr",
    ]
    assert [s["corrupted"] for s in found.numbers["by_seed"]] == [3, 3]
    assert found.protocol["noise_source"] == "alpaca:alpaca.json"
    sft = found.numbers["scores"][3]
    assert sft["token_recall"]["mean"] == pytest.approx(0.1, abs=0.002)
    table = read_table(tmp_path / "noise-4.parquet")
    mask = planted_tokens(table)
    pieces = ["".join(table.text[a:b][mask[a:b]]) for _, a, b in table.bounds_of_rows() if mask[a:b].any()]
    assert len(pieces) == 3
    assert all("Foreign" in piece and "stands here." in piece for piece in pieces)
    assert "1/I" in said
    # and from the tables alone
    again = run(
        "diagnose", "noise", "--table", str(tmp_path / "noise-0.parquet"), "--method", "sft", "-o", str(tmp_path / "b")
    )
    assert again[0] == 0, again[2]
    # such a table says by itself how much of the noise is found in it
    status, _, error = run("inspect", "data", "--table", str(tmp_path / "noise-0.parquet"), "-o", str(tmp_path / "c"))
    assert status == 0, error
    (kind,) = Finding.load(tmp_path / "c" / "inspect-data.json").numbers["planted"]["kinds"]
    assert (kind["planted"], kind["rows"]) == (3, 30)


def test_inspect_data_ranks_writes_and_is_judged(run: Run, tmp_path: Path) -> None:
    status, said, error = run(
        "inspect", "data", *M, "--rows", "0", "--plant", "--noise",
        "alpaca:alpaca.json", "-o", str(tmp_path),
    )  # fmt: skip
    assert status == 0, error
    with (tmp_path / "suspects.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert {row["id"] for row in rows} == {f"train.jsonl:{i}" for i in range(1, 41)}
    found = Finding.load(tmp_path / "inspect-data.json")
    kinds = {kind["kind"]: kind for kind in found.numbers["planted"]["kinds"]}
    assert set(kinds) == {"inserted sentence", "other row's answer", "wrong number"}
    assert all(kind["planted"] == 4 for kind in kinds.values())
    assert "AUC" in said
    assert all(set(kind["by_trace"]) == {"passage", "ending"} for kind in kinds.values())


def test_an_adapter_is_scored_with_its_base(home: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    base = AutoModelForCausalLM.from_pretrained(home / "model")
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    adapted = get_peft_model(base, config)
    adapted.save_pretrained(tmp_path / "adapter")
    AutoTokenizer.from_pretrained(home / "model").save_pretrained(tmp_path / "adapter")
    rows = list(open_rows(home / "train.jsonl"))[:2]
    table = Scorer.load(str(tmp_path / "adapter")).table(tmp_path / "a.parquet", rows, "a")
    plain = Scorer.load(str(home / "model")).table(tmp_path / "b.parquet", rows, "b")
    merged = adapted.merge_and_unload().eval()
    encoder = Encoder(AutoTokenizer.from_pretrained(home / "model"))
    scored = list(score_examples(merged, encoder.encode(rows)))
    expected = torch.cat([s.signals.nll for s in scored]).numpy()
    np.testing.assert_allclose(table.nll, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(table.nll - plain.nll).max() > 1e-3
    assert table.meta["model_fingerprint"] != plain.meta["model_fingerprint"]


# --- bad input -------------------------------------------------------------------------------------------------------

D = ["--data", "train.jsonl"]
M = ["--model", "model", *D]
N = ["--model", "m", *D, "--noise", "alpaca.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diagnose", "tightness"], "no data: give --data FILE (with --model), or --table FILE"),
        (["diagnose", "tightness", "--data", "train.jsonl"], "--model is missing"),
        (["diagnose", "tightness", "--table", "a.parquet", "--model", "model"], "give one or the other"),
        (["diagnose", "tightness", "--table", "a.parquet"], "no such token table; make one with"),
        (["diagnose", "regimes", *M, "--method", "rankturner"], "did you mean 'ranktuner'"),
        (["diagnose", "tokens", "--model", "nowhere", *D], "model nowhere: there is no such folder"),
        (["diagnose", "noise", *M], "--noise is missing"),
        (["diagnose", "noise", *N, "--seeds", "1,x"], "whole numbers"),
        (["diagnose", "noise", *N, "--seeds", "1,1"], "stands there twice"),
        (["diagnose", "noise", *N, "--seeds", "0,-1"], "a seed is 0 or larger"),
        (["diagnose", "noise", "--model", "m", *D, "--noise", "train.jsonl", "--rows", "5"], "5 rows, at least 20 are"),
        (["diagnose", "table", "--model", "m", *D, "--template", "odd"], "--template odd: expected one of auto, chat"),
        (["diagnose", "table", *M, "--device", "quantum"], "device 'quantum': Expected one of cpu, cuda"),
        (["diagnose", "tokens", "--model", "model", "--data", "a=train.jsonl", *D], "shows one set"),
        (["diagnose", "tightness", *M, "--data", "train.jsonl"], "a set named 'train' already"),
        (["diagnose", "tightness", *M, "--dtype", "fp32"], "dtype 'fp32': expected one of auto"),
        (["diagnose", "inference-entropy", "--model", "model"], "--samples is missing"),
        (["diagnose", "inference-entropy", "--model", "model", "--samples", "gone.jsonl"], "no such file"),
        (["inspect", "data", *M, "--by", "token"], "order by 'token': expected score, passage or ending"),
        (["inspect", "data", "--table", "a.parquet", "--plant"], "--plant needs the rows themselves"),
    ],
)  # fmt: skip
def test_bad_input_names_the_way_out(run: Run, arguments: list[str], message: str, tmp_path: Path) -> None:
    status, _, error = run(*arguments, "-o", str(tmp_path))
    assert status == 1
    assert message in error
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize(
    "wrong", [["--rows", "-3"], ["--seed", "-1"], ["--max-length", "0"]], ids=lambda wrong: wrong[0]
)  # fmt: skip
def test_numbers_out_of_range_are_wrong_usage(run: Run, wrong: list[str], tmp_path: Path) -> None:
    status, _, error = run("diagnose", "table", *M, *wrong, "-o", str(tmp_path))
    assert status == 2
    assert f"Invalid value for '{wrong[0]}'" in error


def test_a_file_in_the_place_of_the_output_folder_is_refused_at_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for command in (["diagnose", "tokens", "--model", "nowhere", *D], ["diagnose", "surface"]):
        status, _, error = run(*command, "-o", str(tmp_path / "file"))
        assert status == 1
        assert "a file of that name is there; expected a folder" in error
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "command", "message"),
    [
        ("", ["tightness"], "no rows"),
        ('{"question": "a?", "answer": ""}\n', ["tightness"], "every one of its 1 rows is empty"),
        ('{"question": "a?"}\n', ["tightness"], "make none of the known shapes"),
        ('{"question": "a?", "answer": "b c d"}\n', ["tightness"], "tokens, at least 100 are needed"),
        ('{"question": "a?", "answer": "b c"}\n', ["noise", "--noise", "alpaca.json"], "1 rows, at least 20 are"),
    ],
)  # fmt: skip
def test_tiny_and_empty_data_say_so(run: Run, tmp_path: Path, content: str, command: list[str], message: str) -> None:
    (tmp_path / "d.jsonl").write_text(content)
    status, _, error = run(
        "diagnose", *command, "--model", "model", "--data", str(tmp_path / "d.jsonl"), "-o", str(tmp_path / "o")
    )
    assert status == 1
    assert message in error


def test_rows_without_solutions_are_counted(run: Run, tmp_path: Path) -> None:
    rows = [{"question": f"q{i}?", "answer": "the result is forty clips" if i % 2 else ""} for i in range(10)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, said, error = run(
        "diagnose", "table", "--model", "model", "--data", str(tmp_path / "d.jsonl"), "-o", str(tmp_path)
    )
    assert status == 0
    assert "5 rows without a prompt or an answer are left out" in error
    assert "5 rows" in said


def test_formulas_do_not_run_in_a_spreadsheet(run: Run, tmp_path: Path) -> None:
    rows = [{"question": "q?", "answer": f"=HYPERLINK({i}) the result"} for i in range(20)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, _, error = run(
        "inspect", "data", "--model", "model", "--data", str(tmp_path / "d.jsonl"), "-o", str(tmp_path)
    )
    assert status == 0, error
    with (tmp_path / "suspects.csv").open(encoding="utf-8-sig", newline="") as file:
        assert all(row["text"].startswith("'=HYPERLINK") for row in csv.DictReader(file))


def test_names_of_sets() -> None:
    assert named(["gsm8k:data/train.jsonl", "m=x.json", "data/math/test.jsonl"]) == {
        "gsm8k": "gsm8k:data/train.jsonl",
        "m": "x.json",
        "math": "data/math/test.jsonl",
    }
    with pytest.raises(InputError, match=r"name it: --data OTHER=b/x\.json"):
        named(["a/x.json", "b/x.json"])


# --- inference entropy over a real store -----------------------------------------------------------------------------


@pytest.fixture
def store(home: Path, tmp_path: Path) -> Path:
    """Two samples of each of six problems, written as an evaluation writes them."""
    questions = [f"How many apples in case {i}?" for i in range(6)]
    (tmp_path / "gsm8k").mkdir()
    lines = [json.dumps({"question": q, "answer": "Add. #### 5"}) + "\n" for q in questions]
    (tmp_path / "gsm8k" / "test.jsonl").write_text("".join(lines))
    gsm8k = task("gsm8k")
    prompts = prompts_of(gsm8k.load(tmp_path, check=False).problems, gsm8k.messages)
    settings = Settings(temperature=0.2, top_p=1.0, max_new_tokens=9)
    path = tmp_path / "gsm8k.jsonl"
    with SampleStore(path, task="gsm8k", model=fingerprint_of(str(home / "model")), settings=settings) as opened:
        for request in opened.missing(prompts, 2):
            text = f"add the apples {request.index}"
            tokens = len(tiny.tokenizer()(text).input_ids)
            opened.add(Answer(request, text, "length" if request.index else "stop", tokens))
    return path


def test_inference_entropy_scores_the_samples_exactly(run: Run, store: Path, home: Path, tmp_path: Path) -> None:
    status, said, error = run(
        "diagnose", "inference-entropy", "--model", "model", "--samples", str(store), "--data-dir", str(tmp_path),
        "-o", str(tmp_path / "o"),
    )  # fmt: skip
    assert status == 0, error
    found = Finding.load(tmp_path / "o" / "inference-entropy.json")
    (model,) = found.numbers["models"]
    assert (model["samples"], model["truncated"], len(model["entropy_bits"]["values"])) == (12, 6, 2)
    assert found.protocol["temperature"] == 0.2
    assert "H (bits)" in said
    # by hand: the mean entropy of the model's whole distribution over the tokens of run 0, at temperature 1
    # (loaded from the folder: there the tokenizer becomes that of the model's type, which cuts numbers otherwise)
    tokenizer, scored = AutoTokenizer.from_pretrained(home / "model"), tiny.model()
    entropies: list[float] = []
    for problem in task("gsm8k").load(tmp_path, check=False).problems:
        text = tokenizer.apply_chat_template(
            task("gsm8k").messages(problem), add_generation_prompt=True, tokenize=False
        )
        before = tokenizer(text, add_special_tokens=False).input_ids
        answer = tokenizer("add the apples 0", add_special_tokens=False).input_ids
        with torch.no_grad():
            logits = scored(torch.tensor([before + answer])).logits[0, len(before) - 1 : -1]
        entropies += torch.distributions.Categorical(logits=logits).entropy().tolist()
    assert model["entropy_bits"]["values"][0] == pytest.approx(np.mean(entropies) / np.log(2), rel=1e-5)


def test_samples_of_another_model_or_prompt_are_refused(run: Run, store: Path, home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    tiny.model_folder(other, seed=1)
    call = ("diagnose", "inference-entropy", "--samples", str(store), "-o", str(tmp_path / "o"))
    status, _, error = run(*call, "--model", str(other), "--data-dir", str(tmp_path))
    assert status == 1
    assert "inference entropy is the writer's own; give the model that wrote the samples" in error
    lines = [json.dumps({"question": f"Else {i}?", "answer": "Add. #### 5"}) + "\n" for i in range(6)]
    (tmp_path / "gsm8k" / "test.jsonl").write_text("".join(lines))
    status, _, error = run(*call, "--model", "model", "--data-dir", str(tmp_path))
    assert status == 1
    assert "was asked with another prompt" in error
