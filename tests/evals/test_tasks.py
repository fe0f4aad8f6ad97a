"""Tasks: their protocol, their prompts, the traps in their files, and what a user is told when something is missing."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from items import item

from ranktuner.data import rows as data_rows
from ranktuner.errors import DataError, InputError
from ranktuner.evals.graders import GRADERS, grader
from ranktuner.evals.records import Problem
from ranktuner.evals.tasks import golds, task, tasks

NINE = ["math500", "minerva", "olympiadbench", "aime24", "amc23", "arc-c", "gpqa", "humaneval", "humaneval+"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RANKTUNER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_papers_nine_and_gsm8k() -> None:
    assert tasks() == [*NINE, "gsm8k"]


def test_the_papers_protocol() -> None:
    for name in tasks():
        one = task(name)
        drawn = (one.decoding.temperature, one.decoding.max_new_tokens, one.n, one.ks)
        if one.grader == "choice":
            assert drawn == (0.8, 3072, 16, (1, 2, 4, 8, 16))
        elif one.grader == "math":
            assert drawn == (1.0, 4096, 16, (1, 2, 4, 8, 16))
        else:
            assert one.ks == (1, 10)
            assert one.n >= 10
        assert one.grader in GRADERS
        assert max(one.ks) <= one.n


def test_the_sizes_of_the_sets() -> None:
    sizes = {name: task(name).expected for name in tasks()}
    assert sizes == {
        "math500": 500, "minerva": 272, "olympiadbench": 675, "aime24": 30, "amc23": 40, "arc-c": 1172, "gpqa": 198,
        "humaneval": 164, "humaneval+": 164, "gsm8k": 1319,
    }  # fmt: skip


def test_an_unknown_task_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown task 'math50'; did you mean 'math500'\?.*\.toml"):
        task("math50")
    with pytest.raises(InputError, match="unknown task 'zzzz'; known: aime24, amc23"):
        task("zzzz")


def test_listing_tasks_imports_no_torch_and_nothing_heavy() -> None:
    code = (
        "import sys; from ranktuner.evals.tasks import task, tasks; [task(n) for n in tasks()];"
        "print(sorted({'torch','transformers','datasets','sympy','math_verify','numpy'} & set(sys.modules)))"
    )
    source = str(Path(golds.__file__).parents[3])
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": source})
    assert out.stdout.strip() == "[]", out.stderr


# --- prompts ---------------------------------------------------------------------------------------------------------


def test_mathematics_is_asked_as_in_the_qwen_protocol() -> None:
    problem = Problem("1", r"What is $\frac{1}{2} + \{1\}$?", "1")
    (message,) = task("math500").messages(problem)
    assert message["role"] == "user"
    assert message["content"] == (
        "What is $\\frac{1}{2} + \\{1\\}$?\nPlease reason step by step, and put your final answer within \\boxed{}."
    )
    plain = task("math500").plain(problem)
    assert plain.startswith("Question: What is")
    assert plain.endswith("Answer: ")


def test_choices_are_listed_under_the_question_and_braces_in_them_stay() -> None:
    problem = Problem("1", "Which {choices}?", "A", {"choices": {"A": "{question}", "B": r"\frac{1}{2}"}})
    content = task("arc-c").messages(problem)[0]["content"]
    assert content.startswith("Which {choices}?\n\nA. {question}\nB. \\frac{1}{2}\n\nPlease reason")
    assert content.endswith("\\boxed{}.")


def test_code_is_continued_by_base_models_and_completed_in_a_block_by_chat_models() -> None:
    prompt = 'def one() -> int:\n    """Return {1}."""\n'
    problem = Problem("1", prompt, {})
    assert task("humaneval").plain(problem) == prompt
    assert f"```python\n{prompt}" in task("humaneval").messages(problem)[0]["content"]
    assert "\ndef " in task("humaneval").prompt.stop


# --- the sets in shared data -----------------------------------------------------------------------------------------

FULL = [name for name in tasks() if name not in ("gpqa", "arc-c")]


@pytest.mark.parametrize("name", FULL)
def test_a_whole_set_loads_whole_and_every_gold_is_accepted_against_itself(shared_data: Path, name: str) -> None:
    report = task(name).load(shared_data).report
    assert (report.found, report.missing, report.dropped, report.unaccepted) == (task(name).expected, 0, (), ())


def test_arc_says_how_many_are_missing(shared_data: Path) -> None:
    report = task("arc-c").load(shared_data).report
    assert (report.found, report.missing, report.dropped, report.unaccepted) == (1150, 22, (), ())
    assert any("22 problems are missing: scores are over the 1,150 found" in line for line in report.lines())


STEP = 8


@pytest.mark.parametrize("name", [n for n in FULL if task(n).grader == "math"])
def test_a_perturbed_gold_is_not_accepted(shared_data: Path, name: str) -> None:
    """Every eighth gold, a thousand more and with another digit; the unchanged one is accepted in the same breath."""
    problems = task(name).load(shared_data, check=False).problems[::STEP]
    pairs = [
        (p, text)
        for p in problems
        for text in (str(p.gold), f"{str(p.gold).split(', where')[0]} + 1000", perturbed(str(p.gold)))
    ]
    samples = ((p, item("", rf"\boxed{{{text}}}")[1]) for p, text in pairs)
    grades = list(grader("math")(samples, workers=2, seconds=10))
    for index, (problem, text) in enumerate(pairs):
        right = index % 3 == 0
        assert (grades[index].verdict == "correct") is right, (problem.id, problem.gold, text, grades[index])


@pytest.mark.parametrize(
    ("name", "field", "refused"),
    [("math500", "solution", []), ("gsm8k", "answer", []), ("aime24", "solution", []), ("minerva", "solution", ["5"])],
)
def test_worked_solutions_are_graded_as_right(shared_data: Path, name: str, field: str, refused: list[str]) -> None:
    """Real text around real answers. Minerva's fifth ends in Python (`np.arcsin`), which is no mathematics."""
    problems = task(name).load(shared_data, check=False).problems
    rows = [json.loads(line) for line in (shared_data / task(name).source.files[0]).read_text().splitlines()]
    samples = [(p, item("", row[field])[1]) for p, row in zip(problems, rows, strict=True)]
    grades = grader("math")(samples, workers=2, seconds=20)
    assert [p.id for p, grade in zip(problems, grades, strict=True) if grade.verdict != "correct"] == refused


def perturbed(gold: str) -> str:
    """Return another answer than the gold: its first digit that counts is another, else it is squared."""
    digit = re.search(r"[1-9]", gold)
    if digit:
        return gold[: digit.start()] + str(int(digit.group()) % 9 + 1) + gold[digit.end() :]
    return rf"({gold})^{{2}} + 1" if "text" not in gold else r"\text{nobody}"


def test_traps_in_the_golds_are_met(shared_data: Path) -> None:
    def gold_of(name: str, ident: str) -> Problem:
        return next(p for p in task(name).load(shared_data, check=False).problems if p.id == ident)

    assert gold_of("minerva", "72").gold.count("$") == 0
    assert gold_of("minerva", "86").gold == r"I(0) e^{-\frac{t}{R C}}"
    assert gold_of("minerva", "5").gold == r"\arcsin(10/13)"
    assert gold_of("olympiadbench", "1970").gold == r"(-\infty, 0) \cup\{1\}"
    assert gold_of("olympiadbench", "2349").gold == "221, 8"
    assert gold_of("olympiadbench", "2045").gold == "(0,4]"
    rate = gold_of("olympiadbench", "2592")
    assert (rate.gold, rate.meta["unit"], rate.meta["tolerance_absolute"]) == ("4.2", "%", 0.1)
    assert gold_of("amc23", "0").gold == "27"
    assert gold_of("aime24", "67").gold == "25"
    assert gold_of("gsm8k", "146").gold == "2125"


def test_every_mended_gold_is_in_the_report(shared_data: Path) -> None:
    report = task("aime24").load(shared_data).report
    assert [before for _, before, _ in report.repaired] == ["025", "073", "023", "045", "033", "080", "055"]
    assert "7 golds brought into one form: 67: '025' -> '25'" in "\n".join(report.lines())


def test_the_second_load_remembers_the_golds(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = task("amc23").load(shared_data).report
    monkeypatch.setattr(golds, "_refused", lambda problems: pytest.fail("the golds were graded again"))
    assert task("amc23").load(shared_data).report == first


def test_the_fingerprint_is_of_the_problems_not_of_the_file(shared_data: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (shared_data / "amc23/test.jsonl").read_text().splitlines()]
    write(tmp_path / "amc23.jsonl", [{**row, "note": "x"} for row in rows])
    there = task("amc23").load(tmp_path, check=False).report
    assert there.sha256 == task("amc23").load(shared_data, check=False).report.sha256
    rows[3]["answer"] = 1.0
    write(tmp_path / "amc23.jsonl", rows)
    assert task("amc23").load(tmp_path, check=False).report.sha256 != there.sha256


# --- files that are not as they should be ----------------------------------------------------------------------------

MATH_ROW = {"problem": "1 + 1?", "answer": "2", "unique_id": "a"}


def test_a_missing_file_says_which_where_and_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        task("humaneval").load(tmp_path)
    message = str(error.value)
    assert "humaneval/HumanEval.jsonl" in message
    assert str(tmp_path) in message
    assert "https://github.com/openai/human-eval" in message
    assert "openai/openai_humaneval from the hub" in message


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is no folder; expected the folder that holds math_oai/test\.jsonl"):
        task("math500").load(tmp_path / "absent")


def test_gpqa_says_how_to_ask_for_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ask for access at .*Idavidrein/gpqa, then save gpqa_diamond\.csv"):
        task("gpqa").load(tmp_path)


def test_a_row_that_cannot_be_read_is_left_out_by_name(tmp_path: Path) -> None:
    write(tmp_path / "math500.jsonl", [MATH_ROW, {"problem": "x?"}, {**MATH_ROW, "unique_id": "c", "problem": " "}])
    report = task("math500").load(tmp_path).report
    assert (report.found, report.missing) == (1, 499)
    assert report.dropped == (
        ("math500.jsonl:2", "no field 'answer'; the row has 'problem'"),
        ("math500.jsonl:3", "field 'problem' is ' '; expected text"),
    )
    assert "math500.jsonl:2 left out: no field 'answer'" in "\n".join(report.lines())


def test_the_file_of_another_set_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "math500.jsonl", [{"question": "1 + 1?"}])
    with pytest.raises(DataError, match=r"no problem could be read from .*no field 'answer'.*another set's file"):
        task("math500").load(tmp_path)


def test_two_problems_with_one_id_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "math500.jsonl", [MATH_ROW, MATH_ROW])
    with pytest.raises(DataError, match=r"two problems of .* have the id 'a'"):
        task("math500").load(tmp_path)


def test_broken_json_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "math500.jsonl").write_text(json.dumps(MATH_ROW) + '\n{"problem": \n')
    with pytest.raises(DataError, match=r"math500\.jsonl:2: broken JSON"):
        task("math500").load(tmp_path)


def test_a_gold_that_nobody_can_answer_is_named_and_stays_in_the_count(tmp_path: Path) -> None:
    write(tmp_path / "math500.jsonl", [MATH_ROW, {"problem": "?", "answer": r"\frac{1}{ \otimes", "unique_id": "b"}])
    loaded = task("math500").load(tmp_path)
    assert len(loaded.problems) == 2
    assert [ident for ident, _ in loaded.report.unaccepted] == ["b"]
    assert "gold of b is not accepted against itself" in loaded.report.lines()[-1]


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("minerva", {"problem": "?", "solution": "no box"}, r"holds no complete \\boxed"),
        ("olympiadbench", {"question": "?", "final_answer": []}, r"'final_answer' is \[\]"),
        ("aime24", {"problem": "?", "answer": "x"}, "'answer' is 'x'; expected an integer"),
        ("gsm8k", {"question": "?", "answer": "so 5"}, "'answer' has no '####'"),
        (
            "arc-c",
            {"question": {"stem": "?", "choices": [{"label": "A", "text": "x"}]}, "answerKey": "B"},
            "not one of",
        ),
        ("arc-c", {"question": {"stem": "?"}, "answerKey": "B"}, "no field 'choices'"),
        ("gpqa", {"Question": "?", "Correct Answer": "x"}, "no field 'Incorrect Answer 1'"),
        ("humaneval", {"task_id": "a", "test": "x"}, "no field 'prompt'"),
    ],
)
def test_malformed_rows_say_what_is_wrong(tmp_path: Path, name: str, row: dict[str, Any], message: str) -> None:
    file = next(f for f in task(name).source.files if f.endswith(".jsonl"))
    write(tmp_path / file, [row])
    with pytest.raises(DataError, match=message):
        task(name).load(tmp_path)


# --- multiple choice -------------------------------------------------------------------------------------------------


def gpqa_row(number: int) -> dict[str, str]:
    wrong = {f"Incorrect Answer {i}": f"wrong {i} of {number}" for i in (1, 2, 3)}
    return {"Record ID": f"rec{number}", "Question": f"Which? {number}", "Correct Answer": f"right {number}", **wrong}


def test_gpqa_shuffles_by_the_problems_id_and_says_so(tmp_path: Path) -> None:
    rows = [gpqa_row(i) for i in range(200)]
    with (tmp_path / "gpqa_diamond.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    first = task("gpqa").load(tmp_path).problems
    for i, problem in enumerate(first):
        assert problem.meta["choices"][problem.gold] == f"right {i}"
        assert isinstance(problem.meta["shuffle_seed"], int)
    counts = {letter: sum(p.gold == letter for p in first) for letter in "ABCD"}
    assert min(counts.values()) > 25, counts
    write(tmp_path / "gpqa_diamond.jsonl", rows[::-1])
    (tmp_path / "gpqa_diamond.csv").unlink()
    again = {p.id: p for p in task("gpqa").load(tmp_path).problems}
    assert all(again[p.id].gold == p.gold and again[p.id].meta == p.meta for p in first)


def test_labels_one_to_four_become_letters(tmp_path: Path) -> None:
    choices = [{"label": str(i), "text": f"t{i}"} for i in range(1, 5)]
    write(tmp_path / "arc-c.jsonl", [{"id": "x", "question": {"stem": "?", "choices": choices}, "answerKey": "3"}])
    (problem,) = task("arc-c").load(tmp_path).problems
    assert (problem.gold, problem.meta["choices"]) == ("C", {"A": "t1", "B": "t2", "C": "t3", "D": "t4"})


# --- the hub ---------------------------------------------------------------------------------------------------------


class Table:
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def number(self, index: int) -> int:
        return index + 1


HUB_ROWS: dict[str, tuple[dict[str, Any], Any]] = {
    "math500": ({"problem": "?", "answer": "2", "unique_id": "u"}, "2"),
    "minerva": ({"question": "?", "answer": "2.5"}, "2.5"),
    "olympiadbench": ({"question": "?", "final_answer": ["$2$"], "id": 5, "error": None, "unit": None}, "2"),
    "aime24": ({"problem": "?", "answer": "033", "id": 5}, "33"),
    "amc23": ({"question": "?", "answer": 27.0, "id": 5}, "27"),
    "arc-c": (
        {"question": "?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2", "id": "q"},
        "B",
    ),
    "gsm8k": ({"question": "?", "answer": "so\n#### 1,234"}, "1234"),
}


@pytest.mark.parametrize("name", HUB_ROWS)
def test_rows_of_the_hub_are_read_too(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    row, gold = HUB_ROWS[name]
    asked: list[Any] = []

    def read_hub(*args: Any) -> Table:
        asked.append(args)
        return Table([row])

    monkeypatch.setattr(data_rows, "read_hub", read_hub)
    loaded = task(name).load(None, check=False)
    source = task(name).source
    assert asked == [(source.hub, source.config, source.split)]
    assert loaded.problems[0].gold == gold
    assert loaded.report.source.startswith(source.hub)


def test_a_hub_that_does_not_answer_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=r"no route to host.*math_oai/test\.jsonl as --data-dir; get it: https://"):
        task("math500").load(None)
