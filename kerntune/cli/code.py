"""``kerntune code``: a case's code on two sides, compiler stage by compiler stage."""

from __future__ import annotations

import difflib
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from kerntune.base.case_result import CaseId
from kerntune.base.device import Target, target_named
from kerntune.base.folders import scratch_folder
from kerntune.base.recording import Artifacts
from kerntune.cli.static_record import record
from kerntune.cli.stored import (
    Entry,
    folder_argument,
    given_folder,
    launches_of,
    load_folder,
    not_found,
    one_case,
    problems,
    readable,
    triton_of,
)
from kerntune.compiling.binary.identity import first_difference
from kerntune.compiling.farm import Farm
from kerntune.errors import UsageError
from kerntune.gate import git
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Baseline, StaticBaseline, TimeBaseline
from kerntune.gate.code_changes import CONTEXT, Side, Texts, hunks
from kerntune.gate.console import FINDINGS, OK, fail_with, say
from kerntune.gate.project import find_project
from kerntune.gate.static_figures import LaunchStatic, paired
from kerntune.kernels.compat import triton_compiler

COLUMNS = 160
"""Width where there is no terminal: two columns of MLIR are readable."""


@dataclass(frozen=True)
class CaseSide(Side):
    """The side of a case's baseline."""

    baseline: Baseline = field(kw_only=True)


def side_of(name: str, baseline: Baseline, artifacts: Artifacts) -> CaseSide:
    """A baseline as a side; a device's has binaries."""
    binaries = baseline.recording.binaries if isinstance(baseline, TimeBaseline) else ()
    return CaseSide(name, artifacts, binaries, baseline=baseline)


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune code`` takes."""
    parser.add_argument("case", metavar="CASE", help="a test's id (and call), or what only one case contains")
    parser.add_argument(
        "--stage",
        choices=("ttir", "glir", "ttgir", "llir", "ptx", "amdgcn", "sass"),
        help="which code (default: the first stage that differs)",
    )
    parser.add_argument("--against", metavar="REF", help="a git revision's code instead of the baseline's")
    parser.add_argument("--target", metavar="TARGET", help="what to compile for (default: what the baseline is of)")
    folder_argument(parser)
    parser.add_argument("--unified", action="store_true", help="as diff -u, instead of side by side")
    parser.add_argument("--width", metavar="N", type=int, default=0, help="columns (default: the terminal's)")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if there is a difference")


def run(args: Namespace) -> int:
    """Print the difference of each launch; with ``--exit-code`` 1 if there is any."""
    folder = given_folder(args.baselines)
    entries = load_folder(folder)
    case, target = wanted(entries, args)
    triton_compiler.take_announcements()
    with ExitStack() as stack:
        if args.against:
            before = stack.enter_context(recorded(case, target, folder, args.against, revision=args.against))
        else:
            before = stored(folder, entries, case, target)
        after = stack.enter_context(recorded(case, target, folder, "today"))
        farm = stack.enter_context(closing(Farm()))
        differs = _show(before, after, Texts(farm, target), args)
    return max(fail_with(problems(entries)), FINDINGS if args.exit_code and differs else OK)


def wanted(entries: Sequence[Entry], args: Namespace) -> tuple[CaseId, Target]:
    """The one case that is selected, and the target; :class:`UsageError` if there are more, or none."""
    case = one_case(entries, args.case)
    if case is None and not (args.against and "::" in args.case):
        raise not_found(f"no baseline's case is {args.case!r}; `kerntune baselines show` lists them", entries)
    targets = sorted({str(b.target) for b in readable(entries) if b.case == case})
    if args.target is None and len(targets) != 1:
        raise UsageError(f"say what to compile for: --target {' or '.join(targets) or 'cuda:90'}")
    return case or CaseId(args.case, "0"), target_named(args.target or targets[0])


def stored(folder: Path, entries: Sequence[Entry], case: CaseId, target: Target) -> CaseSide:
    """The folder's latest static baseline of the case, else its latest of a device."""
    mine = [b for b in readable(entries) if b.case == case and b.target == target]
    if not mine:
        raise not_found(f"{folder}: has no baseline of {case} for {target}", entries)
    best = max(mine, key=lambda b: (isinstance(b, StaticBaseline), b.recorded))
    day = best.recorded.partition("T")[0]
    return side_of(f"baseline of {day}", best, BaselineStore(folder).artifacts(target))


@contextmanager
def recorded(case: CaseId, target: Target, folder: Path, name: str, revision: str = "") -> Iterator[CaseSide]:
    """The code of this working tree, or of a git revision, compiled today by running the case's test without a GPU."""
    with scratch_folder("diff") as scratch, ExitStack() as stack:
        into, root = scratch / "baselines", find_project(Path.cwd()).root  # where the case's name starts
        env = None
        if revision:
            top = git.top_of(root)
            tree = stack.enter_context(git.worktree(revision, root))
            root = tree / root.resolve().relative_to(top)
            env = git.worktree_environment(tree, top, root)
        before = _copied(folder, into, case, target)
        run = record(sys.executable, name, [f"--kerntune-target={target}", case.nodeid], into, root, env)
        ran = {r.fingerprint for r in run.results if r.case == case and case.nodeid not in run.failed}
        found = [b for b in readable(load_folder(into)) if b.case == case and b.fingerprint in ran]
        fresh = [b for b in found if isinstance(b, StaticBaseline) and b.target == target]
        if not fresh:
            why = next(iter(run.failed.values()), "is it there, and does it launch Triton kernels?")
            raise UsageError(f"{name}: {case} has recorded nothing for {target}: {why}")
        best = max(fresh, key=lambda b: b.fingerprint in before)
        yield side_of(name, best, BaselineStore(into).artifacts(target))


def _copied(folder: Path, into: Path, case: CaseId, target: Target) -> set[str]:
    """Put the case's baselines where the test is recorded: of several configs, theirs is the one that is compiled.
    Their fingerprints on the target."""
    found = [e for e in load_folder(folder) if e.baseline is not None and e.baseline.case == case]
    for entry in found:
        path = into / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / entry.path, path)
    return {e.baseline.fingerprint for e in found if e.baseline and e.baseline.target == target}


def _show(before: CaseSide, after: CaseSide, texts: Texts, args: Namespace) -> bool:
    differs = False
    triton = triton_of(before.baseline)
    if triton.split(".")[:2] != triton_of(after.baseline).split(".")[:2]:
        say(f"{before.name} was recorded under Triton {triton}; all but its TTIR is compiled by today's")
    for old, new in paired(launches_of(before.baseline), launches_of(after.baseline)):
        if old is None or new is None:
            only = new or old
            assert only is not None
            say(f"{only.kernel}: only in {after.name if old is None else before.name}")
            differs = True
            continue
        differs |= _show_launch(before, after, (old, new), texts, args)
    return differs


def _show_launch(
    before: CaseSide, after: CaseSide, pair: tuple[LaunchStatic, LaunchStatic], texts: Texts, args: Namespace
) -> bool:
    old, new = pair
    stage = args.stage or _first(before, after, pair, texts)
    if not stage:
        say(f"{new.kernel}: the same in every stage")
        return False
    sides = texts.of(before, old, stage), texts.of(after, new, stage)
    names = (before.name, after.name)
    width = args.width or shutil.get_terminal_size((COLUMNS, COLUMNS)).columns
    text = unified(*sides, names) if args.unified else side_by_side(*sides, names, width)
    say(f"{new.kernel}, {stage}:" + (f"\n{text}\n" if text else " the same"))
    return bool(text)


def _first(before: CaseSide, after: CaseSide, pair: tuple[LaunchStatic, LaunchStatic], texts: Texts) -> str:
    """The first stage that differs: as the baselines know it, else as the texts show; empty if none does."""
    old, new = pair
    if old.code == new.code and old.ttir_sha256 == new.ttir_sha256:
        return ""
    named = first_difference(old.stages, new.stages).lower()
    before_has = texts.stages_of(before, old)  # a kernel that was rewritten in Gluon has another first stage
    stages = [s for s in texts.stages_of(after, new) if s in before_has]
    candidates = [named] if named in stages else stages
    return next((s for s in candidates if texts.of(before, old, s) != texts.of(after, new, s)), "")


GAP = "..."


def side_by_side(before: str, after: str, names: tuple[str, str], width: int) -> str:
    """Two columns of together ``width`` characters, under ``names``; empty if nothing differs.

    ``|`` is between lines that changed, ``<`` and ``>`` beside those of one side only. Lines that differ only in how
    values are numbered count as equal, unless nothing else differs.
    """
    column = max(20, (width - 3) // 2)
    rows = list(_rows(before.splitlines(), after.splitlines()))
    if not rows:
        return ""
    head = [(names[0], " ", names[1]), ("-" * column, " ", "-" * column)]
    return "\n".join(line for row in [*head, *rows] for line in _wrapped(*row, column))


def unified(before: str, after: str, names: tuple[str, str]) -> str:
    """As ``diff -u`` writes it, for pagers and patches; every difference counts."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=CONTEXT)
    return "\n".join(lines)


def _rows(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    for number, group in enumerate(hunks(before, after)):
        if number:
            yield GAP, " ", GAP
        for tag, i, j, k, m in group:
            for left, right in zip_longest(before[i:j], after[k:m]):
                mark = " " if tag == "equal" else ">" if left is None else "<" if right is None else "|"
                yield left or "", mark, right or ""


def _wrapped(left: str, mark: str, right: str, column: int) -> Iterator[str]:
    pieces = [[t[i : i + column] for i in range(0, len(t), column)] or [""] for t in (left, right)]
    for n, (a, b) in enumerate(zip_longest(*pieces, fillvalue="")):
        yield f"{a:<{column}} {mark if n == 0 else ' '} {b}".rstrip()
