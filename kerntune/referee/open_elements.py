"""Elements for which the reference promises no one number, so that they aren't compared.

They follow from which of equal numbers comes first: ``torch.topk``, and ``torch.sort`` unless it is stable, have these
in any order (the second largest of weights that are zero but for one, say, or of bfloat16 scores). Or the reference
leaves them unwritten, as a kernel does padding.

Of whole numbers that roundings decide either is right: half of a row's largest number is 63.5 of 127 steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from kerntune.base.recording import View
from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.hostile_recording import ITEM_BYTES, CheckedCall
from kerntune.referee.result_numbers import bytes_at, numbers, numbers_of, taken
from kerntune.referee.rounding_limits import COARSE
from kerntune.referee.tasks import BytesLike, ExpectedResult, ExpectedSeed

FILLS = (0xFF, 0x7F)
"""Bytes that unwritten memory holds in a first run, and in a second: NaN of all floats, and of whole numbers what is
rare."""

TIES_TOLD = (
    "which of equal numbers comes first, which torch promises of stable sorts alone: sort with stable=True, or give "
    "inputs with fewer equal numbers"
)

ORDERS = 3
"""Equal numbers come as they lie, the other way round, and in a drawn order: kernels have the first or the last."""

FAILS = "the reference fails there"
"""Why nothing is defined at an extreme content."""

MOST_TIED, MOST_UNWRITTEN = 0.25, 0.75
"""Of more elements of a usual content too little would be demanded."""


def tied(natives: Sequence[Any], runs: Sequence[Sequence[Any]]) -> list[Any]:
    """Which elements are others in one of ``runs``."""
    found = [bits_of(one) != bits_of(one) for one in natives]
    for run in runs:
        found = [mask | (bits_of(a) != bits_of(b)) for mask, a, b in zip(found, natives, run, strict=True)]
    return found


def unwritten(first: Sequence[Any], again: Iterator[Sequence[Any]]) -> list[Any]:
    """Which elements nothing writes: ``first`` are those of a run with the first of :data:`FILLS` in unwritten memory,
    ``again`` gives those with the second."""
    found = [_holding(one, FILLS[0]) for one in first]
    if any(mask.any() for mask in found):
        found = [mask & _holding(one, FILLS[1]) for mask, one in zip(found, next(again), strict=True)]
    return found


def in_any_order(first: Sequence[Any], second: Sequence[Any]) -> str:
    """What a person should know of results that are others, by more than rounding, where programs run and terms are
    reduced in another order. Empty if none is."""
    import torch

    for one, other in zip(first, second, strict=True):
        if torch.equal(bits_of(one), bits_of(other)):
            continue
        alike = False
        if one.is_floating_point():
            a, b = one.double(), other.double()
            finite = a[a.isfinite()]
            size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
            alike = torch.allclose(a, b, rtol=COARSE, atol=COARSE * size, equal_nan=True)
        if not alike:
            return (
                "its own results are others where its programs run in another order, or a reduction has its terms so: "
                "which are right isn't known; sort what may have any order, or make one order certain"
            )
    return ""


def with_open(results: Sequence[Any], masks: Sequence[Any]) -> list[Any]:
    """The results (None: an input that isn't changed) with :attr:`~.ExpectedResult.open`; there float64 has what they
    have."""
    found = list(results)
    for k, (one, mask) in enumerate(zip(results, masks, strict=True)):
        if one is None or not mask.any():
            continue
        there, wide, other = mask.to("cpu").numpy(), one.wide, one.by_products
        if wide:
            numbers, native = (numbers_of(x).reshape(one.shape) for x in (one, replace(one, wide=None)))
            wide = np.where(there, native, numbers).tobytes()
        if other:
            bits = f"<u{ITEM_BYTES[one.dtype]}"
            other = np.where(there, *(np.frombuffer(x, bits).reshape(one.shape) for x in (one.native, other))).tobytes()
        known = np.frombuffer(one.open, bool).reshape(one.shape) | there if one.open else there
        found[k] = replace(one, open=known.tobytes(), wide=wide, by_products=other)
    return found


def with_rearranged(results: Sequence[Any], natives: Sequence[Any], runs: Sequence[Sequence[Any]]) -> list[Any]:
    """The results, those of which nothing is open yet with :attr:`~.ExpectedResult.rearranged`."""
    found = list(results)
    for k, (one, native) in enumerate(zip(results, natives, strict=True)):
        if one is not None and one.open is None and native.dim():
            first, *others = (bits_of(x).sort(-1).values for x in (native, *(run[k] for run in runs)))
            found[k] = replace(one, rearranged=all(bool((first == other).all()) for other in others))
    return found


def with_others(results: Sequence[Any], runs: Sequence[Sequence[Any]]) -> list[Any]:
    """The results, whole numbers that are others in one of ``runs`` with :attr:`~.ExpectedResult.others`."""
    import torch

    found = list(results)
    for k, one in enumerate(results):
        if one is None or one.dtype in FLOAT_FORMATS:
            continue
        drawn = torch.stack([run[k].detach().to("cpu") for run in runs])
        ends = torch.stack([drawn.min(0).values, drawn.max(0).values])
        if str(ends.dtype) == f"torch.{one.dtype}" and (data := ends.numpy().tobytes()) != bytes(one.native) * 2:
            found[k] = replace(one, others=data)
    return found


def much_tied(masks: Sequence[Any]) -> str:
    """What a person should know where too much is open by ties; empty where little is."""
    return next((f"{which} follow from {TIES_TOLD}" for which, _ in _most_open(masks, MOST_TIED)), "")


def much_unwritten(masks: Sequence[Any]) -> str:
    """The same of unwritten elements."""
    return next(
        (
            f"it leaves {which} as torch.empty gave them, the first at {first}, so what is right there isn't known: "
            "fill them, or give inputs for which all are written"
            for which, first in _most_open(masks, MOST_UNWRITTEN)
        ),
        "",
    )


def _most_open(masks: Sequence[Any], most: float) -> Iterator[tuple[str, list[int]]]:
    for number, mask in enumerate(masks):
        if (count := int(mask.sum())) > most * mask.numel():
            yield f"{count:,} of {mask.numel():,} elements of result {number}", mask.nonzero()[0].tolist()


def not_compared(seeds: Sequence[ExpectedSeed]) -> Iterator[str]:
    """How many elements of results aren't compared, the most of several contents."""
    for number, results in enumerate(zip(*(seed.results for seed in seeds), strict=True)):
        if most := max(sum(one.open or b"") for one in results):
            yield (
                f"{most:,} of {len(results[0].native) // ITEM_BYTES[results[0].dtype]:,} elements of result {number} "
                "aren't compared: the reference leaves them unwritten, or has equal numbers there in any order"
            )


def as_promised(call: CheckedCall, expected: ExpectedSeed, left: Sequence[BytesLike]) -> dict[int, BytesLike]:
    """What a replay left, by wanted storage; open elements, and others that may be, as they are expected. Those that
    change places alone are in the order of those that are expected."""
    after = dict(zip(call.wanted, left, strict=True))
    for number, one in enumerate(expected.results):
        if _is_open(one):
            view = call.results[number]
            after[view.storage] = _replaced(after[view.storage], view, one)
    for index, changed in enumerate(expected.changed):
        if changed is not None and _is_open(changed) and (place := call.inputs[index]) is not None:
            view = View(place, changed.dtype, changed.shape, changed.strides)
            after[place] = _replaced(after[place], view, changed)
    return after


LINES = 16
"""Rows of which all are of different numbers in the reference, which is no chance."""


def repeated(content: BytesLike, view: View, expected: ExpectedResult) -> str:
    """What is wrong with indices that a row has twice, where the reference's never are: which of equal numbers comes
    first is open, but each comes once. Empty if nothing is."""
    columns, whole = (1, *view.shape)[-1], view.dtype in ("int32", "int64") and view.dtype == expected.dtype
    if expected.open is None or not whole or columns < 2 or math.prod(view.shape) < LINES * columns:
        return ""
    found = np.sort(taken(content, view).reshape(-1, columns), axis=1)
    native = np.sort(np.frombuffer(expected.native, found.dtype).reshape(-1, columns), axis=1)
    twice = (found[:, 1:] == found[:, :-1]).any(1)
    if (native[:, 1:] == native[:, :-1]).any() or not twice.any():
        return ""
    return f"{int(twice.sum()):,} of {len(twice):,} rows have a number twice, the first row {int(np.argmax(twice))}"


def _is_open(one: ExpectedResult) -> bool:
    return one.open is not None or one.others is not None


def _replaced(content: BytesLike, view: View, expected: ExpectedResult) -> BytesLike:
    if view.dtype != expected.dtype or view.shape != expected.shape:
        return content
    raw = np.frombuffer(content, np.uint8).copy()
    there = bytes_at(raw, view)
    mask = np.zeros(view.shape, bool)
    if expected.open is not None and expected.rearranged:
        _rearrange(there, view, expected)
    elif expected.open is not None:
        mask |= np.frombuffer(expected.open, bool).reshape(view.shape)
    if expected.others is not None:
        for other in np.frombuffer(expected.others, np.uint8).reshape(2, *there.shape):
            mask |= (there == other).all(-1)
    there[mask] = np.frombuffer(expected.native, np.uint8).reshape(there.shape)[mask]
    return bytes(raw)


def _rearrange(there: np.ndarray, view: View, expected: ExpectedResult) -> None:
    """Order the open elements of each row as those that are expected are."""
    native = np.frombuffer(expected.native, np.uint8).reshape(there.shape)
    held = (numbers(np.ascontiguousarray(x).view(f"<u{x.shape[-1]}")[..., 0], view.dtype) for x in (there, native))
    mask = np.frombuffer(expected.open or b"", bool).reshape(view.shape)
    left, wanted = (np.lexsort((np.where(mask, x, 0), ~mask))[..., None] for x in held)  # the others stay behind
    np.put_along_axis(there, wanted, np.take_along_axis(there, left, -2), -2)


def _holding(result: Any, byte: int) -> Any:
    """Which elements have this byte alone."""
    bits = bits_of(result)
    return bits == int.from_bytes([byte] * bits.element_size(), "little", signed=bits.is_signed())


def bits_of(tensor: Any) -> Any:
    """Elements as whole numbers, in the tensor's shape; where it is, for to read it takes longer."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(kinds[tensor.element_size()])
