"""What is known of an operator of torch by its name and schema, and what a call of it moves by its tensors' layouts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kerntune.gpu.base import tensors_in

ALLOCATIONS = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh"}
    | {"detach", "set_", "resize_"}
)  # fmt: skip
"""ATen operators that run nothing on the device; views are known by their storages."""

FILLING = frozenset(
    {"zeros", "zeros_like", "new_zeros", "zero_", "zero", "ones", "ones_like", "new_ones"}
    | {"full", "full_like", "new_full", "fill_", "fill", "scalar_tensor"}
)  # fmt: skip
"""Operators that write one value: a kernel may need them for no more than its own outputs."""

OVERWRITING = frozenset({"copy_", "zero_", "fill_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"})
"""In-place operators that don't read what they write."""

SELECTING = frozenset({"index_select", "gather", "embedding", "index", "_unsafe_index", "take", "take_along_dim"})
"""Operators that read as many elements of their first tensor as they return."""

SCATTERING = frozenset(
    {"index_put_", "_index_put_impl_", "scatter_", "scatter_add_", "scatter_reduce_", "index_add_", "index_copy_"}
    | {"index_reduce_", "put_"}
)  # fmt: skip
"""In-place operators that write as many elements of their first tensor as their last one has."""

NO_STORAGE = 0
"""The number of a tensor that wraps others. What is computed from it comes from nowhere that is known."""

TORCHS = ("aten", "prims", "_c10d_functional")
"""Namespaces of torch's own operators, which read and write their tensors once."""

OWN_NAMESPACES = ("prim", "inductor")
"""Operators of torch's compiler for sizes and allocations."""

TensorLayout = tuple[Any, tuple[int, ...]]
"""A tensor's dtype and shape."""


class Traits(NamedTuple):
    """What is known of an operator by its name and schema. ``writes`` are the places and names of the arguments that it
    writes; ``layout_alone``: it takes a tensor for its layout (``zeros_like``)."""

    name: str
    word: str
    kind: str
    works: bool
    writes: tuple[tuple[int, str], ...]
    reads_own: bool
    layout_alone: bool


class SeenTensor(NamedTuple):
    """A tensor as an operator took or made it: its storage's number and bytes, and how it lies there. ``strides`` are
    None of a tensor that has no storage."""

    number: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    storage_bytes: int

    @property
    def layout(self) -> TensorLayout:
        """Its dtype and shape."""
        return self.dtype, self.shape

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 1 if self.strides is None else int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of distinct elements by strides: a broadcast dimension once, overlapping windows at most all of their
        storage. None of a tensor whose shape isn't known."""
        if self.strides is None:
            return 0
        layout = self.shape, self.strides, self.itemsize, self.storage_bytes
        try:
            return _distinct(*layout)
        except TypeError:  # sizes that aren't known yet can't be looked up
            return _distinct.__wrapped__(*layout)

    @property
    def is_whole(self) -> bool:
        """Whether it has all elements of its storage."""
        return self.nbytes == self.storage_bytes


@functools.lru_cache(maxsize=4096)
def _distinct(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, storage_bytes: int) -> int:
    count = math.prod(n for n, stride in zip(shape, strides, strict=True) if stride or not n)
    try:
        return min(int(count) * itemsize, int(storage_bytes))
    except (RuntimeError, TypeError, ValueError):
        return 0


class Operator(NamedTuple):
    """A call of an operator: what it is called, the tensors that it takes and makes, bytes, and the kind of its row."""

    name: str
    takes: tuple[TensorLayout, ...]
    makes: tuple[TensorLayout, ...]
    nbytes: int
    kind: str


@functools.lru_cache(maxsize=4096)
def traits_of(func: Any) -> Traits | None:
    """An operator's traits; None of one that torch's compiler has for sizes and allocations."""
    namespace = getattr(func, "namespace", "")
    if namespace in OWN_NAMESPACES:
        return None
    name, overload = str(getattr(func, "overloadpacket", func)), str(getattr(func, "_overloadname", ""))
    word = name.removeprefix("aten.")
    schema = getattr(func, "_schema", None)
    arguments = enumerate(schema.arguments if schema is not None and schema.is_mutable else ())
    return Traits(
        name=name,
        word=word,
        kind="filled" if word in FILLING else "" if namespace in TORCHS else "bound",
        works=word not in ALLOCATIONS,
        writes=tuple((i, x.name) for i, x in arguments if x.alias_info is not None and x.alias_info.is_write),
        reads_own=word not in OVERWRITING and not (overload == "out" or overload.endswith("_out")),
        layout_alone=word.endswith("_like") or word.startswith("new_"),
    )


class Effect(NamedTuple):
    """What a call does by the places of its tensors, those that it takes first: which storages it reads (``ins``) and
    computes (``outs``). ``fresh`` are made by it; of those in ``whole`` nothing is left that was there before."""

    operator: Operator | None
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    fresh: tuple[int, ...]
    whole: tuple[int, ...]


class OperatorCall:
    """What calls of an operator on tensors of the same layouts have in common.

    ``takes`` and ``makes`` are the layouts of its tensors; ``written`` are the places among ``takes`` of those that it
    writes. ``taken`` are the places of ``takes`` among the positional arguments; it is None where tensors lie
    elsewhere, where one has no storage, and where the result is not one tensor.
    """

    __slots__ = ("_effects", "makes", "taken", "takes", "traits", "written")

    def __init__(
        self,
        traits: Traits,
        takes: Sequence[SeenTensor],
        makes: Sequence[SeenTensor],
        written: Sequence[int],
        taken: Sequence[int] | None,
    ) -> None:
        self.traits, self.takes, self.makes, self.written, self.taken = traits, takes, makes, written, taken
        self._effects: dict[tuple[int, ...], Effect | None] = {}

    def effect(self, numbers: Sequence[int]) -> Effect | None:
        """What a call on storages with these numbers does, of which some may be the same; None of a view."""
        first = tuple(map(numbers.index, numbers))
        if first not in self._effects:
            self._effects[first] = self._effect(first, numbers)
        return self._effects[first]

    def _effect(self, first: tuple[int, ...], numbers: Sequence[int]) -> Effect | None:
        traits, count = self.traits, len(self.takes)
        ins, written = {*first[:count]}, {first[i] for i in self.written}
        outs = {*first[count:]} | written
        fresh = outs - ins
        if not fresh and not written:
            return None
        whole = fresh if traits.reads_own else fresh | {first[i] for i in self.written if self.takes[i].is_whole}
        read = set() if traits.layout_alone else ins if traits.reads_own else ins - written
        seen = [x._replace(number=number) for x, number in zip((*self.takes, *self.makes), numbers, strict=True)]
        written_tensors = [seen[i] for i in self.written]
        operator = operator_of(traits, seen[:count], seen[count:], written_tensors) if traits.works else None
        return Effect(operator, tuple(read), tuple(outs), tuple(fresh), tuple(whole))


def operator_call(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, is_device: Callable[[Any], bool]
) -> OperatorCall | None:
    """What is known of a call of an operator; None of one for the host alone, or that torch's compiler has."""
    traits = traits_of(func)
    if traits is None:
        return None
    taken, made = [*tensors_in(args, kwargs.values())], [*tensors_in((result,))]
    if not any(map(is_device, taken)) and not any(map(is_device, made)):
        return None
    takes, makes = [*map(_seen, taken)], [*map(_seen, made)]
    arguments = [args[place] if place < len(args) else kwargs.get(name) for place, name in traits.writes]
    written = [next(i for i, y in enumerate(taken) if x is y) for x in tensors_in(arguments)]
    places = [i for i, x in enumerate(args) if hasattr(x, "untyped_storage")]
    stored = all(x.strides is not None for x in (*takes, *makes))
    plain = stored and len(places) == len(takes) and len(made) == 1 and made[0] is result
    return OperatorCall(traits, takes, makes, written, places if plain else None)


def _seen(tensor: Any) -> SeenTensor:
    """A tensor's layout; that of a subclass that wraps others isn't known."""
    try:
        storage_bytes = tensor.untyped_storage().nbytes()
        return SeenTensor(NO_STORAGE, tensor.dtype, tensor.shape, tensor.stride(), storage_bytes)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError):
        return SeenTensor(NO_STORAGE, getattr(tensor, "dtype", ""), (-1,), None, 0)


def operator_of(
    traits: Traits, takes: Sequence[SeenTensor], makes: Sequence[SeenTensor], writes: Sequence[SeenTensor]
) -> Operator:
    read, word = () if traits.layout_alone else takes, traits.word
    if word in SELECTING and read:
        whole = sum(x.nbytes for x in makes)
        nbytes = min(read[0].nbytes, whole) + whole + sum(x.nbytes for x in read[1:])
    elif word in SCATTERING and read:
        values = math.prod(read[-1].layout[1]) * read[0].itemsize
        nbytes = sum(x.nbytes for x in read[1:]) + min(read[0].nbytes, values)
    else:
        read = read if traits.reads_own or not writes else [x for x in read if x not in writes]
        nbytes = sum(x.nbytes for x in {*read}) + sum(x.nbytes for x in {*makes, *writes})
    return Operator(traits.name, tuple(x.layout for x in takes), tuple(x.layout for x in makes), nbytes, traits.kind)


def signature(operator: Operator) -> str:
    """``float16[64,128], float16[128] -> float32[64]``."""
    return " -> ".join(
        ", ".join(f"{str(dtype).removeprefix('torch.')}[{','.join(map(str, shape))}]" for dtype, shape in side)
        for side in (operator.takes, operator.makes)
    )
