"""``kerntune diff --static``: two sets of baselines (of two git revisions, say) side by side.

The two sets are compared by each kernel's code, launch by launch, the worst first.
"""

from __future__ import annotations

import math
import shlex
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from kerntune.base.case_result import CauseKind, End
from kerntune.base.config import Config
from kerntune.base.device import Target, typical_device
from kerntune.base.formatting import NO_FIGURE, escaped
from kerntune.base.policy import StaticPolicy
from kerntune.base.strict import StrictStruct
from kerntune.cli.changes import FIGURES, SPILLED, Figure, case_list
from kerntune.cli.stored import SERIES, Entry, Pattern, launches_of, problems, readable, sides, triton_of, versions_of
from kerntune.compiling.binary.identity import first_difference
from kerntune.errors import TargetError
from kerntune.gate.baselines import Baseline, TimeBaseline
from kerntune.gate.causes import launch_cause
from kerntune.gate.console import FINDINGS, OK, columns, fail_with, say_found, some_of
from kerntune.gate.git import known_commit, listed_names
from kerntune.gate.launch_changes import LaunchFindings, compare_launches, count_findings
from kerntune.gate.project import baseline_folder
from kerntune.gate.static_figures import LaunchStatic, LaunchStatics, paired
from kerntune.static.code_rules import SEVERITIES, Finding
from kerntune.static.metrics import StaticMetrics

HEADERS = ("case", "kernel", "before", "after", "what the rules say", "because of")
WIDTHS = (34, 24, 28, 28, 44, 36)
"""Columns of each cell before it wraps, in a terminal."""


def run(args: Namespace) -> int:
    """Print the difference, and of two revisions what isn't compared; 1 if something can't be read, or with
    ``--exit-code`` if a rule fails."""
    folder = baseline_folder(args.baselines, Path.cwd())
    before, after = sides(args, folder)
    names = [*args.names, str(args.baselines or folder.name)]
    found = compare_statics(before, after, (names[0], names[1]), Pattern(args.case).matches)

    def text() -> str:
        return "\n\n".join([text_of(found, markdown=args.markdown), *code_notes(args.names, folder)])

    say_found(found, args.json, text)
    return max(fail_with(found.problems), FINDINGS if args.exit_code and found.failing else OK)


SHOWN_FILES = 3
"""Changed files that are named; the others are counted."""


def code_notes(names: Sequence[str], folder: Path) -> list[str]:
    """That revisions were compared by their stored baselines alone, where their Python files differ, and the command
    that compares their kernels. ``names`` are one or two of folders, revisions and series."""
    place = next(p for p in (folder, *folder.parents) if p.is_dir())
    found = [_commit(place, name) for name in names]
    if not all(found):
        return []
    files = listed_names(place, "diff", "--name-only", "-z", *found, "--", ":/*.py")
    if not files:
        return []
    where = "" if len(found) < 2 or found[1] == _commit(place, "HEAD") else f" in a checkout of {names[1]}"
    against = f"pytest --kerntune --kerntune-against={shlex.quote(names[0])}"
    return [
        f"Stored baselines were compared, and nothing was compiled, though code differs too "
        f"({some_of(files, SHOWN_FILES)}).\nTo hold the kernels themselves against those of {names[0]}: "
        f"`{against}`{where}"
    ]


def _commit(place: Path, name: str) -> str:
    return "" if Path(name).exists() or SERIES.fullmatch(name) else known_commit(place, name)


def text_of(found: StaticDifference, *, markdown: bool = False) -> str:
    """The table and the lists, for a terminal or for a comment on a pull request."""
    shown = [c for c in found.changed if c.differs]
    head = f"{found.before} -> {found.after}"
    parts = [f"### Kernels, {escaped(head)}" if markdown else head]
    if found.versions != (found.before, found.after):
        parts.append(" -> ".join(found.versions))
    rows = [row for change in shown for row in _rows(change)]
    parts += [columns(rows, HEADERS, WIDTHS, markdown=markdown)] if shown else []
    ends = "Compared up to where they stopped without a GPU"
    lists = (("Added", found.added), ("Removed", found.removed), (ends, found.cut_off))
    parts += [case_list(title, cases, markdown) for title, cases in lists if cases]
    alike = len(found.changed) - len(shown)
    parts.append(
        f"{found.failing} failing, {len(shown)} changed, {alike} with other code and equal figures, "
        f"{len(found.added)} added, {len(found.removed)} removed, {found.same} the same"
    )
    return "\n\n".join(parts)


def _rows(change: StaticChange) -> list[tuple[str, ...]]:
    case = f"{change.case}\n({change.target})"
    rows = [_row(case, x) for x in change.launches if x.figures]
    if change.notes:
        said = [*_said(change.findings), *change.notes]
        rows.append((case, NO_FIGURE, NO_FIGURE, NO_FIGURE, "\n".join(said), NO_FIGURE))
    return rows


def _said(findings: Sequence[Finding]) -> list[str]:
    return [f"{f.severity}: {f.text}" for s in SEVERITIES for f in findings if f.severity == s]


def _row(case: str, launch: LaunchChange) -> tuple[str, ...]:
    return (
        case,
        f"{launch.kernel}\n{launch.after}" if launch.after else launch.kernel,
        "\n".join(f"{f.name} {_number(f, f.before)}" for f in launch.figures),
        "\n".join(f"{f.name} {_number(f, f.after)}" for f in launch.figures),
        "\n".join(_said(launch.findings)) or NO_FIGURE,
        launch.because,
    )


def figures_text(figures: Sequence[Figure]) -> str:
    """Figures in one line: ``registers 32 -> 40, occupancy 100.0% -> 75.0%``."""
    return ", ".join(f"{f.name} {_number(f, f.before)} -> {_number(f, f.after)}" for f in figures)


def _number(figure: Figure, value: float | None) -> str:
    return "?" if value is None else f"{value:.1%}" if figure.name == "occupancy" else f"{value:,}"


SCHEMA = "kerntune.static-diff/1"

SHOWN: dict[str, Callable[[StaticMetrics], float | None]] = {
    **FIGURES,
    "tensor core instructions": lambda m: m.instructions.get("tensor_core", 0),
    "fp64 instructions": lambda m: m.instructions.get("fp64", 0),
}
"""Figures that stand side by side, by the name that is shown."""

CaseTarget = tuple[str, str, str]
"""Case, target and fingerprint: the Triton series may be another on each side."""


class LaunchChange(StrictStruct, frozen=True):
    """A launch whose code or grid differs. ``figures`` are those that changed, ``findings`` the rules' on them,
    ``because`` the cause, of these ``kinds``, ``stage`` the first compiler stage that differs (empty: not known)."""

    kernel: str
    before: Config | None
    after: Config | None
    figures: tuple[Figure, ...]
    findings: tuple[Finding, ...]
    because: str
    stage: str
    kinds: tuple[CauseKind, ...] = ()

    @property
    def rank(self) -> tuple[float, ...]:
        """The worse the smaller: failing rules first, then warnings, then by growth."""
        counts = [-sum(f.severity == s for f in self.findings) for s in ("fail", "warn")]
        return (*counts, -max((_growth(f) for f in self.figures), default=-math.inf))


class StaticChange(StrictStruct, frozen=True):
    """A case whose code, grids or launches differ on a target. ``notes``: launches that only one side has;
    ``findings``: the rules' on the number of launches."""

    case: str
    target: str
    compilers: tuple[str, str]
    launches: tuple[LaunchChange, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def rank(self) -> tuple[float, ...]:
        """That of the worst launch; removed launches come before all without a finding."""
        worst = min((x.rank for x in self.launches), default=(0.0, 0.0, math.inf))
        return min(worst, (0.0, -1.0, 0.0)) if self.notes else worst

    @property
    def differs(self) -> bool:
        """Whether any figure differs, not only the code."""
        return bool(self.notes) or any(x.figures for x in self.launches)

    @property
    def fails(self) -> bool:
        """Whether a rule fails the case."""
        every = (*self.findings, *(f for x in self.launches for f in x.findings))
        return any(f.severity == "fail" for f in every)


class StaticDifference(StrictStruct, frozen=True):
    """Two sets compared. ``versions``: Triton's and torch's of each side. ``same`` cases have the same
    code; of ``changed`` some have equal figures all the same.
    ``cut_off`` says of cases of both sets where one of them ends: no launch after that is known there."""

    before: str
    after: str
    versions: tuple[str, str]
    changed: tuple[StaticChange, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    same: int
    problems: tuple[str, ...]
    cut_off: tuple[str, ...] = ()
    schema: str = SCHEMA

    @property
    def failing(self) -> int:
        """Cases that a rule fails."""
        return sum(c.fails for c in self.changed)


def compare_statics(
    before: Sequence[Entry],
    after: Sequence[Entry],
    names: tuple[str, str],
    case: Callable[[Baseline], bool],
    *,
    same_code: bool = False,
) -> StaticDifference:
    """All that ``case`` accepts, worst first. ``same_code``: both sides ran the same files."""
    old, new = _by_key(before, case), _by_key(after, case)
    pairs = [(key, old[key], new[key]) for key in sorted(old.keys() & new.keys())]
    changes = [_change(key, a, b, same_code) for key, a, b in pairs]
    changed = [c for c in changes if c.launches or c.notes]
    was, now = names
    return StaticDifference(
        before=was,
        after=now,
        versions=(versions_of(before), versions_of(after)),
        changed=tuple(sorted(changed, key=lambda c: c.rank)),
        added=tuple(_named(k) for k in sorted(new.keys() - old.keys())),
        removed=tuple(_named(k) for k in sorted(old.keys() - new.keys())),
        same=len(changes) - len(changed),
        problems=tuple(problems([*before, *after])),
        cut_off=tuple(f"{_named(x)}, {end}" for x, a, b in pairs if (end := _end(a) or _end(b))),
    )


def _end(baseline: Baseline) -> str:
    end = getattr(baseline, "end", None)
    return str(end) if isinstance(end, End) and not end.between else ""


def _by_key(entries: Iterable[Entry], case: Callable[[Baseline], bool]) -> dict[CaseTarget, Baseline]:
    """Static baselines by key, those of time where there is none; of several Triton series the newest."""
    found: dict[CaseTarget, Baseline] = {}
    for baseline in sorted(readable(entries), key=_preference):
        if case(baseline):
            found[str(baseline.case), str(baseline.target), baseline.fingerprint] = baseline
    return found


def _preference(baseline: Baseline) -> tuple[int, ...]:
    return () if isinstance(baseline, TimeBaseline) else tuple(int(n) for n in baseline.triton.split("."))


def _change(key: CaseTarget, old: Baseline, new: Baseline, same_code: bool) -> StaticChange:
    case, target, _ = key
    sides = launches_of(old), launches_of(new)
    tritons = triton_of(old), triton_of(new)
    launches = launch_changes(*sides, tritons, new.target, same_code=same_code)
    return StaticChange(
        case=case,
        target=target,
        compilers=tritons,
        launches=tuple(sorted(launches, key=lambda x: x.rank)),
        notes=tuple(_alone(paired(*sides))),
        findings=tuple(count_findings(*sides, RULES)),
    )


def launch_changes(
    before: LaunchStatics,
    after: LaunchStatics,
    tritons: tuple[str, str],
    target: Target | None,
    *,
    same_code: bool = False,
) -> list[LaunchChange]:
    """The launches of both sides whose code or grid differs, in their order."""
    spec = None
    with suppress(TargetError):
        spec = typical_device(target) if target is not None else None
    found = compare_launches(before, after, RULES, spec)
    others = (x for x in found if (x.before.code, x.before.grid) != (x.after.code, x.after.grid))
    return [_launch(x, tritons, same_code) for x in others]


RULES = StaticPolicy()
"""The usual ones: a project's own are its pytest configuration's."""


def _alone(pairs: Iterable[tuple[LaunchStatic | None, LaunchStatic | None]]) -> Iterator[str]:
    """Launches that only one side has, those of a kernel together."""
    sides = Counter[tuple[str, str]]()
    for old, new in pairs:
        if old is None or new is None:
            sides["removed" if new is None else "added", (old or new).kernel] += 1  # type: ignore[union-attr]
    yield from (f"launch {what}: {kernel}{f' ({n})' if n > 1 else ''}" for (what, kernel), n in sorted(sides.items()))


def _launch(found: LaunchFindings, tritons: tuple[str, str], same_code: bool) -> LaunchChange:
    old, new = found.before, found.after
    cause = launch_cause(old, new, *tritons, same_code=same_code)
    values = [(name, read(old.metrics), read(new.metrics)) for name, read in SHOWN.items()]
    values += [("programs", math.prod(old.grid), math.prod(new.grid))]
    return LaunchChange(
        kernel=new.kernel,
        before=old.config,
        after=new.config,
        figures=tuple(Figure(new.kernel, name, a, b) for name, a, b in values if a != b),
        findings=found.findings,
        because=SAME_CODE if cause is None else cause.why,
        stage=first_difference(old.stages, new.stages),
        kinds=() if cause is None else cause.kinds,
    )


SAME_CODE = "the launch (same code)"
"""Why figures of a launch differ whose grid alone does."""


def _growth(figure: Figure) -> float:
    before, after = figure.before or 0.0, figure.after or 0.0
    worse = before - after if figure.name in ("occupancy", "tensor core instructions") else after - before
    if figure.name == SPILLED and worse > 0:
        return math.inf
    return worse / before if before else math.copysign(math.inf, worse)


def _named(key: CaseTarget) -> str:
    case, target, _ = key
    return f"{case} ({target})"
