"""Torch's operators beside a candidate's kernels: recorded as rows, and run again between a replay's launches.

A row names an operator of ATen that writes into memory it is given. Which ones may be replayed is a list of this
module's: a recording, which is hostile data, chooses among them. Arguments are numbers, dtypes and views.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import msgspec

from kerntune.base.formatting import visible
from kerntune.base.recording import Recording, View
from kerntune.capture.operator_traits import ALLOCATIONS
from kerntune.errors import BackendError, KernelFault, ReplayError
from kerntune.gpu.compare import DeviceBytes
from kerntune.gpu.number_formats import FLOAT_FORMATS, INTEGER_FORMATS

if TYPE_CHECKING:
    import numpy as np

MOVING = frozenset((
    "alias", "arange", "as_strided", "cat", "clone", "constant_pad_nd", "contiguous", "copy_", "detach", "empty",
    "empty_like", "empty_strided", "expand", "fill", "fill_", "flip", "full", "full_like", "gather", "index",
    "index_select", "lift_fresh", "masked_fill", "masked_fill_", "new_empty", "new_full", "new_ones", "new_zeros",
    "ones", "ones_like", "permute", "repeat", "reshape", "roll", "scalar_tensor", "select", "slice", "split",
    "split_with_sizes", "squeeze", "stack", "t", "transpose", "tril", "triu", "unbind", "unsqueeze", "_to_copy",
    "_unsafe_view", "view", "where", "zero_", "zeros", "zeros_like",
))  # fmt: skip
"""Operators that take elements as they are, or round them to a dtype."""

DECIDING = frozenset((
    "abs", "all", "amax", "amin", "any", "argmax", "argmin", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor",
    "bucketize", "ceil", "clamp", "clamp_max", "clamp_min", "copysign", "count_nonzero", "eq", "floor", "ge", "gt",
    "isfinite", "isinf", "isnan", "le", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "max",
    "maximum", "min", "minimum", "ne", "neg", "relu", "round", "searchsorted", "sign", "signbit", "trunc",
))  # fmt: skip
"""Operators whose result is exact, and promised also where numbers are equal, halves or zeros."""

COUNTING = frozenset(("add", "cumsum", "floor_divide", "mul", "remainder", "rsub", "sub", "sum"))
"""Operators that are exact on whole numbers; the last ones on floats, too, where the other side has few bits."""

COMPUTING = frozenset((
    "_index_put_impl", "_log_softmax", "_log_softmax_backward_data", "_safe_softmax", "_softmax",
    "_softmax_backward_data", "addcdiv", "addcmul", "addmm", "addmv", "aminmax", "baddbmm", "bmm", "cos", "cosh",
    "cummax", "cummin", "cumprod", "div", "dot", "elu", "embedding", "erf", "exp", "exp2", "expm1", "eye", "fmod",
    "gelu", "gelu_backward", "hardtanh", "index_add", "index_copy", "index_fill", "index_put", "leaky_relu", "lerp",
    "linalg_vector_norm", "linspace", "log", "log10", "log1p", "log2", "log_sigmoid_forward", "logaddexp",
    "logcumsumexp", "logsumexp", "mean", "mm", "mv", "nan_to_num", "nll_loss_forward", "pow",
    "prod", "reciprocal", "reflection_pad1d", "rot90", "rsqrt", "scatter", "scatter_add", "scatter_reduce", "sgn",
    "sigmoid", "sigmoid_backward", "silu", "silu_backward", "sin", "sinh", "softplus", "sort", "sqrt", "square", "std",
    "tan", "tanh", "tanh_backward", "threshold", "threshold_backward", "topk", "var", "var_mean",
))  # fmt: skip
"""Operators that round, or write where indices say. None draws random numbers, or has a result whose shape depends on
values."""

VIEWING = frozenset((
    "alias", "as_strided", "contiguous", "detach", "expand", "permute", "reshape", "select", "slice", "split",
    "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view", "_unsafe_view",
))  # fmt: skip
"""Those among the first that run nothing on a device, or stand for others."""

REPLAYED = (MOVING | DECIDING | COUNTING | COMPUTING) - ALLOCATIONS - VIEWING
"""All that are replayed, those of the same names that work in place among them."""

COPYING = ("clone", "_to_copy", "contiguous")
"""Operators that are replayed as a copy to the memory of their result."""

MADE_WITH = frozenset(("device", "dtype", "layout", "memory_format", "pin_memory"))
"""What says how a result lies, not what it holds."""

MOST_OPERATORS, MOST_NESTED, MOST_BYTES = 2_048, 3, 1 << 32
"""Rows, lists in lists, and bytes of a view's elements: one that repeats its memory may have more than this has."""

FORMATS = {**FLOAT_FORMATS, **INTEGER_FORMATS}


class ViewAt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="view"):
    """The recording's view of this number."""

    index: int


class DtypeNamed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="dtype"):
    """Torch's dtype of this name."""

    name: str


class HostNumber(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="number"):
    """A tensor of the host's without dimensions: an operator takes it as a number of this dtype."""

    value: Union[bool, int, float]
    dtype: str


class Several(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="several"):
    """A list of arguments."""

    items: tuple[OperatorArgument, ...]


WITH_DTYPE = (DtypeNamed, HostNumber)
OperatorArgument = Union[None, bool, int, float, str, ViewAt, DtypeNamed, HostNumber, Several]


class TorchOperator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An operator that runs before launch number ``before`` (as many as there are: after all). ``name`` is its name and
    overload in ``torch.ops.aten``: one that works in place, or with ``out``."""

    before: int
    name: str
    args: tuple[OperatorArgument, ...]
    words: dict[str, OperatorArgument] = {}

    @property
    def leaves(self) -> Iterator[OperatorArgument]:
        """Its arguments, and those in lists."""
        waiting: list[OperatorArgument] = [*self.args, *self.words.values()]
        while waiting:
            one = waiting.pop()
            if isinstance(one, Several):
                waiting += one.items
            else:
                yield one

    @property
    def views(self) -> Iterator[int]:
        """The views among its arguments."""
        return (x.index for x in self.leaves if isinstance(x, ViewAt))

    def with_views(self, numbers: Mapping[int, int]) -> TorchOperator:
        """The same with other numbers of views."""

        def renumbered(value: OperatorArgument) -> OperatorArgument:
            if isinstance(value, Several):
                return Several(tuple(map(renumbered, value.items)))
            return ViewAt(numbers[value.index]) if isinstance(value, ViewAt) else value

        words = {name: renumbered(x) for name, x in self.words.items()}
        return msgspec.structs.replace(self, args=tuple(map(renumbered, self.args)), words=words)

    def storages(self, recording: Recording) -> set[int]:
        """What it may read and write."""
        return {recording.views[i].storage for i in self.views}


def _is_replayed(word: str) -> bool:
    return word in REPLAYED or word.removesuffix("_") in REPLAYED


# recorded


class NotReplayed(Exception):
    """An operator that isn't in the list, or an argument that no row has."""


def row_of(
    before: int, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], made: Sequence[Any],
    view_of: Callable[[Any], int | None],
) -> TorchOperator:  # fmt: skip
    """The row of a call that made these tensors on the device. ``view_of`` gives a tensor's view, None for one that
    isn't on the device. :class:`NotReplayed` for what can't be replayed."""
    word, overload = func._schema.name.removeprefix("aten::"), func._overloadname
    if not (_is_replayed(word) or word in COPYING) or func.namespace != "aten":
        raise NotReplayed
    words = dict(kwargs)
    number = _argument(args[1], view_of) if word == "copy_" else None
    if word in COPYING:
        word, overload, args, words = "copy_", "default", (made[0], args[0]), {}
    elif isinstance(number, HostNumber):
        word, overload, args, words = "fill_", "Scalar", (args[0], number.value), {}
    elif not func._schema.is_mutable:
        overload, results = _with_out(func)
        words = {name: x for name, x in words.items() if name not in _of_the_result(func)}
        words |= zip(results, made, strict=True)
    rows = [_argument(x, view_of) for x in args]
    return TorchOperator(before, f"{word}.{overload}", (*rows,), {k: _argument(x, view_of) for k, x in words.items()})


def _with_out(func: Any) -> tuple[str, list[str]]:
    """The overload of the same operator that takes the same arguments and its results' memory, and their names."""
    left_out = _of_the_result(func)
    wanted = [(x.name, str(x.type)) for x in func._schema.arguments if x.name not in left_out]
    for overload in func.overloadpacket.overloads():
        arguments = getattr(func.overloadpacket, overload)._schema.arguments
        results, others = [x.name for x in arguments if x.is_out], [x for x in arguments if not x.is_out]
        more = others[len(wanted) :]
        alike = [(x.name, str(x.type)) for x in others[: len(wanted)]] == wanted
        if results and alike and all(x.has_default_value() for x in more):
            return overload, results
    raise NotReplayed


def _of_the_result(func: Any) -> frozenset[str]:
    """Arguments of an operator that makes a tensor of none (``arange``): its result has them."""
    names = {x.name for x in func._schema.arguments}
    return MADE_WITH if "device" in names else frozenset()


def _argument(value: Any, view_of: Callable[[Any], int | None]) -> OperatorArgument:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return Several(tuple(_argument(x, view_of) for x in value))
    if type(value).__name__ == "dtype":
        return DtypeNamed(str(value).removeprefix("torch."))
    if not hasattr(value, "untyped_storage"):
        raise NotReplayed
    if (view := view_of(value)) is not None:
        return ViewAt(view)
    dtype = str(value.dtype).removeprefix("torch.")
    if value.dim() or value.device.type != "cpu" or dtype not in FORMATS:
        raise NotReplayed
    return HostNumber(value.item(), dtype)


# checked


def operator_problems(rows: Sequence[TorchOperator], recording: Recording) -> Iterator[str]:
    """Why rows of a recording can't be replayed."""
    if len(rows) > MOST_OPERATORS:
        yield f"it has {len(rows)} operators of torch's, more than {MOST_OPERATORS}"
    last = 0
    for row in rows:
        word, _, overload = row.name.partition(".")
        if not _is_replayed(word) or not re.fullmatch(r"[A-Za-z]\w{0,59}", overload, re.ASCII):
            yield f"torch's {visible(row.name[:60])} isn't replayed"
        if not last <= row.before <= len(recording.launches):
            yield f"torch's {word} runs at no place among the launches"
        last = row.before
        if _depth(row) > MOST_NESTED:
            yield f"arguments of torch's {word} are nested too deeply"
        dtypes = {x.name if isinstance(x, DtypeNamed) else x.dtype for x in row.leaves if isinstance(x, WITH_DTYPE)}
        if not dtypes <= FORMATS.keys():
            yield f"torch's {word} has a dtype that isn't known here"
        for index in row.views:
            view = recording.views[index] if 0 <= index < len(recording.views) else None
            if view is None or view.dtype not in FORMATS or view.offset_bytes % FORMATS[view.dtype].width:
                yield f"torch's {word} has no such view"
            elif math.prod(view.shape) * FORMATS[view.dtype].width > MOST_BYTES:
                yield f"a view of torch's {word} has more than {MOST_BYTES >> 30} GiB of elements"


def _depth(row: TorchOperator) -> int:
    level: list[OperatorArgument] = [*row.args, *row.words.values()]
    depth = 0
    while level and depth <= MOST_NESTED:
        level, depth = [x for one in level if isinstance(one, Several) for x in one.items], depth + 1
    return depth


def reached(rows: Sequence[TorchOperator], recording: Recording) -> set[int]:
    """The storages in whose content a launch may have a part, directly or through operators."""
    found, waiting = set[int](), list(rows)
    for number, launch in enumerate((*recording.launches, None)):
        while waiting and waiting[0].before <= number:
            storages = waiting.pop(0).storages(recording)
            found |= storages if storages & found else set()
        if launch is not None and 0 not in launch.grid:
            found |= recording.pointed_at(launch)
    return found


def beside_launches(rows: Sequence[TorchOperator], recording: Recording) -> dict[int, set[int]]:
    """By launch that runs any block, the storages of the operators before it; the last has those after it, too."""
    working = [i for i, launch in enumerate(recording.launches) if 0 not in launch.grid]
    found: dict[int, set[int]] = {}
    for row in rows if working else ():
        at = next((i for i in working if i >= row.before), working[-1])
        found.setdefault(at, set()).update(row.storages(recording))
    return found


def named(names: Iterable[str]) -> str:
    """``torch's sum, copy_``, each once, the first eight."""
    each = [*dict.fromkeys(names)]
    return "torch's " + ", ".join(visible(name[:80]) for name in each[:8]) + ", ..." * (len(each) > 8)


# run again


NO_NUMBER = ("ScalarType", "Layout", "Device", "MemoryFormat", "Generator", "Stream")
"""Kinds of arguments in torch's schemas that a number would be converted to."""


COPIED_TO_DEVICE = ("where",)
"""Operators that copy a number of the host's to the device in each call, which no graph may: it is there already."""


def run_operator(row: TorchOperator, tensor_of: Callable[[int], Any]) -> None:
    """Run it on the tensors that ``tensor_of`` gives for views. :class:`ReplayError` where torch refuses,
    :class:`BackendError` where the device has faulted, and on a processor :class:`KernelFault` where an index is
    outside, or several numbers go to one place."""
    import torch

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
        operator, kinds = _operator(row.name)
        args, words = [decoded(x) for x in row.args], {name: decoded(x) for name, x in row.words.items()}
        if len(args) > len(kinds) or not words.keys() <= kinds.keys():
            raise TypeError("it has no such arguments")
        for name, given in (*zip([*kinds][: len(args)], args, strict=True), *words.items()):
            if kinds[name] and isinstance(given, (bool, int, float, str)):
                raise TypeError(f"{given} is no {kinds[name]}")
        shapes = {name: x.shape for name, x in words.items() if isinstance(x, torch.Tensor)}
        on_processor = any(x.device.type == "cpu" and x.dim() for x in args if isinstance(x, torch.Tensor))
        if on_processor and word in ("_softmax", "_log_softmax") and args[2]:  # which has no halves there
            args = [args[0].float(), args[1], False]
        with torch.no_grad():
            result = operator(*args, **words)
        if any(words[name].shape != shape for name, shape in shapes.items()):
            raise RuntimeError("its result has another shape than its memory")
        if on_processor and "reduce" not in words and _is_race(word.removesuffix("_"), args, result):
            raise KernelFault(f"torch's {word}: a race: several numbers go to one place")
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as exc:
        told, text = f"torch's {word}: {type(exc).__name__}: {str(exc).partition(chr(10))[0]}", str(exc)
        outside = isinstance(exc, IndexError) or "out of bounds" in text or "out of range" in text
        kind = BackendError if "CUDA error" in text else KernelFault if outside else ReplayError
        raise kind(told) from exc


@functools.lru_cache(maxsize=MOST_OPERATORS)
def _number(value: Union[bool, int, float], dtype: str, device: str) -> Any:
    import torch

    return torch.tensor(value, dtype=getattr(torch, dtype), device=device)


@functools.lru_cache(maxsize=MOST_OPERATORS)
def _operator(name: str) -> tuple[Any, dict[str, str]]:
    """A row's operator, which is asked for in each execution, and of its arguments in their order the kind in torch's
    schema that no number is; empty of others."""
    import torch

    word, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, word)
    if overload not in packet.overloads():
        raise AttributeError(f"it has no overload {overload}")
    operator = getattr(packet, overload)
    if not operator._schema.is_mutable:
        raise TypeError("it writes into nothing that it is given")
    kinds = {x.name: str(x.real_type) for x in operator._schema.arguments}
    return operator, {x: kind * any(one in kind for one in NO_NUMBER) for x, kind in kinds.items()}


def _is_race(word: str, args: Sequence[Any], result: Any) -> bool:
    """Whether an operator has written several numbers to one place: on a GPU any of them stays."""
    import torch

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
    import torch

    dtype, device = getattr(torch, view.dtype), "cuda" if isinstance(memory, DeviceBytes) else "cpu"
    if not math.prod(view.shape):
        return torch.empty(view.shape, dtype=dtype, device=device)
    storage = torch.as_tensor(memory, device=device).untyped_storage()
    whole = torch.empty(0, dtype=dtype, device=device)
    return whole.set_(storage, view.offset_bytes // dtype.itemsize, view.shape, view.strides)
