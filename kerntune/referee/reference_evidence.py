"""Whether what a reference computes is evidence: its results must vary, and follow from what its inputs are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.case_inputs import UNREAD, CaseInputs
from kerntune.referee.content_forms import DRAWN
from kerntune.referee.declared_inputs import bytes_of, is_one_number
from kerntune.referee.hostile_recording import ITEM_BYTES, CheckedCall
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.result_numbers import ROUNDOFF, numbers, numbers_of, same_bytes
from kerntune.referee.rounding_limits import COARSE
from kerntune.referee.tasks import ExpectedResult, ExpectedSeed, Large, ReplayAnswer

NOISE = 2.0**-40
"""A share of an element by which it is another where operators have other roundings in float64."""


def check_reference(seeds: Sequence[ExpectedSeed]) -> None:
    """Whether the reference's results are of known dtypes, lie alike for all seeds, and are computed at all."""
    found = [r for seed in seeds for r in seed.computed]
    if len({tuple((r.dtype, r.shape, r.strides, r.input) for r in seed.results) for seed in seeds}) != 1:
        raise Refusal(Reason.REFERENCE, "its results have other layouts for other numbers")
    unknown = sorted({r.dtype for r in found} - ITEM_BYTES.keys())
    if found and not any(r.native for r in found):
        raise Refusal(Reason.DEGENERATE, "no result of the reference has an element")
    if unknown or not found:
        raise Refusal(Reason.REFERENCE, f"its results are {', '.join(unknown) or 'none'}, which can't be judged")
    as_given = (
        r.input is not None and same_bytes(r.native, b"".join(seed.contents[r.input : r.input + 1]))
        for seed in seeds
        for r in seed.results
    )
    if seeds[0].results and all(as_given):
        raise Refusal(Reason.DEGENERATE, "all results are inputs, which the reference leaves as they are")


def restored_input(case: CaseInputs, call: CheckedCall, seeds: Sequence[ExpectedSeed], answer: ReplayAnswer) -> str:
    """What is wrong where an input of drawn numbers, which the reference never changes, was others between launches.
    Locks and counters that a call is given may be."""
    for index, (given, place) in enumerate(zip(case.tensors, call.inputs, strict=True)):
        drawn = given.content in DRAWN or (given.content == "author" and given.dtype in FLOAT_FORMATS)
        changes = any(index < len(x.changed) and x.changed[index] is not None for x in seeds)
        if drawn and place in answer.restored and not changes:
            return f"it changes input {given.name} between its launches, and restores it"
    return ""


def hardly_varies(seeds: Sequence[Sequence[ExpectedResult]]) -> str:
    """Why the reference's results are no evidence: a result that is nearly the same number everywhere, or for all
    seeds; empty where each says something."""
    for number, results in enumerate(zip(*seeds, strict=True)):
        slack = 4 * ROUNDOFF.get(results[0].dtype, 0.0)
        if 0 in results[0].shape or _soon_vary(results, slack):
            continue
        arrays = [numbers_of(r) for r in results]
        finite = [a if (right := np.isfinite(a)).all() else a[right] for a in arrays]
        if all(f.size == 0 for f in finite):
            return f"result {number} has no finite number"
        if arrays[0].size > 1 and all(_alike(f, slack) for f in finite):
            return f"result {number} is the same number everywhere"
        if len(arrays) > 1 and all(_equal(arrays[0], a, slack) for a in arrays[1:]):
            return f"result {number} is the same for all inputs"
    return ""


FIRST = slice(0, 4096)
"""Elements that mostly tell that a result varies."""


def _soon_vary(results: Sequence[ExpectedResult], slack: float) -> bool:
    """Whether the first elements of the first seed are different numbers, and other ones for another seed."""
    first, *others = (numbers_of(r, FIRST) for r in results[:2])
    varies = not _alike(first[np.isfinite(first)], slack)
    return varies and slack < 0.1 and all(not _equal(first, other, slack) for other in others)


def _alike(x: np.ndarray, slack: float) -> bool:
    if x.size == 0:
        return True
    low, high = x.min(), x.max()
    return bool(high - low <= slack * max(abs(high), abs(low)))


def _equal(a: np.ndarray, b: np.ndarray, slack: float) -> bool:
    if a.size > FIRST.stop and not _equal(a[FIRST], b[FIRST], slack):
        return False
    return np.allclose(a, b, rtol=slack, atol=0.0, equal_nan=True)


def what_counts(seeds: Sequence[ExpectedSeed]) -> list[tuple[ExpectedResult, ...]]:
    """What the reference computes, by seed: its results, or inputs that it changes for some seed."""
    if any(seed.results for seed in seeds):
        return [seed.results for seed in seeds]
    changed = {i: x for seed in seeds for i, x in enumerate(seed.changed) if x is not None}
    return [
        tuple(seed.changed[i] or replace(x, native=seed.contents[i], wide=None) for i, x in changed.items())
        for seed in seeds
    ]


def unvaried(case: CaseInputs, seeds: Sequence[ExpectedSeed]) -> str:
    """The input that is one number in all contents, which the reference leaves as it is: no content tells whether a
    candidate reads it. Empty if there is none; numbers that are known when recording, and single ones of the task's
    own code, may be the same."""
    for i, given in enumerate(case.tensors):
        first, item = seeds[0].contents[i], ITEM_BYTES[given.dtype]
        if given.alike or given.content == "fixed" or (given.content == "author" and len(first) <= item):
            continue
        changed = any(seed.changed[i] is not None for seed in seeds if i < len(seed.changed))
        if not changed and is_one_number([seed.contents[i] for seed in seeds], item):
            return f"input {given.name} is one number in every content, so it may be ignored; it needs others"
    return ""


def always_equal(case: CaseInputs, seeds: Sequence[ExpectedSeed]) -> tuple[str, ...]:
    """What a reader should know of inputs that the task's own code makes, and that have the same numbers each time: a
    mask, lengths."""
    own = {*case.parameters.values()}
    made = [(i, t) for i, t in enumerate(case.tensors) if t.content == "author" and i not in own and not t.alike]
    same = [t.name for i, t in made if len(seeds) > 1 and len({seed.contents[i] for seed in seeds}) == 1]
    text = "the same numbers in every content, so a candidate may know them"
    return (f"input {', '.join(same)} has {text}",) if same else ()


def held_changes(case: CaseInputs, seeds: Sequence[ExpectedSeed]) -> list[int]:
    """Inputs that are one number in all contents, and that the reference changes: it may add to them, or fill them."""
    found = []
    for i, given in enumerate(case.tensors):
        first, item = seeds[0].contents[i], ITEM_BYTES[given.dtype]
        alike = is_one_number([seed.contents[i] for seed in seeds], item)
        if alike and len(first) > item and any(seed.changed[i] is not None for seed in seeds if seed.changed):
            found.append(i)
    return found


def differs(one: ExpectedSeed, other: ExpectedSeed) -> bool:
    """Whether what the reference computes is another by more than an order of sums explains."""
    pairs = zip((*one.results, *one.changed), (*other.results, *other.changed), strict=True)
    return any(a is not None and (b is None or not _equal(numbers_of(a), numbers_of(b), COARSE)) for a, b in pairs)


def follows(one: ExpectedSeed, other: ExpectedSeed) -> int | None:
    """The first result that another content changes by more than float64's roundings; None if none is known to be."""
    for number, (a, b) in enumerate(zip(one.results, other.results, strict=True)):
        if None not in (a.wide, b.wide) and not _equal(numbers_of(a), numbers_of(b), NOISE):
            return number
    return None


def in_buffers(call: CheckedCall, case: CaseInputs, expected: ExpectedSeed) -> ExpectedSeed:
    """What the reference computes; results that the call returns in memory which the task hands out for them, of that
    memory's dtype and strides. One that the reference returns there may be elsewhere."""
    if len(call.results) != len(expected.results):
        return expected
    found, changed = list(expected.results), list(expected.changed)
    for number, (want, view) in enumerate(zip(expected.results, call.results, strict=True)):
        index = call.inputs.index(view.storage) if view.storage in call.inputs else None
        if want.input is not None and index is None and case.tensors[want.input].content == UNREAD:
            found[number], changed[want.input] = replace(want, input=None), None
        given = None if index is None else case.tensors[index]
        if given is None or given.content != UNREAD or want.input is not None:
            continue
        if math.prod(want.shape) != math.prod(given.shape):
            continue
        floats = want.dtype in FLOAT_FORMATS and given.dtype in FLOAT_FORMATS
        if want.dtype != given.dtype and floats:
            wide = None if want.wide is None else numbers_of(want).tobytes()
            want = replace(
                want, dtype=given.dtype, native=_as(want.native, want.dtype, given.dtype), wide=wide,
                by_products=want.by_products and _as(want.by_products, want.dtype, given.dtype),
            )  # fmt: skip
        strides = given.strides if want.shape == given.shape else want.strides
        found[number] = replace(want, strides=strides, input=index)
    return replace(expected, results=tuple(found), changed=tuple(changed))


def _as(content: Large, dtype: str, other: str) -> bytes:
    """Dense floats in another dtype."""
    return bytes_of(numbers(np.frombuffer(content, f"<u{ITEM_BYTES[dtype]}"), dtype), other)
