"""A dumped launch on a real GPU: the script gives what the program's own launch gave."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fake_runs import configs, scale, scale_kernel

import kerntune
from kerntune.gpu.probe import has_cuda

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="needs a CUDA GPU")]


def test_a_dump_gives_what_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_DUMP", str(tmp_path / "dump"))
    monkeypatch.setenv("KERNTUNE_DUMP_CONTENT", "recorded")
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "cache"))
    scale(kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel))
    (place,) = (tmp_path / "dump").iterdir()
    command = [sys.executable, "-I", "-S", str(place / "replay.py")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "as recorded" in ran.stdout
