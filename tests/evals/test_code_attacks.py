"""Answers that try to pass without being right, or to do harm: none passes, none harms, and the next one is graded."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from code_cases import BY_INPUTS, PROBLEMS, RIGHT, SECRET, function, graded, needs_bubblewrap

from ranktuner.evals.sandbox import Ended, Limits, choose
from ranktuner.evals.sandbox_command import make_runner

pytestmark = pytest.mark.usefixtures("bubblewrap")
bubblewrap = pytest.fixture(scope="module", name="bubblewrap")(needs_bubblewrap)

EQUAL = """
class Equal{base}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __gt__ = __le__ = __ge__ = __lt__
    def __hash__(self): return 0
    def __bool__(self): return True
    def __len__(self): return 1
    def __getitem__(self, at): return self
    def __iter__(self): return iter([self])
    def __sub__(self, other): return 0
    def __abs__(self): return 0
"""
# Walks everything that can be reached in the process, and in the files it can see, for the expected value.
SEARCH = f"""
import gc, os, sys
def everything():
    frame = sys._getframe()
    while frame:
        yield from frame.f_locals.values()
        yield from frame.f_globals.values()
        frame = frame.f_back
    yield from gc.get_objects()
def shifted(numbers, by):
    wanted = {SECRET // 3} * 3
    seen = str(wanted).encode()
    for thing in everything():
        if type(thing) in (list, tuple) and any(type(v) is int and v == wanted for v in list(thing)):
            return [wanted]
        if type(thing) is dict and any(type(v) is list and wanted in v for v in list(thing.values())):
            return [wanted]
        if type(thing) in (str, bytes) and seen in (thing if type(thing) is bytes else thing.encode()):
            if b"seen = str" not in (thing if type(thing) is bytes else thing.encode()):
                return [wanted]
    for top in ("/proc/self/environ", "/proc/self/cmdline", "/proc/1/cmdline", "/proc/1/environ"):
        try:
            if seen in open(top, "rb").read():
                return [wanted]
        except OSError:
            pass
    return [0]
"""
FORGE = """
import os, sys
def shifted(numbers, by):
    frame = sys._getframe()
    while frame and "channel" not in frame.f_locals:
        frame = frame.f_back
    channel = frame.f_locals["channel"]
    for word in (b'{"verdict": true}', b'{"loaded": true}', b'{"value": {"verdict": true}}', b'{"verdict": true}'):
        channel.send(word)
    return None
"""
STRAY = """
import os
def shifted(numbers, by):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b'{"verdict": true}' * 10)
        except OSError:
            pass
    return []
"""
BUILTINS = """
import builtins, json
builtins.isinstance = lambda *_: True
builtins.type = lambda value, *_: list
builtins.len = builtins.abs = lambda *_: 0
builtins.all = builtins.any = lambda *_: True
builtins.AssertionError = builtins.Exception
"""
SERIALISER = """
import json, sys
plain = sys.modules["ranktuner.evals.inside.plain"]
plain.dumps = lambda value: b'{"any": []}'
json.dumps = lambda *_, **__: '{"verdict": true}'
"""

ATTACKS: dict[str, tuple[str, set[str]]] = {
    "exit 0 in the call": (function("import os; os._exit(0)"), {"wrong"}),
    "exit 0 when loaded": (function("return []", "import os; os._exit(0)"), {"wrong"}),
    "sys.exit in the call": (function("import sys; sys.exit(0)"), {"wrong"}),
    "sys.exit when loaded": (function("return []", "raise SystemExit(0)"), {"wrong"}),
    "an object equal to everything": (function("return Equal()", EQUAL.format(base="")), {"wrong"}),
    "an integer equal to everything": (function("return [Equal(5)]", EQUAL.format(base="(int)")), {"wrong"}),
    "a list equal to everything": (function("return Equal()", EQUAL.format(base="(list)")), {"wrong"}),
    "a string equal to everything": (function("return Equal()", EQUAL.format(base="(str)")), {"wrong"}),
    "patched builtins": (function("return [0]", BUILTINS), {"wrong"}),
    "a patched serialiser": (function("return [0]", SERIALISER), {"wrong"}),
    "a search for the expected value": (SEARCH, {"wrong"}),
    "forged frames": (FORGE, {"wrong"}),
    "stray bytes in every descriptor": (STRAY, {"wrong"}),
    "closed descriptors": (function("import os; os.closerange(0, 64); return []"), {"wrong"}),
    "exceptions of several kinds": (
        function("raise {0: AssertionError, 3: StopIteration}.get(by, KeyError)"), {"wrong"}),
    "an exception that cannot be shown": (
        function("raise Odd()", "class Odd(BaseException):\n    def __str__(self): raise SystemExit"), {"wrong"}),
    "a reply of 200 MB": (function("return 'x' * 200_000_000"), {"wrong", "timeout"}),
    "a reply of a million lists": (function("return [[] for _ in range(1_000_000)]"), {"wrong", "timeout"}),
    "a set that takes hours to build": (
        'FORGED = b\'{"value":{"set":[\' + b",".join(b"%d" % (n * (2**61 - 1)) for n in range(1, 60000)) + b"]}}"\n'
        + FORGE.replace("for word in", "channel.send(FORGED)\n    for word in"), {"wrong", "timeout"}),
    "a list that holds itself": (function("a = []; a += [a, a]; return a"), {"wrong"}),
    "a generator without end": (function("while True: yield 1"), {"wrong", "timeout"}),
    "a crash of the interpreter": (function("import ctypes; ctypes.string_at(0)"), {"wrong"}),
    "recursion without end": (
        function("import sys; sys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1) + 1\nreturn f(0)"),
        {"wrong", "timeout"}),
    "a signal to the parent": (
        function("import os, signal; os.kill(os.getppid(), signal.SIGKILL); return []"), {"wrong"}),
    "a signal to everybody": (function("import os, signal; os.kill(-1, signal.SIGKILL); return []"), {"wrong"}),
    "one huge allocation": (function("return 'x' * 10**11"), {"wrong"}),
    "an endless loop": (function("while True: pass"), {"timeout"}),
    "a loop that cannot be interrupted": (
        function("import time\nwhile True:\n    try: time.sleep(9)\n    except BaseException: pass"), {"timeout"}),
    "an endless loop when loaded": (function("return []", "while True: pass"), {"timeout"}),
    "signals ignored": (
        function("import signal\nfor s in range(1, 64):\n    try: signal.signal(s, signal.SIG_IGN)\n"
                 "    except OSError: pass\nwhile True: pass"), {"timeout"}),
    "one integer without end": (function("return 9 ** 9 ** 9"), {"timeout"}),
    "a fork bomb": (
        function("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"), {"timeout", "wrong"}),
    "a thread bomb": (
        function("import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(9,)).start()"),
        {"timeout", "wrong"}),
}  # fmt: skip


WAITING = {name for name, (_, verdicts) in ATTACKS.items() if verdicts == {"timeout"}} - {"an endless loop"}
"""Attacks that take their whole time: one kind of problem is enough for most of them."""
CASES = [(name, kind) for name in ATTACKS for kind in ("inputs", "tests") if kind == "inputs" or name not in WAITING]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_no_attack_passes_and_the_next_answer_is_graded(name: str, kind: str) -> None:
    text, verdicts = ATTACKS[name]
    began = time.monotonic()
    attack, control = graded(PROBLEMS[kind], text, RIGHT, seconds=1.0)
    assert attack.verdict in verdicts, attack
    assert "\n" not in attack.why
    assert len(attack.why) <= 500
    assert control.verdict == "correct", control
    assert time.monotonic() - began < 60
    assert_nothing_left()


def assert_nothing_left() -> None:
    """No sandboxed process outlives its conversation (it may take the kernel a moment to end a namespace)."""
    for _ in range(50):
        left = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_ours(pid)]
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError(f"processes left behind: {left}")


def _is_ours(pid: int) -> bool:
    """Of this test run: another one on the same machine has sandboxes of its own."""
    with contextlib.suppress(OSError):
        if b"ranktuner.evals.inside.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
            status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return status[0] != "Z" and _descends(pid)
    return False


def _descends(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        with contextlib.suppress(OSError, IndexError):
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            continue
        return False
    return False


def test_an_answer_that_forked_a_daemon_leaves_no_process() -> None:
    """The daemon changes its session and loses its parent, and rewrites nothing else: it is found by its folder."""
    daemon = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
"""
    (right,) = graded(BY_INPUTS, function(daemon + RIGHT.strip()))
    assert right.verdict == "correct"
    for _ in range(50):
        left = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if _runs_a_child(int(pid), make_runner()[0])]
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError(f"processes left behind: {left}")


def _runs_a_child(pid: int, runner: Path) -> bool:
    """Whether the process sees our runner folder mounted, as all in our sandboxes do."""
    with contextlib.suppress(OSError):
        return pid != os.getpid() and runner.name in Path(f"/proc/{pid}/mountinfo").read_text()
    return False


def test_a_flood_of_output_is_no_harm_and_no_verdict() -> None:
    noise = "import sys\nfor _ in range(200):\n    print('x' * 1_000_000)\nsys.stderr.write('y' * 10_000_000)\n"
    flood = function(noise + RIGHT.strip())
    quiet, wrong = graded(BY_INPUTS, flood, flood.replace("+ by", "- by"))
    assert (quiet.verdict, wrong.verdict) == ("correct", "wrong")


@pytest.fixture
def listener() -> Iterator[tuple[int, list[str]]]:
    """A server on loopback, and who came."""
    came: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        stop = threading.Event()

        def accept() -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    came.append(str(server.accept()[1]))

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1], came
        stop.set()
        thread.join()


def test_no_network(listener: tuple[int, list[str]]) -> None:
    port, came = listener
    body = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=2)\n{RIGHT.strip()}"
    (answer,) = graded(BY_INPUTS, function(body))
    assert answer.verdict == "wrong"
    assert "raised" in answer.why
    assert not came
    with socket.create_connection(("127.0.0.1", port)):  # the listener does listen
        time.sleep(0.5)
    assert came


def test_no_files_outside(tmp_path: Path) -> None:
    """Nothing of ours can be read or changed; installed packages (they may hold data sets) are not there."""
    kept = tmp_path / "kept.txt"
    kept.write_text("untouched")
    home = Path.home()
    body = f"""
import os
found = []
for path in ({str(kept)!r}, {__file__!r}, {str(home)!r} + "/.bashrc", "/etc/passwd", "/etc/shadow"):
    try:
        open(path).read(); found.append(path)
    except OSError:
        pass
for path in ({str(kept)!r}, {str(tmp_path)!r} + "/new", "/new", "/usr/lib/new", "/dev/shm/new",
             "/runner/new", "/proc/1/mem", "/proc/sys/kernel/hostname"):
    try:
        open(path, "w").write("harm"); found.append(path)
    except OSError:
        pass
for folder in ({str(tmp_path)!r}, {str(home)!r} + "/.ssh", "/etc/ssl", "/var", "/sys"):
    if os.path.exists(folder):
        found.append(folder)
try:
    import pytest; found.append("pytest")
except ImportError:
    pass
open("/tmp/mine", "w").write("allowed")
raise ValueError(found)
"""
    (answer,) = graded(BY_INPUTS, function(body))
    assert answer.why.endswith("raised ValueError: []"), answer.why
    assert kept.read_text() == "untouched"
    assert os.listdir(tmp_path) == ["kept.txt"]


CALLS = {
    "unshare": "libc.unshare(0x10000000)",  # a user namespace of one's own
    "ptrace": "libc.ptrace(0, 0, 0, 0)",
    "memfd_create": "libc.memfd_create(b'x', 0)",
    "socket": "libc.socket(40, 1, 0)",  # AF_VSOCK: to the host of a virtual machine, past every network namespace
    "mount": "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
    "setuid": "libc.setuid(0)",
    "chroot": "libc.chroot(b'/tmp')",
}


@pytest.mark.parametrize("name", list(CALLS))
def test_system_calls_that_lead_out_are_refused(name: str) -> None:
    body = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
raise ValueError({CALLS[name]}, ctypes.get_errno())
"""
    (answer,) = graded(BY_INPUTS, function(body))
    assert answer.why.endswith("raised ValueError: (-1, 1)"), answer.why  # EPERM


def _ask(program: str, limits: Limits, seconds: float = 20.0) -> bytes:
    """Run `f()` of the program with other limits than the grader's."""
    job = {"role": "serve", "text": program, "prompt": "", "entry_point": "f", "exact": True}
    with choose().converse(job, limits) as conversation:
        deadline = time.monotonic() + seconds
        for _ in range(2):  # read, loaded
            conversation.receive(deadline)
        conversation.send(b'[[[],{"dict":[]}]]', deadline)
        return conversation.receive(deadline)


SMALL = Limits(memory_bytes=400 << 20, scratch_bytes=8 << 20, file_bytes=1 << 20)


def test_memory_is_limited_in_one_process() -> None:
    assert b"MemoryError" in _ask("def f():\n    kept = [bytearray(10**7) for _ in range(100)]\n", SMALL)


def test_memory_is_limited_in_all_processes_together() -> None:
    program = """
import os, time
def f():
    for _ in range(6):
        if os.fork() == 0:
            kept = b"x" * 150_000_000
            time.sleep(60)
    time.sleep(60)
"""
    with pytest.raises(Ended, match=r"used more than 0\.4 GiB of memory"):
        _ask(program, SMALL)


@pytest.mark.parametrize("pages", ["-1", "os.open('/dev/zero', os.O_RDWR)"])
def test_shared_memory_that_nobody_counts_is_refused(pages: str) -> None:
    """Its pages stay in memory after `madvise(MADV_DONTNEED)`, but in no process's resident size."""
    program = f"import mmap, os\ndef f():\n    return mmap.mmap({pages}, 1 << 20)[0]\n"
    assert b"PermissionError" in _ask(program, SMALL)
    private = program.replace("1 << 20)", "1 << 20, flags=mmap.MAP_PRIVATE)")
    assert _ask(private, SMALL) == b'{"value":0}'


def test_scratch_space_is_limited() -> None:
    program = "def f():\n    for i in range(100):\n        open(f'/tmp/{i}', 'wb').write(b'x' * 900_000)\n"
    assert b"No space left" in _ask(program, SMALL)
    assert b"File too large" in _ask("def f():\n    open('/tmp/a', 'wb').write(b'x' * 2_000_000)\n", SMALL)


def test_processor_time_is_limited_besides_the_clock() -> None:
    with pytest.raises(Ended, match="ended before it answered"):
        _ask("def f():\n    while True: pass\n", Limits(cpu_s=1))
