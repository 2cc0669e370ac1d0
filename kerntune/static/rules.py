"""Rules that compare two compilations of one kernel, and the severity of each change.

Nothing is timed here, so a rule fails by default only for changes that are hardly ever an optimization: a spill, a
limit of the device, tensor cores or bulk copies lost, wider operands of tensor cores, loops of products that are no
longer pipelined, double precision, wide accesses split, the same work in many more instructions. A change of
registers, occupancy or instruction counts that comes with another tile, number of warps or stages may be an
optimization, so between two configs these are only remarks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from kerntune.base.policy import StaticPolicy
from kerntune.static.code_rules import (
    DIRECTIONS,
    Draft,
    Finding,
    Severity,
    change,
    count,
    heavier,
    moved_bytes,
    narrowed,
    percent,
    unpipelined,
    worst_first,
)
from kerntune.static.metrics import StaticMetrics

DEFAULT_RULES = StaticPolicy()

ANY_CONFIG = ("limits", "spills", "vgpr_spills", "fp64")
"""Rules that fail between two configs too, as do those that find tensor cores, bulk copies, pipelines or wide accesses
gone, and wider operands of tensor cores."""

SIZES = ("registers", "shared_memory", "binary_size", "instructions")
"""Rules on figures that differ with every tile size: between two configs they give only remarks."""


def compare_static(
    before: StaticMetrics,
    after: StaticMetrics,
    *,
    rules: StaticPolicy = DEFAULT_RULES,
    other_config: bool = False,
    resident: float | None = None,
    same_programs: bool = False,
) -> list[Finding]:
    """The changes from ``before`` to ``after``, failures first, then warnings, then improvements.

    Both must be of one kernel and device. With ``other_config`` only :data:`ANY_CONFIG` and features that are
    no longer used (tensor cores, bulk copies, pipelines, narrow operands, wide accesses) can fail by default; a rule
    that ``rules`` sets to fail fails between two configs as well. Figures that are equal give no finding, so a kernel
    compared with itself gives none. ``resident`` is the share of the device's threads (0 to 1) that the launch has at a
    time, if that is known; ``same_programs``, whether it is known that both are launched with as many.
    """
    found = [
        *_limits(before, after),
        *_spills(before, after),
        *_tensor_cores(before, after),
        *_operand_width(before, after),
        *unpipelined(before, after, resident),
        *_fp64(before, after),
        *(f for d in DIRECTIONS for f in narrowed(before, after, d, _threshold(rules, d.rule), same_programs)),
        *_tma(before, after),
        *heavier(before, after, _threshold(rules, "work")),
        *_occupancy(before, after, _threshold(rules, "occupancy")),
        *_sizes(before, after, rules),
    ]
    return judged(found, rules, other_config=other_config)


def judged(drafts: Iterable[Draft], rules: StaticPolicy, *, other_config: bool = False) -> list[Finding]:
    """Findings with the severity of their rules, the most severe first; none of a rule that is off."""
    found = [_judged(draft, rules, other_config) for draft in drafts if rules.rule(draft.rule).severity != "off"]
    return worst_first(found)


def _judged(found: Draft, rules: StaticPolicy, other_config: bool) -> Finding:
    severity: Severity = found.severity
    if severity == "fail":
        severity = "fail" if rules.rule(found.rule).severity == "fail" else "warn"
        hard = found.any_config or found.rule in ANY_CONFIG
        if other_config and found.rule not in rules.rules and not hard:
            severity = "info" if found.rule in SIZES else "warn"
    return Finding(severity, found.metric, found.before, found.after, found.text, found.rule)


def _threshold(rules: StaticPolicy, name: str) -> float:
    return rules.rule(name).threshold or 0.0


def _limits(before: StaticMetrics, after: StaticMetrics) -> Iterator[Draft]:
    """A limit newly exceeded, exceeded further, or met again. Of a figure within its limit only the limit is known."""
    old = {(v.resource, v.unit): v for v in before.over_limit}
    new = {(v.resource, v.unit): v for v in after.over_limit}
    for key, broken in new.items():
        was = old[key].needed if key in old else broken.limit
        if was < broken.needed:
            most = "" if key in old else "at most "
            text = f"can't be launched: {broken}; before {most}{was:,}, after {broken.needed:,}"
            yield Draft("fail", key[0], was, broken.needed, text, "limits")
    for key in sorted(old.keys() - new.keys()):
        kept = old[key]
        text = f"{key[0]} is within the device's limit again: before {kept.needed:,}, after at most {kept.limit:,}"
        yield Draft("info", key[0], kept.needed, kept.limit, text, "limits")


def _spills(before: StaticMetrics, after: StaticMetrics) -> Iterator[Draft]:
    """Bytes that are spilled to memory, and on AMD registers, since some are spilled to other registers."""
    old, new = before.spill_bytes, after.spill_bytes
    stored = change(before.spill_store_bytes, after.spill_store_bytes)
    loaded = change(before.spill_load_bytes, after.spill_load_bytes)
    text = f"spills {change(old, new)} B a thread (stored {stored}, loaded {loaded})"
    if old < new <= old + FEW_BYTES and _repeated(after) <= _repeated(before):
        yield Draft("warn", "spills", old, new, f"{text}, beside loops", "spills")
    else:
        yield from _spill("spills", old, new, text)
    old, new = before.vgpr_spills or 0, after.vgpr_spills or 0
    yield from _spill("vgpr_spills", old, new, f"spills {change(old, new)} vector registers")
    old, new = before.sgpr_spills or 0, after.sgpr_spills or 0
    yield from _spill("sgpr_spills", old, new, f"spills {change(old, new)} scalar registers")


FEW_BYTES = 128
"""Bytes a thread, stored and loaded: sixteen registers that are in memory while a loop runs cost less than can be
measured. A spill in a loop is repeated in each iteration."""


def _repeated(metrics: StaticMetrics) -> int:
    known = metrics.repeated_spill_bytes
    return metrics.spill_bytes if isinstance(known, msgspec.UnsetType) else known


def _spill(metric: str, old: int, new: int, text: str) -> Iterator[Draft]:
    if new > old:
        yield Draft("fail", metric, old, new, text, metric)
    elif new < old:
        yield Draft("info", metric, old, new, text, metric)


def _tensor_cores(before: StaticMetrics, after: StaticMetrics) -> Iterator[Draft]:
    """Products that are no longer computed by tensor cores, all or some, or by tensor core instructions of one warp
    only.

    Fewer instructions alone are no loss: they also come from a smaller tile, a loop that isn't unrolled, and larger
    instructions.
    """
    old, new = count(before, "tensor_core"), count(after, "tensor_core")
    told = f"{change(old, new)} tensor core instructions"
    if old and not new:
        text = f"no tensor cores are used any more: {told}"
        yield Draft("fail", "tensor_core", old, new, text, "tensor_cores", True)
    elif new and not old:
        yield Draft("info", "tensor_core", old, new, f"tensor cores are used now: {told}", "tensor_cores")
    elif new < old and _multiplied_otherwise(before, after):
        fp32 = f"{change(count(before, 'fp32'), count(after, 'fp32'))} in fp32"
        text = f"products left the tensor cores: {told}, {fp32}"
        yield Draft("fail", "tensor_core", old, new, text, "tensor_cores")
    # instructions of whole warpgroups, without which sm_90 and later don't reach their full rate
    grouped = count(before, "warpgroup_mma"), count(after, "warpgroup_mma")
    if grouped[0] and not grouped[1] and new:
        text = f"tensor cores are no longer used by whole warpgroups: {change(*grouped)} such instructions"
        yield Draft("fail", "warpgroup_mma", *grouped, text, "tensor_cores")


def _multiplied_otherwise(before: StaticMetrics, after: StaticMetrics) -> bool:
    """Whether the code has at least as many further fp32 multiply-adds as a quarter of the lost ones would need."""
    lost = count(before, "tensor_core_macs") - count(after, "tensor_core_macs")
    more = count(after, "fp32") - count(before, "fp32")
    return lost > 0 and more * LANES * 4 >= lost


LANES = 32
"""Threads of a warp, whose products a tensor core instruction makes together. A warpgroup has four times as many, so
its lost products are detected by a sixteenth of them."""


def _operand_width(before: StaticMetrics, after: StaticMetrics) -> Iterator[Draft]:
    """Products of wider operands in the place of those of narrower ones: tensor cores take twice the time for twice the
    bits. Wider products beside as many narrow ones as before are further work."""
    old, new = _operand_counts(before), _operand_counts(after)
    for bits in sorted(new, reverse=True):
        narrower = sum(n for b, n in old.items() if b < bits), sum(n for b, n in new.items() if b < bits)
        if narrower[1] < narrower[0] and _share(new, bits) > _share(old, bits):
            text = f"tensor cores multiply wider operands: {_told(old)} -> {_told(new)} products in the code"
            yield Draft("fail", "operand_bits", min(old), bits, text, "operand_width", True)
            return
    if old and new and max(new) < max(old):
        text = f"tensor cores multiply narrower operands: {_told(old)} -> {_told(new)} products in the code"
        yield Draft("info", "operand_bits", max(old), max(new), text, "operand_width")


OPERANDS = {8: "8-bit", 16: "16-bit", 32: "tf32", 64: "fp64"}
"""Operands of tensor cores by their bits."""


def _operand_counts(metrics: StaticMetrics) -> dict[int, int]:
    """Tensor core instructions by the bits of their operands. Figures of an earlier version have the mean of their
    rates alone, which tells where all are alike."""
    known = {bits: n for bits in OPERANDS if (n := count(metrics, f"tensor_core_{bits}"))}
    macs, slots = count(metrics, "tensor_core_macs"), count(metrics, "tensor_core_slots")
    if known or not macs:
        return known
    return {slots * 8 // macs: count(metrics, "tensor_core")} if slots in (macs, 2 * macs, 4 * macs) else {}


def _share(products: Mapping[int, int], bits: int) -> float:
    """The share of multiply-adds with operands of that many bits or more: an instruction takes equally many bits of
    each row, so half as many elements of twice the bits."""
    weighed = {b: n / b for b, n in products.items()}
    return sum(w for b, w in weighed.items() if b >= bits) / sum(weighed.values()) if weighed else 0.0


def _told(products: Mapping[int, int]) -> str:
    return " and ".join(f"{n:,} {OPERANDS.get(bits, f'{bits}-bit')}" for bits, n in sorted(products.items()))


def _fp64(before: StaticMetrics, after: StaticMetrics) -> Iterator[Draft]:
    old, new = _fp64_work(before), _fp64_work(after)
    counts = f"{change(old, new)} instructions"
    if new > old == 0:
        text = f"arithmetic in double precision appeared: {counts}; look for a float64 constant or a Python float"
        yield Draft("fail", "fp64", old, new, text, "fp64")
    elif new > old:
        yield Draft("fail", "fp64", old, new, f"more arithmetic in double precision: {counts}", "more_fp64")
    elif new < old:
        yield Draft("info", "fp64", old, new, f"less arithmetic in double precision: {counts}", "fp64")


def _fp64_work(metrics: StaticMetrics) -> int:
    """Double-precision instructions, without the one product of each reduction of a large angle, which ordinary
    arguments don't execute."""
    return 0 if "slow_path_fp64" in metrics.instructions else count(metrics, "fp64")


def _tma(before: StaticMetrics, after: StaticMetrics) -> Iterator[Draft]:
    """Bulk copies that are gone, all of them, or one operand's. Then the same bytes are loaded or stored by address."""
    old, new = count(before, "tma"), count(after, "tma")
    if old and not new:
        text = f"no bulk copies (TMA) any more: {change(old, new)} instructions"
        yield Draft("fail", "tma", old, new, text, "tma", True)
    elif new and not old:
        text = f"bulk copies (TMA) are used now: {change(old, new)} instructions"
        yield Draft("info", "tma", old, new, text, "tma")
    elif old:
        yield from _operands(before, after)


def _operands(before: StaticMetrics, after: StaticMetrics) -> Iterator[Draft]:
    """Lost bulk copies of one direction. The loss of all loads counts as the loss of all copies; one operand, or the
    stores of a product's epilogue, may be hidden behind the products."""
    for direction in DIRECTIONS:
        key, verb = direction.bulk, direction.verb
        old, new = count(before, key), count(after, key)
        bytes_before, bytes_after = (moved_bytes(m, direction) for m in (before, after))
        if new < old and bytes_after - bytes_before >= OPERAND_BYTES:
            by_address = f"{change(bytes_before, bytes_after)} bytes a thread {verb} by address"
            text = f"fewer {verb} by bulk copies (TMA): {change(old, new)} instructions, {by_address}"
            hidden = new or (key == "tma_store" and count(after, "tensor_core"))
            yield Draft("fail", key, old, new, text, "tma_operands" if hidden else "tma")


OPERAND_BYTES = 16
"""The least that a thread moves of a tile, in bytes: a row's scale or a bias is less."""


def _occupancy(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Draft]:
    old, new = before.occupancy, after.occupancy
    if old is None or new is None:
        return
    limits = dict.fromkeys((before.occupancy_limiter, after.occupancy_limiter))
    told = f"{old:.1%} -> {new:.1%} (limited by {', then by '.join(limits)})"
    if new > old:
        yield Draft("info", "occupancy", old, new, f"theoretical occupancy rose: {told}", "occupancy")
    elif new < old:
        severity: Severity = "fail" if new < old * (1 - threshold) else "warn"
        yield Draft(severity, "occupancy", old, new, f"theoretical occupancy fell: {told}", "occupancy")


def _sizes(before: StaticMetrics, after: StaticMetrics, rules: StaticPolicy) -> Iterable[Draft]:
    sizes = [
        ("registers", "registers a thread", before.registers, after.registers, "registers"),
        ("shared_bytes", "bytes of shared memory a block", before.shared_bytes, after.shared_bytes, "shared_memory"),
        ("code_bytes", "bytes of machine code", before.code_bytes, after.code_bytes, "binary_size"),
        ("total", "instructions", count(before, "total"), count(after, "total"), "instructions"),
    ]
    for metric, what, old, new, rule in sizes:
        threshold, counts = _threshold(rules, rule), f"{change(old, new)}{percent(old, new)}"
        if new > old * (1 + threshold):
            yield Draft("fail", metric, old, new, f"more {what}: {counts}", rule)
        elif new < old * (1 - threshold):
            yield Draft("info", metric, old, new, f"fewer {what}: {counts}", rule)
