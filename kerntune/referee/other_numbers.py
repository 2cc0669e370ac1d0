"""Other numbers for what a candidate knows when it is recorded: it may be right for those that are declared alone."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from kerntune.referee.case_inputs import (
    CallArgument,
    CaseInputs,
    MappingArgument,
    PlainArgument,
    SequenceArgument,
    TensorInput,
    plain_of,
)
from kerntune.referee.content_forms import extreme_forms
from kerntune.referee.declared_inputs import as_launched

BESIDE_OTHERS = 0.5
"""How often: a flag may tell together with a number what neither does alone, and not all belong together."""

SMALL_COUNT, MOST_FORMS = frozenset(("tiny", "broad", "down")), 2

MOST_ALONE = 6
"""Cases with other numbers of a task, which has no way to say which of these belong together: each has one alone."""

NAMED = {0: 1, 1: 2, -1: -2}
"""What stands for whole numbers that often name something: a dimension, a step, an index that is left out."""

FIRST, COUNTED = (2, 3, 4), 256
"""What stands once for larger whole numbers that count something, and from where on."""

LEAST_EVEN = 8
"""From where on an odd number stands for a power of two."""


def other_numbers(case: CaseInputs, chance: random.Random) -> list[CaseInputs]:
    """The case with other numbers where a candidate knows them when it is recorded, which each label tells: once with
    smaller floats (or not zero) and lists in another order, once with larger floats and lists of other numbers; once
    with flags turned, once with whole numbers of which a drawn power of two is left out: what divided them still does.
    These are others alone, or beside what was another before; of several flags or numbers one is another alone, too.
    Whole numbers are doubled once, below the inputs' sizes; :data:`NAMED` ones, what counts something and a model's
    flags are others alone.

    What is held stays, and in data what may be a size. A task's are others alone, :data:`MOST_ALONE` drawn ones. A list
    in order has other numbers between its ends, a little smaller ones if it isn't whole; one of equal numbers, lengths
    for example, smaller ones.
    """
    sizes, smaller, larger = _sizes(case), partial(_smaller, chance), partial(_larger, case)
    kinds: tuple[tuple[type, Callable[[Any], Any], str, float], ...] = (
        (bool, operator.not_, "arguments", BESIDE_OTHERS), (int, smaller, "arguments", BESIDE_OTHERS),
        (int, larger, "arguments", 0.0), (int, partial(_named_or_first, case, chance), "arguments", 0.0),
        (bool, operator.not_, "init", 0.0),
    )  # fmt: skip
    found = list[CaseInputs]()
    if case.made_by_author:
        for up, where in itertools.product((False, True), ("arguments", "init")):
            found += _each_alone(case, float, partial(_other_float, chance, up), where, sizes)
        for kind, other, where, _ in kinds:
            found += _each_alone(case, kind, other, where, sizes)
        return chance.sample(found, min(MOST_ALONE, len(found)))
    for up in (False, True):
        told = list[str]()
        floats = partial(_other_float, chance, up)
        arguments, init = (_with_others(given, float, floats, told) for given in (case.arguments, case.init))
        tensors = tuple(
            t if t.held else _with_other_values(t, chance, up, told, _row_length(case, t)) for t in case.tensors
        )
        if told and not (up and _has_one_side(case)):
            found.append(replace(case, label=", ".join(told), tensors=tensors, arguments=arguments, init=init))
    for kind, other, where, beside in kinds:
        base, more = (found[-1], [found[-1].label]) if found and chance.random() < beside else (case, [])
        told = list[str]()
        changed = {where: _with_others(getattr(base, where), kind, other, told, sizes)}
        if told:
            found.append(replace(base, label=", ".join((*more, *told)), **changed))
        if len(told) > 1:  # of several one alone, which may stand for another
            found.append(chance.choice([*_each_alone(case, kind, other, where, sizes)]))
    return found


def _each_alone(
    case: CaseInputs, kind: type, other: Callable[[Any], Any], where: str, sizes: Container[int]
) -> Iterator[CaseInputs]:
    """For each number of a kind that has another the case with that."""
    for number in itertools.count():
        told = list[str]()
        once = partial(_once, itertools.count(), number, other)
        changed = {where: _with_others(getattr(case, where), kind, once, told, sizes)}
        if not told:
            return
        yield replace(case, label=told[0], **changed)


def _once(numbers: Iterator[int], number: int, other: Callable[[Any], Any], value: Any) -> Any:
    """Another value for the one of this number among those that have others."""
    found = other(value)
    return found if found is not None and next(numbers) == number else None


def _has_one_side(case: CaseInputs) -> bool:
    """Whether others lie on one side alone: floats but for 0 and 1 are smaller once, and larger once."""
    given = [x for one in (case.arguments, case.init) for x in one if isinstance(x, PlainArgument) and not x.held]
    floats = [x.value for x in given if type(x.value) is float and abs(x.value) not in (0, 1, math.inf)]
    lists = [t.values for t in case.tensors if t.values and not t.held]
    unsorted = [x for x in lists if list(x) not in (sorted(x), sorted(x, reverse=True))]
    return not floats and not unsorted


def case_before(cases: Sequence[CaseInputs], number: int) -> CaseInputs | None:
    """A case of another shape behind which that of this number is recorded, too: the candidate may have kept memory or
    numbers of it."""
    case, other = cases[number], cases[number - 1]
    lie = ([(t.shape, t.dtype) for t in one.tensors] for one in (case, other))
    return other if next(lie) != next(lie) and not (case.init or case.parameters or other.unmade) else None


def where_numbers_count(case: CaseInputs, chance: random.Random) -> list[tuple[str, ...]]:
    """Forms of extreme contents on which other numbers are judged, too: a small one counts there."""
    if case.made_by_author:
        return []
    return [form for form in extreme_forms(case.tensors, chance) if SMALL_COUNT & {*form}][:MOST_FORMS]


def unchanged(case: CaseInputs, others: Sequence[CaseInputs]) -> tuple[str, ...]:
    """What a reader should know of numbers and texts that no other case has others of, and that aren't held: 0 and 1
    often name something, and a constructor's whole numbers are sizes."""
    found = [f"{t.name}" for i, t in enumerate(case.tensors) if t.content == "fixed" and not t.held
             and all(one.tensors[i].values == t.values for one in others)]  # fmt: skip
    plain = [plain_of((*one.arguments, *one.init)) for one in others]
    for i, one in enumerate(plain_of((*case.arguments, *case.init))):
        if one.value is not None and not one.held and all(other[i] == one for other in plain):
            found.append(repr(one.value))
    listed = ", ".join(dict.fromkeys(found[:8]))
    return (f"known, and never another: {listed}; hold back other inputs",) if found else ()


def _smaller(chance: random.Random, number: int) -> int | None:
    """Half of it, or a fourth or an eighth, towards zero. 0 and 1 often name something, and so does -1."""
    size = abs(number)
    few = [size >> shift for shift in (2, 3) if size >> shift > 1]
    other = chance.choice((size // 2, *few)) if size > 1 else 0
    return int(math.copysign(other, number)) if other else None


def _larger(case: CaseInputs, number: int) -> int | None:
    """Twice as much, if that is no more than the least of the inputs' sizes that isn't below the number."""
    sizes = [n for t in case.tensors for n in t.shape if n >= number]
    return 2 * number if number > 1 and 2 * number <= min(sizes, default=0) else None


def _named_or_first(case: CaseInputs, chance: random.Random, number: int) -> int | None:
    """Another for one of :data:`NAMED`; where it divides none of the inputs' sizes, one of :data:`FIRST` for one from
    :data:`COUNTED` on: a step's number, for which a first step's correction is nothing; and an odd one for a power of
    two from :data:`LEAST_EVEN` on that divides no dimension: a remainder by bits is right for powers of two alone."""
    if number >= COUNTED and all(n % number for n in _sizes(case)):
        return chance.choice(FIRST)
    if number >= LEAST_EVEN and number & (number - 1) == 0 and all(n % number for t in case.tensors for n in t.shape):
        return chance.randrange(number // 2 + 1, number, 2)
    return NAMED.get(number)


def _sizes(case: CaseInputs) -> set[int]:
    """Whole numbers that belong to what the inputs' sizes are: these, their products, and what another known number
    divides them into."""
    ends = [(t.shape, i, j) for t in case.tensors for j in range(len(t.shape) + 1) for i in range(j)]
    sizes = {math.prod(shape[i:j]) for shape, i, j in ends}
    known = {one.value for one in plain_of(case.arguments) if type(one.value) is int and one.value > 1}
    return sizes | {n // k for n in sizes for k in known if n % k == 0 and n not in (k, k * k)}


def _but_sizes(sizes: Container[int], other: Callable[[Any], Any], value: Any) -> Any:
    return None if value in sizes else other(value)


def _row_length(case: CaseInputs, given: TensorInput) -> int:
    """The length of the rows of which a list may have a number each, which an index is below; 0 without rows."""
    count = math.prod(given.shape)
    return min((t.shape[1] for t in case.tensors if len(t.shape) > 1 and t.shape[0] == count > 1), default=0)


def _with_others(
    arguments: Sequence[CallArgument], kind: type, other: Callable[[Any], Any], told: list[str],
    sizes: Container[int] = (),
) -> tuple[CallArgument, ...]:  # fmt: skip
    """The arguments, those of a kind with others where there are any; whole numbers in data, but for sizes."""
    found = list[CallArgument]()
    inside = partial(_but_sizes, sizes, other) if kind is int else other
    for argument in arguments:
        if isinstance(argument, SequenceArgument):
            argument = replace(argument, items=_with_others(argument.items, kind, inside, told))
        if isinstance(argument, MappingArgument):
            others = _with_others(tuple(argument.items.values()), kind, inside, told)
            argument = replace(argument, items=dict(zip(argument.items, others, strict=True)))
        value = argument.value if isinstance(argument, PlainArgument) and not argument.held else None
        changed = other(value) if type(value) is kind else None
        if changed is not None:
            argument = PlainArgument(changed)
            told.append(f"{changed:.3g} for {value:g}" if kind is float else f"{changed} for {value}")
        found.append(argument)
    return tuple(found)


def _other_float(chance: random.Random, up: bool, value: float) -> float | None:
    """Of what is below 1 a larger one still is: it may be a probability."""
    if not math.isfinite(value):
        return None
    if not value:
        return as_launched(chance.uniform(0.1, 0.3))
    if abs(value) == 1 or not up:
        return as_launched(value * math.exp(chance.uniform(math.log(0.2), math.log(0.6))))
    larger = abs(value) * chance.uniform(1.05, 2) if abs(value) > 1 else chance.uniform(abs(value), 1)
    return as_launched(math.copysign(larger, value))


def _with_other_values(
    given: TensorInput, chance: random.Random, up: bool, told: list[str], most: int = 0
) -> TensorInput:
    """``most``: what its whole numbers may be, where that is known."""
    values = list(given.values)
    whole = all(isinstance(x, int) for x in values)
    if values not in (sorted(values), sorted(values, reverse=True)):
        others = _as_many(values, chance, most) if whole and up else values
        if up and any(x != round(x) for x in values):  # weights, whose sum may have been one
            others = [x * chance.uniform(0.7, 0.95) for x in values]
        while values == list(given.values):
            chance.shuffle(others)
            values = others
        told.append(f"{given.name} in another order" + ", of other numbers" * ({*values} != {*given.values}))
        return replace(given, values=tuple(values))
    if whole and len({*values}) == 1 and values[0] > 1:
        top = int(values[0])
        told.append(f"{given.name} of smaller numbers")
        return replace(given, values=(chance.randrange(1, top), *(chance.randint(1, top) for _ in values[1:])))
    if whole and {*values} in ({0}, {1}) and most > values[0] + 1:
        least = int(values[0])
        told.append(f"{given.name} of larger numbers")
        return replace(
            given, values=(chance.randrange(least + 1, most), *chance.choices(range(least, most), k=len(values) - 1))
        )
    if whole and (between := _other_steps(given.values, chance)):
        told.append(f"{given.name} of other steps")
        return replace(given, values=between)
    if not whole and any(values):
        up = values == sorted(values)
        told.append(f"{given.name} of smaller numbers")
        return replace(given, values=tuple(sorted((x * chance.uniform(0.7, 0.95) for x in values), reverse=not up)))
    return given


def _as_many(values: Sequence[float], chance: random.Random, most: int = 0) -> list[float]:
    """Whole numbers between the least and the most, each once if these are, of the same common divisor. The largest is
    up to twice as much, where it may be."""
    low, high, unit = int(min(values)), int(max(values)), math.gcd(*map(int, values)) or 1
    between = range(low, high + 1, unit)
    found = list[float](
        chance.sample(between, len(values)) if len({*values}) == len(values) else chance.choices(between, k=len(values))
    )
    if (top := min(2 * high, most - 1) // unit * unit) > high:
        found[chance.randrange(len(found))] = top
    return found


def _other_steps(values: Sequence[float], chance: random.Random) -> tuple[float, ...]:
    """Whole numbers in order, as offsets are, between the same ends: they stay multiples of what their differences
    are, or of half of that where those are equal (of 1 where they are odd), and equal ones stay possible. Two may be
    lengths. Empty where there are no others."""
    if len(values) < 3:
        top, found = int(max(values, default=0)), tuple(values)
        while len(values) == 2 and min(values) > 0 and top > 1 and found == tuple(values):
            found = tuple(chance.randint(1, top) for _ in values)
        return found if found != tuple(values) else ()
    steps = [int(b) - int(a) for a, b in itertools.pairwise(values)]
    unit = math.gcd(*steps) * (1 if values[-1] > values[0] else -1)
    if {*steps} == {unit}:
        smaller = 0 if abs(unit) < 2 else unit / 2 if unit % 2 == 0 else math.copysign(1, unit)
        unit = int(smaller)
    if not unit:
        return ()
    ends, inner, found = sum(steps) // unit, len(values) - 2, tuple(values)
    while found == tuple(values):
        inside = chance.choices(range(ends + 1), k=inner) if 0 in steps else chance.sample(range(1, ends), inner)
        found = (values[0], *(values[0] + unit * at for at in sorted(inside)), values[-1])
    return found
