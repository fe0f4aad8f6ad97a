"""The sample store: nothing twice, nothing lost, nothing mixed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ranktuner.errors import DataError, InputError
from ranktuner.evals.journal import Journal, read_records, set_aside
from ranktuner.evals.samples import Answer, SampleStore, Settings, hash_of, read_samples, requests_for, seed_of

PROMPTS = {"a": [{"role": "user", "content": "1+1?"}], "b": [{"role": "user", "content": "Größe?"}]}


def store(path: Path, said: list[str] | None = None, **changes) -> SampleStore:
    made = {"task": "t", "model": "m", "settings": Settings(1.0, 1.0, 10), **changes}
    return SampleStore(path, say=(said if said is not None else []).append, **made)


def fill(path: Path, n: int = 2) -> None:
    with store(path) as one:
        for request in one.missing(PROMPTS, n):
            one.add(Answer(request, f"{request.problem}{request.index} ½\ud800\n", "stop", 3))


def test_what_is_added_is_read_back_whole(tmp_path: Path) -> None:
    fill(tmp_path / "s.jsonl")
    found = list(read_samples(tmp_path / "s.jsonl"))
    assert [(s.problem, s.index, s.text) for s in found] == [
        (p, i, f"{p}{i} ½\ud800\n") for p in ("a", "b") for i in (0, 1)
    ]
    for s in found:
        assert (s.task, s.model, s.tokens, s.finish) == ("t", "m", 3, "stop")
        assert s.seed == seed_of("t", s.problem, s.index)
        assert s.prompt_hash == hash_of(PROMPTS[s.problem])
        assert s.decoding == Settings(1.0, 1.0, 10).to_json()


def test_only_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    fill(tmp_path / "s.jsonl", 2)
    with store(tmp_path / "s.jsonl") as one:
        assert one.missing(PROMPTS, 2) == []
        assert [(r.problem, r.index) for r in one.missing(PROMPTS, 4)] == [("a", 2), ("a", 3), ("b", 2), ("b", 3)]
        assert [r.problem for r in one.missing({**PROMPTS, "c": "text"}, 1)] == ["c"]


def test_a_second_answer_to_the_same_request_is_our_mistake(tmp_path: Path) -> None:
    with store(tmp_path / "s.jsonl") as one:
        request = one.missing(PROMPTS, 1)[0]
        one.add(Answer(request, "x", "stop", 1))
        with pytest.raises(AssertionError, match="finished already"):
            one.add(Answer(request, "y", "stop", 1))


def test_seeds_belong_to_task_problem_index_and_run() -> None:
    assert seed_of("t", "p", 3) == seed_of("t", "p", 3)
    keys = [(t, p, i, s) for t in ("t", "u") for p in ("p", "q", "p1") for i in range(200) for s in (0, 1)]
    seeds = {seed_of(*key) for key in keys}
    assert len(seeds) == len(keys)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seed_of("gsm8k", "0", 0) == 535918256, "recorded seeds must keep their meaning"


@pytest.mark.parametrize("cut", [1, 2, 17, 200])
def test_a_torn_last_line_is_cut_off_said_and_made_again(tmp_path: Path, cut: int) -> None:
    path, said = tmp_path / "s.jsonl", []
    fill(path)
    path.write_bytes(path.read_bytes()[:-cut])
    assert len(list(read_samples(path))) == 3
    with store(path, said) as one:
        assert [(r.problem, r.index) for r in one.missing(PROMPTS, 2)] == [("b", 1)]
        one.add(Answer(one.missing(PROMPTS, 2)[0], "again", "stop", 1))
    assert len(said) == 1
    assert "the last line was torn" in said[0]
    assert [s.text for s in read_samples(path)][-1] == "again"


def test_a_torn_header_leaves_an_empty_store(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    fill(path)
    path.write_bytes(path.read_bytes()[:30])
    with store(path) as one:
        assert len(one.missing(PROMPTS, 2)) == 4
    fill(path)
    assert len(list(read_samples(path))) == 4


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    fill(path)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2][:40]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match=r"s\.jsonl, line 3: not JSON.*remove that line"):
        store(path)
    lines[2] = b"[1]"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match="line 3: found list, expected a JSON object"):
        store(path)


def test_a_line_twice_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    fill(path)
    path.write_bytes(path.read_bytes() + path.read_bytes().split(b"\n")[1] + b"\n")
    with pytest.raises(DataError, match="problem 'a', sample 0 stands in it twice"):
        store(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "other"}, "model: the store has 'm', this run 'other'"),
        ({"task": "u"}, "task: the store has 't', this run 'u'"),
        ({"settings": Settings(0.8, 1.0, 10)}, "temperature: the store has 1.0, this run 0.8"),
        ({"settings": Settings(1.0, 0.9, 12, seed=1)}, "seed: the store has 0, this run 1"),
        ({"settings": Settings(1.0, 1.0, 10, form="plain")}, "form: the store has 'chat', this run 'plain'"),
    ],
)
def test_a_store_of_another_model_or_protocol_is_refused_with_what_differs(tmp_path: Path, changes, words) -> None:
    path = tmp_path / "s.jsonl"
    fill(path)
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        store(path, **changes)
    assert words in str(caught.value)
    assert "--fresh" in str(caught.value)
    assert path.read_bytes() == before
    store(path).close()  # and nothing is left locked


def test_another_prompt_for_a_stored_problem_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "s.jsonl")
    with (
        store(tmp_path / "s.jsonl") as one,
        pytest.raises(InputError, match="problem 'a': the store holds an"),
    ):
        one.missing({"a": [{"role": "user", "content": "1+2?"}]}, 2)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"question": 1}\n')
    with pytest.raises(DataError, match="not a sample store"):
        store(tmp_path / "s.jsonl")
    (tmp_path / "s.jsonl").write_text('{"ranktuner": "samples", "schema": 99, "task": "t"}\n')
    with pytest.raises(DataError, match="of schema 99, this version reads 1"):
        store(tmp_path / "s.jsonl")
    with pytest.raises(DataError, match="no such file"):
        list(read_samples(tmp_path / "absent.jsonl"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": -1}, "temperature -1: expected 0"),
        ({"temperature": float("inf")}, "temperature inf"),
        ({"top_p": 0}, "top_p 0: expected more than 0"),
        ({"top_p": 1.5}, "top_p 1.5"),
        ({"max_new_tokens": 0}, "max_new_tokens 0: expected at least 1"),
    ],
)
def test_impossible_settings_are_refused(settings, words: str) -> None:
    with pytest.raises(InputError) as caught:
        Settings(**settings)
    assert words in str(caught.value)


OPEN = "import sys; from ranktuner.evals.journal import Journal; Journal(sys.argv[1], {}).close()"
HOLD = """
import sys, time
from ranktuner.evals.journal import Journal
journal = Journal(sys.argv[1], {"x": 1})
print("held", flush=True)
time.sleep(60)
"""


def test_two_processes_on_one_store_are_refused_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=rf"is being written by process {other.pid}: "):
            Journal(path, {})
        with pytest.raises(InputError, match="is being written by process"):
            set_aside(path)
    finally:
        other.kill()
        other.wait()
    Journal(path, {}).close()


def test_twice_in_one_process_is_refused_too(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", {}), pytest.raises(InputError, match="already open"):
        Journal(tmp_path / "j", {})
    Journal(tmp_path / "j", {}).close()


def test_a_forked_child_does_not_keep_the_store_from_others(tmp_path: Path) -> None:
    """Grading workers of a killed run may live a little longer than it."""
    journal = Journal(tmp_path / "j", {})
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    journal.close()
    done = subprocess.run(
        [sys.executable, "-c", OPEN,
         str(tmp_path / "j")],
        check=False,
    )  # fmt: skip
    os.close(write)
    os.waitpid(child, 0)
    assert done.returncode == 0


def test_setting_aside_keeps_everything_and_never_overwrites(tmp_path: Path) -> None:
    for text in ("1\n", "2\n", "3\n"):
        (tmp_path / "j").write_text(text)
        set_aside(tmp_path / "j")
    assert not (tmp_path / "j").exists()
    assert sorted(p.read_text() for p in tmp_path.glob("j.*.old")) == ["1\n", "2\n", "3\n"]


def test_every_line_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", {"head": 1}) as journal:
        for i in range(3):
            journal.append({"i": i})
            assert [r["i"] for r in read_records(tmp_path / "j")] == list(range(i + 1))
    assert json.loads((tmp_path / "j").read_text().splitlines()[0]) == {"head": 1}


def test_problems_with_one_id_are_refused() -> None:
    from ranktuner.evals.records import Problem
    from ranktuner.evals.samples import prompts_of

    with pytest.raises(DataError, match="two problems have the id 'x'"):
        prompts_of([Problem("x", "a", "1"), Problem("x", "b", "2")], lambda p: p.question)
    assert requests_for("t", {"x": "plain"}, 1, 0, {})[0].prompt == "plain"
