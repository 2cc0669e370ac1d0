"""The stored winner of the nearest call: what is launched, untuned, in the mode ``nearest``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kerntune.base.config import Config
from kerntune.tuning.cache import Winner, WinnerCache, WinnerKey, shipped

NUMBER = re.compile(r"(?<![\w.])-?\d{1,20}(?![\w.])")
"""A size, stride or integer of 64 bits; not the digits of ``float32``, nor those of a float. What has more digits is a
text: Python refuses to read thousands, and keys come from stores that others write."""

FLOAT = re.compile(r"(?<![\w.])-?(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)(?![\w.])")
"""A float: kernels are compiled for its type, not for its value."""

LAYOUT = re.compile(r"(\([\d, ]*\))(\([\d, ]*\))$")
"""A tensor's shape and strides, as :func:`kerntune.kernels.value_text.text_of` writes them."""


@dataclass(frozen=True)
class Near:
    """A stored winner of other arguments: how far away, and what its code and Triton differ in."""

    winner: Winner
    distance: float
    other: tuple[str, ...]

    def __str__(self) -> str:
        but = f", of another {' and '.join(self.other)}" if self.other else ""
        return f"{self.winner.config}, the winner of {self.winner.key.arguments} (distance {self.distance:.2f}{but})"


def nearest(cache: WinnerCache, key: WinnerKey, usable: Callable[[Config], bool]) -> Near | None:
    """The nearest winner of the same kernel, device and target with the same dtypes and layouts whose config is
    ``usable``; None if there is none.

    Winners of the same source and Triton go before others, then the smaller :func:`distance` does, then the text of the
    arguments, so that every process takes the same.
    """
    found = []
    for winner in _of_kernel(cache, key):
        far = distance(winner.key.arguments, key.arguments)
        if far is not None and usable(winner.config):
            other = tuple(n for n in ("source", "triton") if getattr(winner.key, n) != getattr(key, n))
            found.append(Near(winner, far, other))
    return min(found, key=lambda n: (len(n.other), n.distance, n.winner.key.arguments), default=None)


def _of_kernel(cache: WinnerCache, key: WinnerKey) -> Sequence[Winner]:
    asked = (key.kernel, key.device, key.target)
    mirror: WinnerCache | None = getattr(cache, "mirror", None)  # a shared store's, which a miss has just filled
    stored = [
        *_all(cache),
        *(_all(mirror) if mirror is not None else ()),
        *shipped.of_device(key.target, key.device, cache.damaged.append),
    ]
    return [w for w in stored if (w.key.kernel, w.key.device, w.key.target) == asked]


_known: dict[str, tuple[object, list[Winner]]] = {}


def _all(cache: WinnerCache) -> list[Winner]:
    """The folder's winners, read again only where one was added since."""
    place = cache.folder / "winners"
    stamp = {path.name: path.stat().st_mtime_ns for path in place.iterdir()} if place.is_dir() else {}
    stamp.pop("questions", None)  # grows before there is a winner
    known = _known.get(str(place))
    if known is None or known[0] != stamp:
        known = _known[str(place)] = stamp, cache.entries()
    return known[1]


def distance(stored: str, asked: str) -> float | None:
    """How far apart two calls' arguments are: the root of the sum, over all sizes and integers, of the squared
    differences of log2(1 + n). None where anything else differs: names, dtypes, ranks, texts, which strides are 0 or
    1, an integer's sign. Floats don't count.

    The log is taken since twice the size is the same step for small and large; 1 more, so that 0 has one.
    """
    one, other = _numbers_apart(stored), _numbers_apart(asked)
    if one[0] != other[0]:
        return None
    return math.sqrt(sum((_log(a) - _log(b)) ** 2 for a, b in zip(one[1], other[1], strict=True)))


def _log(number: int) -> float:
    return math.log2(1 + abs(number))


@lru_cache(maxsize=4096)
def _numbers_apart(arguments: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The texts of the arguments without their numbers, and the numbers."""
    numbers: list[int] = []

    def taken(match: re.Match[str]) -> str:
        numbers.append(int(match.group()))
        return "-#" if match.group().startswith("-") else "#"

    texts = [NUMBER.sub(taken, FLOAT.sub("~", _by_layout(part))) for part in arguments.split("; ")]
    return tuple(texts), tuple(numbers)


def _by_layout(part: str) -> str:
    """Strides as their pattern: their sizes follow from the shape where a tensor is dense."""
    match = LAYOUT.search(part)
    if match is None:
        return part
    strides = re.sub(r"\d+", lambda m: {"0": "zero", "1": "one"}.get(m.group(), "more"), match[2])
    return f"{part[: match.start(2)]}{strides}"
