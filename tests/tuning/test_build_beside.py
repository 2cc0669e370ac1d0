"""A program that ends while C is being built for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from source_path import source_path

PROGRAM = """
import os, sys, time
import torch, triton, triton.language as tl
from kerntune.base.device import Target
from kerntune.kernels.specialize import specialize
from kerntune.tuning.tune_call import build_beside

@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

build_beside(specialize(kernel, (torch.empty(64),), {"BLOCK": 64}, Target("cuda", "90")))
while not os.path.exists(os.environ["BEGUN"]):
    time.sleep(0.01)
if sys.argv[1] == "raises":
    raise SystemExit("enough")
"""

SLOW = """#!/bin/sh
touch "$BEGUN"
sleep 1
exec COMPILER "$@"
"""


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """A C compiler that takes a second longer than a short program lives."""
    path = tmp_path / "cc"
    path.write_text(SLOW.replace("COMPILER", os.environ.get("CC") or "cc"))
    path.chmod(0o755)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("end", ["returns", "raises"])
def test_nothing_is_said_and_nothing_left_when_a_program_ends(tmp_path: Path, compiler: Path, end: str) -> None:
    program, begun, scratch = tmp_path / "program.py", tmp_path / "begun", tmp_path / "scratch"
    program.write_text(PROGRAM)
    scratch.mkdir()
    quiet = {"TRITON_DEFAULT_FP_FUSION": "1"}  # or 3.9 warns of 3.10
    places = {"TMPDIR": scratch, "TRITON_CACHE_DIR": tmp_path / "cache", "CC": compiler, "BEGUN": begun}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(program), end],
        env={
            **os.environ,
            **quiet,
            "PYTHONPATH": source_path(root),
            **{name: str(path) for name, path in places.items()},
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert begun.exists(), "the compiler was running"
    assert done.stderr.strip() == ("enough" if end == "raises" else "")
    assert done.stdout == ""
    assert list(scratch.iterdir()) == []
    assert list((tmp_path / "cache").rglob("kerntune_front*.so")), "it serves the next process"
