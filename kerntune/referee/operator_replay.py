"""Runs torch's operators from their rows again, between a replay's launches.

They run on the GPU, or on a processor beside the emulator, where what a GPU doesn't promise is a fault.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np
import torch

from kerntune.base.recording import View
from kerntune.errors import BackendError, KernelFault, ReplayError
from kerntune.gpu.base import tensors_in
from kerntune.gpu.compare import DeviceBytes
from kerntune.gpu.emulator.elements import nearest_tf32
from kerntune.gpu.emulator.rounding_modes import saturated
from kerntune.gpu.number_formats import INTEGER_FORMATS
from kerntune.referee.torch_operators import (
    MOST_OPERATORS,
    DtypeNamed,
    HostNumber,
    OperatorArgument,
    Several,
    TorchOperator,
    ViewAt,
    with_out,
)

NO_NUMBER = ("ScalarType", "Layout", "Device", "MemoryFormat", "Generator", "Stream")
"""Kinds of arguments in torch's schemas that a number would be converted to."""

HALVES_TO_FLOAT = ("_log_softmax", "_softmax")
"""Operators whose third argument gives halves a result of 32 bits."""

WIDE_ON_PROCESSOR = (*HALVES_TO_FLOAT, "native_group_norm", "native_layer_norm", "native_layer_norm_backward")
"""Operators whose results have other dtypes on a processor, or of halves none."""

WHOLE = INTEGER_FORMATS.keys() - {"bool"}
ANY_ORDER = ("sort", "topk", "median", "kthvalue")
"""Operators that leave open which of equal elements comes first."""

OF_FLOATS = (
    "addbmm", "addmm", "addmv", "avg_pool2d", "avg_pool3d", "baddbmm", "bmm", "convolution", "dot",
    "max_pool2d_with_indices", "mm", "mv",
)  # fmt: skip
"""Operators that torch has for whole numbers on a processor, and on no GPU."""

COPIED_TO_DEVICE = ("where",)
"""Operators that copy a number of the host's to the device in each call, which no graph may: it is there already."""


def run_operator(row: TorchOperator, tensor_of: Callable[[int], Any]) -> None:
    """Run it on the tensors that ``tensor_of`` gives for views. :class:`ReplayError` where torch refuses,
    :class:`BackendError` where the device has faulted, and on a processor :class:`KernelFault` where an index is
    outside, or several numbers go to one place."""

    def decoded(value: OperatorArgument) -> Any:
        if isinstance(value, ViewAt):
            return tensor_of(value.index)
        if isinstance(value, Several):
            return [decoded(x) for x in value.items]
        if isinstance(value, HostNumber):
            on_device = word in COPIED_TO_DEVICE and torch.cuda.is_initialized()
            return _number(value.value, value.dtype, "cuda" if on_device else "cpu")
        return getattr(torch, value.name) if isinstance(value, DtypeNamed) else value

    word = row.name.partition(".")[0]
    try:
        operator, kinds, writes = _operator(row.name, bool(row.results))
        args, words = [decoded(x) for x in row.args], {name: decoded(x) for name, x in row.words.items()}
        if len(args) > len(kinds) or not words.keys() <= kinds.keys():
            raise TypeError("it has no such arguments")
        for name, given in (*zip([*kinds][: len(args)], args, strict=True), *words.items()):
            if kinds[name] and isinstance(given, (bool, int, float, str)):
                raise TypeError(f"{given} is no {kinds[name]}")
        if "batch_norm" in word and any(
            x.dim() == 1 and x.numel() not in (0, args[0].shape[1]) for x in tensors_in(args)
        ):
            raise RuntimeError("what it has of each channel has another size")
        memory = [*tensors_in(words.values())]
        shapes = [x.shape for x in memory]
        on_processor = any(x.device.type == "cpu" and x.dim() for x in args if isinstance(x, torch.Tensor))
        with torch.no_grad():
            places = [x if x is None else decoded(x) for x in row.results]
            if on_processor:
                named = {**dict(zip(kinds, args, strict=False)), **words}
                args = [*map(_of_tf32, args)] if row.narrow else args
                _check_places([*tensors_in([named.get(x) for x in writes])], [*tensors_in(named.values())], word)
                result = _on_processor(operator, word, args, words, places)
            else:
                result = operator(*args, **words)
                if places:
                    _copy(result, places)
        if [x.shape for x in memory] != shapes:
            raise RuntimeError("its result has another shape than its memory")
        if on_processor and "reduce" not in words and _is_race(word.removesuffix("_"), args, result):
            raise KernelFault(f"torch's {word}: a race: several numbers go to one place")
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as exc:
        told, text = f"torch's {word}: {type(exc).__name__}: {str(exc).partition(chr(10))[0]}", str(exc)
        outside = isinstance(exc, IndexError) or "out of bounds" in text or "out of range" in text
        kind = BackendError if "CUDA error" in text else KernelFault if outside else ReplayError
        raise kind(told) from exc


def _on_processor(operator: Any, word: str, args: list[Any], words: dict[str, Any], places: Sequence[Any]) -> Any:
    """As on a GPU, as far as torch says what that does: what it leaves open is drawn."""

    if word in OF_FLOATS and not next(tensors_in(args)).is_floating_point():
        raise RuntimeError("no GPU has it for whole numbers")
    if word in WIDE_ON_PROCESSOR and not places:
        made, places = _wide(word, args, words)
    elif word in ANY_ORDER and len(operator._schema.returns) > 1 and not words.get("stable"):
        made = _in_any_order(operator, args, words)
        places = places or [words["values"], words["indices"]]
    elif word == "copy_" and args[1].is_floating_point() and str(args[0].dtype).removeprefix("torch.") in WHOLE:
        made = operator(args[0], _saturated(args[1], args[0].dtype))
    else:
        made = operator(*args, **words)
    if places:
        _copy(made, places)
    return made


def _wide(word: str, args: Sequence[Any], words: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """What it makes of numbers of 32 bits at least, and its results' memory."""

    def wide(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    operator = getattr(torch.ops.aten, word).default
    _, results = with_out(operator) or ("", [])
    inner = [wide(x) for x in args]
    if word in HALVES_TO_FLOAT:
        inner[2] = False
    others = {name: wide(x) for name, x in words.items() if name not in results}
    return operator(*inner, **others), [words[name] for name in results]


def _in_any_order(operator: Any, args: Sequence[Any], words: Mapping[str, Any]) -> tuple[Any, Any]:
    """Values and indices of some elements along a dimension: of equal ones in a drawn order, and all of them where they
    needn't be sorted."""
    given = {x.name: value for x, value in zip(operator._schema.arguments, args, strict=False)}
    given |= {x.name: x.default_value for x in operator._schema.arguments if x.name not in given and not x.is_out}
    given |= {name: x for name, x in words.items() if name not in ("values", "indices")}
    x, dim = given.pop("self"), given["dim"]
    if not x.dim():
        return x, torch.zeros((), dtype=torch.int64)
    drawn = torch.randperm(x.shape[dim])
    packet = getattr(torch.ops.aten, operator._schema.name.removeprefix("aten::"))
    values, indices = packet(x.index_select(dim, drawn), **{name: y for name, y in given.items() if name != "stable"})
    if given.get("sorted") is False:
        moved = torch.randperm(values.shape[dim])
        values, indices = values.index_select(dim, moved), indices.index_select(dim, moved)
    return values, drawn[indices]


def _of_tf32(given: Any) -> Any:
    """A float32 operand as tensor cores take it, of 10 bits of mantissa; anything else as it is."""
    if not isinstance(given, torch.Tensor) or given.dtype != torch.float32:
        return given
    return torch.from_numpy(nearest_tf32(given.contiguous().numpy()))


def _saturated(given: Any, dtype: Any) -> Any:
    """Whole numbers of floats as a GPU's conversions give them, where C++ says nothing (PTX ISA, ``cvt``): the nearest
    of 32 bits or 64, of which narrower ones are the low bits, and 0 for NaN."""
    kind = np.dtype(np.int64 if dtype == torch.int64 else np.int32)
    return torch.from_numpy(saturated(np.trunc(given.double().numpy()), kind))


def _check_places(written: Sequence[Any], given: Sequence[Any], word: str) -> None:
    """:class:`KernelFault` where one place is written twice, or read as another element than the one that is written:
    on a GPU in any order."""
    for one in written:
        reached = 0
        for stride, size in sorted((s, n) for n, s in zip(one.shape, one.stride(), strict=True) if n > 1):
            if stride <= reached and one.numel():
                raise KernelFault(f"torch's {word}: a race: it writes one place twice")
            reached += stride * (size - 1)
        if any(_is_elsewhere(one, other) for other in given if other is not one):
            raise KernelFault(f"torch's {word}: a race: it reads what it writes as another element")


def _is_elsewhere(written: Any, other: Any) -> bool:
    """Whether a place of one view is another element of the other one."""
    storage = written.untyped_storage()
    if storage.data_ptr() != other.untyped_storage().data_ptr() or not (written.numel() and other.numel()):
        return False
    lies, reads = ((x.dtype, x.shape, x.stride(), x.storage_offset()) for x in (written, other))
    if lies == reads:
        return False
    if written.itemsize != other.itemsize:
        return True
    marks = torch.zeros(storage.nbytes() // written.itemsize, dtype=torch.bool)
    marks.as_strided(*lies[1:]).fill_(True)
    return bool(marks.as_strided(*reads[1:]).any())


def _copy(made: Any, memory: Sequence[Any]) -> None:
    """Copy what an operator has made to memory of the same shapes, unless that is empty."""
    for one, place in zip(made if isinstance(made, (tuple, list)) else (made,), memory, strict=True):
        if place is not None and place.numel():
            if one.shape != place.shape:
                raise RuntimeError("its result has another shape than its memory")
            place.copy_(one)


@functools.lru_cache(maxsize=MOST_OPERATORS)
def _number(value: Union[bool, int, float], dtype: str, device: str) -> Any:
    return torch.tensor(value, dtype=getattr(torch, dtype), device=device)


@functools.lru_cache(maxsize=MOST_OPERATORS)
def _operator(name: str, copied: bool) -> tuple[Any, dict[str, str], list[str]]:
    """A row's operator, which is asked for in each execution; of its arguments in their order the kind in torch's
    schema that no number is, empty of others; and those that it writes. ``copied``: what it makes is copied."""
    word, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, word)
    if overload not in packet.overloads():
        raise AttributeError(f"it has no overload {overload}")
    operator = getattr(packet, overload)
    if not (operator._schema.is_mutable or copied):
        raise TypeError("it writes into nothing that it is given")
    arguments = operator._schema.arguments
    kinds = {x.name: str(x.real_type) for x in arguments}
    writes = [x.name for x in arguments if x.alias_info is not None and x.alias_info.is_write]
    return operator, {x: kind * any(one in kind for one in NO_NUMBER) for x, kind in kinds.items()}, writes


def _is_race(word: str, args: Sequence[Any], result: Any) -> bool:
    """Whether an operator has written several numbers to one place: on a GPU any of them stays."""
    if word in ("index_put", "_index_put_impl") and not any(args[3:4]):
        left, given = result[tuple(slice(None) if i is None else i for i in args[1])], args[2]
    elif word == "scatter" and isinstance(args[3], torch.Tensor) and len(args) < 5:
        left, given = result.gather(args[1], args[2]), args[3][tuple(map(slice, args[2].shape))]
    elif word == "index_copy":
        left, given = result.index_select(args[1], args[2]), args[3]
    else:
        return False
    given = given.to(left.dtype).expand(left.shape)
    return not bool(torch.isclose(left, given, rtol=0, atol=0, equal_nan=True).all())


def tensor_at(view: View, memory: np.ndarray | DeviceBytes) -> Any:
    """A view as a tensor on the bytes of its storage, of this processor's memory or the device's."""
    dtype, device = getattr(torch, view.dtype), "cuda" if isinstance(memory, DeviceBytes) else "cpu"
    if not math.prod(view.shape):
        return torch.empty(view.shape, dtype=dtype, device=device)
    storage = torch.as_tensor(memory, device=device).untyped_storage()
    whole = torch.empty(0, dtype=dtype, device=device)
    return whole.set_(storage, view.offset_bytes // dtype.itemsize, view.shape, view.strides)
