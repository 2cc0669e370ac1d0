"""``kerntune upgrade``: which kernels lose under another Triton or torch, because of what, and what to do about it."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from kerntune.base.case_result import Attribution, CaseResult, CauseKind
from kerntune.base.formatting import NO_FIGURE, escaped, format_share
from kerntune.base.policy import Verdict
from kerntune.base.strict import StrictStruct
from kerntune.cli.changes import Figure
from kerntune.cli.static_diff import LaunchChange, StaticChange, StaticDifference, compare_statics, text_of
from kerntune.cli.static_record import EnvironmentRun, EnvironmentVersions, run_both
from kerntune.cli.stored import Pattern, case_argument, folder_argument
from kerntune.gate.console import FINDINGS, OK, columns, complain, counted, say, say_json
from kerntune.gate.project import baseline_folder

SCHEMA = "kerntune.upgrade/1"

HEADERS = ("case", "kernel", "lost", "because of", "what to do")
WIDTHS = (34, 26, 50, 44, 40)
"""Columns of each cell before it wraps, in a terminal."""

Cause = Literal["compiler", "torch", "config no longer fits", "environment", "code", "unknown"]
"""What makes a kernel lose. ``code``: a source that both sides don't share, such as that of an
installed package."""

ADVICE: Mapping[Cause, str] = {
    "compiler": "tune its configs anew under Triton {new.triton}; else keep Triton {old.triton} for it, and report it",
    "torch": "compare what both generate (TORCH_LOGS=output_code); else keep torch {old.torch}, and report it",
    "config no longer fits": "list a config that needs less: fewer stages, or a smaller tile",
    "environment": "make the environments alike in what is named here, and ask again",
    "code": "install the same version of the kernel's package on both sides, and ask again",
    "unknown": "run its test under both, and compare their reports",
}


class Loss(StrictStruct, frozen=True, kw_only=True):
    """A kernel that lost. ``lost`` are sentences, the worst first; ``fails``: whether a rule or a time fails the case,
    else it is warned of. ``change`` is that of the time, as a share (0.12: 12 % slower), where it was timed."""

    case: str
    target: str
    kernel: str
    cause: Cause
    because: str
    lost: tuple[str, ...]
    advice: str = ""
    fails: bool
    change: float | None = None
    figures: tuple[Figure, ...] = ()


class Upgrade(StrictStruct, frozen=True):
    """What ``--json`` prints. ``losses`` are ranked, the worst first; ``compared`` counts cases. ``problems`` are of
    both sides, and no loss: tests that fail under the old versions as well, files that can't be read."""

    before: str
    after: str
    losses: tuple[Loss, ...]
    compared: int
    timed: bool
    difference: StaticDifference
    problems: tuple[str, ...] = ()
    schema: str = SCHEMA

    @property
    def failing(self) -> int:
        """Losses that fail a case."""
        return sum(loss.fails for loss in self.losses)


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune upgrade`` takes."""
    parser.add_argument("tests", metavar="TESTS", nargs="*", help="what pytest is to run (its options after --)")
    parser.add_argument(
        "--python",
        metavar="NEXT/bin/python",
        action="append",
        required=True,
        help="the interpreter of the environment with the other Triton or torch; given twice, the old one and the new",
    )
    parser.add_argument(
        "--target",
        metavar="TARGET[,TARGET]",
        help="time nothing, and compile for these, as cuda:90,hip:gfx942 (default: without a GPU, those of the "
        "baselines)",
    )
    folder_argument(parser)
    case_argument(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--summary", action="store_true", help="print Markdown, for a job summary or a pull request")
    form.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--all", action="store_true", help="also print every kernel whose static figures changed")


def run(args: Namespace) -> int:
    """Run both sides and print what lost; 1 if a loss fails its case."""
    folder = baseline_folder(args.baselines, Path.cwd())
    before, after = run_both(args.python, args.tests, args.target, folder)
    found = compare_runs(before, after, Pattern(args.case))
    if args.json:
        say_json(found)
    else:
        say(report(found, markdown=args.summary))
        if args.all:
            say("\n" + text_of(found.difference, markdown=args.summary))
        for problem in found.problems:
            complain(problem)
    return FINDINGS if found.failing else OK


def compare_runs(before: EnvironmentRun, after: EnvironmentRun, pattern: Pattern) -> Upgrade:
    """Both sides' runs of the same tests, case by case."""
    names = str(before.versions), str(after.versions)
    difference = compare_statics(before.entries, after.entries, names, pattern.matches, same_code=True)
    results = [r for r in after.report.results if pattern.selects(str(r.case))]
    losses = [*_static_losses(difference, results), *_timed_losses(results, before.versions, after.versions)]
    known = {(loss.case, loss.target) for loss in losses if loss.fails}
    losses += [x for r in results if (str(r.case), r.target) not in known for x in _other_losses(r)]
    losses += _failed_tests(before, after, pattern)
    versions = {"old": before.versions, "new": after.versions}
    advised = [loss.but(advice=ADVICE[loss.cause].format(**versions)) for loss in losses]
    both = [f"{name} fails on both sides: {why}" for name, why in before.report.failed.items()]
    return Upgrade(
        before=difference.before,
        after=difference.after,
        losses=tuple(sorted(advised, key=_badness)),
        compared=len({(str(r.case), r.fingerprint, r.target) for r in results}),
        timed=any(r.change is not None for r in results),
        difference=difference,
        problems=(*difference.problems, *both),
    )


def _badness(loss: Loss) -> tuple[object, ...]:
    """The worse the smaller: what can't run at all, what a time or a rule fails by the change, what is warned of."""
    cant_run = loss.kernel == NO_FIGURE and loss.change is None
    return (not loss.fails, not cant_run, -(loss.change or 0.0), -len(loss.lost), loss.case, loss.kernel)


def _static_losses(difference: StaticDifference, results: Sequence[CaseResult]) -> Iterator[Loss]:
    timed = {(str(r.case), r.target) for r in results if r.change is not None}
    unfit = {(str(r.case), r.target): [x for x in r.lost_configs if x.broken and str(x) in r.findings] for r in results}
    before, after = (side.partition(", torch ")[2] for side in (difference.before, difference.after))
    for change in difference.changed:
        if (change.case, change.target) in timed:
            continue
        lost_configs = unfit.get((change.case, change.target), [])
        for launch in change.launches:
            mine = [str(lost) for lost in lost_configs if lost.kernel == launch.kernel]
            found = _launch_loss(change, launch, mine)
            if found is not None:
                yield found
        lost = [f for f in change.findings if f.severity in LOSING]
        if lost:
            yield Loss(
                case=change.case,
                target=change.target,
                kernel=", ".join(dict.fromkeys(_noted(change.notes))) or NO_FIGURE,
                cause="torch" if before != after else "unknown",
                because=f"torch ({'; '.join(change.notes)})",
                lost=tuple(f"{f.severity}: {f.text}" for f in lost),
                fails=any(f.severity == "fail" for f in lost),
            )


LOSING = ("fail", "warn")

CANT_RUN = re.compile(r"can't be (?:launched|compiled)|out of resource|OutOfResources")
"""A launch that the new side can't make."""


def _launch_loss(change: StaticChange, launch: LaunchChange, unfit: Sequence[str]) -> Loss | None:
    lost = [f for f in launch.findings if f.severity in LOSING]
    if not lost and not unfit:
        return None
    limits = [f for f in lost if f.rule == "limits"]
    fits = not unfit and not limits
    return Loss(
        case=change.case,
        target=change.target,
        kernel=launch.kernel,
        cause=cause_of(launch.kinds) if fits else "config no longer fits",
        because=launch.because,
        lost=(*(f"fail: {text}" for text in unfit), *(f"{f.severity}: {f.text}" for f in lost)),
        fails=bool(unfit) or any(f.severity == "fail" for f in lost),
        figures=launch.figures,
    )


def cause_of(kinds: Collection[CauseKind]) -> Cause:
    """The cause of a change with these kinds of cause. Of several, torch comes first, since it makes the source that a
    compiler gets; settings of the environment come before the compiler."""
    ranked: tuple[Cause, ...] = ("torch", "code", "environment", "compiler")
    return next((cause for cause in ranked if cause in kinds), "unknown")


def _noted(notes: Iterable[str]) -> Iterator[str]:
    """The kernels of notes such as ``launch added: triton_poi_fused_add (2)``."""
    for note in notes:
        yield note.partition(": ")[2].partition(" (")[0]


def _timed_losses(results: Sequence[CaseResult], old: EnvironmentVersions, new: EnvironmentVersions) -> Iterator[Loss]:
    for result in results:
        if result.verdict is not Verdict.REGRESSED or result.change is None:
            continue
        slower = format_share((result.shown or result.change).point)
        lost = (f"{slower} slower than the old side's binaries", *result.findings)
        yield _loss_of(result, *_attributed(result, old, new), lost, result.change.point)


def _loss_of(result: CaseResult, cause: Cause, because: str, lost: Iterable[str], change: float | None = None) -> Loss:
    kernels = ", ".join(dict.fromkeys(x.kernel for x in result.launches))
    return Loss(
        case=str(result.case), target=result.target, kernel=kernels, cause=cause, because=because, lost=tuple(lost),
        fails=True, change=change,
    )  # fmt: skip


def _attributed(result: CaseResult, old: EnvironmentVersions, new: EnvironmentVersions) -> tuple[Cause, str]:
    """The cause with the largest share of a timed change, and the gate's words on it."""
    if not isinstance(result.attribution, Attribution):
        return "unknown", "; ".join(result.causes)
    names = ("compiler", "code", "launch", "config", "environment")
    shares = {name: getattr(result.attribution, name) for name in names}
    name = max(shares, key=lambda n: shares[n].change or 0.0)
    generated = any(x.origins for x in result.launches)
    if name in ("code", "launch", "config") and generated and old.torch != new.torch:
        return "torch", f"torch {old.torch} -> {new.torch} ({shares[name].why})"
    causes: dict[str, Cause] = {"compiler": "compiler", "environment": "environment", "code": "code"}
    return causes.get(name, "unknown"), f"{name} ({shares[name].why})"


def _other_losses(result: CaseResult) -> Iterator[Loss]:
    """What the gate alone says of a case that fails: a config that doesn't fit, other operators beside the kernels."""
    if result.verdict is not Verdict.REGRESSED or result.change is not None:
        return
    unfit = [text for text in (result.message, *result.findings) if CANT_RUN.search(text)]
    because = "; ".join(cause.why for cause in result.launch_causes) or "; ".join(result.causes)
    kinds = {kind for cause in result.launch_causes for kind in cause.kinds}
    told = unfit or result.findings[:1] or (result.message,)
    cause = "config no longer fits" if unfit else cause_of(kinds)
    yield _loss_of(result, cause, because, (f"fail: {text}" for text in told))


def _failed_tests(before: EnvironmentRun, after: EnvironmentRun, pattern: Pattern) -> Iterator[Loss]:
    """Tests that the gate doesn't fail, and that fail on the new side alone."""
    judged = {r.case.nodeid for r in after.report.results if r.verdict is Verdict.REGRESSED}
    for name, why in after.report.failed.items():
        if name in before.report.failed or name in judged or not pattern.selects(name):
            continue
        yield Loss(
            case=name,
            target=NO_FIGURE,
            kernel=NO_FIGURE,
            cause="config no longer fits" if CANT_RUN.search(why) else "environment",
            because="its test fails there alone",
            lost=(f"fail: {why}",),
            fails=True,
        )


def report(found: Upgrade, *, markdown: bool = False) -> str:
    """The table of losses for a terminal, or as Markdown."""
    head = f"{found.before} -> {found.after}"
    parts = [f"### Upgrade, {escaped(head)}" if markdown else head]
    parts += [columns([_row(x) for x in found.losses], HEADERS, WIDTHS, markdown=markdown)] if found.losses else []
    causes = Counter(loss.cause for loss in found.losses)
    by_cause = "".join(f", {n} by {cause}" for cause, n in causes.most_common())
    how = "timed beside the old side's binaries" if found.timed else "static figures only"
    parts.append(f"{counted(found.compared, 'case')} compared, {how}: {found.failing} failing, "
                 f"{len(found.losses) - found.failing} warned of{by_cause}")  # fmt: skip
    return "\n\n".join(parts)


def _row(loss: Loss) -> tuple[str, ...]:
    because = loss.because if loss.because.startswith(loss.cause) else f"{loss.cause}: {loss.because}"
    return f"{loss.case}\n({loss.target})", loss.kernel, "\n".join(loss.lost), because, loss.advice
