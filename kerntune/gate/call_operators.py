"""What changed among the operators that a call runs beside its captured kernels: work that moved out of what is judged.

Pure: sees two lists (:mod:`kerntune.base.operator_list`) and a rule. Limits are shares of the bytes that the whole call
moved when the baseline was recorded, and never less than :data:`LEAST_BYTES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from kerntune.base.formatting import format_bytes
from kerntune.base.numerics import ChangedOutput
from kerntune.base.operator_list import OperatorList, names_text
from kerntune.base.policy import StaticRule

LEAST_BYTES = 1 << 20
"""1 MiB: what moves less takes no longer than a launch on today's GPUs (0.3 µs at 3.3 TB/s)."""

NO_LIST = "operators beside the kernels not compared: the baseline has no list of them (a refresh writes one)"


class OperatorChange(NamedTuple):
    """Sentences on a change: those that fail a case, those because of which nothing can be said for it, and those that
    inform."""

    failures: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    differs: bool = False
    """Whether the two lists have other operators, layouts or counts."""

    graphs: str = ""
    """Where compiled functions consist of more graphs than before: how many, and why."""

    taken_over: bool = False
    """Whether operators move less, and other kernels may do their work."""

    def qualified(self, causes: tuple[str, ...]) -> tuple[str, ...]:
        """Causes in which unchanged code is that of the kernels alone, with what became of graphs."""
        more = (self.graphs,) if self.graphs else ()
        if not self.differs:
            return (*causes, *more)
        text = "code of the kernels unchanged, other torch operators beside them"
        return (*(cause.replace("code unchanged", text, 1) for cause in causes), *more)

    def joined(self, other: OperatorChange) -> OperatorChange:
        """The change with what another rule has found."""
        failures, unsure = (*self.failures, *other.failures), (*self.unsure, *other.unsure)
        return self._replace(failures=failures, unsure=unsure, told=(*self.told, *other.told))


NO_CHANGE = OperatorChange()


def compare_operators(
    before: OperatorList | None, now: OperatorList | None, rule: StaticRule, *, timed: bool, same_kernels: bool
) -> OperatorChange:
    """The change from ``before`` to ``now``, by the rule ``other_operators``.

    More bytes fail where nothing runs. Where kernels are ``timed`` they make a case undecided: no stored number fails a
    test there, and the kernels' own time doesn't hold what operators took over. A result that captured kernels wrote
    and don't any more fails in both.
    """
    if now is None or rule.severity == "off":
        return NO_CHANGE
    if before is None:
        return OperatorChange(told=(NO_LIST,) if now.count else ())
    lost = _lost_results(before, now)
    limit = max(LEAST_BYTES, int((rule.threshold or 0.0) * (before.kernel_bytes + before.moved)))
    failures, unsure, told = list(filter(None, [lost])), list[str](), list[str]()
    more, fewer = now.moved - before.moved > limit, before.moved - now.moved > limit
    moved = f"{format_bytes(before.moved)} -> {format_bytes(now.moved)}"
    if (more or fewer) and before.torch != now.torch:
        unsure.append(
            f"torch operators beside the kernels move {moved} under another torch ({before.torch} -> {now.torch}), "
            "so not judged"
        )
    elif more:
        text = (
            f"torch operators beside the kernels, which are not timed, move more: {moved} ({_new_names(before, now)})"
        )
        (unsure if timed else failures).append(text)
    elif fewer:
        text = f"torch operators beside the kernels move less: {moved} ({_new_names(now, before)} gone)"
        (told if same_kernels else unsure).append(text if same_kernels else f"{text}; kernels may do that work now")
    for figure, what in (("filled", "fill more memory"), ("uncertain", "may move more")):
        old, new = getattr(before, figure), getattr(now, figure)
        if new - old > limit and not more:
            unsure.append(f"torch operators beside the kernels {what}: {format_bytes(old)} -> {format_bytes(new)}")
    unsure += _precomputed(before, now, limit)
    differs = _rows(before) != _rows(now)
    if not (failures or unsure or told) and differs:
        added, gone = _new_names(before, now), _new_names(now, before)
        both = [*([f"new {added}"] if added else []), *([f"gone {gone}"] if gone else [])]
        told.append(f"other torch operators beside the kernels, within the limit: {', '.join(both)}")
    if rule.severity == "warn":
        return OperatorChange(told=(*failures, *unsure, *told), differs=differs)
    taken_over, graphs = fewer and not same_kernels, ""
    if before.graphs < now.graphs:
        breaks = f" (break at {'; '.join(now.breaks)})" if now.breaks else ""
        graphs = f"{now.graphs} graphs were {before.graphs}{breaks}"
    return OperatorChange(tuple(failures), tuple(unsure), tuple(told), differs, graphs, taken_over)


def more_bytes(
    before: OperatorList | None,
    now: OperatorList | None,
    grown: Sequence[str],
    rule: StaticRule,
    *,
    operators_count: bool = True,
) -> OperatorChange:
    """The change of what the whole call moves, kernels and operators together, by the rule ``bytes_moved``.

    Where nothing runs alone: on a GPU the time has it. ``grown`` says which kernels move more. Nothing is found for a
    call of which :func:`compare_operators` says that operators move more: it is one loss. ``operators_count``: whether
    what operators move counts, which a test may have allowed.
    """
    if before is None or now is None or rule.severity == "off" or not before.kernel_bytes:
        return NO_CHANGE
    old, new = before.kernel_bytes, now.kernel_bytes
    if operators_count:
        old, new = old + before.moved, new + now.moved
    if new - old <= max(LEAST_BYTES, int((rule.threshold or 0.0) * old)):
        return NO_CHANGE
    operators = _new_names(before, now)
    beside = f"torch operators {operators}" if operators_count and now.moved > before.moved and operators else ""
    where = "; ".join(filter(None, [*grown, beside]))
    share = f"{format_bytes(old)} -> {format_bytes(new)} (+{new / old - 1:.0%})"
    text = f"the call moves more bytes: {share}{f': {where}' if where else ''}"
    if before.torch != now.torch:
        other = f"under another torch ({before.torch} -> {now.torch}), so not judged"
        return OperatorChange(unsure=(f"{text}, {other}",))
    return OperatorChange(told=(text,)) if rule.severity == "warn" else OperatorChange((text,))


def with_anchors(change: OperatorChange, since: OperatorChange, day: str) -> OperatorChange:
    """With what ``since``, the change from the anchor of that ``day``, alone finds: work that moved by little at a
    time. What operators do less than at the anchor was looked at when the baseline was recorded."""
    when = f", since the anchor of {day}"
    failures = change.failures or tuple(f"{text}{when}" for text in since.failures)
    found = change.unsure or since.taken_over
    unsure = change.unsure if found else tuple(f"{text}{when}" for text in since.unsure)
    return change._replace(failures=failures, unsure=unsure)


def with_unwritten(
    change: OperatorChange, outputs: Iterable[ChangedOutput], results: Set[str], rule: StaticRule
) -> OperatorChange:
    """With the ``outputs`` of a replay, on memory that was filled before, of which elements aren't written any more.
    ``results`` are the arguments of launches that hold what the call returns or changes."""
    texts = tuple(
        f"{x.argument}: {x.unwritten:,} of {x.total:,} elements of a result are no longer written by captured kernels"
        for x in outputs
        if x.unwritten and not x.varying and not results.isdisjoint(x.argument.split(", "))
    )
    if rule.severity == "off" or not texts:
        return change
    if rule.severity == "warn":
        return change._replace(told=(*texts, *change.told))
    return change._replace(failures=(*change.failures, *texts))


def _lost_results(before: OperatorList, now: OperatorList) -> str:
    """Results that captured kernels had a part in, and have none any more; empty text without any."""
    if len(before.results) == len(now.results):
        lost = sum(old and not new for old, new in zip(before.results, now.results, strict=True))
    else:
        lost = now.results.count(False) if all(before.results) and before.results else 0
    if not lost:
        return ""
    count = len(now.results)
    makers = ", ".join(now.makers)
    comes = f"{lost} of {count} results" + (" comes" if lost == 1 else " come")
    where = (
        f"from torch operators, which are not timed: {makers}" if makers else "from before the call, or from elsewhere"
    )
    return f"{comes} {where}; in the baseline captured kernels wrote {'it' if lost == 1 else 'them'}"


def _precomputed(before: OperatorList, now: OperatorList, limit: int) -> list[str]:
    """A sentence on storages that launches read, that are neither arguments nor made in the call, and new."""
    new = Counter(now.outside) - Counter(before.outside)
    nbytes = sum(size * count for size, count in new.items())
    if nbytes <= limit:
        return []
    what = "a tensor" if sum(new.values()) == 1 else f"{sum(new.values())} tensors"
    return [
        f"kernels read {what} ({format_bytes(nbytes)}) that the baseline's didn't, and that is neither an argument nor "
        "made in the call: what was computed before the call isn't judged"
    ]


Rows = Counter[tuple[str, str]]


def _rows(found: OperatorList) -> Rows:
    return Counter({(r.name, r.signature): r.count for r in found.rows if r.kind != "kept"})


def _new_names(before: OperatorList, now: OperatorList) -> str:
    """The operators of ``now`` that ``before`` lacks or has fewer of, those that move the most first."""
    old = _rows(before)
    grown = [row for row in now.rows if row.count > old[row.name, row.signature]]
    return names_text(grown, placed=True)
