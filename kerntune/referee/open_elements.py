"""Elements for which the reference promises no one number: they follow from which of equal numbers comes first.

``torch.topk``, and ``torch.sort`` unless it is stable, have equal numbers in any order: the second largest of weights
that are zero but for one, say, or of bfloat16 scores.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kerntune.base.recording import View
from kerntune.referee.hostile_recording import ITEM_BYTES, CheckedCall
from kerntune.referee.tasks import ExpectedResult, ExpectedSeed

if TYPE_CHECKING:
    import numpy as np

UNORDERED = ("aten.sort.default", "aten.sort.stable", "aten.topk.default")
"""Operators that are asked again with equal numbers in other orders, unless they are stable."""

ORDERS = 3
"""Equal numbers come as they lie, the other way round, and in a drawn order: kernels have the first or the last."""

MOST_OPEN = 0.25
"""Of more elements of a usual content a person should know: nothing would be demanded of these."""


def other_ties(turn: int, seed: int) -> Any:
    """Meanwhile the operators of :data:`UNORDERED` have equal numbers in another order, by ``turn``."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    chance = random.Random(seed)

    class OtherTies(TorchDispatchMode):  # type: ignore[misc]  # torch's types are skipped
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names = [x.name for x in func._schema.arguments][: len(args)]
            words = dict(zip(names, args, strict=True)) | (kwargs or {})
            if str(func) not in UNORDERED or words.get("stable") or not words["self"].dim():
                return func(*args, **kwargs or {})
            given, dim = words["self"], words.get("dim", -1)
            count = given.shape[dim]
            order = (range(count), range(count)[::-1], chance.sample(range(count), count))[turn]
            places = given.new_tensor(order, dtype=torch.int64)
            falling = words.get("largest", True) if "k" in words else words.get("descending", False)
            found = torch.sort(given.index_select(dim, places), dim=dim, descending=falling, stable=True)
            most = words.get("k", count)
            return found.values.narrow(dim, 0, most).clone(), places[found.indices.narrow(dim, 0, most)]

    return OtherTies()


def with_open(results: Sequence[Any], natives: Sequence[Any], runs: Sequence[Sequence[Any]]) -> list[Any]:
    """The results (None: an input that isn't changed) with :attr:`~.ExpectedResult.open`, where elements of ``natives``
    are others in one of ``runs``."""
    found = list(results)
    for k, one in enumerate(results):
        others = [] if one is None else [_bits(run[k]) != _bits(natives[k]) for run in runs]
        if any(x.any() for x in others):
            mask = others[0]
            for other in others[1:]:
                mask = mask | other
            found[k] = msgspec.structs.replace(one, open=mask.to("cpu").numpy().tobytes())
    return found


def told_of(results: Sequence[ExpectedResult | None]) -> str:
    """What a person should know where much is open; empty where little is."""
    for number, one in enumerate(results):
        if one is not None and one.open is not None and (count := sum(one.open)) > MOST_OPEN * len(one.open):
            return (
                f"{count:,} of {len(one.open):,} elements of result {number} follow from which of equal numbers comes "
                "first, which torch promises of stable sorts alone: sort with stable=True, or give inputs with fewer "
                "equal numbers"
            )
    return ""


def as_promised(call: CheckedCall, expected: ExpectedSeed, left: Sequence[bytes]) -> tuple[bytes, ...]:
    """What a replay left in the wanted storages; open elements as they are expected."""
    after = dict(zip(call.wanted, left, strict=True))
    for number, one in enumerate(expected.results):
        if one.open is not None:
            view = call.results[number]
            after[view.storage] = _replaced(after[view.storage], view, one)
    for index, changed in enumerate(expected.changed):
        if changed is not None and changed.open is not None and (place := call.inputs[index]) is not None:
            view = View(place, changed.dtype, changed.shape, changed.strides)
            after[place] = _replaced(after[place], view, changed)
    return tuple(after[i] for i in call.wanted)


def _replaced(content: bytes, view: View, expected: ExpectedResult) -> bytes:
    import numpy as np

    if view.dtype != expected.dtype or view.shape != expected.shape:
        return content
    item = ITEM_BYTES[view.dtype]
    raw = np.frombuffer(content, np.uint8).copy()
    shape, strides = (*view.shape, item), (*(s * item for s in view.strides), 1)
    there = np.lib.stride_tricks.as_strided(raw[view.offset_bytes :], shape, strides)
    mask: np.ndarray = np.frombuffer(expected.open or b"", bool).reshape(view.shape)
    there[mask] = np.frombuffer(expected.native, np.uint8).reshape(shape)[mask]
    return bytes(raw)


def _bits(tensor: Any) -> Any:
    """Elements as whole numbers, in the tensor's shape, where it is."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(kinds[tensor.element_size()])
