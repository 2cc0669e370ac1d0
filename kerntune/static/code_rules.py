"""One change between two compilations of a kernel, and the rules that read its instructions.

They ask whether wide accesses to global memory were replaced by narrow ones, whether the same work takes many more
instructions, and what a loop has in flight from one round to the next: asynchronous copies, and products.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from kerntune.base.policy import STATIC_RULES
from kerntune.base.strict import StrictStruct
from kerntune.static.metrics import StaticMetrics
from kerntune.static.ptx import OPERAND_BYTES, ProductLoops

Severity = Literal["fail", "warn", "info"]


class Finding(StrictStruct, frozen=True):
    """One change. ``text`` is a sentence for messages that gives ``before`` and ``after``."""

    severity: Severity
    metric: str
    before: float
    after: float
    text: str
    rule: str = ""
    """The name of the rule that found it (:data:`kerntune.base.policy.STATIC_RULES`)."""


class Draft(msgspec.Struct, frozen=True):
    """A finding before the policy is applied. ``severity`` is ``fail`` for what the rule is about, ``warn`` for a
    smaller change of that kind, ``info`` for an improvement."""

    severity: Severity
    metric: str
    before: float
    after: float
    text: str
    rule: str
    any_config: bool = False
    """Whether its severity is kept between two configs too."""


SEVERITIES = ("fail", "warn", "info")
"""The most severe first."""

_RANK = {name: rank for rank, name in enumerate(STATIC_RULES)}


class RuleMessage(NamedTuple):
    """A sentence about a case, with the kernel's name, and the rule that found it."""

    severity: Severity
    rule: str
    text: str


Ranked = TypeVar("Ranked", Finding, RuleMessage)


def worst_first(findings: Iterable[Ranked]) -> list[Ranked]:
    """By severity, then by rule in the order of :data:`kerntune.base.policy.STATIC_RULES`; of one rule in their
    order."""
    return sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), _RANK.get(f.rule, len(_RANK))))


def change(old: float, new: float) -> str:
    """``1,024 -> 512``."""
    return f"{number(old)} -> {number(new)}"


def number(value: float) -> str:
    """A figure with separators between thousands, fractions with one digit."""
    return f"{value:,.1f}" if value != int(value) else f"{int(value):,}"


def percent(old: float, new: float) -> str:
    """`` (+25%)``; empty without an old value."""
    return f" ({(new - old) / old:+.0%})" if old else ""


def count(metrics: StaticMetrics, name: str) -> int:
    """Instructions of a class; 0 of one that the code doesn't have."""
    return metrics.instructions.get(name, 0)


MUCH_NARROWER = 4
"""How many times as narrow an access must have become. An access that loses its alignment is split into single
elements: an eighth of the width for 16-bit ones and a quarter for 32-bit ones. A smaller tile or a load in two halves
gives half the width."""

_WIDE = (256, 128, 64)
"""Widths in bits of accesses that narrower ones can replace."""


class Direction(msgspec.Struct, frozen=True):
    """Loads or stores. TMA moves tiles and has no width; ``bulk`` is the class of its copies."""

    rule: str
    metric: str
    verb: str
    noun: str
    classes: Sequence[str]
    bulk: str


DIRECTIONS = (
    Direction("load_width", "global_load_width", "loads", "loads from", ("global_load", "async_copy"), "tma_load"),
    Direction("store_width", "global_store_width", "stores", "stores to", ("global_store",), "tma_store"),
)


def narrowed(
    before: StaticMetrics, after: StaticMetrics, direction: Direction, threshold: float, same_programs: bool = False
) -> Iterator[Draft]:
    """A finding where more than the share ``threshold`` of the bytes is moved by much narrower accesses now.
    ``same_programs``: both sides are launched with as many, so that a kernel without loops with no more accesses than
    before moves fewer bytes."""
    old, new = accesses(before, direction.classes), accesses(after, direction.classes)
    rounds = [_one_round(m, direction.classes) for m in (before, after)]
    wide, share = _split(*rounds)
    more = sum(new.values()) > sum(old.values())
    gone = more and not any(bits >= wide for bits in new)
    straight = all("straight_line" in m.instructions for m in (before, after))
    fewer = same_programs and straight and not more
    if share > threshold and (fewer or _hidden(before, after, direction)):
        severity: Severity = "warn"
        text = _sentence(direction, "narrower", old, new)
    elif share > threshold:
        severity = "fail"
        text = f"{_sentence(direction, 'narrower', old, new)}; look for lost alignment or contiguity"
    elif _split(*reversed(rounds))[1] > threshold:
        severity, text = "info", _sentence(direction, "wider", old, new)
    else:
        return
    yield Draft(severity, direction.metric, _mean(old), _mean(new), text, direction.rule, gone)


def _hidden(before: StaticMetrics, after: StaticMetrics, direction: Direction) -> bool:
    """Whether narrower accesses need not cost time: those of a product's epilogue, which is stored once after a loop;
    and loads for tensor cores that do less work than before, or are used only now (products of tf32 load their second
    operand by element, since it is transposed on the way)."""
    old, new = (count(m, "tensor_core_slots") for m in (before, after))
    if direction.rule == "store_width":
        return "tensor_core" in after.instructions
    return bool(new) and (not old or new * 2 <= old)


def accesses(metrics: StaticMetrics, classes: Sequence[str]) -> dict[int, int]:
    """The number of accesses of one thread by width in bits, the widest first; code in loops counts once."""
    found: dict[int, int] = {}
    for name, times in metrics.instructions.items():
        if times and (match := re.fullmatch(rf"(?:{'|'.join(classes)})_(\d+)", name)):
            found[int(match[1])] = found.get(int(match[1]), 0) + times
    return dict(sorted(found.items(), reverse=True))


def _one_round(metrics: StaticMetrics, classes: Sequence[str]) -> dict[int, float]:
    """:func:`accesses`, of which asynchronous copies count once for a pipelined loop: those that come before it, for
    its first rounds, are in the code as well."""
    found: dict[int, float] = {**accesses(metrics, classes)}
    loops = _loops(metrics)
    more = loops.rounds if loops is not None and loops.ahead else 0.0
    if "async_copy" in classes and more:
        for bits, times in accesses(metrics, ("async_copy",)).items():
            found[bits] -= times * more / (1 + more)
    return found


def moved_bytes(metrics: StaticMetrics, direction: Direction | None = None) -> int:
    """Bytes that a thread loads, stores, or both, by address; loops once."""
    found = (accesses(metrics, d.classes) for d in DIRECTIONS if direction in (d, None))
    return sum(bits // 8 * times for widths in found for bits, times in widths.items())


def _split(old: Mapping[int, float], new: Mapping[int, float]) -> tuple[int, float]:
    """The width from which on bytes are moved by much narrower accesses now, and their share of all bytes before."""
    shares = {wide: min(_from(old, wide) - _from(new, wide), _upto(new, wide) - _upto(old, wide)) for wide in _WIDE}
    wide = max(shares, key=lambda w: shares[w])
    return wide, shares[wide] / _bytes(old) if old else 0.0


def _from(widths: Mapping[int, float], wide: int) -> float:
    return _bytes({bits: count for bits, count in widths.items() if bits >= wide})


def _upto(widths: Mapping[int, float], wide: int) -> float:
    return _bytes({bits: count for bits, count in widths.items() if bits * MUCH_NARROWER <= wide})


def _bytes(widths: Mapping[int, float]) -> float:
    return sum(bits // 8 * count for bits, count in widths.items())


def _mean(widths: Mapping[int, int]) -> float:
    return sum(bits * count for bits, count in widths.items()) / sum(widths.values())


def _sentence(direction: Direction, how: str, old: Mapping[int, int], new: Mapping[int, int]) -> str:
    mean = f"on average {change(_mean(old), _mean(new))} bits"
    return f"{direction.noun} global memory got {how}: {_widths(old)} -> {_widths(new)} ({mean})"


def _widths(widths: Mapping[int, int]) -> str:
    return ", ".join(f"{count} of {bits} bits" for bits, count in widths.items())


ISSUED_PER_BYTE = 6.0
"""Instructions that a thread may issue per byte it moves while it waits for DRAM: 4 schedulers of 32 lanes a
cycle over 20 bytes a cycle and multiprocessor of an H200 (A100 12.8, H100 9, B200 4.3; data sheets)."""

SLOTS_PER_BYTE = 64.0
"""Tensor core slots (:func:`kerntune.static.instructions.nvidia_classes`: two for a 16-bit multiply-add) per byte from
L2 under which a matrix product waits for memory: half of the 4,096 slots over 32 bytes that a multiprocessor of sm_90
does in a cycle, since neither reaches its full rate."""

FURTHER_SLOTS = {"mufu": 7, "convert": 1, "shared_load": 3, "shared_store": 3}
"""Issue slots that an instruction of a class takes beyond one: of a multiprocessor's 128 lanes, 16 for special
functions, 64 for conversions, 32 for shared memory (CUDA C++ Programming Guide, "Arithmetic Instructions", sm_80 to
sm_100)."""


def heavier(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Draft]:
    """Findings where the same work takes more than the share ``threshold`` more of issue slots, of tensor cores, or of
    atomic operations."""
    yield from _issue(before, after, threshold)
    yield from _atomics(before, after, threshold)
    yield from _matrix(before, after, threshold)


def _issue(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Draft]:
    if any(kind in m.instructions for kind in ("tensor_core", "tma") for m in (before, after)):
        return  # hidden behind the tensor cores, which have rules of their own; or the bytes aren't known
    if count(after, "slow_path") > count(before, "slow_path"):
        return  # code that ordinary arguments don't execute
    moved = moved_bytes(before), moved_bytes(after)
    old, new = issue_slots(before), issue_slots(after)
    if not all(moved) or not old:
        return
    more = min(new / old, new / moved[1] / (old / moved[0])) - 1
    if more > threshold and new / moved[1] > ISSUED_PER_BYTE:
        per = f"{old / moved[0]:,.1f} -> {new / moved[1]:,.1f} per byte that a thread moves"
        counted = change(count(before, "total"), count(after, "total"))
        slots = f"{change(old, new)} slots{percent(old, new)} for {counted} instructions in the code"
        text = f"the same work takes many more issue slots: {per} ({slots})"
        yield Draft("fail", "issue_slots", old, new, text, "work")


def _matrix(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Draft]:
    old, new = (count(m, "tensor_core_slots") * _lanes(m) for m in (before, after))
    moved = moved_bytes(before) * before.threads, moved_bytes(after) * after.threads
    if not old or new <= old * (1 + threshold):
        return
    if all(moved) and (new / moved[1] <= old / moved[0] * (1 + threshold) or new / moved[1] < SLOTS_PER_BYTE):
        return
    if not all(moved) and count(before, "tma") != count(after, "tma"):
        return  # another number of tiles: unrolled, or another product as well
    told = f"{change(old, new)} slots{percent(old, new)}"
    text = f"the same work takes tensor cores longer: {told}; look for operands of a wider type, or more products"
    yield Draft("fail", "tensor_core_slots", old, new, text, "work")


BYTES_PER_ATOMIC = 16
"""Bytes that a thread moves for one repeated atomic operation, from which on such operations may take no time: one of a
whole block, after its sum, has more."""


def _atomics(before: StaticMetrics, after: StaticMetrics, threshold: float) -> Iterator[Draft]:
    """Many more atomic operations in loops, or in a kernel without a loop, which the L2 cache does one after another
    where addresses are the same. Those of a kernel with tensor cores may be hidden behind its products."""
    old, new = (m.instructions.get("repeated_atomics") for m in (before, after))
    if any("tensor_core" in m.instructions for m in (before, after)) or new is None:
        return
    if old is None and count(before, "atomic"):
        return  # figures of an earlier version, which don't say where they are
    dense = new * BYTES_PER_ATOMIC >= moved_bytes(after)
    if dense and new > (old or 0) * (1 + threshold):
        text = f"the same work takes many more atomic operations on global memory: {change(old or 0, new)} in the code"
        yield Draft("fail", "repeated_atomics", old or 0, new, text, "work")


def issue_slots(metrics: StaticMetrics) -> int:
    """Slots of the schedulers that a thread's instructions take, loops once."""
    return count(metrics, "total") + sum(count(metrics, kind) * more for kind, more in FURTHER_SLOTS.items())


def _lanes(metrics: StaticMetrics) -> float:
    """How often a block executes a tensor core instruction: once per warp, or per warpgroup of four warps."""
    grouped = count(metrics, "warpgroup_mma") == count(metrics, "tensor_core")
    return metrics.threads / (128 if grouped else 32)


HIDDEN = 0.5
"""The share of a device's threads from which on others run while some wait for their loads."""


def unpipelined(before: StaticMetrics, after: StaticMetrics, resident: float | None) -> Iterator[Draft]:
    """Findings where loads are no longer ahead of the products or other work of their loop, or less far, and where
    products don't overlap any more. ``resident``: the share of the device's threads that ``after`` has at a time."""
    old, new = _loops(before), _loops(after)
    copies = f"asynchronous copies {change(_copies(before), _copies(after))} instructions"
    if old is None or new is None:
        yield from _stream(before, after, copies, resident)
        return
    if old.ahead > new.ahead and new.waiting > old.waiting:
        far = f", {old.rounds:g} {'round' if old.rounds == 1 else 'rounds'} ahead before" if old.rounds else ""
        text = f"pipelined loops {change(old.ahead, new.ahead)} ({WAITS}; {copies}{far}); {LOOK}"
        yield Draft("fail", "pipelined_loops", old.ahead, new.ahead, text, "pipelining", True)
        return
    if new.ahead > old.ahead:
        text = f"loops of tensor cores load ahead now: {change(old.ahead, new.ahead)} pipelined loops, {copies}"
        yield Draft("info", "pipelined_loops", old.ahead, new.ahead, text, "pipelining")
    elif old.ahead and before.product_loops is not msgspec.UNSET:
        yield from _nearer(before, after, old, new, copies)
    yield from _apart(old, new)


WAITS = "each round of a loop of tensor cores waits for its own loads"
LOOK = "look at num_stages, and for a barrier or a while loop, which keep a loop from being pipelined"


def _loops(metrics: StaticMetrics) -> ProductLoops | None:
    """The loops of products; of figures of an earlier version, which don't have them, a loop that ``cp.async`` fed:
    Triton makes such copies in pipelines alone."""
    if not isinstance(metrics.product_loops, msgspec.UnsetType):
        return metrics.product_loops
    fed = "tensor_core" in metrics.instructions and "async_copy" in metrics.instructions
    return ProductLoops(loading=1, ahead=1) if fed else None


def _copies(metrics: StaticMetrics) -> int:
    return count(metrics, "async_copy") + count(metrics, "tma_load")


def _stream(before: StaticMetrics, after: StaticMetrics, copies: str, resident: float | None) -> Iterator[Draft]:
    """Loops without products. Those that TMA fed have a rule of their own."""
    old, new = count(before, "async_copy"), _copies(after)
    ahead, still = count(before, "copying_ahead"), count(after, "copying_ahead")
    if any("tensor_core" in m.instructions for m in (before, after)):
        return  # on one side alone, or outside of loops: other rules compare that
    if old and not new and resident is not None and resident < HIDDEN:
        few = f"and the launch has only {resident:.0%} of the device's threads to hide their latency"
        text = f"loads are no longer asynchronous, {few}: {copies}"
        yield Draft("fail", "async_copies", old, new, text, "pipelining", True)
    elif old and not new:
        text = f"loads are no longer asynchronous: {copies}"
        yield Draft("fail", "async_copies", old, new, text, "async_copies")
    elif ahead and not still and "copying_loops" in after.instructions:
        told = change(ahead, 0)
        text = f"asynchronous copies are waited for in the round that asks for them: {told} loops load ahead"
        yield Draft("fail", "copying_ahead", ahead, 0, text, "async_copies")


def _nearer(
    before: StaticMetrics, after: StaticMetrics, old: ProductLoops, new: ProductLoops, copies: str
) -> Iterator[Draft]:
    """Loops that are still pipelined, but for one of their operands, or less far ahead."""
    if new.plain_bytes - old.plain_bytes >= OPERAND_BYTES and _copies(after) < _copies(before):
        told = f"{change(old.plain_bytes, new.plain_bytes)} bytes a thread by ordinary loads"
        text = f"{WAITS}, some of which are no longer asynchronous: {told}, {copies}"
        yield Draft("fail", "plain_bytes", old.plain_bytes, new.plain_bytes, text, "pipelining", True)
    elif old.rounds > new.rounds:
        text = f"a pipelined loop loads fewer rounds ahead: {change(old.rounds, new.rounds)}"
        yield Draft("info", "rounds", old.rounds, new.rounds, text, "pipelining")


def _apart(old: ProductLoops, new: ProductLoops) -> Iterator[Draft]:
    """Products of the same types that have all ended before the next round begins its own: their results are read in
    each round. Products of other types are other work, and what that costs isn't known from their waits."""
    if old.overlapped and new.grouped and not new.overlapped and old.types == new.types:
        text = (
            "each round of a loop of tensor cores waits for its own products: in "
            f"{change(old.overlapped, new.overlapped)} loops they are in flight when the next round begins; look for "
            "what reads or changes the sums in each round"
        )
        yield Draft("fail", "overlapped_loops", old.overlapped, new.overlapped, text, "pipelining", True)
