"""A reference's matrix products with operands of 16 bits, as tensor cores take them.

They take operands of 16 bits, and sum in float32. Where a reference upcasts its inputs, and multiplies what it has
computed of these, a kernel rounds that to their dtype: attention does so with its weights. What that rounding does is a
limit of errors.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from kerntune.gpu.base import tensors_in
from kerntune.referee.call_inputs import bytes_of
from kerntune.referee.reference_operators import EachFunction, place_of
from kerntune.referee.result_numbers import ROUNDOFF
from kerntune.referee.tasks import ExpectedResult

OPERANDS = {
    "mm": (0, 1), "bmm": (0, 1), "mv": (0, 1), "addmm": (1, 2), "addbmm": (1, 2), "baddbmm": (1, 2), "addmv": (1, 2),
    "convolution": (0, 1), "convolution_backward": (0, 1, 2),
}  # fmt: skip
"""Which arguments of an operator are a product's operands."""

GROUPS = {"convolution": 8, "convolution_backward": 9}
"""Which argument says in how many groups of channels: each of its own is no matrix product."""

SIXTEEN_BITS = {
    "float16": "float16", "bfloat16": "bfloat16", "float8_e4m3fn": "bfloat16", "float8_e5m2": "bfloat16",
    "int8": "bfloat16", "uint8": "bfloat16",
}  # fmt: skip
"""By dtype of few bits, what a kernel's operands are of numbers that follow from it."""

LAST_PRODUCTS = 8
"""Products of elements that may be summed yet, whose operands are held meanwhile."""


def with_products(
    run: Callable[..., Any], found: Sequence[ExpectedResult | None], natives: Sequence[Any], far: bool
) -> tuple[list[Any], bool]:
    """The results, and inputs that are changed, with :attr:`~.ExpectedResult.by_products`, and whether that is worth it
    again: where no product is rounded of usual inputs, none is of others. ``natives`` are both as they are without
    that; where these are finite, so is the other, unless inputs are ``far`` from usual: 16 bits may overflow."""
    taken, every = set[str](), list(found)
    try:
        results, after, _ = run(rounding=partial(sixteen_bits, taken))
    except Exception as exc:
        print(f"no rounded operands: {exc}", file=sys.stderr)
        return every, False
    for k, (one, native, made) in enumerate(zip(found, natives, [*results, *after], strict=True)):
        known = one is not None and one.wide is not None and made.is_floating_point()
        if taken and one is not None and known and made.shape == native.shape:
            here = made if far else torch.where(made.isfinite(), made, native)
            every[k] = replace(one, by_products=bytes_of(here))
    return every, far or bool(taken)


class _Elementwise(NamedTuple):
    """A product of elements, in this memory."""

    place: int
    lies: tuple[Any, ...]
    one: Any
    other: Any


class _SixteenBits(TorchDispatchMode):  # type: ignore[misc]  # torch's types are skipped
    """Meanwhile operands of matrix products in float32 are rounded, where all follow from numbers of 16 or 8 bits;
    ``taken`` names the dtypes. What follows from inputs of float32 alone is never rounded. A product of elements that
    is summed is such a product, if it has rows or columns: row sums of products aren't."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = set[str]()
        self._narrow = dict[int, str]()  # by storage, the floats of fewest bits that its numbers follow from
        self._products = deque[_Elementwise](maxlen=LAST_PRODUCTS)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        words, word = kwargs or {}, func._opname
        outcome = self._summed(func, args, words) if word == "sum" else None
        if outcome is None:
            outcome = func(*self._operands(word, args), **words)
        given, made = list(tensors_in(args, words.values())), list(tensors_in((outcome,)))
        finest = _finest(map(self._dtype_of, given))
        before, written = {place_of(t) for t in given}, made
        if func._schema.is_mutable:
            written = [*made, *given]
        for tensor in written:
            if tensor.dtype.is_floating_point and finest:
                self._narrow[place_of(tensor)] = finest
            elif place_of(tensor) not in before:
                self._narrow.pop(place_of(tensor), None)
        fresh = {place_of(t) for t in written} - (set() if func._schema.is_mutable else before)
        for one in [x for x in self._products if x.place in fresh]:
            self._products.remove(one)
        if word == "mul" and len(given) == 2 and _is_wide(made[0]):
            self._products.append(_Elementwise(place_of(made[0]), _lies(made[0]), *given))
        return outcome

    def _dtype_of(self, tensor: Any) -> str:
        if few := SIXTEEN_BITS.get(str(tensor.dtype).removeprefix("torch.")):
            return few
        return self._narrow.get(place_of(tensor), "") if tensor.dtype.is_floating_point else ""

    def _operands(self, word: str, args: Sequence[Any]) -> Sequence[Any]:
        where = OPERANDS.get(word, ())
        if not where or (word in GROUPS and args[GROUPS[word]] != 1):
            return args
        if word in ("mm", "bmm") and args[0].shape[-2] == args[1].shape[-1] == 1:
            return args
        rounded = self._rounded([args[i] for i in where])
        found = list(args)
        for i, one in zip(where, rounded, strict=True):
            found[i] = one
        return found

    def _rounded(self, operands: Sequence[Any]) -> Sequence[Any]:
        """The operands of a product, rounded where all follow from few bits."""
        finest = _finest(map(self._dtype_of, operands))
        if not (all(map(_is_wide, operands)) and all(map(self._dtype_of, operands))):
            return operands
        few = [x.to(getattr(torch, finest)).to(x.dtype) for x in operands]
        if all(map(_same, operands, few)):
            return operands
        self.taken.add(finest)
        return few

    def _summed(self, func: Any, args: Sequence[Any], words: Mapping[str, Any]) -> Any:
        """A sum of products of elements, of rounded operands; None where it is no matrix product, or none is
        rounded."""
        given, dims = args[0], args[1] if len(args) > 1 else None
        known = (x for x in self._products if x.place == place_of(given) and x.lies == _lies(given))
        product = next(known, None)
        if product is None or not isinstance(dims, (list, tuple)):
            return None
        sizes = [_own_sizes(x, given.dim()) for x in (product.one, product.other)]
        along = {d % given.dim() for d in dims}
        pairs = [(a > 1, b > 1) for a, b in zip(*sizes, strict=True)]
        rest = [pair for d, pair in enumerate(pairs) if d not in along]
        if not all(all(pairs[d]) or not any(pairs[d]) for d in along) or not any(a != b for a, b in rest):
            return None
        one, other = self._rounded((product.one, product.other))
        if one is product.one and other is product.other:
            return None
        return func(one * other, *args[1:], **words)


def _written_out(function: Any, args: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """Attention in float32 is its products, a softmax between them."""
    if function is scaled_dot_product_attention and any(map(_is_wide, tensors_in(args[:1], words.values()))):
        with sdpa_kernel([SDPBackend.MATH]):
            return function(*args, **words)
    return function(*args, **words)


@contextmanager
def sixteen_bits(taken: set[str]) -> Iterator[None]:
    """That mode, which adds to ``taken``; attention in float32, which torch computes as a whole, is its products
    meanwhile."""
    with EachFunction(_written_out), _SixteenBits() as own:
        yield
    taken |= own.taken


def _is_wide(tensor: Any) -> bool:
    return str(tensor.dtype) in ("torch.float32", "torch.float64")


def _finest(dtypes: Iterable[str]) -> str:
    return min(filter(None, dtypes), key=lambda dtype: ROUNDOFF[dtype], default="")


def _same(one: Any, other: Any) -> bool:
    return bool(((one == other.to(one.dtype)) | one.isnan()).all())


def _own_sizes(tensor: Any, dims: int) -> list[int]:
    """Its sizes, 1 where it is repeated, aligned at the end to so many dimensions."""
    own = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return [1] * (dims - len(own)) + own


def _lies(tensor: Any) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset()
