"""How many contents more are worth it, their numbers, and whether roundings inside of the reference are drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.case_inputs import UNREAD, CaseInputs, TensorInput
from kerntune.referee.content_forms import DRAWN, OF_ALIKE, OF_MADE
from kerntune.referee.declared_inputs import bytes_of, content_of
from kerntune.referee.extreme_contents import full_places
from kerntune.referee.hostile_recording import ITEM_BYTES
from kerntune.referee.result_numbers import numbers
from kerntune.referee.rounding_limits import FEW
from kerntune.referee.tasks import BytesLike, ExpectedSeed

MANY, MANY_ELEMENTS = 255, 1 << 20
"""Further contents where a result has fewer than :data:`~.rounding_limits.FEW` elements, as far as their inputs have so
many elements in all: a maximum that leaves out 3 % of the numbers is right for one content in 33."""

DRAWN_BYTES = 1 << 22
"""Bytes of inputs up to which roundings inside of the reference are drawn."""

MANY_BY_AUTHOR = 96
"""Contents that the task's own code makes, which takes a time that isn't known."""

WHOLE = ("int8", "int16", "int32", "int64")
"""Dtypes of whole numbers that may be below zero."""

MANY_BYTES = 1 << 27
"""Bytes of further contents where large inputs stay as they are: a table from which a few indices choose."""


def has_deviations(
    on_gpu: bool, seed: ExpectedSeed, poison: bytes, left_in: Sequence[BytesLike], forms: Sequence[str]
) -> bool:
    """Whether it is worth it to ask what roundings do: inside of the reference up to :data:`DRAWN_BYTES`; without
    float64, on a GPU alone, but for whole numbers."""
    found = seed.computed
    known = any(r.wide is not None or r.dtype not in FLOAT_FORMATS for r in found)
    return sum(map(len, seed.contents)) <= DRAWN_BYTES if known else on_gpu


def is_far(forms: Sequence[str]) -> bool:
    """Whether numbers are far from zero, where a right kernel may be off by what a rounding of them moves; none is
    where a function has a border, nor as another is."""
    return bool({"up", "down", "deep", "wide", "huge", *OF_MADE} & {*forms}) and not {"round", "paired"} & {*forms}


def may_be_emulated(seed: ExpectedSeed) -> bool:
    """Whether nothing of a reference is known in float64, and the interpreter would tell soon."""
    found = seed.computed
    return sum(map(len, seed.contents)) <= DRAWN_BYTES and all(r.wide is None for r in found)


def beside_deviations(seed: ExpectedSeed, other: ExpectedSeed) -> ExpectedSeed:
    """What the reference computes, with what another run of the same contents tells of roundings."""
    results = (
        replace(x, deviation=y.deviation, others=y.others, moved=x.moved if y.moved is None else y.moved)
        for x, y in zip(seed.results, other.results, strict=True)
    )
    pairs = zip(seed.changed, other.changed, strict=True)
    changed = (replace(x, deviation=y.deviation, others=y.others) if x and y else x for x, y in pairs)
    return replace(seed, results=tuple(results), changed=tuple(changed))


def many_contents(case: CaseInputs, first: ExpectedSeed) -> tuple[CaseInputs, int]:
    """How many further contents are worth it, none where each result has enough elements; and the case whose inputs are
    drawn then: where there are more if large inputs stay as they are, these are known."""
    few = [r for r in first.computed if 0 < math.prod(r.shape) < FEW]
    count = affordable(case, MANY) if few else 0
    if not few or case.made_by_author or count == MANY:
        return case, count
    small = MANY_ELEMENTS // MANY
    held = [t if math.prod(t.shape) <= small else replace(t, content="fixed") for t in case.tensors]
    most = min(MANY, MANY_BYTES // sum(math.prod(t.shape) * ITEM_BYTES[t.dtype] for t in held))
    if most > count and any(t.content in DRAWN for t in held):
        return replace(case, tensors=tuple(held)), most
    return case, count


def made_sparse(case: CaseInputs, known: Sequence[bytes], seed: int) -> tuple[list[bytes], tuple[str, ...]]:
    """The task's own contents with ``sparse`` floats, and the form of each: few are as they are, the first and the last
    the largest (or the smallest), others 2**10 times nearer to zero. Its sums may leave some out. Whole numbers stay,
    as flags are, and symmetric matrices, of which a kernel may read one half."""
    chance, found, forms = np.random.default_rng(seed), list(known), [""] * len(known)
    for i, (given, data) in enumerate(zip(case.tensors, known, strict=True)):
        item = ITEM_BYTES[given.dtype]
        if given.dtype not in FLOAT_FORMATS or given.alike or given.content == UNREAD or len(data) <= item:
            continue
        of = numbers(np.frombuffer(data, f"<u{item}"), given.dtype).copy()
        if (of == np.round(of)).all() or _is_symmetric(given, of):
            continue
        finite = np.where(np.isfinite(of), of, 0.0)
        of[[0, -1]] = finite.min() if i % 2 else finite.max()
        shape = given.shape if math.prod(given.shape) == of.size else (of.size,)
        found[i], forms[i] = bytes_of(np.where(full_places(shape, chance), of, of * 2.0**-10), given.dtype), "sparse"
    return found, tuple(forms)


def made_otherwise(
    case: CaseInputs, known: Sequence[bytes], seed: int, kind: str
) -> tuple[list[bytes], tuple[str, ...]]:
    """The task's own contents of a kind of :data:`~.content_forms.OF_MADE`, and the form of each. All floats are
    scaled by one number, so that they stay symmetric or triangular; but not what may be flags or shares."""
    chance, found, forms = np.random.default_rng(seed), list(known), [""] * len(known)
    scale = 2.0 ** (chance.uniform(2, 3) + 4 * (kind == "enlarged")) * (-1 if kind == "negated" else 1)
    numbered = {i: _floats_of(given, known[i]) for i, given in enumerate(case.tensors)}
    own = {*case.parameters.values()}
    others = [i for i, x in numbered.items() if x is not None and i not in own and not _are_flags(case.tensors[i], x)]
    learned = [i for i in case.learned if numbered[i] is not None]
    if kind == "zeroed":
        others = [int(chance.choice(others))] if others else []
    for i in learned if kind == "signed" else others:
        x = numbered[i]
        assert x is not None
        changed = x * (0.0 if kind == "zeroed" else scale)
        if kind == "signed":
            one_sign = bool((x > 0).all() or (x < 0).all())
            if len(case.tensors[i].shape) > 1 and not one_sign:
                continue
            signs = chance.choice((-1, -1, -1, 1), x.size) if one_sign else np.ones(x.size)
            signs[0] = -1 if one_sign else 1  # it may be the only one that counts
            changed = x * signs * 2.0 ** chance.uniform(2, 5, x.size)
        found[i], forms[i] = bytes_of(changed, case.tensors[i].dtype), kind
    return found, tuple(forms)


def made_in_another_order(
    case: CaseInputs, usual: Sequence[Sequence[bytes]], seed: int
) -> Iterator[tuple[tuple[bytes, ...], tuple[str, ...]]]:
    """The first of the task's ``usual`` contents, each with another order of one input that is alike in all and has no
    drawn floats, and the forms. Numbers in order have their steps in another one; those of more dimensions all columns
    but the first and the last: an offset stays below the next, a row has one that isn't masked. Below zero none is
    another, for that may stand for what isn't there."""
    chance, own = np.random.default_rng(seed), {*case.parameters.values()}
    for i, (given, data) in enumerate(zip(case.tensors, usual[0], strict=True)):
        floats, item = _floats_of(given, data), ITEM_BYTES[given.dtype]
        drawn = floats is not None and not _are_flags(given, floats)
        if drawn or given.content != "author" or i in own or len({contents[i] for contents in usual}) > 1:
            continue
        bits = np.frombuffer(data, f"<u{item}")
        steps, order = np.diff(bits.astype(np.int64)), np.arange(bits.size)
        if len(given.shape) > 1 and math.prod(given.shape) == bits.size:
            columns = np.arange(given.shape[-1])
            columns[1:-1] = _permuted(columns[1:-1], chance)
            order = order.reshape(-1, len(columns))[:, columns]
        elif not ((steps >= 0).all() or (steps <= 0).all()):
            order = _permuted(order, chance)
        elif floats is None:
            bits = np.cumsum([*bits[:1].astype(np.int64), *_permuted(steps, chance)]).astype(bits.dtype)
        below = given.dtype in WHOLE and bool((bits.view(f"<i{item}") < 0).any())
        if (other := bits[order].tobytes()) != data and not below:
            forms = tuple(OF_ALIKE if k == i else "" for k in range(len(case.tensors)))
            yield (*usual[0][:i], other, *usual[0][i + 1 :]), forms


def _permuted(values: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """In another order, unless there is hardly any."""
    each = (chance.permutation(values) for _ in range(8))
    return next((other for other in each if (other != values).any()), values)


def nearly_alike(
    case: CaseInputs, known: Sequence[bytes], other: Sequence[bytes], seed: int
) -> Iterator[tuple[bytes, ...]]:
    """The known contents, each with one place of one input as the ``other`` contents have it: an element, a piece, all
    of it. A candidate that knows an earlier call's numbers again by a sample takes these for them."""
    chance = np.random.default_rng(seed)
    places = [i for i, given in enumerate(case.tensors) if _may_mix(given, known[i]) and known[i] != other[i]]
    for kind in range(3 if places else 0):
        i = int(chance.choice(places))
        was, is_there = (np.frombuffer(x[i], f"<u{ITEM_BYTES[case.tensors[i].dtype]}") for x in (known, other))
        length = (1, max(1, min(case.tensors[i].columns, was.size // 8)), was.size)[kind]
        at = max(0, int(chance.choice(np.flatnonzero(was != is_there))) - length + 1)
        mixed = was.copy()
        mixed[at : at + length] = is_there[at : at + length]
        yield *known[:i], mixed.tobytes(), *known[i + 1 :]


def _may_mix(given: TensorInput, data: bytes) -> bool:
    """Whether an input may have some of its numbers of another content: not where a task's own code makes flags,
    shares, places or symmetric matrices."""
    if given.content != "author":
        return given.content in DRAWN
    numbered = _floats_of(given, data)
    return numbered is not None and not _are_flags(given, numbered) and not _is_symmetric(given, numbered)


def _floats_of(given: TensorInput, data: bytes) -> np.ndarray | None:
    """The numbers of floats that are wider than 8 bits; None of others, and where some aren't finite."""
    item = ITEM_BYTES[given.dtype]
    if given.dtype not in FLOAT_FORMATS or item < 2 or given.content == UNREAD or not data:
        return None
    found = numbers(np.frombuffer(data, f"<u{item}"), given.dtype)
    return found if np.isfinite(found).all() else None


def _are_flags(given: TensorInput, x: np.ndarray) -> bool:
    """Whether numbers are all whole, as classes and masks are, or rows of shares, whose sum is one."""
    if (x == np.round(x)).all():
        return True
    rows = x.reshape(-1, given.shape[-1]) if given.shape and math.prod(given.shape) == x.size else x.reshape(1, -1)
    return bool((x >= 0).all() and rows.shape[1] > 1 and np.allclose(rows.sum(1), 1.0, rtol=0.0, atol=0.02))


def _is_symmetric(given: TensorInput, x: np.ndarray) -> bool:
    rows, columns = (1, 2, *given.shape)[-2:]
    if rows != columns or rows == 1 or math.prod(given.shape) != x.size:
        return False
    matrices = x.reshape(-1, rows, columns)
    return bool((matrices == matrices.transpose(0, 2, 1)).all())


def drawn_anew(case: CaseInputs, seed: int, known: Sequence[bytes]) -> tuple[bytes, ...]:
    """The contents of a seed, but for inputs that are known."""
    given = zip(case.tensors, known, strict=True)
    return tuple(was if t.content == "fixed" else content_of(t, seed) for t, was in given)


def affordable(case: CaseInputs, count: int) -> int:
    """So many contents, or as many as their inputs' size allows."""
    elements = sum(math.prod(t.shape) for t in case.tensors)
    return min(count, MANY_BY_AUTHOR if case.made_by_author else count, MANY_ELEMENTS // max(elements, 1))
