"""What changed between the launches of a call: their number, their grids, and what they run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from kerntune.base.policy import StaticPolicy
from kerntune.gate.static_figures import LaunchStatic, paired
from kerntune.static.finding import Draft, Finding, change, number, worst_first
from kerntune.static.rules import DEFAULT_RULES, compare_static, judged


class LaunchFindings(msgspec.Struct, frozen=True):
    """A launch of both sides, and what the rules say of its change."""

    before: LaunchStatic
    after: LaunchStatic
    findings: tuple[Finding, ...]


def compare_launches(
    before: Sequence[LaunchStatic], after: Sequence[LaunchStatic], rules: StaticPolicy = DEFAULT_RULES
) -> list[LaunchFindings]:
    """The launches that both sides have (:func:`kerntune.gate.static_figures.paired`), those without a finding too."""
    pairs = [(a, b) for a, b in paired(before, after) if a is not None and b is not None]
    return [LaunchFindings(a, b, tuple(_findings(a, b, rules))) for a, b in pairs]


def count_findings(
    before: Sequence[LaunchStatic], after: Sequence[LaunchStatic], rules: StaticPolicy = DEFAULT_RULES
) -> list[Finding]:
    """What the rules say of the number of launches. Without a launch before there is nothing to compare."""
    drafts = _counts(before, after, rules.rule("launches").threshold or 0.0) if before else ()
    return judged(drafts, rules)


def _findings(before: LaunchStatic, after: LaunchStatic, rules: StaticPolicy) -> list[Finding]:
    changed = before.setting_changes(after)
    grid = judged(_grid(before, after, rules.rule("grid").threshold or 0.0), rules)
    if before.code == after.code:
        return grid
    code = compare_static(before.metrics, after.metrics, rules=rules, other_config=bool(changed))
    return worst_first([*code, *grid])


def _counts(before: Sequence[LaunchStatic], after: Sequence[LaunchStatic], threshold: float) -> Iterator[Draft]:
    if len(after) <= len(before) * (1 + threshold):
        return
    told = ", ".join(_more(before, after))
    text = f"{len(after) / len(before):.3g} times as many launches: {change(len(before), len(after))} ({told})"
    yield Draft("fail", "launches", len(before), len(after), text, "launches")


def _more(before: Iterable[LaunchStatic], after: Iterable[LaunchStatic]) -> Iterator[str]:
    """Kernels that are launched more often, by name."""
    old, new = (Counter(x.kernel for x in side) for side in (before, after))
    yield from (f"{kernel} {old[kernel]} -> {count}" for kernel, count in new.items() if count > old[kernel])


def _grid(before: LaunchStatic, after: LaunchStatic, threshold: float) -> Iterator[Draft]:
    """More programs than another tile explains."""
    old, new = math.prod(before.grid), math.prod(after.grid)
    if old and new > old * (1 + threshold) * _explained(before, after):
        shapes = f"{_shape(before.grid)} -> {_shape(after.grid)}"
        text = f"{new / old:.3g} times as many programs: {change(old, new)} (grid {shapes})"
        yield Draft("fail", "grid", old, new, text, "grid")


def _explained(before: LaunchStatic, after: LaunchStatic) -> float:
    """How many times as many programs the config's change may make: half the tile, twice the programs; four times the
    splits, four times as many. Whatever a changed number is for, it doesn't explain more than its factor."""
    changed = before.setting_changes(after).values()
    pairs = [(int(old), int(new)) for old, new in changed if old.isdecimal() and new.isdecimal()]
    return math.prod((max(p) / min(p) for p in pairs if min(p) > 0), start=1.0)


def _shape(grid: Sequence[int]) -> str:
    return "x".join(number(n) for n in grid)
