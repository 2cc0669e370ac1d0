"""Inputs declared in a line, and their numbers by seed: ``x: f16[4096,4096] normal; idx: i64[4096] < 32000``.

An item is ``name: dtype[sizes] content`` or ``name = literal``; items are parted by semicolons. Contents:

* ``normal``: normal numbers whose mean and deviation vary from seed to seed, so that no result is nearly known;
  ``normal(mean, deviation)`` for fixed ones. The default of floats;
* ``uniform(low, high)``; the default of floats is ``normal``;
* ``< n``: whole numbers from 0 to n - 1; ``in low..high``, both included. ``bool`` needs none;
* ``zeros``;
* ``= [1, 2, 3]``: these numbers, which are known when a candidate is recorded (lengths, offsets).
"""

from __future__ import annotations

import ast
import math
import random
import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kerntune.errors import UsageError
from kerntune.gpu.memory import INTEGERS, encode_floats
from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.tasks import CallArgument, CaseInputs, PlainArgument, TensorAt, TensorInput

if TYPE_CHECKING:
    import numpy as np

DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
    "bool": "bool",
}  # fmt: skip
"""Short words for torch's dtypes, whose own names are taken as well."""

MOST_ELEMENTS = 1 << 34
MOST_LINE = 1 << 16

LARGEST = (1 << 62) - 1
"""Of whole numbers that are drawn or passed."""

_TENSOR = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*:\s*(?P<dtype>\w+)\s*\[(?P<sizes>[^\]]*)\]\s*(?P<content>.*)", re.S)
_SCALAR = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.+)", re.S)
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
            arguments.append(PlainArgument(_literal(scalar["value"], item)))
        else:
            raise UsageError(f"inputs: {item!r} is neither `name: f16[4096,4096] normal` nor `name = 1e-5`")
        names.append((found or scalar)["name"])  # type: ignore[index]
    if not tensors:
        raise UsageError(f"inputs: {line!r} has no tensor")
    if len(set(names)) < len(names):
        raise UsageError(f"inputs: {line!r} has a name twice")
    return CaseInputs(" ".join(line.split()), tuple(tensors), tuple(arguments))


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
        raise UsageError(f"inputs: {item!r}: its sizes can't be")
    kind, low, high, varied, values = _content(content, dtype, shape, item)
    return TensorInput(name, dtype, shape, dense_strides(shape), kind, low, high, varied, values)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a tensor whose elements lie one after the other, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _content(
    text: str, dtype: str, shape: tuple[int, ...], item: str
) -> tuple[str, float, float, bool, tuple[float, ...]]:
    """Kind, low or mean, high or deviation, whether those vary, values."""
    if re.match(r"<|in\b", text) and any(int(number[:99]) > LARGEST for number in re.findall(r"\d+", text)):
        raise UsageError(f"inputs: {item!r}: numbers of more than 62 bits can't be drawn")
    floating, pair = dtype in FLOAT_FORMATS, _PAIR.fullmatch(text)
    below, between = re.fullmatch(r"<\s*(\d+)", text), re.fullmatch(r"in\s+(-?\d+)\s*\.\.\s*(-?\d+)", text)
    if text == "zeros":
        return "zeros", 0.0, 0.0, False, ()
    if floating and text in ("", "normal"):
        return "normal", 0.0, 1.0, True, ()
    if floating and pair is not None:
        return pair[1], float(pair[2]), float(pair[3]), False, ()
    if not floating and below is not None and int(below[1]) > 0:
        return "integers", 0.0, float(int(below[1]) - 1), False, ()
    if not floating and between is not None and int(between[1]) <= int(between[2]):
        return "integers", float(between[1]), float(between[2]), False, ()
    if dtype == "bool" and not text:
        return "integers", 0.0, 1.0, False, ()
    if text.startswith("="):
        return "fixed", 0.0, 0.0, False, _values(text[1:], shape, item)
    missing = "integers need `< n`, `in low..high` or `= [...]`" if not floating else "floats take `normal`, `uniform`"
    raise UsageError(f"inputs: {item!r}: {text or 'nothing'} says no content; {missing}")


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


DRAWN = ("normal", "uniform", "integers")
"""Contents that differ from seed to seed."""

EXTREMES = {
    "up": "is far above zero (a mean of 32 to 64 deviations)",
    "down": "is far below zero (a mean of -32 to -64 deviations)",
    "tiny": "is tiny (a deviation of 2**-12)",
    "broad": "has a deviation of 4 to 8 and zeros, rows of them among others",
    "wide": "has a deviation of 64 to 128",
    "ties": "has three different numbers",
    "holes": "has NaN among its elements",
    "sparse": "is nearly constant but for a few elements",
    "lone": "is one number, zero where that may be, but for a few elements",
    "alike": "has equal rows, half of all",
    "ordered": "has its numbers in order along rows",
    "few": "has few different values, or one along a row",
}
"""What numbers may be in contents that are judged beside the usual ones, and what a verdict says of them: where a sum
of squares cancels, an epsilon counts, a clamp is reached, an exponential overflows, what is left out shows, however
small its weight is and wherever it lies, a counter overflows, or a whole row is masked."""

OF_VARIED = ("up", "down", "tiny", "broad", "wide", "holes")
"""The forms of floats that vary."""

SPARSE = 64
"""One of so many elements is as declared, and of long rows so many of each; the others are 2**10 times nearer to zero,
or to what is nearest to it, or that number itself."""

MOST_LONE = 4
"""Tensors that are ``lone``, drawn where there are more."""


LARGE, OF_LARGE = 1 << 21, 2
"""Elements of all inputs from which there are so many extreme contents."""


def extreme_forms(tensors: Sequence[TensorInput], chance: random.Random) -> list[tuple[str, ...]]:
    """For each extreme content a key of :data:`EXTREMES` for each tensor, or nothing. Floats that vary have each
    once, and others than their neighbours; distributions that are declared are ``sparse``, those of less than 32 bits
    ``ordered``, and whole numbers ``few``. One float tensor is ``lone`` beside others that are ``alike``: what has a
    small weight in all of those rows counts where few of the weighted numbers aren't zero. Large inputs have
    :data:`OF_LARGE` of all these, which are drawn: each takes seconds there."""
    varied = [i for i, t in enumerate(tensors) if t.varied]
    spread = [(i, t.content) for i, t in enumerate(tensors) if _spreads(t)]
    order = list(OF_VARIED) if varied else []
    chance.shuffle(order)
    turns = [{i: order[(turn + k) % len(order)] for k, i in enumerate(varied)} for turn in range(len(order))]
    floats = [i for i, content in spread if content != "integers"]
    narrow = [i for i in floats if FLOAT_FORMATS[tensors[i].dtype].width < 4]
    whole = [i for i, content in spread if content == "integers"]
    turns += [
        dict.fromkeys(own, form) for form, own in (("sparse", floats), ("ordered", narrow), ("few", whole)) if own
    ]
    turns += [{**dict.fromkeys(floats, "alike"), i: "lone"} for i in chance.sample(floats, min(MOST_LONE, len(floats)))]
    found = [tuple(turn.get(i, "") for i in range(len(tensors))) for turn in turns]
    large = sum(math.prod(t.shape) for t in tensors) > LARGE
    return chance.sample(found, min(OF_LARGE, len(found))) if large else found


def _spreads(given: TensorInput) -> bool:
    """Whether drawn elements may be different numbers."""
    if given.content not in DRAWN:
        return False
    return given.high != 0 if given.content == "normal" else given.low != given.high


def sparse_centre(given: TensorInput) -> float:
    """What most of ``sparse`` numbers are near to."""
    return min(max(0.0, given.low), given.high) if given.content == "uniform" else given.low


def other_numbers(case: CaseInputs, chance: random.Random) -> CaseInputs | None:
    """The case with other numbers where a candidate knows them when it is recorded, which its label tells: a little
    smaller for what isn't whole, in another order for a list that has none. None if there are no such numbers."""
    replace, told = msgspec.structs.replace, list[str]()
    arguments, tensors = list(case.arguments), list(case.tensors)
    for i, argument in enumerate(arguments):
        value = argument.value if isinstance(argument, PlainArgument) else None
        if isinstance(value, float) and math.isfinite(value) and value != int(value):
            arguments[i] = other = PlainArgument(value * chance.uniform(0.7, 0.95))
            told.append(f"{other.value:.3g} for {value:g}")
    for i, given in enumerate(tensors):
        values = list(given.values)
        if values not in (sorted(values), sorted(values, reverse=True)):
            while values == list(given.values):
                chance.shuffle(values)
            tensors[i] = replace(given, values=tuple(values))
            told.append(f"{given.name} in another order")
    if not told:
        return None
    return replace(case, label=", ".join(told), tensors=tuple(tensors), arguments=tuple(arguments))


def contents_of(tensors: Sequence[TensorInput], seed: int, forms: Sequence[str]) -> tuple[bytes, ...]:
    """The bytes of each tensor for a seed, with its form of :func:`extreme_forms`; no forms for a usual content."""
    return tuple(content_of(t, seed, form) for t, form in zip(tensors, forms or [""] * len(tensors), strict=True))


def content_of(given: TensorInput, seed: int, form: str = "") -> bytes:
    """The bytes of a tensor's elements for a seed: no part of them repeats.

    A ``varied`` normal's deviation is between 0.5 and 2, its mean between -0.5 and 0.5 times that; ``form`` is a key of
    :data:`EXTREMES`.
    """
    import numpy as np

    numbers: Any
    chance, count = np.random.default_rng([seed, _name_number(given.name)]), math.prod(given.shape)
    if given.content == "zeros":
        numbers = np.zeros(count)
    elif given.content == "fixed":
        numbers = np.asarray(given.values)
    elif given.content == "integers":
        numbers = chance.integers(int(given.low), int(given.high), count, endpoint=True)
        if form == "few":
            numbers = _few(numbers, given, chance)
    elif given.content == "uniform":
        numbers = chance.uniform(given.low, given.high, count)
    else:
        deviation = 2 ** chance.uniform(-1, 1) if given.varied else given.high
        mean = chance.uniform(-0.5, 0.5) * deviation if given.varied else given.low
        if form in _DEVIATIONS:
            deviation, mean = 2 ** chance.uniform(*_DEVIATIONS[form]), 0.0
        if form in ("up", "down"):
            mean = chance.uniform(32, 64) * deviation * (1 if form == "up" else -1)
        numbers = chance.standard_normal(count) * deviation + mean
    if form == "ties":
        numbers = chance.choice(numbers[:FEW_VALUES], count)
    if form == "broad":
        numbers[_zeros(given.shape, chance)] = 0
    if form == "holes":
        numbers[chance.permutation(count)[: max(1, count // HOLES)]] = np.nan
    if form in ("sparse", "lone"):
        nearest = sparse_centre(given)
        numbers[[0, -1]] = numbers[np.argmax(np.abs(numbers - nearest))]
        others = numbers[~(few := _places(given.shape, chance))]
        numbers[~few] = nearest + (others - nearest) * (2.0**-10 if form == "sparse" else 0.0)
    if form == "alike":
        rows = numbers.reshape(-1, given.shape[-1] if given.shape else 1)
        rows[(np.arange(len(rows) // 2) + chance.integers(len(rows))) % len(rows)] = rows[0]
    if form == "ordered":
        numbers = _ordered(numbers.reshape(-1, given.shape[-1] if given.shape else 1), chance)
    return bytes_of(numbers, given.dtype)


HOLES = 256
"""One of so many elements is NaN, or one."""

FEW_VALUES = 3
"""Different numbers where they are few."""

_DEVIATIONS = {
    "tiny": (-12.0, -12.0),
    "broad": (2.0, 3.0),
    "wide": (6.0, 7.0),
    "sparse": (0.0, 0.0),
    "lone": (0.0, 0.0),
}
"""Logarithms of the least and the largest, to base 2."""


def _places(shape: Sequence[int], chance: np.random.Generator) -> np.ndarray:
    """Which elements are as declared among others near one number: one in each piece of a length, the first and the
    last: whatever is left out, at an end or of the length of two pieces, has one."""
    import numpy as np

    count, length = math.prod(shape), max(SPARSE, shape[-1] // SPARSE if shape else 0)
    begins = np.arange(0, count, length)
    found = np.zeros(count, bool)
    found[np.minimum(begins + chance.integers(0, length, len(begins)), count - 1)] = True
    found[[0, -1]] = True
    return found


def _ordered(rows: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """Numbers in order along each row: up, down, and in half of the rows from anywhere on, so that what is left out of
    rows has their largest or smallest."""
    import numpy as np

    rows = np.sort(rows, axis=1)
    rows[1::2] = rows[1::2, ::-1]
    for row in chance.permutation(len(rows))[: len(rows) // 2]:
        rows[row] = np.roll(rows[row], int(chance.integers(rows.shape[1])))
    return rows.reshape(-1)


def _few(numbers: np.ndarray, given: TensorInput, chance: np.random.Generator) -> Any:
    """Three of the numbers, the least and the largest that may be among them; in half of the rows one alone."""
    import numpy as np

    values = np.concatenate([[int(given.low), int(given.high)], chance.choice(numbers, FEW_VALUES - 2)])
    found = chance.choice(values, numbers.size).reshape(-1, given.shape[-1] if given.shape else 1)
    rows = chance.permutation(len(found))[: -(-len(found) // 2)]
    if len(found) > 1:
        found[rows] = values[np.arange(len(rows)) % len(values)][:, None]
    return found.reshape(-1)


def _zeros(shape: Sequence[int], chance: np.random.Generator) -> np.ndarray:
    """A quarter of the rows, or of a single row a quarter in one piece; and one of 16 elements elsewhere."""
    import numpy as np

    columns, count = shape[-1] if shape else 1, math.prod(shape)
    zero = chance.random(count) < 1 / 16
    if count == columns:
        at = int(chance.integers(0, count - count // 4 + 1))
        zero[at : at + count // 4] = True
    else:
        rows = zero.reshape(-1, columns)
        rows[chance.permutation(len(rows))[: max(1, len(rows) // 4)]] = True
    return np.flatnonzero(zero)


POISONS = (0x7F, 0x7B, 0xFB, 0x3F, 0x00)
"""High bytes of what fills unwritten memory: with a low byte of :data:`LOW_BYTES` NaN, huge, and hugely negative, in
float16, bfloat16, float32 and float64 alike; ordinary numbers of both signs up to 2, of any bits; and zeros, as most
new memory has them."""

LOW_BYTES = range(0xF1, 0xFF)


def poison_patterns(count: int) -> list[bytes]:
    """Eight bytes for each of so many replays, which fill what nothing has written. They are of all kinds of
    :data:`POISONS`, in an order drawn anew: a maximum passes over NaN, a comparison over what is huge, NaN that is
    never stored may be what the reference has, and ordinary numbers have no bits that a kernel could know them by."""
    chance = secrets.SystemRandom()
    kinds = [POISONS[i % len(POISONS)] for i in range(count)]
    chance.shuffle(kinds)
    return [b"".join(_unit(kind, chance) for _ in range(4)) for kind in kinds]


def _unit(kind: int, chance: random.Random) -> bytes:
    if kind == 0x3F:
        return bytes((chance.randrange(256), chance.randrange(0x3C, 0x40) | chance.choice((0, 0x80))))
    return bytes((chance.choice(LOW_BYTES), kind)) if kind else bytes(2)


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


def bytes_of(numbers: np.ndarray, dtype: str) -> bytes:
    """Numbers as little-endian elements of a dtype, rounded as torch does: to the nearest, of two to the even one."""
    import numpy as np

    if dtype in INTEGERS:
        return bytes((numbers != 0 if dtype == "bool" else numbers).astype(INTEGERS[dtype]).tobytes())
    if dtype.startswith("float8"):
        return _eight_bits(numbers, dtype)
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            bits = numbers.astype("<f4").view("<u4")
            return bytes(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes())
        return encode_floats(numbers, dtype)


def _eight_bits(numbers: np.ndarray, dtype: str) -> bytes:
    """To the nearest of the format's 256 numbers."""
    import numpy as np

    from kerntune.gpu.number_formats import values

    patterns = np.arange(256, dtype=np.uint64)
    known = values(patterns, FLOAT_FORMATS[dtype])
    finite = np.isfinite(known)
    patterns, known = patterns[finite], known[finite]
    order = np.argsort(known, kind="stable")
    patterns, known = patterns[order], known[order]
    at = np.clip(np.searchsorted(known, numbers), 1, len(known) - 1)
    below, above = numbers - known[at - 1], known[at] - numbers
    nearer = np.where((below < above) | (below == above) & (patterns[at] & 1 == 1), at - 1, at)
    return bytes(patterns[nearer].astype(np.uint8).tobytes())
