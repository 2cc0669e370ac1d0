"""``kerntune bisect``: from its arguments to its text and its exit code.

A bisection goes over commits, over versions of Triton or torch, or over commits and one of these.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kerntune.base.folders import scratch_folder
from kerntune.cli.bisect.bisected_version import (
    INSTALLED,
    BisectedProject,
    BisectedVersion,
    TritonChoice,
    commit_line,
    commits_between,
    merged_by,
    project_at,
    triton_choices,
)
from kerntune.cli.bisect.first_bad import FirstBad, VersionLine
from kerntune.cli.bisect.judging import Identity, ScreenedVersion, TimedVersion, VersionJudge, differences
from kerntune.cli.static_record import known_targets
from kerntune.cli.stored import folder_argument
from kerntune.errors import KerntuneError, UsageError
from kerntune.gate import git
from kerntune.gate.console import FINDINGS, OK, complain, counted, error_text, say
from kerntune.gate.project import baseline_folder

GOOD, BAD, CANT_TELL, STOP = 0, 1, 125, 128
"""Exit codes of ``--check``, as ``git bisect run`` reads them: 125 skips a commit, 128 and more end the bisection."""

PER_PROCESS = 4
"""Cores for each version that is compiled at the same time."""


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune bisect`` takes."""
    parser.usage = "kerntune bisect [GOOD [BAD]] [OPTIONS] -- TESTS"
    parser.add_argument(
        "revisions", metavar="GOOD [BAD]", nargs="*", help="commits, branches or tags; BAD is HEAD if it is left out"
    )
    parser.add_argument(
        "--setup",
        metavar="CMD",
        default="",
        help="a shell command that builds a commit, in its checkout; a commit for which it fails is skipped",
    )
    parser.add_argument(
        "--triton",
        metavar="3.8,3.9",
        default="",
        help="go through these versions, the good one first: pip installs them to kerntune's cache folder; NAME=PATH "
        "of an interpreter or of a folder that has triton/",
    )
    parser.add_argument(
        "--torch",
        metavar="2.13,2.15",
        default="",
        help="the same with versions of torch, each with the Triton that is installed here, or that of its environment",
    )
    parser.add_argument(
        "--target",
        metavar="TARGET",
        default="",
        help="time nothing: compile for this, as cuda:90, and let the static rules decide (default: without a GPU, the "
        "targets of the baselines)",
    )
    parser.add_argument("--own-tests", action="store_true", help="run each commit's own tests (default: today's)")
    parser.add_argument(
        "--check",
        action="store_true",
        help="only the working tree, against GOOD: exit with 0 if it isn't slower, 1 if it is, 125 if that can't be "
        "told and 128 if the command is wrong, as `git bisect run` wants it",
    )
    parser.add_argument(
        "--keep", metavar="DIR", help="with --check: keep what was recorded of GOOD there, and use it again"
    )
    parser.add_argument(
        "--processes", metavar="N", type=int, help="versions compiled at once (default: one for four cores)"
    )
    folder_argument(parser)
    parser.set_defaults(tests=[])


def run(args: Namespace) -> int:
    """Bisect, or check the working tree; the exit code."""
    if args.processes is not None and args.processes < 1:
        raise UsageError(f"--processes: {args.processes} is too few; give 1 or more")
    if args.check:
        return _check(args)
    revisions = _revisions(args.revisions)
    if args.triton and args.torch:
        raise UsageError("give --triton or --torch: versions on a line differ in one package")
    tritons = triton_choices(args.torch, "torch") if args.torch else triton_choices(args.triton)
    if not revisions and len(tritons) < 2:
        raise UsageError(
            "name GOOD and BAD (two commits), or two or more versions with --triton or --torch; tests come after --"
        )
    project = project_at(Path.cwd(), args.tests, args.setup, args.own_tests, need_git=bool(revisions))
    commits = commits_between(project.top, revisions[0], revisions[1]) if project.top is not None else [""]
    if len(commits) == 1 and len(tritons) < 2:
        raise UsageError(f"{revisions[0]} and {revisions[1]} are the same commit: there is nothing between them")
    with scratch_folder("bisect") as scratch, _judge(args, project, scratch) as judge:
        line = tritons or [INSTALLED]
        first = BisectedVersion(commits[0], line[0])
        cases = judge.record_good(first)
        bisection = Bisection(judge, project.top, say)
        how = "timed beside the good side's binaries" if judge.timed else "static figures only"
        what = [counted(len(commits) - 1, "commit")] if len(commits) > 1 else []
        what += [f"{counted(len(tritons), 'version')} of {tritons[0].package}"] if tritons else []
        say(f"bisecting {' and '.join(what)}, {counted(len(cases), 'case')}, {how}")
        found = over_both(bisection, commits, line)
    return _print_answer(found, bisection, judge)


def _revisions(given: Sequence[str]) -> Sequence[str]:
    if len(given) > 2:
        raise UsageError(f"{len(given)} revisions ({' '.join(given)}): name GOOD and BAD; tests come after --")
    return [*given, "HEAD"] if len(given) == 1 else given


def _judge(args: Namespace, project: BisectedProject, scratch: Path) -> closing[VersionJudge]:
    processes = args.processes or max(1, len(os.sched_getaffinity(0)) // PER_PROCESS)
    targets = args.target or known_targets(baseline_folder(args.baselines, project.cwd))
    return closing(VersionJudge(project, targets, scratch, processes))


def _print_answer(found: Conclusion, bisection: Bisection, judge: VersionJudge) -> int:
    for line in found.lines:
        say(line)
    if judge.timed:
        say(f"{counted(bisection.measured, 'version')} timed; versions that compile to the same code are timed once")
    return OK if found.found else FINDINGS


def _check(args: Namespace) -> int:
    """Whether the working tree is slower than GOOD: for ``git bisect run``, which checks commits out itself."""
    try:
        return _checked(args)
    except (UsageError, OSError) as exc:  # the latter of this machine, not of the commit
        complain(f"error: {error_text(exc)}")
        return STOP
    except KerntuneError as exc:
        complain(f"can't tell: {exc}")
        return CANT_TELL


def _checked(args: Namespace) -> int:
    if len(args.revisions) != 1:
        raise UsageError("--check takes one revision, GOOD, or a folder that --keep made")
    good = args.revisions[0]
    project = project_at(Path.cwd(), args.tests, args.setup, args.own_tests, need_git=not Path(good).is_dir())
    with scratch_folder("bisect") as scratch, _judge(args, project, scratch) as judge:
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
        bisection = Bisection(judge, None, say)
        slower = bisection.is_bad(BisectedVersion())
        screened = bisection.shown(BisectedVersion())
    for line in screened:
        say(line)
    return {True: BAD, False: GOOD, None: CANT_TELL}[slower]


class Conclusion(NamedTuple):
    """What a bisection came to: the lines of its answer, and whether there is a first bad version."""

    lines: tuple[str, ...]
    found: bool


class Bisection:
    """Looks for the first bad version on a line whose first version is recorded as the good one."""

    def __init__(self, judge: VersionJudge, top: Path | None, progress: Callable[[str], None]) -> None:
        self._judge, self._top, self._progress = judge, top, progress
        self._screened: dict[BisectedVersion, ScreenedVersion] = {}
        self._measured: dict[BisectedVersion, TimedVersion] = {}

    @property
    def measured(self) -> int:
        """Versions that were timed."""
        return len(self._measured)

    def along(self, versions: Sequence[BisectedVersion]) -> Conclusion:
        """The first bad one of versions that lie on a line."""
        line = VersionLine(len(versions) - 1, partial(self._screen, versions), lambda at: self._measure(versions[at]))
        refusal = self._ends(line, versions)
        if refusal is not None:
            return refusal
        found = line.search()
        return Conclusion(tuple(self._answer(versions, found)), True)

    def is_bad(self, version: BisectedVersion) -> bool | None:
        """Whether one version is bad."""
        screened = self._screen([version], [0])[0]
        return None if screened is None else self._measure(version)

    def shown(self, version: BisectedVersion) -> Sequence[str]:
        """What was seen of a version: why it is unknown, or the gate's messages."""
        screened = self._screened[version]
        return [screened.reason] if screened.identity is None else self._shown_change(version)

    def _ends(self, line: VersionLine, versions: Sequence[BisectedVersion]) -> Conclusion | None:
        good, bad = versions[0], versions[-1]
        for end in (good, bad):
            if self._screened[end].identity is None:
                raise UsageError(f"{self._named(end)} has no known code: {self._screened[end].reason}")
        if line.identity(0) == line.identity(len(versions) - 1):
            text = f"nothing to find: {self._named(bad)} compiles to the same code as {self._named(good)}"
            return Conclusion((text,), False)
        verdict = line.verdict(len(versions) - 1)
        if verdict:
            return None
        if not self._judge.timed:
            return self._candidates(versions)
        why = "; ".join(self._measured[bad].messages)
        what = "is not slower than" if verdict is False else "could not be compared with"
        return Conclusion((f"nothing to find: {self._named(bad)} {what} {self._named(good)}: {why}",), False)

    def _candidates(self, versions: Sequence[BisectedVersion]) -> Conclusion:
        """Without a GPU, and no rule fails: every version whose code differs from that before."""
        self._screen(versions, range(len(versions)))
        last = self._named(versions[-1])
        lines = [f"no static rule fails for {last}; these change the code, and only a GPU can tell more:"]
        before = versions[0]
        for version in versions[1:]:
            screened = self._screened[version]
            if screened.identity is None or screened.identity == self._screened[before].identity:
                continue
            lines.append(f"  {self._named(version)}")
            lines += [f"    {text}" for text in self._differences(before, version)]
            before = version
        return Conclusion(tuple(lines), False)

    def _answer(self, versions: Sequence[BisectedVersion], found: FirstBad) -> list[str]:
        good, bad = versions[found.good], versions[found.bad]
        between = versions[found.good + 1 : found.bad]
        merged = self._inside_merge(bad) if not between else None
        if merged is not None:
            return merged
        lines = [f"first bad: {self._named(bad)}"]
        if between:
            lines = [
                f"the first bad one is among these {len(between) + 1}, of which {len(between)} could not be judged:"
            ]
            lines += [f"  {self._named(v)}{self._why_unknown(v)}" for v in between]
            lines.append(f"  {self._named(bad)}")
        lines += [f"  {text}" for text in self._shown_change(bad)]
        lines += [f"  {text}" for text in self._differences(good, bad)]
        return lines

    def _differences(self, before: BisectedVersion, after: BisectedVersion) -> list[str]:
        same_code = before.commit == after.commit
        return differences(self._screened[before], self._screened[after], same_code=same_code)

    def _inside_merge(self, bad: BisectedVersion) -> list[str] | None:
        """Of a merge that is the first bad one, the answer for the commits that it merged, if it lies among them."""
        inside = merged_by(self._top, bad.commit) if self._top is not None and bad.commit else []
        if len(inside) < 2:
            return None
        versions = [BisectedVersion(commit, bad.triton) for commit in inside]
        first, last = self.is_bad(versions[0]), self.is_bad(versions[-1])
        if first is not False or not last:
            return None
        found = self.along(versions)
        return [*found.lines, f"  merged by {self._named(bad)}"] if found.found else None

    def _why_unknown(self, version: BisectedVersion) -> str:
        measured = self._measured.get(version)
        why = "; ".join(measured.messages) if measured is not None else self._screened[version].reason
        return f": {why.strip().splitlines()[0]}" if why.strip() else ""

    def _shown_change(self, bad: BisectedVersion) -> Sequence[str]:
        identity = self._screened[bad].identity
        same = [v for v, s in self._screened.items() if s.identity == identity]
        measured = next((self._measured[v] for v in same if v in self._measured), None)
        return measured.messages if measured is not None else self._screened[bad].messages

    def _screen(self, versions: Sequence[BisectedVersion], at: Sequence[int]) -> Mapping[int, Identity | None]:
        new = [versions[i] for i in at if versions[i] not in self._screened]
        for version, screened in zip(new, self._judge.screen(new) if new else (), strict=True):
            self._screened[version] = screened
            if screened.identity is None:
                self._progress(f"skipped {self._named(version)}: {screened.reason}")
        return {i: self._screened[versions[i]].identity for i in at}

    def _measure(self, version: BisectedVersion) -> bool | None:
        if not self._judge.timed:
            return self._screened[version].slower
        if version not in self._measured:
            self._measured[version] = self._judge.measure(version)
            word = {True: "slower", False: "not slower", None: "not judged"}[self._measured[version].slower]
            self._progress(f"timed {self._named(version)}: {word}")
        return self._measured[version].slower

    def _named(self, version: BisectedVersion) -> str:
        if version.commit and self._top is not None:
            text = commit_line(self._top, version.commit)
            return f"{text} ({version.triton})" if version.triton.name else text
        return str(version)


def over_both(bisection: Bisection, commits: Sequence[str], tritons: Sequence[TritonChoice]) -> Conclusion:
    """Bisect from the first commit under the first Triton to the last commit under the last.

    If the last commit is bad under the first Triton too, the code is to blame. Else Triton is, if the first commit is
    bad under the last Triton; if not, it takes both.
    """
    first, last = tritons[0], tritons[-1]
    several = len(commits) > 1
    if len(tritons) == 1 or (several and bisection.is_bad(BisectedVersion(commits[-1], first))):
        return bisection.along([BisectedVersion(c, first) for c in commits])
    if not several or bisection.is_bad(BisectedVersion(commits[0], last)):
        return bisection.along([BisectedVersion(commits[0], t) for t in tritons])
    code = bisection.along([BisectedVersion(commits[0], first), *(BisectedVersion(c, last) for c in commits)])
    said = f"only under {last}: {commits[-1][:12]} is not slower under {first}"
    return Conclusion((*code.lines, said), code.found) if code.found else code
