"""Stand-ins change the whole process, and their failures may abort it: bodies run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import Copies
from source_path import source_path

import kerntune

PROJECT = Path(kerntune.__file__).parent.parent
HERE = Path(__file__).parent

PREAMBLE = """
import warnings
warnings.simplefilter("error")
import torch, triton
from kerntune.gpu.fake_cuda import StandInEnd, StandIns, static_reason
from kerntune.base.device import typical_device, Target
import kernels as K

def stand_ins(target="cuda:90", **options):
    return StandIns(typical_device(Target.parse(target)), **options)
"""


def environment() -> dict[str, str]:
    """With the project and the kernels of these tests importable."""
    # Triton 3.9 warns once of a default that will change; here, warnings are errors
    more = {"PYTHONPATH": source_path(PROJECT, HERE), "TRITON_DEFAULT_FP_FUSION": "1"}
    return {**os.environ, **more}


def run_python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python on ``arguments``, all imports included: what stand-ins replace, torch may have listed before."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=cwd, timeout=300, check=False)


@pytest.fixture
def in_process(tmp_path: Path, copies: Copies) -> Callable[[str], str]:
    """Run a script, after :data:`PREAMBLE`, in a process of its own; what it printed. Fails with its traceback."""

    def run(body: str) -> str:
        script = tmp_path / "script.py"
        script.write_text(PREAMBLE + textwrap.dedent(body))
        done = copies.run(str(script), cwd=tmp_path, env=environment())
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
