"""What a compiler fuses into its kernels, compared between two sides: ``2 kernels became 3``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

from kerntune.base.operator_list import places_text
from kerntune.gate.console import counted, some_of
from kerntune.gate.static_figures import AnyLaunch, paired

SHOWN = 6
"""Kernels, and operators of a kernel, that a line names."""

FUSION_CHANGED = "fusion changed: "
"""The first words of a line of :func:`fusion_lines`."""


@dataclass
class FusionChange(Generic[AnyLaunch]):
    """Kernels of two sides that compute the same operators, or some of them, and are divided otherwise."""

    before: list[AnyLaunch]
    after: list[AnyLaunch]

    @property
    def lost(self) -> bool:
        """Whether what some kernels computed takes more of them now."""
        return 0 < len(self.before) < len(self.after)

    @property
    def replaced(self) -> bool:
        """Whether kernels stand in the place of others."""
        return bool(self.before and self.after)

    @property
    def counts(self) -> tuple[int, int]:
        """The number of kernels before and after."""
        return len(self.before), len(self.after)

    def text(self) -> str:
        """The change in words, with the users' lines of what there is now."""
        lines = dict.fromkeys(line for x in self.after for line in getattr(x, "lines", ()))
        return self._divided() + places_text(tuple(lines))

    def _divided(self) -> str:
        old, new = self.counts
        if not old:
            return f"{counted(new, 'kernel')} more: {_names(self.after)}"
        if not new:
            return f"{counted(old, 'kernel')} less: {_names(self.before)}"
        became = "fused otherwise" if old == new else f"became {new}"
        return f"{counted(old, 'kernel')} {became}: {_names(self.before)} -> {_names(self.after)}"


def fusion_changes(before: Sequence[AnyLaunch], after: Sequence[AnyLaunch]) -> list[FusionChange[AnyLaunch]]:
    """The changes of what generated kernels compute, in the order of ``after``.

    Launches that :func:`kerntune.gate.static_figures.paired` pairs by code, source or all their operators are divided
    as they were. Of the others, those that have an operator in common are one change. So are those without one that
    stand in the same place, between the same kernels of both sides: one operator can be written as others (``gelu`` as
    ``mul``, ``erf`` and ``add``). A kernel that is split into parts of the same operators (a sum in two steps), or into
    parts of which one has its operators written as others, is one change with all of its parts.
    """
    changes: list[FusionChange[AnyLaunch]] = []
    kept: list[tuple[int, int]] = []
    pairs = paired(before, after)
    alone = [old or new for old, new in pairs if old is None or new is None]
    for old, new in pairs:
        if old is not None and new is not None and _divided_alike(old, new, alone):
            kept.append((_place(before, old), _place(after, new)))
            continue
        for side, launch in (("after", new), ("before", old)):
            if launch is not None and launch.origins:
                changes = _with(changes, side, launch)

    def same_place(old: AnyLaunch, new: AnyLaunch) -> bool:
        at, now = _place(before, old), _place(after, new)
        return all((a < at) == (b < now) for a, b in kept)  # what both sides have is before both, or after both

    changes = _with_parts(_replaced(changes, same_place), same_place)
    for change in changes:
        change.before.sort(key=lambda launch: _place(before, launch))
        change.after.sort(key=lambda launch: _place(after, launch))
    return changes


def _place(launches: Sequence[AnyLaunch], launch: AnyLaunch) -> int:
    return next(i for i, x in enumerate(launches) if x is launch)


def _replaced(
    changes: list[FusionChange[AnyLaunch]], same_place: Callable[[AnyLaunch, AnyLaunch], bool]
) -> list[FusionChange[AnyLaunch]]:
    """The changes, where kernels that only ``before`` has are joined with those that have come into their place."""
    gone, rest = [c for c in changes if not c.after], [c for c in changes if c.after]
    for lost in gone:
        mine = [c for c in rest if any(same_place(a, b) for a in lost.before for b in c.after)]
        mine = [c for c in mine if not any(_share(a, b) for a in c.before for b in c.after)]
        if not mine:
            rest.append(lost)
            continue
        mine[0].before += lost.before
        for other in mine[1:]:
            mine[0].before += other.before
            mine[0].after += other.after
        rest = [c for c in rest if c not in mine[1:]]
    return rest


def _with_parts(
    changes: list[FusionChange[AnyLaunch]], same_place: Callable[[AnyLaunch, AnyLaunch], bool]
) -> list[FusionChange[AnyLaunch]]:
    """The changes, where kernels that only ``after`` has are joined with one that lacks operators in that place."""
    joined = []
    for part in (c for c in changes if not c.before):
        for change in (c for c in changes if c.replaced):
            now = {x for launch in change.after for x in launch.origins}
            lacks = not {x for launch in change.before for x in launch.origins} <= now
            if lacks and any(same_place(a, b) for a in change.before for b in part.after):
                change.after += part.after
                joined.append(part)
                break
    return [c for c in changes if all(c is not part for part in joined)]


def _divided_alike(old: AnyLaunch, new: AnyLaunch, alone: Sequence[AnyLaunch | None]) -> bool:
    """Not so where a changed kernel of the same operators has lost some of its work to a kernel without a counterpart,
    or has taken it: that one's operators are all among its own."""
    if old.source == new.source or getattr(old, "code", 0) == getattr(new, "code", 1):
        return old.origins == new.origins or bool(old.origins)
    split = any(x is not None and x.origins and set(x.origins) <= set(new.origins) for x in alone)
    return old.origins == new.origins and not split


def _with(changes: list[FusionChange[AnyLaunch]], side: str, launch: AnyLaunch) -> list[FusionChange[AnyLaunch]]:
    mine = [c for c in changes if any(_share(x, launch) for x in (*c.before, *c.after))]
    joined: FusionChange[AnyLaunch] = FusionChange(
        [x for c in mine for x in c.before], [x for c in mine for x in c.after]
    )
    getattr(joined, side).append(launch)
    return [*(c for c in changes if c not in mine), joined]


def _share(one: AnyLaunch, other: AnyLaunch) -> bool:
    return bool(set(one.origins) & set(other.origins))


def fusion_lines(before: Sequence[AnyLaunch], after: Sequence[AnyLaunch]) -> tuple[str, ...]:
    """A line for each change of what is fused."""
    return tuple(FUSION_CHANGED + c.text() for c in fusion_changes(before, after))


def lost_fusions(before: Sequence[AnyLaunch], after: Sequence[AnyLaunch]) -> Iterator[FusionChange[AnyLaunch]]:
    """The changes by which the same operators need more kernels."""
    yield from (c for c in fusion_changes(before, after) if c.lost)


def _names(launches: Sequence[AnyLaunch]) -> str:
    return some_of([f"{x.kernel} ({operators(x.origins)})" for x in launches], SHOWN)


def operators(origins: Sequence[str]) -> str:
    """ATen operators with their numbers, without the common prefix: ``add 2x, mul``."""
    counts = Counter(name.removeprefix("aten.") for name in origins)
    said = [name if count == 1 else f"{name} {count}x" for name, count in counts.items()]
    return ", ".join(said[:SHOWN]) + (f", {len(said) - SHOWN} more" if len(said) > SHOWN else "")
