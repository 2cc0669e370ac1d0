"""How long a terminal stays silent: the longest time between two outputs of a run on a pseudo-terminal, without a GPU.

    python -m benchmarks.silence [OUT.json] [--only examples compiled bisect]

Each run is recorded by ``script`` (util-linux) with the time of every output. ``examples`` is the demo and ``compiled``
the twelve functions of :mod:`benchmarks.ops.cold_cases`, both with empty caches and counted from pytest's header on;
``bisect`` goes over twelve commits of the tutorial's project, counted from the command's start.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import harness

TARGET = "cuda:90"
ROOT = Path(__file__).parents[1]
HEADER = b"test session starts"
COMMITS = 12
EDITS = ("num_warps=4", "num_warps=1, maxnreg=24")
BLOCK = re.compile(r'```python title="([\w.]+)"\n(.*?)```', re.S)
CODES = re.compile(rb"\x1b\[[\d;]*[A-Za-z]")


def recorded(command: list[str], folder: Path, log: Path, after: bytes = b"") -> dict[str, Any]:
    """Run a command on a terminal of 100 columns; its longest silences after the text ``after``."""
    caches = ("KERNTUNE_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    own = {name: str(log.with_suffix("") / name.lower()) for name in caches}
    environment = {**harness.child_environment(**own), "TERM": "xterm-256color", "COLUMNS": "100"}
    environment.pop("CI", None)
    times, out = log.with_suffix(".times"), log.with_suffix(".out")
    done = subprocess.run(
        ["script", "-q", "-e", "-c", shlex.join(command), "-O", str(out), "-T", str(times)],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    data = out.read_bytes().partition(b"\n")[2]  # the first line is script's own
    return {"exit": done.returncode, **silences(data, times.read_text(), after)}


def silences(data: bytes, times: str, after: bytes) -> dict[str, Any]:
    """The longest gap and what stood last on the terminal then, how many outputs there were, and seconds in all."""
    at, gaps, seconds, begin = 0, [], 0.0, data.find(after) if after else 0
    for line in times.splitlines():
        gap, count = line.split()
        if at > begin or not after:
            gaps.append((float(gap), at))
            seconds += float(gap)
        at += int(count)
    longest = sorted(gaps, reverse=True)[:3]
    said = [CODES.sub(b"", data[:end])[-90:].decode(errors="replace") for _, end in longest]
    return {
        "longest_silence_s": round(longest[0][0], 2),
        "then": [[round(gap, 2), text] for (gap, _), text in zip(longest, said, strict=True)],
        "outputs": len(gaps),
        "seconds": round(seconds, 1),
    }


def pytest_command(*words: str) -> list[str]:
    options = [*harness.plugin_options(), "-p", "no:cacheprovider", "-p", "no:xdist"]
    return [sys.executable, "-m", "pytest", *options, "--kerntune", *words]


def examples(folder: Path) -> dict[str, Any]:
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copytree(ROOT / "baselines", folder / "baselines")
    return recorded(pytest_command("examples"), folder, folder / "log", HEADER)


def compiled(folder: Path) -> dict[str, Any]:
    shutil.copy(ROOT / "benchmarks/ops/cold_cases.py", folder / "test_cold.py")
    return recorded(pytest_command(f"--kerntune-target={TARGET}"), folder, folder / "log", HEADER)


def bisect(folder: Path) -> dict[str, Any]:
    project = folder / "project"
    project.mkdir()
    for name, text in BLOCK.findall((ROOT / "docs/tutorial.md").read_text()):
        (project / name).write_text(text)
    kernels = project / "mykernels.py"
    git = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(COMMITS + 1):
        text = kernels.read_text()
        if number == COMMITS - 4:
            text = text.replace(*EDITS)
        kernels.write_text(f"{text}\nNUMBER_{number} = {number}\n")
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"commit {number}"], check=True)
    command = [sys.executable, "-m", "kerntune.cli", "bisect", f"HEAD~{COMMITS}", "HEAD", "--target", TARGET]
    return recorded([*command, "--", "test_softmax.py"], project, folder / "log")


RUNS = {"examples": examples, "compiled": compiled, "bisect": bisect}


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    options = parser.parse_args()
    report: dict[str, Any] = {**harness.environment(commit=harness.commit()), "load": os.getloadavg(), "runs": {}}
    with harness.scratch() as scratch:
        for name in options.only:
            folder = Path(scratch) / name
            folder.mkdir()
            report["runs"][name] = RUNS[name](folder)
            print(name, json.dumps(report["runs"][name], indent=1), flush=True)
    if options.out is not None:
        harness.write(options.out, report)


if __name__ == "__main__":
    main()
