"""The Triton kernels where no GPU is: run by the interpreter, compiled for real architectures, else refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from ranktuner.errors import UnsupportedError
from ranktuner.kernels import rows

HERE = Path(__file__).parent
pytest.importorskip("triton", reason="the package triton is not installed")


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON_", "RANKTUNER_ROWS"))}
    return subprocess.run(
        [sys.executable, *arguments], cwd=HERE.parents[1], env=own | environment, capture_output=True, text=True
    )


def test_kernels_in_the_interpreter() -> None:
    """`pytest tests/kernels/interpreted_triton.py`, with TRITON_INTERPRET=1, in a process of its own."""
    file = str(HERE / "interpreted_triton.py")
    done = python("-m", "pytest", file, "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    dots = re.findall(r"^([.]+) +\[", done.stdout, re.MULTILINE)
    assert sum(map(len, dots)) > 80, done.stdout[-2000:]


@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="the interpreter compiles nothing")
@pytest.mark.parametrize(("architecture", "dtype"), list(product((80, 90, 100), ("bf16", "fp16", "fp32"))))
def test_kernels_compile_for_real_gpus(architecture: int, dtype: str, tmp_path: Path) -> None:
    """Down to machine code, without a GPU: the interpreter takes Python that the compiler does not."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from ranktuner.kernels import triton_rows

    def build(kernel: Any, columns: dict[str, str], warps: int, **constants: Any) -> Any:
        signature = (
            {"logits": f"*{dtype}"} | columns | {"stride": "i64", "V": "i32"} | dict.fromkeys(constants, "constexpr")
        )
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        options = {"num_warps": warps, "enable_fp_fusion": True}
        return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)

    fp32 = "*fp32"
    columns = {"label_logit": f"*{dtype}", "top": fp32, "total": fp32, "weighted": fp32, "rank": "*i32"}
    sizes = {"DEPTH": triton_rows.DEPTH, "LANES": triton_rows.LANES}
    built = [build(triton_rows._statistics, columns, triton_rows.STATISTICS_WARPS, **sizes)]
    columns = dict.fromkeys(("lse", "w_nll", "w_entropy", "entropy"), fp32)
    for softcap, entropy in ((None, False), (30.0, True)):
        constants = {"SOFTCAP": softcap, "WITH_ENTROPY": entropy, "TILE": triton_rows.TILE}
        built.append(build(triton_rows._gradient, columns, triton_rows.WARPS, **constants))
    for kernel in built:
        assert kernel.asm["cubin"]
        assert "local" not in re.sub(r"//.*", "", kernel.asm["ptx"]), "registers spilled to memory"
    if dtype == "bf16":
        assert "cvt.rn" in built[1].asm["ptx"], "gradients are rounded to the nearest, not cut off"


@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="with the interpreter it would run")
def test_a_cpu_without_the_interpreter_is_refused_with_the_way_out() -> None:
    logits = torch.zeros(4, 9)
    message = r"runs on CUDA devices, and these logits are on cpu: use RANKTUNER_ROWS=auto; .*TRITON_INTERPRET=1"
    with pytest.raises(UnsupportedError, match=message):
        rows.choose(logits, "triton")


def test_without_the_package_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_has_triton", lambda: False)
    with pytest.raises(UnsupportedError, match=r"needs the package 'triton', which is not installed: pip install"):
        rows.choose(torch.zeros(4, 9), "triton")


def test_triton_is_imported_only_where_it_is_asked_for() -> None:
    code = """
import sys, torch
before = set(sys.modules)
from ranktuner.kernels import rows, signals_from_hidden
h, w = torch.randn(5, 4, requires_grad=True), torch.randn(9, 4)
signals_from_hidden(h, w, torch.arange(5)).nll.sum().backward()
print([m for m in set(sys.modules) - before if m.startswith("triton") or "triton_rows" in m])
"""
    done = python("-c", code)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
