"""What is known of an operation's result along each axis, by what is known of its operands (``AxisInfo.cpp``)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kerntune.gpu.emulator.elements import constant
from kerntune.gpu.emulator.ttir_program import TtirOperation, ValueType, pointed_bytes

MOST = 1 << 62
"""What 0 is a multiple of."""

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class AxisInfo:
    """Of each axis: how many neighbours go up by one (``contiguity``), by what the first of them is divisible, and how
    many neighbours are equal (``constancy``). ``constant`` is the number that all elements are, if it is known.

    Of pointers ``divisibility`` is in bytes.
    """

    contiguity: Numbers
    divisibility: Numbers
    constancy: Numbers
    constant: int | None = None

    def along(self, change: Callable[[str, Numbers], Numbers]) -> AxisInfo:
        """The same with other numbers of each kind, which ``change`` gives by its name."""
        kinds = ("contiguity", "divisibility", "constancy")
        near, divisor, same = (change(kind, getattr(self, kind)) for kind in kinds)
        return AxisInfo(near, divisor, same, self.constant)


def unknown(kind: ValueType) -> AxisInfo:
    """Of a value of which nothing is known."""
    ones = (1,) * max(len(kind.shape), 1)
    return AxisInfo(ones, ones, ones)


def joined(a: AxisInfo, b: AxisInfo) -> AxisInfo:
    """Of a value that is one or the other."""
    axes = range(len(a.contiguity))
    return AxisInfo(
        tuple(map(math.gcd, a.contiguity, b.contiguity)),
        tuple(_shared_divisor(a, b, d) for d in axes),
        tuple(map(math.gcd, a.constancy, b.constancy)),
        a.constant if a.constant == b.constant else None,
    )


def _shared_divisor(a: AxisInfo, b: AxisInfo, d: int) -> int:
    """Of the first of each group: where groups become shorter, others are the first."""
    shared = math.gcd(a.divisibility[d], b.divisibility[d])
    near = a.contiguity[d], b.contiguity[d]
    return shared if near[0] == near[1] or MOST in near else math.gcd(shared, *near)


def _divisor(number: int) -> int:
    """The largest power of two that divides a number."""
    return number & -number or MOST


def _product(a: int, b: int) -> int:
    return min(a * b, MOST)


Kinds = Sequence[ValueType]
Infos = Sequence[AxisInfo]
OperationRule = Callable[[TtirOperation, Kinds, Infos], AxisInfo]
"""Takes the operands' types and what is known of them."""


def _same(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    return infos[0]


def _constant(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    kind, info = op.types[0], unknown(op.types[0])
    if not kind.element.startswith("i"):
        return info
    found = constant(op.attributes["text"], kind.element)
    number = int(found) if found.dtype == bool else int(found) & (1 << 8 * found.dtype.itemsize) - 1
    return AxisInfo(info.contiguity, (_divisor(number),) * len(info.contiguity), kind.shape or (1,), number)


def _poison(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    most = (MOST,) * len(unknown(op.types[0]).contiguity)
    return AxisInfo(most, most, most)


def _range(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    start, end = op.attributes["start"], op.attributes["end"]
    return AxisInfo((end - start,), (_divisor(start),), (1,))


def _splat(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    shape = op.types[0].shape
    return AxisInfo((1,) * len(shape), infos[0].divisibility[:1] * len(shape), shape, infos[0].constant)


def _broadcast(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    shape, info = op.types[0].shape, infos[0]
    axes = list(zip(kinds[0].shape, shape, info.contiguity, info.constancy, strict=True))
    return replace(
        info,
        contiguity=tuple(1 if old == 1 else near for old, _, near, _ in axes),
        constancy=tuple(new if old == 1 else same for old, new, _, same in axes),
    )


def _expand(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    info, axis = infos[0], op.attributes["axis"]
    if info.constant is not None:
        divisor = _divisor(info.constant)
    else:
        axes = zip(info.contiguity, info.divisibility, strict=True)
        divisor = math.gcd(*(1 if near > 1 else divisor for near, divisor in axes))

    def put(kind: str, numbers: Numbers) -> Numbers:
        return (*numbers[:axis], divisor if kind == "divisibility" else 1, *numbers[axis:])

    return info.along(put)


def _transposed(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    return infos[0].along(lambda kind, numbers: tuple(numbers[axis] for axis in op.attributes["order"]))


def _loaded(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    info = unknown(op.types[0])
    masked = infos[1].constancy if len(infos) > 1 else (0,) * len(info.constancy)
    return replace(info, constancy=tuple(map(math.gcd, infos[0].constancy, masked)))


def _selected(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    condition, a, b = infos
    if condition.constant is not None:
        return a if condition.constant else b
    both = joined(a, b)
    if not kinds[0].shape:
        return both
    return replace(
        both,
        contiguity=tuple(map(math.gcd, both.contiguity, condition.constancy)),
        constancy=tuple(map(math.gcd, both.constancy, condition.constancy)),
    )


def _extreme(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    a, b = infos
    if a.constant is None or b.constant is None:
        return replace(joined(a, b), constant=None)
    return replace(unknown(op.types[0]), constant=(max if "max" in op.name else min)(a.constant, b.constant))


# operations of two numbers, axis by axis

Axis = tuple[int, int, int]
"""Contiguity, divisibility and constancy along one axis."""

AxisRule = Callable[[TtirOperation, AxisInfo, AxisInfo, int, int], Axis]
"""Takes the axis and its length, which is 0 of a scalar."""

NumberRule = Callable[[TtirOperation, int, int], "int | None"]


def _of_two(axis_rule: AxisRule, number_rule: NumberRule) -> OperationRule:
    def rule(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
        a, b = infos
        ones = (1,) * len(a.contiguity)
        number = None if a.constant is None or b.constant is None else number_rule(op, a.constant, b.constant)
        if number is not None:
            constancy = tuple(map(max, a.constancy, b.constancy))
            return AxisInfo(ones, (_divisor(number),) * len(ones), constancy, number)
        shape = op.types[0].shape or (0,)
        near, divisor, same = zip(*(axis_rule(op, a, b, d, n) for d, n in enumerate(shape)), strict=True)
        return AxisInfo(near, divisor, same)

    return rule


def _sum_axis(op: TtirOperation, a: AxisInfo, b: AxisInfo, d: int, length: int) -> Axis:
    near = math.gcd(a.contiguity[d], b.constancy[d])
    if op.name != "arith.subi":
        near = max(near, math.gcd(a.constancy[d], b.contiguity[d]))
    size = pointed_bytes(op.types[0]) if op.name == "tt.addptr" else 1
    return (
        near,
        math.gcd(a.divisibility[d], _product(b.divisibility[d], size)),
        math.gcd(a.constancy[d], b.constancy[d]),
    )


def _sum_number(op: TtirOperation, a: int, b: int) -> int:
    size = pointed_bytes(op.types[0]) if op.name == "tt.addptr" else 1
    return a - b if op.name == "arith.subi" else a + b * size


def _product_axis(op: TtirOperation, a: AxisInfo, b: AxisInfo, d: int, length: int) -> Axis:
    """The first of each group is what divisibility is of: of others, which become a first one, nothing is known."""
    divisors = [
        x.divisibility[d] if x.contiguity[d] == 1 or y.constant == 1 else 1 for x, y in ((a, b), (b, a))
    ]  # fmt: skip
    near = max(a.contiguity[d] if b.constant == 1 else 1, b.contiguity[d] if a.constant == 1 else 1)
    return near, _product(*divisors), math.gcd(a.constancy[d], b.constancy[d])


def _quotient_axis(op: TtirOperation, a: AxisInfo, b: AxisInfo, d: int, length: int) -> Axis:
    same = math.gcd(a.constancy[d], b.constancy[d])
    if length and a.contiguity[d] == length and b.constancy[d] == length:
        same = max(same, math.gcd(length, a.divisibility[d], b.divisibility[d]))
    divisor = 1
    if a.constant == 0 or b.constant == 1:
        divisor = a.divisibility[d]
    elif b.constant and b.constant == _divisor(b.constant) and a.contiguity[d] == 1:
        divisor = max(a.divisibility[d] // b.constant, 1)
    return a.contiguity[d] if b.constant == 1 else 1, divisor, same


def _remainder_axis(op: TtirOperation, a: AxisInfo, b: AxisInfo, d: int, length: int) -> Axis:
    shared, near = math.gcd(a.divisibility[d], b.divisibility[d]), 1
    if length and a.contiguity[d] == length and b.constancy[d] == length:
        near = math.gcd(length, shared)
    same = math.gcd(a.constancy[d], b.constancy[d])
    return near, shared if b.constancy[d] > 1 else 1, length if length and b.constant == 1 else same


def _shift_axis(op: TtirOperation, a: AxisInfo, b: AxisInfo, d: int, length: int) -> Axis:
    by, left = b.constant, op.name == "arith.shli"
    divisor = 1 if a.contiguity[d] > 1 and by else a.divisibility[d]
    if by is None:
        divisor = divisor if left else 1
    else:
        divisor = _product(divisor, 1 << min(by, 62)) if left else max(divisor >> by, 1)
    return a.contiguity[d] if by == 0 else 1, divisor, math.gcd(a.constancy[d], b.constancy[d])


def _bits_axis(op: TtirOperation, a: AxisInfo, b: AxisInfo, d: int, length: int) -> Axis:
    return 1, 1, math.gcd(a.constancy[d], b.constancy[d])


def _comparison_axis(op: TtirOperation, a: AxisInfo, b: AxisInfo, d: int, length: int) -> Axis:
    """Numbers that go up by one from a multiple are all below another multiple, or none of them is."""
    same = math.gcd(a.constancy[d], b.constancy[d])
    word = op.attributes["predicate"][1:]
    shared = math.gcd(a.divisibility[d], b.divisibility[d])
    if word in ("gt", "le") and length and a.constancy[d] == length:
        same = max(same, math.gcd(b.contiguity[d], shared))
    elif word in ("lt", "ge") and length and b.constancy[d] == length:
        same = max(same, math.gcd(a.contiguity[d], shared))
    return 1, 1, same


def _compared(op: TtirOperation, kinds: Kinds, infos: Infos) -> AxisInfo:
    a, b = infos
    if a.constant is not None and b.constant is not None:
        return replace(unknown(op.types[0]), constancy=a.constancy)
    return _of_two(_comparison_axis, lambda op, a, b: None)(op, kinds, infos)


_BITS: Mapping[str, Callable[[int, int], int]] = {
    "arith.andi": operator.and_, "arith.ori": operator.or_, "arith.xori": operator.xor,
}  # fmt: skip

SUM = _of_two(_sum_axis, _sum_number)
QUOTIENT = _of_two(_quotient_axis, lambda op, a, b: a // b if a >= 0 and b > 0 else None)
REMAINDER = _of_two(_remainder_axis, lambda op, a, b: a % b if a >= 0 and b > 0 else None)

RULES: Mapping[str, OperationRule] = {
    **dict.fromkeys(("arith.extsi", "arith.extui", "arith.trunci", "tt.bitcast"), _same),
    "arith.constant": _constant,
    "ub.poison": _poison,
    "tt.make_range": _range,
    "tt.splat": _splat,
    "tt.broadcast": _broadcast,
    "tt.expand_dims": _expand,
    "tt.trans": _transposed,
    "tt.load": _loaded,
    "arith.select": _selected,
    "arith.cmpi": _compared,
    **dict.fromkeys(("arith.addi", "arith.subi", "tt.addptr"), SUM),
    "arith.muli": _of_two(_product_axis, lambda op, a, b: a * b),
    **dict.fromkeys(("arith.divsi", "arith.divui"), QUOTIENT),
    **dict.fromkeys(("arith.remsi", "arith.remui"), REMAINDER),
    **dict.fromkeys(_BITS, _of_two(_bits_axis, lambda op, a, b: _BITS[op.name](a, b))),
    "arith.shli": _of_two(_shift_axis, lambda op, a, b: a << b if b < 64 else None),
    **dict.fromkeys(("arith.shrsi", "arith.shrui"), _of_two(_shift_axis, lambda op, a, b: a >> b)),
    **dict.fromkeys(("arith.maxsi", "arith.maxui", "arith.minsi", "arith.minui"), _extreme),
}
"""By operation. Of the results of others nothing is known."""
