"""Runs that are killed at any moment leave no process, no temporary folder and no file that can't be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "kill_random.py"


def test_a_killed_run_leaves_nothing(tmp_path: Path) -> None:
    """The limit is not the one that is promised: this machine may be busy. ``kill_random.json`` has the times."""
    out = tmp_path / "out.json"
    command = [sys.executable, str(SCRIPT), str(out), "--count", "24", "--limit", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["kills"] == 24
    assert found["while_running"] > 12
    assert found["most_processes"] >= 4, "forks and workers"
    for what in ("processes", "temporary_folders"):
        assert found[f"with_{what}_left"] == 0, done.stdout
    assert found["with_unreadable_files"] == 0, done.stdout
    assert found["went_on_afterwards"] == 2
