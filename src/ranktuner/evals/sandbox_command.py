"""The command lines of the sandbox, the folder it runs from, and a look at the processes it started."""

from __future__ import annotations

import atexit
import compileall
import contextlib
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ranktuner.evals import seccomp

PACKAGES = ("numpy",)
"""Packages that a solution or a test may import, where they are installed, besides the standard library."""
PYTHON = ["-s", "-S", "-P", "-B", "-c", "from ranktuner.evals.inside.child import main; main()"]
SYSTEM = (
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/nix/store",
)
"""What an interpreter needs to load; no programs (/usr/bin), no configuration, no home."""


@functools.cache
def make_runner() -> tuple[Path, tuple[Path, ...]]:
    """Return a folder with a copy of `inside/` that every user may read, and the packages to show."""
    folder = Path(tempfile.mkdtemp(prefix="ranktuner-runner-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    inside = (
        folder / "ranktuner" / "evals" / "inside"
    )  # without __init__ above it: a namespace package, nothing of ours
    inside.mkdir(parents=True)
    for source in (Path(__file__).parent / "inside").glob("*.py"):
        shutil.copyfile(source, inside / source.name)
    compileall.compile_dir(inside, quiet=2)
    (folder / "filter.bpf").write_bytes(seccomp.program() or b"")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder, tuple(_package_paths())


def _package_paths() -> list[Path]:
    found = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            package = Path(spec.origin).parent
            found += [p for p in (package, package.with_name(f"{name}.libs")) if p.is_dir()]
    return found


def interpreter() -> str:
    """Return the real program of the interpreter, outside any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


@functools.cache
def _options(bwrap: str) -> str:
    return subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False).stdout


def bubblewrap_command(
    bwrap: str, runner: Path, packages: tuple[Path, ...], scratch_bytes: int
) -> tuple[list[str], list[int]]:
    """Return the command, and the descriptors that it must inherit.

    As root no user namespace is made: the mounts are set up with root's rights, and the process then becomes a user
    that nobody else is (`child.confine`), for whom the limit on processes holds; for root in a namespace it would not.
    """
    argv = [bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    argv += ["--hostname", "sandbox", "--die-with-parent", "--cap-drop", "ALL"]
    if os.getuid() == 0:
        argv += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_CHOWN"]
    else:
        argv += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
        argv += ["--disable-userns"] if "--disable-userns" in _options(bwrap) else []
    argv += _mounts(runner, packages)
    argv += ["--size", str(scratch_bytes)] if "--size" in _options(bwrap) else []
    argv += ["--tmpfs", "/tmp", "--chmod", "1777", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"]
    descriptors = []
    if (runner / "filter.bpf").stat().st_size:
        descriptors.append(os.open(runner / "filter.bpf", os.O_RDONLY))
        argv += ["--seccomp", str(descriptors[0])]
    return [*argv, interpreter(), *PYTHON], descriptors


@functools.cache
def _mounts(runner: Path, packages: tuple[Path, ...]) -> list[str]:
    roots = [*SYSTEM, os.path.join(sys.base_prefix, "lib"), interpreter()]
    parents = {
        str(p) for root in roots if not os.path.islink(root) and os.path.exists(root) for p in Path(root).parents
    }
    argv = [word for p in sorted(parents | {"/packages"}) if p != "/" for word in ("--perms", "0755", "--dir", p)]
    shown: list[str] = []
    for root in roots:  # directories in between would be made for root alone
        if os.path.islink(root) and root in SYSTEM:
            argv += ["--symlink", os.readlink(root), root]
        elif os.path.exists(root) and not any(root == s or root.startswith(s + "/") for s in shown):
            argv += ["--ro-bind", root, root]
            shown.append(root)
    for root in shown:  # other people's packages may hold the very data sets that are asked
        for pattern in ("python3*/site-packages", "python3*/dist-packages"):
            for folder in sorted(Path(root).glob(pattern)):
                argv += ["--tmpfs", str(folder), "--remount-ro", str(folder)]
    for package in packages:
        argv += ["--ro-bind", str(package), f"/packages/{package.name}"]
    argv += ["--ro-bind", str(runner), "/runner"]
    return [*argv, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]


def limited_command() -> list[str]:
    """Return the command of the fall-back: the interpreter alone."""
    return [interpreter(), *PYTHON]


def processes_of(pid: int) -> list[int]:
    """Return `pid` and all that descend from it; orphans go to the first process of a namespace, so stay in it."""
    found = [pid]
    for parent in found:  # grows while it is walked
        with contextlib.suppress(OSError, ValueError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children") as file:
                    found += map(int, file.read().split())
    return found


TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def usage(pid: int) -> tuple[int, float]:
    """Return (resident bytes, processor seconds) of a process and its descendants; what is gone counts nothing."""
    memory, ticks = 0, 0
    for process in processes_of(pid):
        with contextlib.suppress(OSError, IndexError, ValueError):
            with open(f"/proc/{process}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # user, system, and of children that have ended
            memory += int(fields[21]) * PAGE
    return memory, ticks / TICKS
