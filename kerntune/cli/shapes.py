"""``kerntune shapes``: the calls that a program makes of tuned kernels, noted in a file."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tabulate import tabulate

from kerntune.base.tuning_job import TuningJob
from kerntune.cli.static_record import environment
from kerntune.errors import UsageError
from kerntune.gate.console import CONFIG_WIDTH, counted, fail_with, say
from kerntune.tuning.many.shapes_file import SHAPES, ShapesFile

STARTUP = Path(__file__).resolve().parents[2] / "kerntune" / "tuning" / "many" / "startup"
"""What a program's Python imports first, so that ``triton.autotune`` is noted as well."""


def record(args: argparse.Namespace) -> int:
    """Run a command whose processes note calls and tune nothing; its own exit code, or 1 if it noted nothing."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("give the command to run: kerntune shapes record -- python train.py")
    file = ShapesFile(Path(os.path.abspath(args.output)))
    before = len(file.read()[0]) if file.path.exists() else 0
    try:
        code = subprocess.call(command, env=noting_environment(file.path))
    except OSError as exc:
        raise UsageError(f"{command[0]}: can't be run ({exc.strerror})") from exc
    return _report(file, before, code)


def noting_environment(file: Path) -> dict[str, str]:
    """An environment in which every Python process notes calls in ``file``."""
    ours: Mapping[str, str] = environment()
    return {**ours, SHAPES: str(file), "PYTHONPATH": os.pathsep.join([str(STARTUP), ours["PYTHONPATH"]])}


def _report(file: ShapesFile, before: int, code: int) -> int:
    jobs, damaged = file.read() if file.path.exists() else ([], [])
    findings = list(damaged)
    if not jobs:
        findings.append(
            "no call of a tuned kernel was noted: does the command launch any, in a Python that has kerntune, and not "
            "with -I or -S?"
        )
    kernels = len({job.name for job in jobs})
    say(f"{file.path}: {counted(len(jobs), 'call')} of {counted(kernels, 'kernel')}, {len(jobs) - before} of them new")
    if jobs:
        say(f"tune them with: kerntune tune --shapes {file.path}")
    return code or fail_with(findings)


def show(args: argparse.Namespace) -> int:
    """Print the calls of a file by kernel; 1 if some can't be tuned from it."""
    findings: list[str] = []
    jobs: list[TuningJob] = []
    for name in args.files:
        found, damaged = ShapesFile(Path(name)).read()
        jobs += found
        findings += damaged
    say(table(jobs))
    return fail_with([*findings, *(f"{job}: {job.unknown}" for job in jobs if job.unknown)])


def table(jobs: Sequence[TuningJob]) -> str:
    """A row a kernel: how many keys, and the first of them."""
    counts = Counter(job.name for job in jobs)
    first = {job.name: job for job in reversed(jobs)}
    rows = [(name, count, first[name].key, first[name].file) for name, count in sorted(counts.items())]
    headers = ("kernel", "keys", "first key", "file")
    widths = [None, None, CONFIG_WIDTH, None]
    return str(tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True, maxcolwidths=widths))
