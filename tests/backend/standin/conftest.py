"""Stand-ins change the whole process, and their failures may abort it: bodies run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import kerntune

PROJECT = Path(kerntune.__file__).parent.parent
HERE = Path(__file__).parent

PREAMBLE = """
import warnings
warnings.simplefilter("error")
import torch, triton
import triton.language as tl
import pytest
from kerntune.backend.standin import Level, StandInEnd, StandIns, static_reason
from kerntune.device import typical_device, Target
import kernels as K

def stand_ins(target="cuda:90", **options):
    return StandIns(typical_device(Target.parse(target)), **options)
"""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(HERE)]), **more}


@pytest.fixture
def in_process(tmp_path: Path) -> Callable[[str], str]:
    """Run a script, after :data:`PREAMBLE`, in a process of its own; what it printed. Fails with its traceback."""

    def run(body: str) -> str:
        script = tmp_path / "script.py"
        script.write_text(PREAMBLE + textwrap.dedent(body))
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, env=environment(), timeout=300, check=False
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
