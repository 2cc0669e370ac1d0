"""Inputs declared in a line, and their numbers by seed: ``x: f16[4096,4096] normal; idx: i64[4096] < 32000``.

An item is ``name: dtype[sizes] content`` or ``name = literal``; items are parted by semicolons. Contents:

* ``normal``: normal numbers whose mean and deviation vary from seed to seed, so that no result is nearly known;
  ``normal(mean, deviation)`` for fixed ones. The default of floats;
* ``uniform(low, high)``; the default of floats is ``normal``;
* ``< n``: whole numbers from 0 to n - 1; ``in low..high``, both included. ``bool`` needs none;
* ``zeros``;
* ``= [1, 2, 3]``: these numbers, which are known when a candidate is recorded (lengths, offsets); ``< n known``: such
  ones that are drawn when the line is read.
"""

from __future__ import annotations

import ast
import math
import random
import re
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from kerntune.errors import MeasurementError, UsageError
from kerntune.gpu.memory import INTEGERS, encode_floats
from kerntune.gpu.number_formats import FLOAT_FORMATS, INTEGER_FORMATS, values
from kerntune.referee.case_inputs import CallArgument, CaseInputs, PlainArgument, TensorAt, TensorInput
from kerntune.referee.extreme_contents import in_form, mean_and_deviation

DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
    "bool": "bool",
}  # fmt: skip
"""Short words for torch's dtypes, whose own names are taken as well."""

MOST_ELEMENTS = 1 << 34
MOST_LINE = 1 << 16
MOST_KNOWN = 1 << 16
"""Numbers of a tensor that are known when a candidate is recorded."""

LARGEST = (1 << 62) - 1
"""Of whole numbers that are passed."""

LARGEST_DRAWN = 1 << 53
"""Bounds are kept as float64, which has all whole numbers up to here."""

WIDEST = 3
"""Deviations around a mean that must be numbers of the dtype."""

_TENSOR = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*:\s*(?P<dtype>\w+)\s*\[(?P<sizes>[^\]]*)\]\s*(?P<content>.*)", re.S)
_SCALAR = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*(?P<sign>==?)\s*(?P<value>.+)", re.S)
_NUMBER = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
_PAIR = re.compile(rf"(normal|uniform)\s*\(\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\)")


def parse_line(line: str) -> CaseInputs:
    """One case from a line; its label is the line. :class:`UsageError` names what can't be read."""
    if len(line) > MOST_LINE:
        raise UsageError(f"a line of inputs has {len(line):,} characters, more than {MOST_LINE:,}")
    tensors: list[TensorInput] = []
    arguments: list[CallArgument] = []
    names: list[str] = []
    for item in filter(None, (part.strip() for part in line.split(";"))):
        found = _TENSOR.fullmatch(item)
        scalar = _SCALAR.fullmatch(item)
        if found is not None:
            arguments.append(TensorAt(len(tensors)))
            tensors.append(_tensor(found["name"], found["dtype"], found["sizes"], found["content"].strip(), item))
        elif scalar is not None:
            value = _literal(scalar["value"], item)
            value = as_launched(value) if isinstance(value, float) else value
            arguments.append(PlainArgument(value, held=scalar["sign"] == "=="))
        else:
            raise UsageError(f"inputs: {item!r} is neither `name: f16[4096,4096] normal` nor `name = 1e-5`")
        names.append((found or scalar)["name"])  # type: ignore[index]
    if not tensors:
        raise UsageError(f"inputs: {line!r} has no tensor")
    if len(set(names)) < len(names):
        raise UsageError(f"inputs: {line!r} has a name twice")
    return CaseInputs(" ".join(line.split()), tuple(tensors), tuple(arguments))


def as_launched(number: float) -> float:
    """The number in 32 bits, as Triton gives kernels all floats; itself where that has none."""
    with np.errstate(all="ignore"):
        short = float(np.float32(number))
    return short if short and math.isfinite(short) else number


def names_of(line: str) -> tuple[str, ...]:
    """The names in a line that :func:`parse_line` can read, in its order."""
    return tuple(found[0] for item in line.split(";") if (found := re.search(r"\w+", item)))


def _literal(text: str, item: str) -> bool | int | float | str | None:
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = ...
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise UsageError(f"inputs: {item!r} has no number, text, True, False or None")
    if (isinstance(value, int) and abs(value) > LARGEST) or (isinstance(value, str) and not _is_text(value)):
        raise UsageError(f"inputs: {item!r}: such a value can't be handed over")
    return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and abs(value) <= LARGEST


def _is_text(value: str) -> bool:
    return value.encode(errors="replace").decode() == value


def _tensor(name: str, word: str, sizes: str, content: str, item: str) -> TensorInput:
    dtype = DTYPES.get(word, word)
    if dtype not in FLOAT_FORMATS and dtype not in INTEGERS:
        raise UsageError(f"inputs: {item!r}: {word} is no dtype; known are {', '.join(DTYPES)}")
    try:
        shape = tuple(int(n) for n in sizes.split(",") if n.strip())
    except ValueError:
        raise UsageError(f"inputs: {item!r}: its sizes are no whole numbers") from None
    if any(n < 1 for n in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise UsageError(f"inputs: {item!r}: sizes are 1 or more, of {MOST_ELEMENTS:,} elements at most together")
    drawn = re.sub(r"(^|\s)known$", "", content) if dtype not in FLOAT_FORMATS else content
    kind, low, high, varied, values = _content(drawn, dtype, shape, item)
    if drawn != content and kind == "integers":
        count, kind = math.prod(shape), "fixed"
        if count > MOST_KNOWN:
            raise UsageError(f"inputs: {item!r}: {count:,} numbers, of which at most {MOST_KNOWN:,} can be known")
        values = tuple(secrets.SystemRandom().choices(range(int(low), int(high) + 1), k=count))
    held = content.startswith("==")
    return TensorInput(name, dtype, shape, dense_strides(shape), kind, low, high, varied, values, held=held)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a tensor whose elements lie one after the other, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _content(
    text: str, dtype: str, shape: tuple[int, ...], item: str
) -> tuple[str, float, float, bool, tuple[float, ...]]:
    """Kind, low or mean, high or deviation, whether those vary, values."""
    if re.match(r"<|in\b", text) and any(int(number[:99]) > LARGEST_DRAWN for number in re.findall(r"\d+", text)):
        raise UsageError(f"inputs: {item!r}: whole numbers beyond 2**53 can't be drawn")
    floating, pair = dtype in FLOAT_FORMATS, _PAIR.fullmatch(text)
    below, between = re.fullmatch(r"<\s*(\d+)", text), re.fullmatch(r"in\s+(-?\d+)\s*\.\.\s*(-?\d+)", text)
    if text == "zeros":
        return "zeros", 0.0, 0.0, False, ()
    if floating and text in ("", "normal"):
        return "normal", 0.0, 1.0, True, ()
    if floating and pair is not None:
        low, high = float(pair[2]), float(pair[3])
        if problem := _undrawable(pair[1], low, high, dtype):
            raise UsageError(f"inputs: {item!r}: {problem}")
        return pair[1], low, high, False, ()
    if not floating and below is not None and int(below[1]) > 0:
        return "integers", 0.0, float(_held(int(below[1]) - 1, dtype, item)), False, ()
    if not floating and between is not None and int(between[1]) <= int(between[2]):
        first, last = (float(_held(int(end), dtype, item)) for end in between.groups())
        return "integers", first, last, False, ()
    if dtype == "bool" and not text:
        return "integers", 0.0, 1.0, False, ()
    if text.startswith("="):
        values = _values(text.removeprefix("=").removeprefix("="), shape, item)
        return "fixed", 0.0, 0.0, False, values if floating else tuple(_held(x, dtype, item) for x in values)
    missing = "floats take `normal`, `uniform`" if floating else "integers take `< n`, `in low..high` or `= [...]`"
    what = f"{text!r} is no content" if text else "it has no content"
    if text.startswith(","):
        what = "items are parted by semicolons"
    raise UsageError(f"inputs: {item!r}: {what}; {missing}")


def _undrawable(kind: str, low: float, high: float, dtype: str) -> str:
    """Why numbers between two ends, or of this mean and deviation, can't be drawn; empty if they can."""
    least, most = _range_of(dtype)
    if kind == "uniform":
        if low > high:
            return f"{low:g} is above {high:g}"
        far, spread = max(abs(low), abs(high), high - low), high - low
    else:
        if high < 0:
            return f"a deviation of {high:g} is below 0"
        far, spread = abs(low) + WIDEST * high, high
    if not far <= most:
        return f"{dtype} ends at {most:.6g}, and its numbers don't"
    return f"{dtype} has no numbers so close together" if 0 < spread < least else ""


def _range_of(dtype: str) -> tuple[float, float]:
    """The least number of a float type that has all digits, and the largest. Of 8 bits those of float32: what is drawn
    saturates."""
    kind = FLOAT_FORMATS["float32" if dtype.startswith("float8") else dtype]
    infinite = kind.nan - 1
    least, most = values(np.array([infinite & -infinite, kind.finite], np.uint64), kind)
    return float(least), float(most)


def _held(number: float, dtype: str, item: str) -> float:
    """A number that whole numbers of this type have."""
    bits = 1 if dtype == "bool" else 8 * INTEGER_FORMATS[dtype].width
    low = 0 if dtype[0] in "ub" else -(1 << bits - 1)
    if not low <= number < low + (1 << bits):
        raise UsageError(f"inputs: {item!r}: {dtype} has no {number:,}")
    return number


def _values(text: str, shape: tuple[int, ...], item: str) -> tuple[float, ...]:
    try:
        found = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(x, float) or _is_whole(x) for x in found):
        raise UsageError(f"inputs: {item!r}: no list of numbers after =")
    if len(found) != math.prod(shape):
        raise UsageError(f"inputs: {item!r}: {len(found)} numbers for {math.prod(shape)} elements")
    return tuple(found)


BESIDE, TENSORS_AT_ONCE = 1 << 20, 2
"""Numbers of a content from which so many of its tensors are drawn beside each other: numpy does that without Python's
lock, and contents are, too."""


def contents_of(
    tensors: Sequence[TensorInput], seed: int, forms: Sequence[str], plain: Sequence[float] = ()
) -> tuple[bytes, ...]:
    """The bytes of each tensor for a seed, with its form of :func:`extreme_forms`; no forms for a usual content.
    ``plain``: numbers of the call, which elements may equal. :class:`MeasurementError` where this machine hasn't the
    memory for them."""
    fixed = [x for t in tensors if t.content == "fixed" and t.dtype in FLOAT_FORMATS for x in t.values]
    each = zip(tensors, forms or [""] * len(tensors), strict=True)
    count = sum(math.prod(t.shape) for t in tensors)
    try:
        with ThreadPoolExecutor(TENSORS_AT_ONCE) as threads:
            mapped = threads.map if count > BESIDE else map
            return tuple(mapped(lambda one: content_of(one[0], seed, one[1], _known_to(one[0], fixed, plain)), each))
    except MemoryError as exc:
        raise MeasurementError(f"this machine hasn't the memory to draw {count:,} numbers: declare fewer") from exc


def _known_to(given: TensorInput, fixed: Sequence[float], plain: Sequence[float]) -> Sequence[float]:
    """Which known numbers an input's elements may be: floats of other inputs, and those of the call that its dtype has
    exactly, for of others it isn't known in which dtype they are compared; of whole numbers those in its range."""
    if given.dtype not in FLOAT_FORMATS:
        return [x for x in plain if isinstance(x, int) and given.low <= x <= given.high]
    kind = FLOAT_FORMATS[given.dtype]
    held = values(np.frombuffer(bytes_of(np.array(plain, float), given.dtype), f"<u{kind.width}").astype("u8"), kind)
    return [*fixed, *(x for x, as_held in zip(plain, held, strict=True) if x == as_held)]


def content_of(given: TensorInput, seed: int, form: str = "", known: Sequence[float] = ()) -> bytes:
    """The bytes of a tensor's elements for a seed: no part of them repeats. ``form`` and ``known`` are as in
    :func:`~kerntune.referee.extreme_contents.in_form`."""
    numbers: Any
    chance, count = np.random.default_rng([seed, _name_number(given.name)]), math.prod(given.shape)
    if given.content == "zeros":
        numbers = np.zeros(count)
    elif given.content == "fixed":
        numbers = np.asarray(given.values)
    elif given.content == "integers":
        numbers = chance.integers(int(given.low), int(given.high), count, endpoint=True)
    elif given.content == "uniform":
        numbers = chance.uniform(given.low, given.high, count)
    else:
        mean, deviation = mean_and_deviation(given, form, chance)
        numbers = chance.standard_normal(count)
        numbers *= deviation
        numbers += mean
    return bytes_of(in_form(numbers, given, form, seed, known, chance), given.dtype)


POISONS = (0x7F, 0x7B, 0xFB, 0x3F, 0x00)
"""High bytes of what fills unwritten memory: with a low byte of :data:`LOW_BYTES` NaN, huge, and hugely negative, in
float16, bfloat16, float32 and float64 alike; ordinary numbers of both signs up to 2, of any bits, half of them small;
and zeros, as most new memory has them."""

ODD_POISONS = POISONS[:3]
"""Those that show in any sum, maximum or minimum; one of the three does."""

LOW_BYTES = range(0xF1, 0xFF)

SMALL = (range(0x10, 0x3B), range(0x36, 0x3B))
"""High bytes of small ordinary numbers where float32 has its lower half, down to 2**-11 in float16; and where it has
its upper half, from 2**-19 to 2**-9. Who filters garbage by its size leaves some in."""


def poison_patterns(count: int, of: Sequence[int] = ()) -> list[bytes]:
    """Eight bytes for each of so many replays, which fill what nothing has written. They are of all kinds of
    :data:`POISONS`, in an order drawn anew: a maximum passes over NaN, a comparison over what is huge, NaN that is
    never stored may be what the reference has, and ordinary numbers have no bits that a kernel could know them by.
    ``of``: of these kinds alone."""
    chance = secrets.SystemRandom()
    kinds = [(of or POISONS)[i % len(of or POISONS)] for i in range(count)]
    chance.shuffle(kinds)
    return [_pattern(kind, chance) for kind in kinds]


def _pattern(kind: int, chance: random.Random) -> bytes:
    """Four units of 16 bits. Of ordinary ones one number of float32 is small."""
    if kind != 0x3F:
        return b"".join(bytes((chance.choice(LOW_BYTES), kind)) if kind else bytes(2) for _ in range(4))
    numbers = [(SMALL[0], SMALL[1]), (range(0x3C, 0x40),) * 2]
    chance.shuffle(numbers)
    high = [chance.choice(of) | chance.choice((0, 0x80)) for one in numbers for of in one]
    return b"".join(bytes((chance.randrange(256), one)) for one in high)


def rolled(content: bytes, distance: int) -> bytes:
    """``content`` with its first ``distance`` bytes at its end."""
    return content[distance:] + content[:distance]


def drawn_distance(item: int, nbytes: int, chance: random.Random) -> int:
    """A distance in bytes to roll a content of elements of ``item`` bytes by: not none, and no whole number of
    sixteenths of it, so that rows of a matrix aren't merely exchanged."""
    count = nbytes // item
    at = chance.randrange(1, count)
    return item * (at if at * 16 % count else at - 1 or 1)


def _name_number(name: str) -> int:
    return int.from_bytes(name.encode(), "little")


def is_one_number(contents: Sequence[bytes], item: int) -> bool:
    """Whether contents of an input are alike, and one number of ``item`` bytes throughout."""
    first = contents[0]
    return all(one == first for one in contents) and first == first[:item] * (len(first) // item)


def bytes_of(numbers: np.ndarray, dtype: str) -> bytes:
    """Numbers as little-endian elements of a dtype, rounded as torch does: to the nearest, of two to the even one."""
    if dtype in INTEGERS:
        return bytes((numbers != 0 if dtype == "bool" else numbers).astype(INTEGERS[dtype]).tobytes())
    if dtype.startswith("float8"):
        return _eight_bits(numbers, dtype)
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            bits = numbers.astype("<f4").view("<u4")
            odd = bits >> 16
            odd &= 1
            bits += odd
            bits += 0x7FFF
            bits >>= 16
            return bytes(bits.astype("<u2").tobytes())
        return encode_floats(numbers, dtype)


def _eight_bits(numbers: np.ndarray, dtype: str) -> bytes:
    """To the nearest of the format's 256 numbers; infinities are NaN where it has none."""
    patterns = np.arange(128, dtype=np.uint64)
    known, size = values(patterns, FLOAT_FORMATS[dtype]), np.abs(numbers)
    finite, infinite = np.isfinite(known), patterns[np.isinf(known)]
    patterns, known, nan = patterns[finite], known[finite], patterns[-1]
    at = np.clip(np.searchsorted(known, size), 1, len(known) - 1)
    below, above = size - known[at - 1], known[at] - size
    nearest = patterns[np.where((below < above) | (below == above) & (patterns[at] & 1 == 1), at - 1, at)]
    nearest = np.where(np.isinf(size), infinite[0] if len(infinite) else nan, np.where(np.isnan(size), nan, nearest))
    return bytes((nearest.astype(np.uint8) | np.signbit(numbers).astype(np.uint8) << 7).tobytes())
