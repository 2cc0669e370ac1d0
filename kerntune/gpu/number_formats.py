"""Formats of numbers in memory, and how many elements of two pieces of memory differ, counted on the host."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # as in gpu/compare
    import numpy as np

NOWHERE = (1 << 64) - 1
"""The place of an element that there isn't; also a distance that no two numbers have."""

POISON = 0x7F
"""Every byte of memory that is only written, before a side runs: what it doesn't write shows. ``0x7F7F...`` is huge or
NaN in every float format."""

BIAS = 1 << 63


@dataclass(frozen=True)
class NumberFormat:
    """A format by its width in bytes. Of floats, ``finite`` is the bit pattern of the largest finite magnitude and
    ``nan`` that of the smallest NaN (0 for both: no float)."""

    name: str
    width: int
    finite: int = 0
    nan: int = 0

    @property
    def is_float(self) -> bool:
        """Whether it has a distance in units of the last place."""
        return self.finite > 0

    @property
    def magnitude(self) -> int:
        """The bits beside the sign."""
        return (1 << (8 * self.width - 1)) - 1

    @property
    def poison(self) -> int:
        """The element that :data:`POISON` makes."""
        return int.from_bytes(bytes([POISON]) * self.width, "little")


_FLOATS = (
    NumberFormat("float64", 8, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000001),
    NumberFormat("float32", 4, 0x7F7FFFFF, 0x7F800001),
    NumberFormat("float16", 2, 0x7BFF, 0x7C01),
    NumberFormat("bfloat16", 2, 0x7F7F, 0x7F81),
    NumberFormat("float8_e5m2", 1, 0x7B, 0x7D),
    NumberFormat("float8_e4m3fn", 1, 0x7E, 0x7F),
)
FLOAT_FORMATS = {kind.name: kind for kind in _FLOATS}
"""IEEE 754's binary64, binary32 and binary16; bfloat16; E5M2 and E4M3 of Micikevicius et al., FP8 Formats for Deep
Learning (2022), the latter without infinities."""

INTEGER_FORMATS = {
    name: NumberFormat(name, width)
    for width, names in {1: ("int8", "uint8", "bool"), 2: ("int16", "uint16"), 4: ("int32", "uint32"),
                         8: ("int64", "uint64")}.items()
    for name in names
}  # fmt: skip

BITS = NumberFormat("bytes", 1)
"""Memory whose dtype isn't known, or isn't one of these."""


def format_of(dtypes: set[str]) -> NumberFormat:
    """The format of memory that is viewed as these dtypes: of several, bits only."""
    if len(dtypes) != 1:
        return BITS
    (dtype,) = dtypes
    return FLOAT_FORMATS.get(dtype) or INTEGER_FORMATS.get(dtype) or BITS


class ElementCounts(NamedTuple):
    """How two pieces of memory differ. The order is that in which the device's kernel leaves it: eight unsigned 64-bit
    integers and a double. ``worst`` is :data:`NOWHERE` if it wasn't asked for, or where no two numbers differ."""

    differing: int = 0
    unwritten: int = 0
    newly_written: int = 0
    nonfinite: int = 0
    varying: int = 0
    first: int = NOWHERE
    worst: int = NOWHERE
    ulp: int = 0
    relative: float = 0.0

    def with_later(self, other: ElementCounts, elements: int) -> ElementCounts:
        """Of two pieces, the second of which begins with element number ``elements``."""
        first, worst = (place if place == NOWHERE else place + elements for place in (other.first, other.worst))
        sums: tuple[int, int, int, int, int] = tuple(map(operator.add, self[:5], other[:5]))
        places = min(self.first, first), min(self.worst, worst)
        return ElementCounts(*sums, *places, max(self.ulp, other.ulp), max(self.relative, other.relative))


def count_differences(
    a: bytes, b: bytes, varies: bytes | None, kind: NumberFormat, poisoned: bool, wanted: int = NOWHERE
) -> ElementCounts:
    """What the device's kernel counts (:mod:`kerntune.gpu.result_kernels`), by numpy. ``varies`` has a byte for each
    element, not zero where it isn't compared; ``worst`` is the first element of a distance of ``wanted`` or more."""
    import numpy as np

    x, y = (elements_of(data, kind) for data in (a, b))
    out = np.zeros(x.size, bool) if varies is None else np.frombuffer(varies, "u1") != 0
    differs = (x != y) & ~out
    poison = np.uint64(kind.poison)
    missing = differs & (y == poison) & poisoned
    extra = differs & ~missing & (x == poison) & poisoned
    found = ElementCounts(
        int(differs.sum()), int(missing.sum()), int(extra.sum()), varying=int(out.sum()), first=_first(differs)
    )
    if not kind.is_float:
        return found
    odd, numbers = _split(x, y, differs & ~missing & ~extra, kind)
    ulp, relative = _distances(x[numbers], y[numbers], kind)
    worst = np.flatnonzero(numbers)[np.flatnonzero(ulp >= np.uint64(wanted))]
    return found._replace(
        nonfinite=int(odd.sum()),
        worst=int(worst[0]) if worst.size else NOWHERE,
        ulp=int(ulp.max(initial=0)),
        relative=float(relative.max(initial=0.0)),
    )


def elements_of(data: bytes, kind: NumberFormat) -> np.ndarray:
    """Bit patterns as unsigned 64-bit integers."""
    import numpy as np

    return np.frombuffer(data, f"<u{kind.width}").astype("<u8")


def _first(where: np.ndarray) -> int:
    import numpy as np

    return int(np.argmax(where)) if where.any() else NOWHERE


def _split(x: np.ndarray, y: np.ndarray, among: np.ndarray, kind: NumberFormat) -> tuple[np.ndarray, np.ndarray]:
    """Elements of which one side isn't finite, and those where both are; two NaN are neither."""
    import numpy as np

    magnitudes = [v & np.uint64(kind.magnitude) for v in (x, y)]
    low, high = np.minimum(*magnitudes), np.maximum(*magnitudes)
    finite = high <= np.uint64(kind.finite)
    return among & ~finite & (low < np.uint64(kind.nan)), among & finite


def _distances(x: np.ndarray, y: np.ndarray, kind: NumberFormat) -> tuple[np.ndarray, np.ndarray]:
    """In representable numbers, both zeros being one, and relative to the larger magnitude; at most 2."""
    import numpy as np

    a, b = _ordinals(x, kind), _ordinals(y, kind)
    p, q = values(x, kind), values(y, kind)
    larger = np.maximum(np.abs(p), np.abs(q))
    with np.errstate(all="ignore"):
        relative = np.minimum(np.where(larger == 0, 0.0, np.abs(p - q) / larger), 2.0)
    return np.maximum(a, b) - np.minimum(a, b), relative


def _ordinals(x: np.ndarray, kind: NumberFormat) -> np.ndarray:
    import numpy as np

    magnitude, bias = x & np.uint64(kind.magnitude), np.uint64(BIAS)
    negative = (x >> np.uint64(8 * kind.width - 1)) != 0
    return np.asarray(np.where(negative, bias - magnitude, bias + magnitude))


def values(x: np.ndarray, kind: NumberFormat) -> np.ndarray:
    """Elements, as unsigned 64-bit integers, as the numbers that they stand for, in double precision."""
    import numpy as np

    with np.errstate(all="ignore"):
        if kind.name == "float64":
            return np.asarray(x.astype("<u8").view("<f8"))
        if kind.name in ("float32", "bfloat16"):
            shift = np.uint64(16 if kind.name == "bfloat16" else 0)
            return np.asarray((x << shift).astype("<u4").view("<f4").astype("<f8"))
        if kind.name == "float8_e4m3fn":
            half = ((x & np.uint64(0x80)) << np.uint64(8)) | ((x & np.uint64(0x7F)) << np.uint64(7))
            found = half.astype("<u2").view("<f2").astype("<f8") * 256.0
            return np.asarray(np.where((x & np.uint64(0x7F)) == kind.nan, np.nan, found))
        halves = (x << np.uint64(8 if kind.width == 1 else 0)).astype("<u2")
        return np.asarray(halves.view("<f2").astype("<f8"))


def typical_magnitude(data: bytes, kind: NumberFormat) -> float | None:
    """The median magnitude of the finite numbers in ``data``, zeros among them; None if none is finite."""
    import numpy as np

    found = np.abs(values(elements_of(data[: len(data) // kind.width * kind.width], kind), kind))
    found = found[np.isfinite(found)]
    return float(np.median(found)) if found.size else None


def element_text(data: bytes, kind: NumberFormat) -> str:
    """One element for people: ``0.123456789``, ``-3``, ``nan``, ``0x7f``."""
    if kind.is_float:
        digits = {8: 17, 4: 9, 2: 5, 1: 3}[kind.width]
        return f"{float(values(elements_of(data, kind), kind)[0]):.{digits}g}"
    if kind is BITS:
        return f"0x{data[0]:02x}"
    return str(int.from_bytes(data, "little", signed=kind.name.startswith("int")))
