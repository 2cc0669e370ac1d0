"""Runs that are killed at any moment leave no process and no file that can't be read, and go on afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_killed_run_leaves_nothing(tmp_path: Path) -> None:
    """The limit is not the one that is promised: this machine may be busy. ``kill_random.json`` has the times. A
    temporary folder may be left until the next run makes one (docs/robustness.md)."""
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks.fuzz.kill_random", str(out), "--count", "10", "--limit", "60"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["kills"] == 10
    assert found["while_running"] > 5
    assert found["most_processes"] >= 4, "forks and workers"
    assert found["with_processes_left"] == 0, done.stdout
    assert found["with_unreadable_files"] == 0, done.stdout
    assert found["went_on_afterwards"] == 1, "the last one isn't killed"
