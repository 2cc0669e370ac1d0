"""What changed between two compilations of one kernel, and whether it should worry anyone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from kerntune.static.metrics import StaticMetrics

Severity = Literal["fail", "warn", "info"]

_LOADS = ("global_load", "async_copy")
"""Classes that bring data from global memory by address; TMA moves tiles and has no width."""


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much may change unsaid: shares of the value before, ``0.1`` is a tenth.

    A spill, a broken limit, arithmetic in fp64 and lost tensor core work have no threshold: any of them is found.
    Registers, shared memory, code and instructions are found when they move by more than theirs; occupancy and width
    of loads fail when they lose more than theirs.
    """

    registers: float = 0.10
    shared: float = 0.10
    instructions: float = 0.10
    occupancy: float = 0.10
    load_width: float = 0.10


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change. ``text`` is a sentence for a person and names ``before`` and ``after``."""

    severity: Severity
    metric: str
    before: float
    after: float
    text: str


DEFAULT_THRESHOLDS = Thresholds()


def compare_static(
    before: StaticMetrics, after: StaticMetrics, *, thresholds: Thresholds = DEFAULT_THRESHOLDS
) -> list[Finding]:
    """What changed from ``before`` to ``after``, failures first, then warnings, then what got better.

    Both should be of one kernel, config and device: another tile size changes each figure for good reasons.
    Figures that are equal give no finding, so a kernel compared with itself gives none.
    """
    found = [
        *_limits(before, after),
        *_spills(before, after),
        *_tensor_cores(before, after),
        *_fp64(before, after),
        *_load_width(before, after, thresholds.load_width),
        *_tma(before, after),
        *_occupancy(before, after, thresholds.occupancy),
        *_sizes(before, after, thresholds),
    ]
    return sorted(found, key=lambda finding: ("fail", "warn", "info").index(finding.severity))


def _limits(before: StaticMetrics, after: StaticMetrics) -> Iterator[Finding]:
    """A limit newly broken, broken further, or kept again. Within a limit, only the limit is known of the need."""
    old = {(v.resource, v.unit): v for v in before.over_limit}
    new = {(v.resource, v.unit): v for v in after.over_limit}
    for key, broken in new.items():
        was = old[key].needed if key in old else broken.limit
        if was < broken.needed:
            most = "" if key in old else "at most "
            text = f"can't be launched: {broken}; before {most}{was:,}, after {broken.needed:,}"
            yield Finding("fail", key[0], was, broken.needed, text)
    for key in sorted(old.keys() - new.keys()):
        kept = old[key]
        text = f"{key[0]} is within the device's limit again: before {kept.needed:,}, after at most {kept.limit:,}"
        yield Finding("info", key[0], kept.needed, kept.limit, text)


def _spills(before: StaticMetrics, after: StaticMetrics) -> Iterator[Finding]:
    """Bytes that go through memory, and on AMD registers, since some are spilled to others, not to memory."""
    old = before.spill_store_bytes + before.spill_load_bytes
    new = after.spill_store_bytes + after.spill_load_bytes
    stored = _change(before.spill_store_bytes, after.spill_store_bytes)
    loaded = _change(before.spill_load_bytes, after.spill_load_bytes)
    detail = f"{_change(old, new)} bytes per thread (stored {stored}, loaded {loaded})"
    yield from _spill("spills", old, new, detail, "fail")
    old, new = before.vgpr_spills or 0, after.vgpr_spills or 0
    yield from _spill("vgpr_spills", old, new, f"{_change(old, new)} vector registers", "fail")
    old, new = before.sgpr_spills or 0, after.sgpr_spills or 0
    yield from _spill("sgpr_spills", old, new, f"{_change(old, new)} scalar registers", "warn")


def _spill(metric: str, old: int, new: int, detail: str, severity: Severity) -> Iterator[Finding]:
    if new > old:
        yield Finding(severity, metric, old, new, f"{'more is spilled' if old else 'registers are spilled'}: {detail}")
    elif new < old:
        yield Finding("info", metric, old, new, f"{'less is spilled' if new else 'no more spills'}: {detail}")


def _tensor_cores(before: StaticMetrics, after: StaticMetrics) -> Iterator[Finding]:
    """Work, where every instruction says its shape, else instructions: fewer but larger ones are no loss."""
    key = "tensor_core_macs"
    if key not in before.instructions or (key not in after.instructions and _count(after, "tensor_core")):
        key = "tensor_core"
    old, new = _count(before, key), _count(after, key)
    what = "multiply-adds in tensor core instructions" if key == "tensor_core_macs" else "tensor core instructions"
    if new < old:
        how = "no tensor cores are used any more" if new == 0 else "less work for the tensor cores"
        yield Finding("fail", "tensor_core", old, new, f"{how}: {_change(old, new)} {what}")
    elif old < new:
        yield Finding("info", "tensor_core", old, new, f"more work for the tensor cores: {_change(old, new)} {what}")


def _fp64(before: StaticMetrics, after: StaticMetrics) -> Iterator[Finding]:
    old, new = _count(before, "fp64"), _count(after, "fp64")
    change = f"{_change(old, new)} instructions"
    if new > old == 0:
        text = f"arithmetic in double precision appeared: {change}; look for a float64 constant or a Python float"
        yield Finding("fail", "fp64", old, new, text)
    elif new > old:
        yield Finding("warn", "fp64", old, new, f"more arithmetic in double precision: {change}")
    elif new < old:
        yield Finding("info", "fp64", old, new, f"less arithmetic in double precision: {change}")


def _load_width(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Finding]:
    """The mean width of a load from global memory. Without a load on either side there is nothing to compare."""
    old, new = _mean_load_bits(before), _mean_load_bits(after)
    if old is None or new is None or old == new:
        return
    detail = f"{_change(old, new)} bits a load on average ({_widths(before)} -> {_widths(after)})"
    if new < old * (1 - threshold):
        text = f"loads from global memory got narrower: {detail}; look for lost alignment or contiguity"
        yield Finding("fail", "global_load_width", old, new, text)
    elif new > old * (1 + threshold):
        yield Finding("info", "global_load_width", old, new, f"loads from global memory got wider: {detail}")


def _mean_load_bits(metrics: StaticMetrics) -> float | None:
    by_width = _by_width(metrics)
    loads = sum(by_width.values())
    return sum(width * count for width, count in by_width.items()) / loads if loads else None


def _by_width(metrics: StaticMetrics) -> dict[int, int]:
    found: dict[int, int] = {}
    for name, count in metrics.instructions.items():
        if match := re.fullmatch(rf"(?:{'|'.join(_LOADS)})_(\d+)", name):
            found[int(match[1])] = found.get(int(match[1]), 0) + count
    return found


def _widths(metrics: StaticMetrics) -> str:
    return ", ".join(f"{count} of {width}" for width, count in sorted(_by_width(metrics).items(), reverse=True))


def _tma(before: StaticMetrics, after: StaticMetrics) -> Iterator[Finding]:
    old, new = _count(before, "tma"), _count(after, "tma")
    if old and not new:
        yield Finding("warn", "tma", old, new, f"no bulk copies (TMA) any more: {_change(old, new)} instructions")
    elif new and not old:
        yield Finding("info", "tma", old, new, f"bulk copies (TMA) are used now: {_change(old, new)} instructions")


def _occupancy(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Finding]:
    old, new = before.occupancy, after.occupancy
    if old is None or new is None or old == new:
        return
    limits = f"limited by {before.occupancy_limiter}, then by {after.occupancy_limiter}"
    text = f"theoretical occupancy {'fell' if new < old else 'rose'}: {old:.1%} -> {new:.1%} ({limits})"
    severity: Severity = "info" if new > old else "fail" if new < old * (1 - threshold) else "warn"
    yield Finding(severity, "occupancy", old, new, text)


def _sizes(before: StaticMetrics, after: StaticMetrics, thresholds: Thresholds) -> Iterable[Finding]:
    sizes = [
        ("registers", "registers a thread", before.registers, after.registers, thresholds.registers),
        ("shared_bytes", "bytes of shared memory a block", before.shared_bytes, after.shared_bytes, thresholds.shared),
        ("code_bytes", "bytes of machine code", before.code_bytes, after.code_bytes, thresholds.instructions),
        ("total", "instructions", _count(before, "total"), _count(after, "total"), thresholds.instructions),
    ]
    for metric, what, old, new, threshold in sizes:
        if new > old * (1 + threshold):
            yield Finding("warn", metric, old, new, f"more {what}: {_change(old, new)}{_percent(old, new)}")
        elif new < old * (1 - threshold):
            yield Finding("info", metric, old, new, f"fewer {what}: {_change(old, new)}{_percent(old, new)}")


def _count(metrics: StaticMetrics, name: str) -> int:
    return metrics.instructions.get(name, 0)


def _change(old: float, new: float) -> str:
    return f"{_number(old)} -> {_number(new)}"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value != int(value) else f"{int(value):,}"


def _percent(old: float, new: float) -> str:
    return f" ({(new - old) / old:+.0%})" if old else ""
