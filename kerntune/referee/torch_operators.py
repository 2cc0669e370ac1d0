"""Torch's operators beside a candidate's kernels: recorded as rows, and run again between a replay's launches.

A row names an operator of ATen that writes into memory it is given. Which ones may be replayed is a list of this
module's: a recording, which is hostile data, chooses among them. Arguments are numbers, dtypes and views.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

from msgspec.structs import replace

from kerntune.base.formatting import visible
from kerntune.base.frames import StrictMessage
from kerntune.base.recording import Recording
from kerntune.capture.operator_traits import ALLOCATIONS
from kerntune.gpu.number_formats import FLOAT_FORMATS, INTEGER_FORMATS

MOVING = frozenset((
    "alias", "arange", "as_strided", "cat", "channel_shuffle", "clone", "constant_pad_nd", "contiguous", "copy_",
    "detach", "diag_embed", "diagonal", "diagonal_backward", "diagonal_scatter", "empty", "empty_like", "empty_strided",
    "expand", "fill", "fill_", "fill_diagonal", "flip", "_foreach_copy", "_foreach_zero", "full", "full_like", "gather",
    "im2col", "index", "index_select", "lift_fresh", "masked_fill", "masked_fill_", "masked_scatter", "new_empty",
    "new_full", "new_ones", "new_zeros", "ones", "ones_like", "permute", "pixel_shuffle", "pixel_unshuffle",
    "reflection_pad2d", "repeat", "replication_pad1d", "replication_pad2d", "reshape", "roll", "scalar_tensor",
    "select", "select_backward", "select_scatter", "slice", "slice_backward", "slice_scatter", "split",
    "split_with_sizes", "squeeze", "stack", "t", "take", "_to_copy", "transpose", "tril", "tril_indices", "triu",
    "triu_indices", "unbind", "unfold", "_unsafe_view", "unsqueeze", "view", "where", "zero_", "zeros", "zeros_like",
))  # fmt: skip
"""Operators that take elements as they are, or round them to a dtype."""

DECIDING = frozenset((
    "abs", "all", "amax", "amin", "any", "argmax", "argmin", "bitwise_and", "bitwise_left_shift", "bitwise_not",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bucketize", "ceil", "clamp", "clamp_max", "clamp_min",
    "copysign", "count_nonzero", "eq", "floor", "fmod", "_foreach_abs", "_foreach_clamp_max", "_foreach_clamp_min",
    "_foreach_maximum", "_foreach_minimum", "_foreach_neg", "ge", "gt", "heaviside", "isfinite", "isin", "isinf",
    "isnan", "isneginf", "isposinf", "le", "logical_and", "logical_not", "logical_or", "logical_xor", "__lshift__",
    "lt", "max", "maximum", "min", "minimum", "nan_to_num", "ne", "neg", "relu", "round", "__rshift__", "searchsorted",
    "sign", "signbit", "trunc",
))  # fmt: skip
"""Operators whose result is exact, and promised also where numbers are equal, halves or zeros."""

COUNTING = frozenset(("add", "cumsum", "floor_divide", "mul", "remainder", "rsub", "sub", "sum"))
"""Operators that are exact on whole numbers; the last ones on floats, too, where the other side has few bits."""

COMPUTING = frozenset((
    "acos", "acosh", "_adaptive_avg_pool2d", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "aminmax",
    "asin", "asinh", "atan", "atan2", "atanh", "avg_pool2d", "avg_pool2d_backward", "avg_pool3d", "baddbmm",
    "binary_cross_entropy", "binary_cross_entropy_backward", "binary_cross_entropy_with_logits", "bmm",
    "_cdist_forward", "celu", "convolution", "convolution_backward", "cos", "cosh", "cummax", "cummin", "cumprod",
    "deg2rad", "digamma", "dist", "div", "dot", "elu", "elu_backward", "embedding", "erf", "erfc", "erfinv",
    "_euclidean_dist", "exp", "exp2", "expm1", "eye", "_foreach_add", "_foreach_addcdiv", "_foreach_addcmul",
    "_foreach_div", "_foreach_exp", "_foreach_lerp", "_foreach_log", "_foreach_mul", "_foreach_norm", "_foreach_pow",
    "_foreach_reciprocal", "_foreach_rsqrt", "_foreach_sigmoid", "_foreach_sqrt", "_foreach_sub", "_foreach_tanh",
    "frac", "gelu", "gelu_backward", "glu", "glu_backward", "hardshrink", "hardsigmoid", "hardsigmoid_backward",
    "hardswish", "hardswish_backward", "hardtanh", "hardtanh_backward", "huber_loss", "huber_loss_backward", "hypot",
    "index_add", "index_copy", "index_fill", "index_put", "_index_put_impl", "kthvalue", "leaky_relu",
    "leaky_relu_backward", "lerp", "lgamma", "linalg_cross", "linalg_vector_norm", "linspace", "log", "log10", "log1p",
    "log2", "log_sigmoid_backward", "log_sigmoid_forward", "_log_softmax", "_log_softmax_backward_data", "logaddexp",
    "logaddexp2", "logcumsumexp", "logit", "logsumexp", "max_pool2d_with_indices", "mean", "median", "mish",
    "mish_backward", "mm", "mse_loss", "mse_loss_backward", "mv", "nansum", "native_batch_norm",
    "native_batch_norm_backward", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
    "native_group_norm", "native_group_norm_backward", "native_layer_norm", "native_layer_norm_backward",
    "nll_loss2d_forward", "nll_loss_backward", "nll_loss_forward", "norm", "pow", "_prelu_kernel",
    "_prelu_kernel_backward", "prod", "rad2deg", "reciprocal", "reflection_pad1d", "rot90", "rsqrt", "_safe_softmax",
    "scatter", "scatter_add", "scatter_reduce", "sgn", "sigmoid", "sigmoid_backward", "silu", "silu_backward", "sin",
    "sinc", "sinh", "smooth_l1_loss", "smooth_l1_loss_backward", "_softmax", "_softmax_backward_data", "softplus",
    "softplus_backward", "softshrink", "sort", "special_entr", "sqrt", "square", "std", "std_mean", "tan", "tanh",
    "tanh_backward", "threshold", "threshold_backward", "topk", "trace", "upsample_bilinear2d", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d", "var", "var_mean", "vdot", "xlogy",
))  # fmt: skip
"""Operators that round, or write where indices say. None draws random numbers, or has a result whose shape depends on
values."""

VIEWING = frozenset((
    "alias", "as_strided", "contiguous", "detach", "diagonal", "expand", "permute", "reshape", "select", "slice",
    "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "_unsafe_view",
))  # fmt: skip
"""Those among the first that run nothing on a device, or stand for others."""

REPLAYED = (MOVING | DECIDING | COUNTING | COMPUTING) - ALLOCATIONS - (VIEWING - {"reshape"})
"""All that are replayed, those of the same names that work in place among them. One of the views may copy."""

COPYING = ("clone", "_to_copy", "contiguous")
"""Operators that are replayed as a copy to the memory of their result."""

RESIZING = ("binary_cross_entropy", "huber_loss", "log_sigmoid_forward", "mse_loss", "smooth_l1_loss")
"""Operators that resize the memory of a reduced result, or on a processor that of a buffer."""

MADE_WITH = frozenset(("device", "dtype", "layout", "memory_format", "pin_memory"))
"""What says how a result lies, not what it holds."""

MOST_OPERATORS, MOST_NESTED, MOST_BYTES = 2_048, 3, 1 << 32
"""Rows, lists in lists, and bytes of a view's elements: one that repeats its memory may have more than this has."""

FORMATS = {**FLOAT_FORMATS, **INTEGER_FORMATS}


class ViewAt(StrictMessage, frozen=True, tag="view"):
    """The recording's view of this number."""

    index: int


class DtypeNamed(StrictMessage, frozen=True, tag="dtype"):
    """Torch's dtype of this name."""

    name: str


class HostNumber(StrictMessage, frozen=True, tag="number"):
    """A tensor of the host's without dimensions: an operator takes it as a number of this dtype."""

    value: Union[bool, int, float]
    dtype: str


class Several(StrictMessage, frozen=True, tag="several"):
    """A list of arguments."""

    items: tuple[OperatorArgument, ...]


WITH_DTYPE = (DtypeNamed, HostNumber)
OperatorArgument = Union[None, bool, int, float, str, ViewAt, DtypeNamed, HostNumber, Several]


class TorchOperator(StrictMessage, frozen=True):
    """An operator that runs before launch number ``before`` (as many as there are: after all). ``name`` is its name and
    overload in ``torch.ops.aten``: one that works in place, or with ``out``, but for one that has ``results``."""

    before: int
    name: str
    args: tuple[OperatorArgument, ...]
    words: dict[str, OperatorArgument] = {}
    results: tuple[Union[ViewAt, None], ...] = ()
    """Memory that its results are copied to: of an operator that is given none, or that resizes it."""

    narrow: bool = False
    """Its float32 operands are rounded as tf32 has them."""

    @property
    def leaves(self) -> Iterator[OperatorArgument]:
        """Its arguments, and those in lists."""
        waiting: list[OperatorArgument] = [*self.args, *self.words.values(), *self.results]
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
        results = tuple(x if x is None else ViewAt(numbers[x.index]) for x in self.results)
        return replace(self, args=tuple(map(renumbered, self.args)), words=words, results=results)

    def storages(self, recording: Recording) -> set[int]:
        """What it may read and write."""
        return {recording.views[i].storage for i in self.views}


def _is_replayed(word: str) -> bool:
    return word in REPLAYED or word.removesuffix("_") in REPLAYED


def with_tf32(rows: Sequence[TorchOperator], recording: Recording) -> tuple[TorchOperator, ...]:
    """The rows, convolutions of float32 as a GPU has them: cuDNN's settings allow tf32, those of products don't."""

    def narrow(row: TorchOperator) -> bool:
        return "convolution" in row.name and any(recording.views[i].dtype == "float32" for i in row.views)

    return tuple(replace(row, narrow=True) if narrow(row) else row for row in rows)


# recorded


class NotReplayed(Exception):
    """An operator that isn't in the list, or an argument that no row has."""


def row_of(
    before: int, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outcome: Any,
    view_of: Callable[[Any], int | None],
) -> TorchOperator:  # fmt: skip
    """The row of a call on the device's tensors that returned ``outcome``. ``view_of`` gives a tensor's view, None for
    one that isn't on the device. :class:`NotReplayed` for what can't be replayed."""
    word, overload = func._schema.name.removeprefix("aten::"), func._overloadname
    if not (_is_replayed(word) or word in COPYING) or func.namespace != "aten":
        raise NotReplayed
    words = dict(kwargs)
    results: Sequence[Any] = ()
    number = _argument(args[1], view_of) if word == "copy_" else None
    if word in COPYING:
        word, overload, args, words = "copy_", "default", (outcome, args[0]), {}
    elif isinstance(number, HostNumber):
        word, overload, args, words = "fill_", "Scalar", (args[0], number.value), {}
    elif not _is_in_place(func):
        made = outcome if len(func._schema.returns) > 1 else (outcome,)
        words = {name: x for name, x in words.items() if name not in _of_the_result(func)}
        given = None if word in RESIZING or any(x is None for x in made) else with_out(func)
        if given is None:
            results = made
        else:
            overload = given[0]
            words |= zip(given[1], made, strict=True)

    def arguments(values: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(_argument(x, view_of) for x in values)

    memory = arguments(results)
    if not all(x is None or isinstance(x, ViewAt) for x in memory):
        raise NotReplayed
    named = dict(zip(words, arguments(words.values()), strict=True))
    return TorchOperator(before, f"{word}.{overload}", arguments(args), named, memory)


def _is_in_place(func: Any) -> bool:
    """Whether it makes nothing but what it is given."""
    return func._schema.is_mutable and all(x.alias_info is not None for x in func._schema.returns)


def with_out(func: Any) -> tuple[str, list[str]] | None:
    """The overload of the same operator that takes the same arguments and its results' memory, and their names; None if
    it has none."""
    left_out = _of_the_result(func)
    wanted = [(x.name, str(x.type)) for x in func._schema.arguments if x.name not in left_out]
    for overload in func.overloadpacket.overloads():
        arguments = getattr(func.overloadpacket, overload)._schema.arguments
        results, others = [x.name for x in arguments if x.is_out], [x for x in arguments if not x.is_out]
        more = others[len(wanted) :]
        alike = [(x.name, str(x.type)) for x in others[: len(wanted)]] == wanted
        if results and alike and all(x.has_default_value() for x in more):
            return overload, results
    return None


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


def operator_problems(rows: Sequence[TorchOperator], recording: Recording, calls: int = 1) -> Iterator[str]:
    """Why rows of a recording of so many calls can't be replayed."""
    if len(rows) > MOST_OPERATORS * calls:
        yield f"it has {len(rows)} operators of torch's, more than {MOST_OPERATORS * calls}"
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
