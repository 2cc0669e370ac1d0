"""What changed between two compilations of one kernel, and whether it should worry anyone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from kerntune.policy import StaticPolicy
from kerntune.static.metrics import StaticMetrics

Severity = Literal["fail", "warn", "info"]

_LOADS = ("global_load", "async_copy")
"""Classes that bring data from global memory by address; TMA moves tiles and has no width."""


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change. ``text`` is a sentence for a person and names ``before`` and ``after``."""

    severity: Severity
    metric: str
    before: float
    after: float
    text: str
    rule: str = ""
    """The name of the rule that found it (:data:`kerntune.policy.STATIC_RULES`)."""


DEFAULT_RULES = StaticPolicy()

WHATEVER_THE_CONFIG = ("limits", "spills", "vgpr_spills", "fp64")
"""Rules that fail between two configs too; the other figures change with a tile's size for good reasons."""


def compare_static(
    before: StaticMetrics, after: StaticMetrics, *, rules: StaticPolicy = DEFAULT_RULES, other_config: bool = False
) -> list[Finding]:
    """What changed from ``before`` to ``after``, failures first, then warnings, then what got better.

    Both should be of one kernel and device. With ``other_config`` only limits, spills, double precision and tensor
    cores that are no longer used at all can fail. Figures that are equal give no finding, so a kernel compared with
    itself gives none.
    """
    found = [
        *_limits(before, after),
        *_spills(before, after),
        *_tensor_cores(before, after),
        *_fp64(before, after),
        *_load_width(before, after, _threshold(rules, "load_width")),
        *_tma(before, after),
        *_occupancy(before, after, _threshold(rules, "occupancy")),
        *_sizes(before, after, rules),
    ]
    judged = [_judged(f, rules, other_config) for f in found if rules.rule(f.rule).severity != "off"]
    return sorted(judged, key=lambda finding: ("fail", "warn", "info").index(finding.severity))


def _judged(found: Finding, rules: StaticPolicy, other_config: bool) -> Finding:
    """A finding as loud as its rule says. The rules below say fail for what the rule is about, warn for less."""
    severity: Severity = found.severity
    if severity == "fail":
        severity = "warn" if rules.rule(found.rule).severity == "warn" else "fail"
    hard = found.rule in WHATEVER_THE_CONFIG or (found.rule == "tensor_cores" and not found.after)
    if severity == "fail" and other_config and not hard:
        severity = "warn"
    return msgspec.structs.replace(found, severity=severity)


def _threshold(rules: StaticPolicy, name: str) -> float:
    return rules.rule(name).threshold or 0.0


def _limits(before: StaticMetrics, after: StaticMetrics) -> Iterator[Finding]:
    """A limit newly broken, broken further, or kept again. Within a limit, only the limit is known of the need."""
    old = {(v.resource, v.unit): v for v in before.over_limit}
    new = {(v.resource, v.unit): v for v in after.over_limit}
    for key, broken in new.items():
        was = old[key].needed if key in old else broken.limit
        if was < broken.needed:
            most = "" if key in old else "at most "
            text = f"can't be launched: {broken}; before {most}{was:,}, after {broken.needed:,}"
            yield Finding("fail", key[0], was, broken.needed, text, "limits")
    for key in sorted(old.keys() - new.keys()):
        kept = old[key]
        text = f"{key[0]} is within the device's limit again: before {kept.needed:,}, after at most {kept.limit:,}"
        yield Finding("info", key[0], kept.needed, kept.limit, text, "limits")


def _spills(before: StaticMetrics, after: StaticMetrics) -> Iterator[Finding]:
    """Bytes that go through memory, and on AMD registers, since some are spilled to others, not to memory."""
    old = before.spill_store_bytes + before.spill_load_bytes
    new = after.spill_store_bytes + after.spill_load_bytes
    stored = _change(before.spill_store_bytes, after.spill_store_bytes)
    loaded = _change(before.spill_load_bytes, after.spill_load_bytes)
    detail = f"{_change(old, new)} bytes per thread (stored {stored}, loaded {loaded})"
    yield from _spill("spills", old, new, detail)
    old, new = before.vgpr_spills or 0, after.vgpr_spills or 0
    yield from _spill("vgpr_spills", old, new, f"{_change(old, new)} vector registers")
    old, new = before.sgpr_spills or 0, after.sgpr_spills or 0
    yield from _spill("sgpr_spills", old, new, f"{_change(old, new)} scalar registers")


def _spill(metric: str, old: int, new: int, detail: str) -> Iterator[Finding]:
    if new > old:
        text = f"{'more is spilled' if old else 'registers are spilled'}: {detail}"
        yield Finding("fail", metric, old, new, text, metric)
    elif new < old:
        text = f"{'less is spilled' if new else 'no more spills'}: {detail}"
        yield Finding("info", metric, old, new, text, metric)


def _tensor_cores(before: StaticMetrics, after: StaticMetrics) -> Iterator[Finding]:
    """Work, where every instruction says its shape, else instructions: fewer but larger ones are no loss."""
    key = "tensor_core_macs"
    if key not in before.instructions or (key not in after.instructions and _count(after, "tensor_core")):
        key = "tensor_core"
    old, new = _count(before, key), _count(after, key)
    what = "multiply-adds in tensor core instructions" if key == "tensor_core_macs" else "tensor core instructions"
    if new < old:
        how = "no tensor cores are used any more" if new == 0 else "less work for the tensor cores"
        yield Finding("fail", "tensor_core", old, new, f"{how}: {_change(old, new)} {what}", "tensor_cores")
    elif old < new:
        text = f"more work for the tensor cores: {_change(old, new)} {what}"
        yield Finding("info", "tensor_core", old, new, text, "tensor_cores")


def _fp64(before: StaticMetrics, after: StaticMetrics) -> Iterator[Finding]:
    old, new = _count(before, "fp64"), _count(after, "fp64")
    change = f"{_change(old, new)} instructions"
    if new > old == 0:
        text = f"arithmetic in double precision appeared: {change}; look for a float64 constant or a Python float"
        yield Finding("fail", "fp64", old, new, text, "fp64")
    elif new > old:
        yield Finding("fail", "fp64", old, new, f"more arithmetic in double precision: {change}", "more_fp64")
    elif new < old:
        yield Finding("info", "fp64", old, new, f"less arithmetic in double precision: {change}", "fp64")


def _load_width(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Finding]:
    """The mean width of a load from global memory. Without a load on either side there is nothing to compare."""
    old, new = _mean_load_bits(before), _mean_load_bits(after)
    if old is None or new is None or old == new:
        return
    detail = f"{_change(old, new)} bits a load on average ({_widths(before)} -> {_widths(after)})"
    if new < old * (1 - threshold):
        text = f"loads from global memory got narrower: {detail}; look for lost alignment or contiguity"
        yield Finding("fail", "global_load_width", old, new, text, "load_width")
    elif new > old * (1 + threshold):
        text = f"loads from global memory got wider: {detail}"
        yield Finding("info", "global_load_width", old, new, text, "load_width")


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
        text = f"no bulk copies (TMA) any more: {_change(old, new)} instructions"
        yield Finding("fail", "tma", old, new, text, "tma")
    elif new and not old:
        text = f"bulk copies (TMA) are used now: {_change(old, new)} instructions"
        yield Finding("info", "tma", old, new, text, "tma")


def _occupancy(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Finding]:
    old, new = before.occupancy, after.occupancy
    if old is None or new is None or old == new:
        return
    limits = dict.fromkeys((before.occupancy_limiter, after.occupancy_limiter))
    limited = f"limited by {', then by '.join(limits)}"
    text = f"theoretical occupancy {'fell' if new < old else 'rose'}: {old:.1%} -> {new:.1%} ({limited})"
    severity: Severity = "info" if new > old else "fail" if new < old * (1 - threshold) else "warn"
    yield Finding(severity, "occupancy", old, new, text, "occupancy")


def _sizes(before: StaticMetrics, after: StaticMetrics, rules: StaticPolicy) -> Iterable[Finding]:
    sizes = [
        ("registers", "registers a thread", before.registers, after.registers, "registers"),
        ("shared_bytes", "bytes of shared memory a block", before.shared_bytes, after.shared_bytes, "shared"),
        ("code_bytes", "bytes of machine code", before.code_bytes, after.code_bytes, "code"),
        ("total", "instructions", _count(before, "total"), _count(after, "total"), "instructions"),
    ]
    for metric, what, old, new, rule in sizes:
        threshold, change = _threshold(rules, rule), f"{_change(old, new)}{_percent(old, new)}"
        if new > old * (1 + threshold):
            yield Finding("fail", metric, old, new, f"more {what}: {change}", rule)
        elif new < old * (1 - threshold):
            yield Finding("info", metric, old, new, f"fewer {what}: {change}", rule)


def _count(metrics: StaticMetrics, name: str) -> int:
    return metrics.instructions.get(name, 0)


def _change(old: float, new: float) -> str:
    return f"{_number(old)} -> {_number(new)}"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value != int(value) else f"{int(value):,}"


def _percent(old: float, new: float) -> str:
    return f" ({(new - old) / old:+.0%})" if old else ""
