"""``kerntune bisect``: its arguments, its answer, its exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kerntune.base.temporary_folders import scratch_folder
from kerntune.cli.bisect.bisected_version import (
    BisectedProject,
    BisectedVersion,
    TritonChoice,
    commits_between,
    project_at,
    triton_choices,
)
from kerntune.cli.bisect.bisection import Bisection, Conclusion, installed_only, over_both
from kerntune.cli.bisect.judging import VersionJudge
from kerntune.errors import KerntuneError, UsageError
from kerntune.gate import git
from kerntune.gate.baselines import BaselineStore
from kerntune.gate.console import FINDINGS, OK, complain, counted, error_text, say
from kerntune.gate.project import baseline_folder
from kerntune.gpu.probe import has_cuda

GOOD, BAD, CANT_TELL, STOP = 0, 1, 125, 128
"""Exit codes of ``--check``, as ``git bisect run`` reads them: 125 skips a commit, 128 and more end the bisection."""

PER_PROCESS = 4
"""Cores for each version that is compiled at the same time."""


def run(args: argparse.Namespace) -> int:
    """Bisect, or check the working tree; the exit code."""
    if args.processes is not None and args.processes < 1:
        raise UsageError(f"--processes: {args.processes} is too few; give 1 or more")
    return _check(args) if args.check else _bisect(args)


def _bisect(args: argparse.Namespace) -> int:
    revisions, tests = _words(args)
    tritons = triton_choices(args.triton)
    if not revisions and len(tritons) < 2:
        raise UsageError("name GOOD and BAD (two commits), or two or more versions with --triton; tests come after --")
    project = project_at(Path.cwd(), tests, args.setup, args.own_tests, need_git=bool(revisions))
    commits = commits_between(project.top, revisions[0], revisions[1]) if project.top is not None else [""]
    if len(commits) == 1 and len(tritons) < 2:
        raise UsageError(f"{revisions[0]} and {revisions[1]} are the same commit: there is nothing between them")
    with scratch_folder("bisect") as scratch, _judge(args, project, scratch) as judge:
        first = BisectedVersion(commits[0], installed_only(tritons)[0])
        cases = judge.record_good(first)
        bisection = Bisection(judge, project.top, say)
        say(_header(judge, commits, tritons, len(cases)))
        found = over_both(bisection, commits, installed_only(tritons))
    return _print_answer(found, bisection, judge)


def _words(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The revisions, GOOD and BAD or none, and what pytest runs."""
    revisions, tests = list(args.revisions), list(args.tests)
    if len(revisions) == 1:
        revisions.append("HEAD")
    if len(revisions) > 2:
        raise UsageError(f"{len(revisions)} revisions ({' '.join(revisions)}): name GOOD and BAD; tests come after --")
    return revisions, tests


@contextlib.contextmanager
def _judge(args: argparse.Namespace, project: BisectedProject, scratch: Path) -> Iterator[VersionJudge]:
    processes = args.processes or max(1, len(os.sched_getaffinity(0)) // PER_PROCESS)
    judge = VersionJudge(project, args.target or _known_targets(args, project), scratch, processes)
    try:
        yield judge
    finally:
        judge.close()


def _known_targets(args: argparse.Namespace, project: BisectedProject) -> str:
    """What to compile for if nothing is timed: without a GPU, the targets of the project's baselines."""
    if has_cuda():
        return ""
    return ",".join(str(t) for t in BaselineStore(baseline_folder(args.baselines, project.cwd)).targets())


def _header(judge: VersionJudge, commits: Sequence[str], tritons: Sequence[TritonChoice], cases: int) -> str:
    how = "timed beside the good side's binaries" if judge.timed else "static figures only"
    what = [counted(len(commits) - 1, "commit")] if len(commits) > 1 else []
    what += [counted(len(tritons), "Triton")] if tritons else []
    return f"bisecting {' and '.join(what)}, {counted(cases, 'case')}, {how}"


def _print_answer(found: Conclusion, bisection: Bisection, judge: VersionJudge) -> int:
    for line in found.lines:
        say(line)
    if judge.timed:
        say(f"{counted(bisection.measured, 'version')} timed; versions that compile to the same code are timed once")
    if judge.alone:
        why = "a version has modules of the names of imported ones, or a copy was killed"
        say(f"{counted(judge.alone, 'run')} took long, in a process that imports torch anew: {why}")
    return OK if found.found else FINDINGS


def _check(args: argparse.Namespace) -> int:
    """Whether the working tree is slower than GOOD: for ``git bisect run``, which checks commits out itself."""
    try:
        return _checked(args)
    except UsageError as exc:
        complain(f"error: {exc}")
        return STOP
    except OSError as exc:  # of this machine, not of the commit
        complain(f"error: {error_text(exc)}")
        return STOP
    except KerntuneError as exc:
        complain(f"can't tell: {exc}")
        return CANT_TELL


def _checked(args: argparse.Namespace) -> int:
    if len(args.revisions) != 1:
        raise UsageError("--check takes one revision, GOOD, or a folder that --keep made")
    good = args.revisions[0]
    project = project_at(Path.cwd(), args.tests, args.setup, args.own_tests, need_git=not Path(good).is_dir())
    with scratch_folder("bisect") as scratch, _judge(args, project, scratch) as judge:
        _good_side(args, good, project, judge)
        bisection = Bisection(judge, None, say)
        slower = bisection.is_bad(BisectedVersion())
        screened = bisection.shown(BisectedVersion())
    for line in screened:
        say(line)
    return {True: BAD, False: GOOD, None: CANT_TELL}[slower]


def _good_side(args: argparse.Namespace, good: str, project: BisectedProject, judge: VersionJudge) -> None:
    kept = Path(args.keep) if args.keep else None
    if Path(good).is_dir():
        judge.reuse_good(Path(good))
    elif kept is not None and kept.is_dir():
        judge.reuse_good(kept)
    else:
        assert project.top is not None
        judge.record_good(BisectedVersion(git.commit_of(project.top, good)))
        if kept is not None:
            judge.keep_good(kept)
