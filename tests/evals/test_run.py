"""A whole evaluation: killed and restarted, graded again, reported; against counting by hand."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import stand_in
import tiny
from stand_in import StandIn, write_task

from ranktuner.errors import DataError, InputError
from ranktuner.evals import graders, tables
from ranktuner.evals.generators.hf import TransformersGenerator
from ranktuner.evals.grade import read_grades
from ranktuner.evals.passk import pooled_pass_at_k
from ranktuner.evals.records import VERDICTS, Grade, Problem, Sample
from ranktuner.evals.results import Outcome, choose_ks, pass_at_k_finding, samples_finding
from ranktuner.evals.run import Ask, evaluate, grade_again, plan, stored_plans
from ranktuner.evals.samples import read_samples
from ranktuner.findings import Finding


@pytest.fixture(autouse=True)
def _stand_in_grader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(graders.GRADERS, "math", "stand_in:grade")
    monkeypatch.setattr("ranktuner.evals.tasks.loading.unaccepted", lambda *_: [], raising=False)


def keyed(folder: Path) -> dict[tuple[str, int], dict]:
    found = list(read_samples(folder / "samples" / "digits.jsonl"))
    keys = [(s.problem, s.index) for s in found]
    assert len(set(keys)) == len(keys), "a sample stands in the store twice"
    return {key: {**vars(s)} for key, s in zip(keys, found, strict=True)}


def without_origin(finding: Finding) -> dict:
    return {"numbers": finding.numbers, "n": finding.n, "protocol": finding.protocol, "title": finding.title}


def test_killed_at_ten_random_moments_it_ends_as_if_undisturbed(tmp_path: Path) -> None:
    """SIGKILL, nine samples a problem or more: exactly n of each at the end, none twice, the same numbers."""
    n, rng = 40, random.Random(5)
    toml = write_task(tmp_path / "task", problems=6)
    undisturbed = stand_in.run(toml, tmp_path / "whole", n)
    command = [sys.executable, str(Path(stand_in.__file__)), str(toml), str(tmp_path / "killed"), str(n), "0.01"]
    store = tmp_path / "killed" / "samples" / "digits.jsonl"
    kills, held = 0, []
    while kills < 10:
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        before = store.stat().st_size if store.exists() else -1
        while process.poll() is None and (store.stat().st_size if store.exists() else -1) == before:
            time.sleep(0.005)  # until it has begun to write: killing the start of Python would prove nothing
        time.sleep(rng.uniform(0, 0.15))
        assert process.poll() is None, "it ended before it was killed: make it slower"
        process.kill()
        process.wait()
        kills += 1
        if rng.random() < 0.5:  # what a power failure can leave
            with store.open("ab") as file:
                file.write(b'{"task": "digits", "problem": "p1", "ind')
        held.append(len(list(read_samples(store))))
    assert held == sorted(held)
    assert held[-1] > held[0] > 0, held
    subprocess.run([*command[:-1], "0"], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert keyed(tmp_path / "killed") == keyed(tmp_path / "whole")
    assert Counter(p for p, _ in keyed(tmp_path / "killed")) == {f"p{i}": n for i in range(6)}
    found = Finding.load(tmp_path / "killed" / "findings" / "pass-at-k-digits.json")
    assert without_origin(found) == without_origin(Finding.from_json(undisturbed.to_json()))


def test_a_finished_run_generates_and_grades_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, made = plan(Ask(str(write_task(tmp_path)), n=4)).for_form("chat"), StandIn()
    first = evaluate(asked, made, tmp_path / "run")
    assert len(made.asked) == 20
    grades = (tmp_path / "run" / "grades" / "digits.jsonl").read_bytes()
    second = evaluate(asked, made, tmp_path / "run")
    assert len(made.asked) == 20
    assert (tmp_path / "run" / "grades" / "digits.jsonl").read_bytes() == grades
    assert without_origin(second) == without_origin(first)


def test_more_samples_and_problems_add_to_what_is_there(tmp_path: Path) -> None:
    toml, made = str(write_task(tmp_path)), StandIn()
    evaluate(plan(Ask(toml, n=2, limit=3)).for_form("chat"), made, tmp_path / "run")
    assert len(made.asked) == 6
    found = evaluate(plan(Ask(toml, n=4)).for_form("chat"), made, tmp_path / "run")
    assert len(made.asked) == len(set(made.asked)) == 20
    assert (found.n, found.numbers["samples"]) == (5, 20)
    fewer = evaluate(plan(Ask(toml, n=2, limit=3)).for_form("chat"), made, tmp_path / "run")
    assert (fewer.n, fewer.numbers["samples"], fewer.numbers["n"]) == (3, 6, 2)


def test_another_model_is_refused_and_fresh_sets_the_old_aside(tmp_path: Path) -> None:
    asked, said = plan(Ask(str(write_task(tmp_path)), n=2)).for_form("chat"), []
    evaluate(asked, StandIn(), tmp_path / "run")
    before = (tmp_path / "run" / "run.json").read_text()
    with pytest.raises(InputError, match="model: the store has 'stand-in', this run 'other'"):
        evaluate(asked, StandIn("other"), tmp_path / "run")
    assert (tmp_path / "run" / "run.json").read_text() == before
    evaluate(asked, StandIn("other"), tmp_path / "run", fresh=True, say=said.append)
    assert len(list((tmp_path / "run" / "samples").glob("*.old"))) == 1
    assert len(list((tmp_path / "run" / "grades").glob("*.old"))) == 1
    assert any("set aside" in line for line in said)


def test_an_interruption_keeps_what_is_finished_and_can_be_reported(tmp_path: Path) -> None:
    class Interrupted(StandIn):
        def generate(self, requests, settings):
            for i, answer in enumerate(super().generate(requests, settings)):
                if i == 9:
                    raise KeyboardInterrupt
                yield answer

    asked = plan(Ask(str(write_task(tmp_path)), n=4, ks=(1, 4))).for_form("chat")
    with pytest.raises(KeyboardInterrupt):
        evaluate(asked, Interrupted(), tmp_path / "run")
    assert len(keyed(tmp_path / "run")) == 9
    (again,) = stored_plans(tmp_path / "run")
    found = grade_again(again, tmp_path / "run")
    assert found.numbers["samples"] == 9
    assert found.numbers["complete"] is False
    assert found.numbers["not_measured"] == [k for k in (1, 4) if k > found.numbers["n_least"]]
    text = tables.markdown([found])
    assert "digits is unfinished" in text
    assert "of 5 problems have fewer than 4 samples" in text
    (strict,) = stored_plans(tmp_path / "run", ks=(4,))
    if found.numbers["n_least"] < 4:
        with pytest.raises(InputError, match="pass@4 needs 4 samples of every problem"):
            grade_again(strict, tmp_path / "run")
    assert evaluate(asked, StandIn(), tmp_path / "run").numbers["complete"] is True


def test_a_grader_that_fails_loses_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(items, **_):
        for _item in items:
            raise RuntimeError("the grader broke")
        yield

    monkeypatch.setattr(stand_in, "grade", broken)
    asked = plan(Ask(str(write_task(tmp_path)), n=3)).for_form("chat")
    with pytest.raises(RuntimeError, match="the grader broke"):
        evaluate(asked, StandIn(), tmp_path / "run")
    assert len(keyed(tmp_path / "run")) == 15
    monkeypatch.undo()
    monkeypatch.setitem(graders.GRADERS, "math", "stand_in:grade")
    made = StandIn()
    assert evaluate(asked, made, tmp_path / "run").numbers["samples"] == 15
    assert made.asked == []


def test_grades_are_repeatable_and_made_again_when_asked_or_when_the_golds_change(tmp_path: Path) -> None:
    toml, said = write_task(tmp_path), []
    first = evaluate(plan(Ask(str(toml), n=3)).for_form("chat"), StandIn(), tmp_path / "run")
    book = tmp_path / "run" / "grades" / "digits.jsonl"
    verdicts = {key: grade for key, _, grade in read_grades(book)}
    (again,) = stored_plans(tmp_path / "run")
    second = grade_again(again, tmp_path / "run", again=True, say=said.append)
    assert {key: grade for key, _, grade in read_grades(book)} == verdicts
    assert second.numbers == first.numbers
    assert "set aside" in said[0]
    rows = (tmp_path / "rows.jsonl").read_text().replace('"answer": "1"', '"answer": "2"')
    (tmp_path / "rows.jsonl").write_text(rows)
    (changed,) = stored_plans(tmp_path / "run")
    grade_again(changed, tmp_path / "run", say=said.append)
    assert "made with another golds" in said[-1]
    assert {key for key, _, grade in read_grades(book) if grade != verdicts[key]} <= {("p1", i) for i in range(3)}


def test_numbers_are_the_counts_of_the_files(tmp_path: Path) -> None:
    found = evaluate(
        plan(Ask(str(write_task(tmp_path, problems=30)), n=4)).for_form("chat"), StandIn(), tmp_path / "run"
    )
    samples = list(read_samples(tmp_path / "run" / "samples" / "digits.jsonl"))
    verdicts = {key: grade.verdict for key, _, grade in read_grades(tmp_path / "run" / "grades" / "digits.jsonl")}
    correct = Counter(p for (p, _), verdict in verdicts.items() if verdict == "correct")
    counts = [(4, correct[f"p{i}"]) for i in range(30)]
    numbers = found.numbers
    assert {row["k"]: row["value"] for row in numbers["pass_at_k"]} == {
        k: pooled_pass_at_k(counts, k) for k in (1, 2, 4)
    }
    assert numbers["verdicts"] == {v: Counter(verdicts.values())[v] for v in VERDICTS}
    assert numbers["truncated"] == sum(s.finish == "length" for s in samples) > 0
    assert numbers["tokens"]["mean"] == sum(s.tokens for s in samples) / 120
    assert [row["correct"] for row in numbers["problems"]] == [c for _, c in counts]
    assert all(row["low"] <= row["value"] <= row["high"] for row in numbers["pass_at_k"])
    browse = Finding.load(tmp_path / "run" / "findings" / "samples-digits.json").numbers
    assert (browse["found"], browse["shown"]) == (120, 120)
    one = browse["samples"][7]
    assert browse["problems"][one["problem"]]["prompt"].startswith("Which digit is number")
    assert one["verdict"] == verdicts[one["problem"], one["index"]]


def outcome(counts: dict[str, tuple[int, int]], n: int, asked: list[str] | None = None, same: bool = False) -> Outcome:
    """Samples with so many correct ones, made by hand."""
    samples, grades = [], {}
    for problem, (total, correct) in counts.items():
        for i in range(total):
            text = "same" if same else f"{problem}{i}"
            samples.append(Sample("t", problem, i, 0, text, "stop", 5, "", {}, ""))
            grades[problem, i] = Grade("correct" if i < correct else "wrong", None, "")
    problems = [Problem(p, "?", "1") for p in asked or counts]
    return Outcome.of("t", "T", problems, n, samples, grades)


def test_a_run_is_graded_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    toml = write_task(tmp_path)
    first = evaluate(plan(Ask(toml.name, n=2)).for_form("chat"), StandIn(), tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert grade_again(stored_plans(tmp_path / "run")[0], tmp_path / "run").numbers == first.numbers


def test_a_grade_belongs_to_the_very_answer_it_judged(tmp_path: Path) -> None:
    evaluate(plan(Ask(str(write_task(tmp_path)), n=2)).for_form("chat"), StandIn(), tmp_path / "run")
    store, book = (tmp_path / "run" / part / "digits.jsonl" for part in ("samples", "grades"))
    header, first, *rest = store.read_text().split("\n")
    line = json.loads(first)
    store.write_text("\n".join([header, json.dumps({**line, "text": "no digit here", "finish": "stop"}), *rest]))
    before = list(read_grades(book))
    grade_again(stored_plans(tmp_path / "run")[0], tmp_path / "run")
    (new,) = list(read_grades(book))[len(before) :]
    assert (new[0], new[2].verdict) == ((line["problem"], line["index"]), "unparsed")


def test_unequal_n_is_pooled_by_the_papers_formula_and_said() -> None:
    found = pass_at_k_finding(outcome({"a": (8, 2), "b": (4, 4)}, 8, ["a", "b", "c"]), (1, 2, 4, 8, 16))
    assert [row["k"] for row in found.numbers["pass_at_k"]] == [1, 2, 4]
    assert found.numbers["not_measured"] == [8]
    assert [row["value"] for row in found.numbers["pass_at_k"]] == [
        pooled_pass_at_k([(8, 2), (4, 4)], k) for k in (1, 2, 4)
    ]
    assert (found.numbers["n_least"], found.numbers["n_most"], found.numbers["n"]) == (4, 8, 8)
    assert found.numbers["unfinished_problems"] == 2
    assert found.numbers["problems_without_samples"] == 1
    (note, left_out) = tables.notes([found])
    assert "2 of 3 problems have fewer than 8 samples" in note
    assert "k = [8] is above the finished n" in left_out


def test_k_above_the_finished_n_is_refused() -> None:
    with pytest.raises(InputError, match="pass@16 needs 16 samples of every problem, and there are 4: raise"):
        pass_at_k_finding(outcome({"a": (8, 2), "b": (4, 4)}, 8), (1,), ks=(1, 16))
    assert choose_ks(None, (2, 4), 1, "t") == [1]
    with pytest.raises(InputError, match="expected numbers of at least 1"):
        choose_ks((0,), (1,), 4, "t")
    with pytest.raises(InputError, match="no sample is graded yet"):
        pass_at_k_finding(outcome({}, 4, ["a"]), (1,))


def test_equal_answers_at_a_temperature_are_noticed() -> None:
    protocol = {"decoding": {"temperature": 1.0}}
    found = pass_at_k_finding(outcome({"a": (4, 0), "b": (4, 4)}, 4, same=True), (1,), protocol=protocol)
    assert "2 problems have the same answer in every sample" in tables.notes([found])[0]
    greedy = pass_at_k_finding(outcome({"a": (4, 0)}, 4, same=True), (1,), protocol={"decoding": {"temperature": 0.0}})
    assert tables.notes([greedy]) == []


def test_the_browsed_samples_are_spread_over_problems() -> None:
    made = outcome({f"p{i}": (6, 1) for i in range(10)}, 6)
    found = samples_finding(made, {f"p{i}": "text" for i in range(10)}, most=25)
    assert (found.numbers["found"], found.numbers["shown"]) == (60, 25)
    assert set(Counter(s["problem"] for s in found.numbers["samples"]).values()) == {2, 3}


def test_why_samples_have_errors_is_said_beside_the_table() -> None:
    made = outcome({"a": (4, 1)}, 4)
    made.grades["a", 2] = Grade("error", None, "the prompt has 99 tokens,\nthe context 64")
    found = pass_at_k_finding(made, (1,))
    assert tables.notes([found]) == [
        "t: 1 samples have the verdict `error`, counted as wrong: the prompt has 99 tokens, the context 64"
    ]
    assert pass_at_k_finding(outcome({"a": (4, 1)}, 4), (1,)).numbers["most_errors"] == ""


def test_tables_hold_the_same_numbers_in_three_forms() -> None:
    from rich.console import Console

    first = pass_at_k_finding(outcome({"a": (4, 1), "b": (4, 4)}, 4), (1, 2))
    second = pass_at_k_finding(outcome({"x_1": (16, 4)}, 16), (1, 16))
    found = [first, second]
    assert tables.header(found)[3:6] == ["pass@1", "pass@2", "pass@16"]
    rows = tables.cells(found)
    assert rows[0][3].startswith("62.5 [")
    assert rows[0][5] == rows[1][4] == ""
    assert rows[1][5].startswith("100.0 [")
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(tables.terminal(found))
    for text in (tables.markdown(found), tables.latex(found)):
        assert "62.5 [25.0, 100.0]" in text
    line = next(line for line in console.export_text().splitlines() if line.split()[:1] == ["t"])
    assert line.split() == ["t", "2", "4", "1", "62.5", "%", "37.5", "25.0", "-", "100.0"]
    assert tables.counted([first]) == ["t: 8 samples: 5 correct, 3 wrong; 0 hit the limit of tokens; 5 tokens a sample"]
    assert r"\toprule" in tables.latex(found)
    assert r"0.0 \%" in tables.latex(found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": "gsm9k"}, "unknown task 'gsm9k'; did you mean"),
        ({"n": 0}, "--n 0: expected at least 1"),
        ({"limit": 0}, "--limit 0"),
        ({"ks": (8,)}, "pass@8 needs 8 samples of every problem, and there are 4"),
        ({"temperature": -0.5}, "temperature -0.5"),
        ({"max_new_tokens": 0}, "max_new_tokens 0"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(tmp_path: Path, change: dict, words: str) -> None:
    ask = {"task": str(write_task(tmp_path)), "n": 4, **change}
    with pytest.raises(InputError) as caught:
        plan(Ask(**ask))
    assert words in str(caught.value)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no run\.json in it"):
        stored_plans(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(DataError, match="not the record of an evaluation"):
        stored_plans(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"tasks": {}}))
    with pytest.raises(DataError, match="no samples in it yet"):
        stored_plans(tmp_path)


def test_a_real_model_stopped_and_restarted_gives_the_same_samples(tmp_path: Path) -> None:
    """In fp32 the answers of a tiny model have no near-ties; the batches after a restart are composed differently."""
    toml = str(write_task(tmp_path / "task", problems=6))
    asked = plan(Ask(toml, n=4, max_new_tokens=25)).for_form("chat")
    generator = TransformersGenerator(tiny.model().eval(), tiny.tokenizer(), "tiny", batch=8)
    evaluate(asked, generator, tmp_path / "whole")

    for stop_after in (1, 5, 6, 3):
        made = generator.generate

        def some(requests, settings, made=made, stop_after=stop_after):
            for i, answer in enumerate(made(requests, settings)):
                if i == stop_after:
                    raise KeyboardInterrupt
                yield answer

        generator.generate = some
        with pytest.raises(KeyboardInterrupt):
            evaluate(asked, generator, tmp_path / "stopped")
        del generator.generate
    evaluate(asked, generator, tmp_path / "stopped")
    assert keyed(tmp_path / "stopped") == keyed(tmp_path / "whole")
