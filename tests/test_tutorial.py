"""The tutorial, followed as it stands: its files, its edit, and its commands in their order."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"
FILE = re.compile(r'```python title="([\w.]+)"\n(.*?)```', re.S)
COMMANDS = re.compile(r"```console\n(.*?)```", re.S)
EDIT = re.compile(r"replace `([^`]+)` by `([^`]+)`")

SAID = {
    "Record": (0, r"2 NEW[\s\S]*2 baselines recorded"),
    "Compare": (0, r"2 PASS"),
    "Break it": (1, r"REGRESSED[\s\S]*spill[\s\S]*because of launch options"),
    "Look at it": (1, r"REGRESSED"),
    "Accept it, or not": (0, r"2 baselines (recorded|updated)"),
    "Check the numbers": (0, r"1 passed"),
}
"""Exit status and output of the last command under a heading."""

DRAWS = importlib.util.find_spec("plotly") is not None
"""Without plotly the report is left out."""

NOT_RUN = {"Install": "makes an environment", "With a GPU": "needs a GPU"}


def sections() -> dict[str, str]:
    """The tutorial's text by heading."""
    _, *rest = re.split(r"^## (.*)\n", TUTORIAL.read_text(), flags=re.M)
    return dict(zip(rest[::2], rest[1::2], strict=True))


def test_every_command_is_followed_or_named() -> None:
    with_commands = {heading for heading, text in sections().items() if COMMANDS.search(text)}
    assert with_commands == SAID.keys() | NOT_RUN.keys()


@pytest.mark.slow
def test_it_goes_as_the_tutorial_says(tmp_path: Path) -> None:
    for heading, text in sections().items():
        for name, content in FILE.findall(text):
            (tmp_path / name).write_text(content)
        for old, new in EDIT.findall(text):
            kernels = tmp_path / "mykernels.py"
            assert old in kernels.read_text()
            kernels.write_text(kernels.read_text().replace(old, new))
        if heading in SAID and (heading != "Look at it" or DRAWS):
            commands = "".join(COMMANDS.findall(text)).splitlines()
            status, output = SAID[heading]
            done = [run(shlex.split(line[2:], comments=True), tmp_path) for line in commands if "pip" not in line][-1]
            assert done.returncode == status, f"{heading}: {done.stdout}"
            assert re.search(output, done.stdout), f"{heading}: {done.stdout}"
    assert not DRAWS or (tmp_path / "report.html").stat().st_size > 1_000_000


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A command of the tutorial, by this Python."""
    assert words[0] == "pytest"
    kept = {k: v for k, v in os.environ.items() if k not in ("CI", "BUILD_NUMBER")}
    command = [sys.executable, "-m", *words, "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False, timeout=200)
