"""What changed between two sets of baselines, worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from math import inf
from pathlib import PurePosixPath

from kerntune.base.config import settings_text
from kerntune.base.formatting import code_of, format_size
from kerntune.base.policy import DEFAULT_TOLERANCE
from kerntune.base.strict import StrictStruct
from kerntune.cli.stored import BaselinePlace, Entry, key_of, launches_of, problems, time_ns, triton_of
from kerntune.gate.baselines import Baseline, TimeBaseline, lasting
from kerntune.gate.causes import launch_cause
from kerntune.gate.static_figures import LaunchStatic
from kerntune.static.metrics import StaticMetrics

SCHEMA = "kerntune.diff/1"

SPILLED = "spilled bytes"

FIGURES: dict[str, Callable[[StaticMetrics], float | None]] = {
    "registers": lambda m: m.registers,
    SPILLED: lambda m: m.spill_bytes,
    "shared bytes": lambda m: m.shared_bytes,
    "code bytes": lambda m: m.code_bytes,
    "occupancy": lambda m: m.occupancy,
    "instructions": lambda m: m.instructions.get("total"),
}
"""Static figures that are compared, by the name that is shown."""

COSTLY = ("registers", "shared bytes")
"""Figures whose growth ranks a case that has no time: both limit how many blocks run at once. Any new spill ranks
above them."""


class Figure(StrictStruct, frozen=True):
    """A static figure of a launch that changed. None: unknown there."""

    kernel: str
    name: str
    before: float | None
    after: float | None

    def __str__(self) -> str:
        return f"{self.kernel}: {self.name} {_number(self.before)} -> {_number(self.after)}"


class Change(StrictStruct, frozen=True):
    """One case that differs. ``change`` is a share (0.12 is 12 % slower), None where the times can't be compared:
    ``notes`` say why. ``configs`` are lines ``kernel: BLOCK 128 -> 256``, ``environment`` lines
    ``what: before -> after``."""

    case: str
    target: str
    place: str
    before_ns: float | None
    after_ns: float | None
    change: float | None
    configs: tuple[str, ...]
    figures: tuple[Figure, ...]
    environment: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def badness(self) -> float:
        """What changes are ranked by: the time, else growth of static figures (a new spill is beyond any)."""
        if self.change is not None:
            return self.change
        if any(f.name == SPILLED and (f.after or 0) > (f.before or 0) for f in self.figures):
            return inf
        return max((_growth(f) for f in self.figures if f.name in COSTLY), default=0.0)


class BaselineChanges(StrictStruct, frozen=True):
    """Two sets of baselines compared. ``added`` and ``removed`` are cases with their place."""

    changed: tuple[Change, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    same: int
    problems: tuple[str, ...]
    schema: str = SCHEMA

    @property
    def differs(self) -> bool:
        """Whether anything is not the same."""
        return bool(self.changed or self.added or self.removed)


def compare(before: Sequence[Entry], after: Sequence[Entry]) -> BaselineChanges:
    """All that changed, the worst first. A file that can't be read on one side was neither added nor removed."""
    old, new = _by_key(before), _by_key(after)
    unread = {e.path for e in (*before, *after) if e.problem}
    added = {k for k, (path, _) in new.items() if k not in old and path not in unread}
    removed = {k for k, (path, _) in old.items() if k not in new and path not in unread}
    both = sorted(old.keys() & new.keys())
    pairs = [(key, old[key][1], new[key][1]) for key in both]
    changed = [change_of(k, a, b) for k, a, b in pairs if lasting(a) != lasting(b)]
    return BaselineChanges(
        changed=tuple(sorted(changed, key=lambda c: -c.badness)),
        added=tuple(_named(k) for k in sorted(added)),
        removed=tuple(_named(k) for k in sorted(removed)),
        same=len(both) - len(changed),
        problems=tuple(problems([*before, *after])),
    )


def change_of(key: BaselinePlace, old: Baseline, new: Baseline) -> Change:
    """How one case's baseline changed."""
    before_ns, after_ns = time_ns(old), time_ns(new)
    note = _incomparable(old, new)
    notes: tuple[str, ...] = (note, ungateable(new))
    change = after_ns / before_ns - 1 if before_ns and after_ns is not None and not note else None
    pairs = list(zip_longest(launches_of(old), launches_of(new)))
    configs = tuple(line for a, b in pairs for line in _config(a, b))
    figures = tuple(f for a, b in pairs if a and b for f in _figures(a, b))
    if not configs and not figures:
        notes = (*notes, *(line for a, b in pairs if a and b for line in _code(a, b, triton_of(old), triton_of(new))))
    return Change(
        case=key.case,
        target=key.target,
        place=key.place,
        before_ns=before_ns,
        after_ns=after_ns,
        change=change,
        configs=configs,
        figures=figures,
        environment=_environment(old, new),
        notes=tuple(filter(None, notes)),
    )


def _by_key(entries: Iterable[Entry]) -> dict[BaselinePlace, tuple[PurePosixPath, Baseline]]:
    return {key_of(e.baseline): (e.path, e.baseline) for e in entries if e.baseline is not None}


def _incomparable(old: Baseline, new: Baseline) -> str:
    if not isinstance(old, TimeBaseline) or not isinstance(new, TimeBaseline):
        return ""
    before, after = old.sample.protocol, new.sample.protocol
    if (before.timer, before.version) == (after.timer, after.version):
        return ""
    return (
        f"timed by {before.timer} (protocol {before.version}), then by {after.timer} (protocol {after.version}): "
        "not comparable"
    )


def ungateable(baseline: Baseline) -> str:
    """That a case is too noisy for the usual tolerance, as its calibration says; empty if it isn't."""
    found = baseline.calibration if isinstance(baseline, TimeBaseline) else None
    if found is None or found.floor <= DEFAULT_TOLERANCE:
        return ""
    told = format_size(found.floor)
    return f"can't be gated at {format_size(DEFAULT_TOLERANCE)}: changes under {told} can't be told from none there"


def _config(old: LaunchStatic | None, new: LaunchStatic | None) -> list[str]:
    if old is None:
        return [f"launch added: {new.kernel}"] if new else []
    if new is None:
        return [f"launch removed: {old.kernel}"]
    if old.kernel != new.kernel:
        return [f"launch: {old.kernel} -> {new.kernel}"]
    changed = old.setting_changes(new)
    return [f"{new.kernel}: {settings_text(changed)}"] if changed else []


def _code(old: LaunchStatic, new: LaunchStatic, before: str, after: str) -> Iterator[str]:
    if cause := launch_cause(old, new, before, after):
        yield str(cause)
    yield from grid_change(old, new)


def grid_change(old: LaunchStatic, new: LaunchStatic) -> Iterator[str]:
    """``add: grid 16x1x1 -> 32x1x1``; nothing of the same grid."""
    if old.grid != new.grid:
        yield f"{new.kernel}: grid {'x'.join(map(str, old.grid))} -> {'x'.join(map(str, new.grid))}"


def _figures(old: LaunchStatic, new: LaunchStatic) -> list[Figure]:
    if old.kernel != new.kernel:
        return []
    values = [(name, read(old.metrics), read(new.metrics)) for name, read in FIGURES.items()]
    return [Figure(new.kernel, name, a, b) for name, a, b in values if a != b]


def _environment(old: Baseline, new: Baseline) -> tuple[str, ...]:
    if not isinstance(old, TimeBaseline) or not isinstance(new, TimeBaseline):
        return ()
    return tuple(old.environment.differences(new.environment))


def _growth(figure: Figure) -> float:
    before, after = figure.before or 0, figure.after or 0
    return after / before - 1 if before else (inf if after else 0.0)


def _named(key: BaselinePlace) -> str:
    return f"{key.case} ({key.target}, {key.place})"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def case_list(title: str, cases: Iterable[str], markdown: bool) -> str:
    """A title and the cases below it, for a terminal or for a comment."""
    bullet, gap = ("- ", "\n\n") if markdown else ("  ", "\n")
    return f"{title}:{gap}" + "\n".join(bullet + (code_of(c) if markdown else c) for c in cases)
