"""Accesses to global memory by their width, and whether wide ones were replaced by narrow ones.

A thread that loads 16 bytes at once needs a quarter of the requests of one that loads 4 at a time. A mean width over
all accesses doesn't show that: it falls when a scalar is loaded besides, and when a wide input is dropped. So bytes are
compared: those that wide accesses no longer move, as far as much narrower ones move them now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kerntune.static.finding import Draft, change
from kerntune.static.metrics import StaticMetrics

MUCH_NARROWER = 4
"""How many times as narrow an access must have become. An access that loses its alignment is split into single
elements: an eighth of the width for 16-bit ones and a quarter for 32-bit ones. A smaller tile or a load in two halves
gives half the width."""

_WIDE = (256, 128, 64)
"""Widths in bits of accesses that narrower ones can replace."""


class Direction(msgspec.Struct, frozen=True):
    """Loads or stores. TMA moves tiles and has no width."""

    rule: str
    metric: str
    noun: str
    classes: Sequence[str]


DIRECTIONS = (
    Direction("load_width", "global_load_width", "loads from", ("global_load", "async_copy")),
    Direction("store_width", "global_store_width", "stores to", ("global_store",)),
)


def narrowed(before: StaticMetrics, after: StaticMetrics, direction: Direction, threshold: float) -> Iterator[Draft]:
    """A finding where more than the share ``threshold`` of the bytes is moved by much narrower accesses now."""
    old, new = accesses(before, direction.classes), accesses(after, direction.classes)
    wide, share = _split(old, new)
    if share > threshold and _hidden(before, after, direction):
        yield Draft(
            "warn",
            direction.metric,
            _mean(old),
            _mean(new),
            _sentence(direction, "narrower", old, new),
            direction.rule,
        )
    elif share > threshold:
        gone = not any(bits >= wide for bits in new) and _accesses(new) > _accesses(old)
        text = f"{_sentence(direction, 'narrower', old, new)}; look for lost alignment or contiguity"
        yield Draft("fail", direction.metric, _mean(old), _mean(new), text, direction.rule, gone)
    elif _split(new, old)[1] > threshold:
        text = _sentence(direction, "wider", old, new)
        yield Draft("info", direction.metric, _mean(old), _mean(new), text, direction.rule)


def _hidden(before: StaticMetrics, after: StaticMetrics, direction: Direction) -> bool:
    """Whether narrower accesses need not cost time: those of a product's epilogue, which is stored once after a loop;
    and loads for tensor cores that do less work than before, or are used only now (products of tf32 load their second
    operand by element, since it is transposed on the way)."""
    old, new = (m.instructions.get("tensor_core_slots", 0) for m in (before, after))
    if direction.rule == "store_width":
        return "tensor_core" in after.instructions
    return bool(new) and (not old or new * 2 <= old)


def accesses(metrics: StaticMetrics, classes: Sequence[str]) -> dict[int, int]:
    """The number of accesses of one thread by width in bits, the widest first; code in loops counts once."""
    found: dict[int, int] = {}
    for name, count in metrics.instructions.items():
        if count and (match := re.fullmatch(rf"(?:{'|'.join(classes)})_(\d+)", name)):
            found[int(match[1])] = found.get(int(match[1]), 0) + count
    return dict(sorted(found.items(), reverse=True))


def moved_bytes(metrics: StaticMetrics, direction: Direction | None = None) -> int:
    """Bytes that a thread loads, stores, or both, by address; loops once."""
    return sum(_bytes(accesses(metrics, d.classes)) for d in DIRECTIONS if direction in (d, None))


def _split(old: Mapping[int, int], new: Mapping[int, int]) -> tuple[int, float]:
    """The width from which on bytes are moved by much narrower accesses now, and their share of all bytes before."""
    shares = {wide: min(_from(old, wide) - _from(new, wide), _upto(new, wide) - _upto(old, wide)) for wide in _WIDE}
    wide = max(shares, key=lambda w: shares[w])
    return wide, shares[wide] / _bytes(old) if old else 0.0


def _from(widths: Mapping[int, int], wide: int) -> int:
    return _bytes({bits: count for bits, count in widths.items() if bits >= wide})


def _upto(widths: Mapping[int, int], wide: int) -> int:
    return _bytes({bits: count for bits, count in widths.items() if bits * MUCH_NARROWER <= wide})


def _bytes(widths: Mapping[int, int]) -> int:
    return sum(bits // 8 * count for bits, count in widths.items())


def _accesses(widths: Mapping[int, int]) -> int:
    return sum(widths.values())


def _mean(widths: Mapping[int, int]) -> float:
    return sum(bits * count for bits, count in widths.items()) / _accesses(widths)


def _sentence(direction: Direction, how: str, old: Mapping[int, int], new: Mapping[int, int]) -> str:
    mean = f"on average {change(_mean(old), _mean(new))} bits"
    return f"{direction.noun} global memory got {how}: {_widths(old)} -> {_widths(new)} ({mean})"


def _widths(widths: Mapping[int, int]) -> str:
    return ", ".join(f"{count} of {bits} bits" for bits, count in widths.items())
