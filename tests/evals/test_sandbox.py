"""Choosing the sandbox, the fall-back with its flag, and what the sandbox shows of the machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest
from code_cases import BY_INPUTS, BY_TESTS, RIGHT, function, needs_bubblewrap, sample

from ranktuner.errors import UnsupportedError
from ranktuner.evals import sandbox, seccomp
from ranktuner.evals.graders.python_code import grade
from ranktuner.evals.sandbox import Ended, Limits, Sandbox
from ranktuner.evals.sandbox_command import interpreter, make_runner

bubblewrap = pytest.fixture(scope="module", name="bubblewrap")(needs_bubblewrap)
FORK = "import os, time\ntry: child = os.fork()\nexcept OSError: child = 1\n"  # an ordinary user may have no more left
REFUSAL = r"no sandbox to run generated code in: {why}\. Install it \(apt-get install bubblewrap\).*--allow-unsafe"


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which bubblewrap does not work."""
    monkeypatch.setattr(sandbox, "bubblewrap_or_reason", lambda: "bubblewrap (bwrap) is not installed")


@pytest.mark.usefixtures("absent")
def test_without_bubblewrap_code_is_refused_unless_asked_for() -> None:
    with pytest.raises(UnsupportedError, match=REFUSAL.format(why=r"bubblewrap \(bwrap\) is not installed")):
        grade([])  # at once, not when the first grade is asked for
    assert sandbox.choose(allow_unsafe=True).kind == "limited process"
    assert "NOT a sandbox" in sandbox.choose(allow_unsafe=True).describe()


def test_bubblewrap_that_cannot_make_namespaces_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    sandbox.bubblewrap_or_reason.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match=r"does not work here .*No permissions to create new namespace"):
            sandbox.choose()
    finally:
        sandbox.bubblewrap_or_reason.cache_clear()


@pytest.mark.usefixtures("absent")
def test_the_limited_process_grades_and_limits() -> None:
    texts = {
        RIGHT: "correct",
        RIGHT.replace("+", "-"): "wrong",
        function("return [[]] * 10**9 and 'x' * 10**11"): "wrong",
        function("import os; os._exit(0)"): "wrong",
        function("print('x' * 10**8); return []"): "wrong",
        function("while True: pass"): "timeout",
        function("import time; time.sleep(60)"): "timeout",
    }
    for problem in (BY_INPUTS, BY_TESTS):
        items = [(problem, sample(problem, text)) for text in texts]
        assert [g.verdict for g in grade(items, seconds=0.5, allow_unsafe=True)] == list(texts.values())


@pytest.mark.usefixtures("absent")
def test_the_limited_process_ends_its_children_and_leaves_no_folder(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    child = f"{FORK}if child == 0:\n    time.sleep(1.5)\n    open({str(mark)!r}, 'w').write(os.getcwd())\n"
    where = tmp_path / "where"
    body = f"{child}open({str(where)!r}, 'w').write(os.getcwd())\n{RIGHT.strip()}"
    (answer,) = grade([(BY_INPUTS, sample(BY_INPUTS, function(body)))], allow_unsafe=True)
    assert answer.verdict == "correct"
    assert not Path(where.read_text()).exists()
    time.sleep(2)
    assert not mark.exists()


def ask(expression: str, limits: Limits | None = None) -> str:
    """The value of an expression inside the sandbox."""
    job = {"role": "serve", "text": f"def f():\n    return repr({expression})", "prompt": "", "entry_point": "f"}
    found = sandbox.choose()
    with found.converse({**job, "exact": True}, limits or Limits()) as conversation:
        deadline = time.monotonic() + 10
        conversation.receive(deadline)
        conversation.receive(deadline)
        conversation.send(b'[[[],{"dict":[]}]]', deadline)
        return conversation.receive(deadline).decode()


@pytest.mark.usefixtures("bubblewrap")
def test_inside_there_is_little_to_see() -> None:
    assert ask("__import__('os').environ.get('HOME')") == '{"value":"\'/tmp\'"}'
    assert ask("sorted(__import__('os').environ)").count("SECRET") == 0
    assert ask("sorted(p for p in __import__('os').listdir('/proc') if p.isdigit())") == "{\"value\":\"['1', '2']\"}"
    assert ask("__import__('os').listdir('/tmp')") == '{"value":"[]"}'
    assert ask("__import__('os').getuid() == 0") == '{"value":"False"}'
    assert ask("[l for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapPrm'))]").count("0" * 16) == 2
    assert (
        ask("[l for l in open('/proc/self/status') if l.startswith('NoNewPrivs')][0].split()[1]") == '{"value":"\'1\'"}'
    )
    assert ask("len(__import__('os').listdir('/sys/class/net'))").startswith('{"raised"')
    lines = ask("open('/proc/net/dev').read().count(':')")
    assert lines == '{"value":"1"}'  # loopback, of its own


@pytest.mark.usefixtures("bubblewrap")
def test_the_environment_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert ask("__import__('os').environ.get('HF_TOKEN')") == '{"value":"None"}'


@pytest.mark.usefixtures("bubblewrap")
def test_numpy_may_be_imported_and_other_packages_not() -> None:
    assert ask("int(__import__('numpy').arange(4).sum())") == '{"value":"6"}'
    assert "ModuleNotFoundError" in ask("__import__('pytest')")


@pytest.mark.usefixtures("bubblewrap")
def test_a_process_that_never_answers_ends_at_its_deadline() -> None:
    job = {"role": "serve", "text": "import time\ntime.sleep(60)", "prompt": "", "entry_point": "f", "exact": True}
    with sandbox.choose().converse(job, Limits()) as conversation:
        conversation.receive(time.monotonic() + 10)
        began = time.monotonic()
        with pytest.raises(Ended, match="no answer within the time limit") as ended:
            conversation.receive(began + 0.3)
        assert ended.value.kind == "timeout"
        assert 0.3 <= time.monotonic() - began < 2
        with pytest.raises(Ended):  # a pipe that is full, with nobody reading
            conversation.send(b"x" * 10_000_000, time.monotonic() + 0.3)


def test_an_ordinary_user_gets_the_sandbox_too() -> None:
    """As another user than root, bubblewrap needs a user namespace; the tests usually run as root in a container."""
    if os.getuid() != 0:
        pytest.skip("not root: every other test is this test")
    python, recent = "/usr/bin/python3", "import sys; assert sys.version_info >= (3, 11)"
    if not Path(python).exists() or subprocess.run([python, "-c", recent], check=False).returncode:
        pytest.skip("no interpreter of the system, 3.11 or newer, that an ordinary user may read")
    source = Path(sandbox.__file__).parents[2]
    if not all(os.stat(p).st_mode & 0o005 == 0o005 for p in [source, *source.parents]):
        pytest.skip("the sources are in a folder that an ordinary user may not read")
    program = """
from code_cases import BY_INPUTS, RIGHT, function, sample
from ranktuner.evals import sandbox
from ranktuner.evals.graders.python_code import grade
bomb = function("import os\\nwhile True:\\n    try: os.fork()\\n    except OSError: pass")
items = [(BY_INPUTS, sample(BY_INPUTS, text)) for text in (RIGHT, "return 0", bomb)]
print(sandbox.choose().kind, [g.verdict == "correct" for g in grade(items, seconds=1.0)])
"""
    folders = f"{source}:{Path(__file__).parent}"
    done = subprocess.run(
        [python, "-c", f"import sys, types; sys.modules['pytest'] = types.ModuleType('pytest')\n{program}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": folders, "PYTHONDONTWRITEBYTECODE": "1"},
        user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if "does not work here" in done.stderr:
        pytest.skip(f"no user namespaces for ordinary users: {done.stderr.strip().splitlines()[-1][:200]}")
    assert done.stdout.strip() == "bubblewrap [True, False, False]", done.stderr


def test_the_filter_is_a_program_for_this_machine() -> None:
    program = seccomp.program()
    if platform.machine() not in seccomp.MACHINES:
        assert program is None
        return
    assert program is not None
    assert len(program) % 8 == 0
    assert len(program) // 8 == 2 * len(seccomp.REFUSED) + 18
    assert len({numbers[0] for numbers in seccomp.REFUSED.values()}) == len(seccomp.REFUSED)
    assert len({numbers[1] for numbers in seccomp.REFUSED.values()}) == len(seccomp.REFUSED)


def test_what_is_copied_inside_needs_nothing_but_the_standard_library() -> None:
    runner, _ = make_runner()
    assert sorted(p.name for p in (runner / "ranktuner" / "evals" / "inside").glob("*.py")) == [
        "__init__.py", "answer.py", "child.py", "plain.py",
    ]  # fmt: skip
    done = subprocess.run(
        [interpreter(), "-s", "-S", "-P", "-c", "import ranktuner.evals.inside.child"],
        env={"PYTHONPATH": str(runner)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_another_system_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedError, match=r"code is graded on Linux only \(this is darwin\): use a container"):
        sandbox.choose()


def test_descriptions_say_what_is_not_protected() -> None:
    assert "no network" in Sandbox("bubblewrap", "/usr/bin/bwrap").describe()
    assert "It does not protect from" in str(sandbox.__doc__)
