"""The operators of torch that a call runs outside of captured kernels: what they move, and what results come from.

Every operator that reaches the device is observed where torch dispatches it, below autograd and in whichever thread of
Python it runs (:meth:`kerntune.gpu.base.Tensors.watching`). Storages get numbers, so that no tensor is kept alive.
"""

from __future__ import annotations

import functools
import gc
import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kerntune.base.operator_list import MAX_OUTSIDE, MAX_ROWS, OperatorList, OperatorRow
from kerntune.base.recording import Recording
from kerntune.base.roofline import PointerAccess, bytes_moved
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
    """A tensor as an operator took or made it: its storage's number, bytes of distinct elements, of an element and of
    the storage."""

    number: int
    layout: TensorLayout
    nbytes: int
    itemsize: int
    storage_bytes: int


class Operator(NamedTuple):
    """A call of an operator: what it is called, the tensors that it takes and makes, bytes, and the kind of its row."""

    name: str
    takes: tuple[TensorLayout, ...]
    makes: tuple[TensorLayout, ...]
    nbytes: int
    kind: str


class OperatorEvent(NamedTuple):
    """An operator between two launches: ``launches`` were made before it. It computes the storages ``outs`` from
    ``ins``; of those in ``whole`` nothing is left that was there before."""

    launches: int
    operator: Operator | None
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    whole: frozenset[int]


@dataclass
class CallOperators:
    """The operators of one captured call.

    ``launches`` are the capture's, which grow; ``records`` tells whether what the calling thread does is the call's,
    and ``is_device`` whether a value is a tensor on the device.
    """

    launches: Sequence[Any]
    records: Callable[[], bool]
    is_device: Callable[[Any], bool]
    events: list[OperatorEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._made: set[int] = set()
        self._next, self._lock = 0, threading.Lock()

    def observe(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, launches: int) -> None:
        """Note an operator that has run; ``launches`` is :attr:`begin`'s answer from before. One during which kernels
        were launched is no operator of torch's: what it consists of is observed by itself."""
        traits = traits_of(func)
        if traits is None or not self.records():
            return
        taken = list(tensors_in(args, kwargs.values()))
        made = list(tensors_in((result,)))
        if not any(map(self.is_device, taken)) and not any(map(self.is_device, made)):
            return
        with self._lock:
            takes, makes = [self._look(x) for x in taken], [self._look(x) for x in made]
            writes = [self._look(x) for x in tensors_in(_given(traits, args, kwargs))] if traits.writes else []
            ins, written = {x.number for x in takes}, {x.number for x in writes}
            outs = {x.number for x in makes} | written
            fresh = outs - ins
            self._made |= fresh
            if not fresh and not writes:
                return  # a view
            reads_own = traits.reads_own
            whole = fresh if reads_own else fresh | {x.number for x in writes if x.nbytes == x.storage_bytes}
            works = traits.works and len(self.launches) == launches
            operator = _operator(traits, takes, makes, writes) if works else None
            read = set() if traits.layout_alone else ins if reads_own else ins - written
            self.events.append(OperatorEvent(launches, operator, tuple(read), tuple(outs), frozenset(whole)))

    def begin(self) -> int:
        """How many launches there are before an operator runs."""
        return len(self.launches)

    def _look(self, tensor: Any) -> SeenTensor:
        """Distinct elements are counted by strides: a broadcast dimension once, overlapping windows at most all of
        their storage. Nothing of a tensor whose shape isn't known, or that has no storage (a subclass that wraps
        others)."""
        try:
            storage, shape, size = tensor.untyped_storage(), tuple(tensor.shape), tensor.element_size()
            count = 1
            for n, stride in zip(shape, tensor.stride(), strict=True):
                if stride or not n:
                    count *= n
            most = storage.nbytes()
            return SeenTensor(self._numbered(storage), (tensor.dtype, shape), min(int(count) * size, most), size, most)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError):
            number = self._number(tensor)
            return SeenTensor(NO_STORAGE if number is None else number, (getattr(tensor, "dtype", ""), (-1,)), 0, 1, 0)

    def _numbers_of(self, tensors: Iterable[Any]) -> set[int]:
        return {number for x in tensors if (number := self._number(x)) is not None}

    def _number(self, tensor: Any) -> int | None:
        """A storage's number; None of a tensor that has none."""
        try:
            return self._numbered(tensor.untyped_storage())
        except (RuntimeError, NotImplementedError, AttributeError):
            return None

    def _numbered(self, storage: Any) -> int:
        number = self._numbers.get(storage)
        if number is None:
            self._numbers[storage] = number = self._next = self._next + 1
        return number

    # what came of it

    def summary(
        self,
        recording: Recording,
        accesses: Mapping[int, PointerAccess],
        storages: Sequence[Any],
        arguments: Sequence[Any],
        results: Sequence[Any],
    ) -> OperatorList:
        """The list for one target. ``storages`` are tensors of the recording's storages, ``arguments`` the call's, and
        ``results`` what it returned."""
        import torch

        numbers = [self._number(x) for x in storages]
        given = self._numbers_of(arguments)
        written = {i: {numbers[s] for s in x.writes} for i, x in enumerate(recording.launches)}
        covered, makers, changed = self._covered(written)
        returned = [self._number(x) for x in results]
        returned += [n for x in arguments if (n := self._number(x)) in changed and n not in returned]
        kept = self._kept(given, {*returned}, storages)
        rows, left_out = self._rows(kept)
        read = {numbers[s] for x in recording.launches if 0 not in x.grid for s in x.reads}
        outside = sorted(
            recording.storages[i].nbytes for i, n in enumerate(numbers) if n in read - self._made - given
        )  # fmt: skip
        return OperatorList(
            torch=torch.__version__.partition("+")[0],
            rows=rows,
            left_out=sum(r.count for r in left_out),
            left_out_bytes=sum(r.nbytes for r in left_out if not r.kind),
            kernel_bytes=bytes_moved(recording, accesses),
            results=tuple(n in covered for n in returned),
            makers=tuple(sorted({makers[n] for n in returned if n in makers and n not in covered})),
            outside=tuple(outside[-MAX_OUTSIDE:]),
        )

    def arguments_of(self, results: Sequence[Any], recording: Recording, storages: Sequence[Any]) -> frozenset[str]:
        """The names of the launches' arguments that point into the storages of ``results``."""
        returned: set[int | None] = {*self._numbers_of(results)}
        numbers = [self._number(x) for x in storages]
        pointers = ((p.name, p.view) for launch in recording.launches for p in launch.params)
        places = ((name, recording.views[view].storage) for name, view in pointers if view is not None)
        return frozenset(name for name, storage in places if numbers[storage] in returned)

    def _covered(
        self, written: Mapping[int, set[int | None]]
    ) -> tuple[set[int | None], dict[int | None, str], set[int]]:
        """The storages in whose content a launch has a part at the end, the operators that made others, and all that
        were written."""
        covered: set[int | None] = set()
        makers: dict[int | None, str] = {}
        changed: set[int] = set()
        at = 0
        for event in (*self.events, OperatorEvent(len(self.launches), None, (), (), frozenset())):
            for index in range(at, event.launches):
                covered |= written.get(index, set())
                changed |= {n for n in written.get(index, set()) if n is not None}
            at = max(at, event.launches)
            from_launch = not covered.isdisjoint(event.ins)
            for out in event.outs:
                changed.add(out)
                if from_launch:
                    covered.add(out)
                elif out in event.whole:
                    covered.discard(out)
                if event.operator is not None:
                    makers[out] = event.operator.name
        return covered, makers, changed

    def _kept(self, given: set[int], returned: set[int | None], held: Sequence[Any]) -> set[int]:
        """Places of events whose results outlive the call and depend on no argument: caches, which the next call finds.
        ``held`` are tensors that the capture itself keeps alive. Where a call has no arguments of its own, whatever was
        there before counts as one."""
        from_given: set[int] = set(given)
        candidates: dict[int, tuple[int, ...]] = {}
        for place, event in enumerate(self.events):
            before = {n for n in event.ins if n not in self._made}
            if not from_given.isdisjoint(event.ins) or (before and not given):
                from_given.update(event.outs)
            elif event.operator is not None and self._made.issuperset(event.outs):
                candidates[place] = event.outs
        if not candidates:
            return set()
        alive, asked = set(self._numbers.values()), {n for outs in candidates.values() for n in outs}
        launched = {number: x for x in held if (number := self._number(x)) is not None}
        # who refers to a tensor takes a look at all objects, so few are asked about
        ours = {n for n in asked & launched.keys() if not _held_by_others(launched[n], held)}
        users: dict[int, set[int]] = {}
        for place, event in enumerate(self.events):
            for number in event.ins:
                users.setdefault(number, set()).add(place)
        kept: set[int] = set()
        for place in sorted(candidates, reverse=True):  # what a cache is computed from goes with it
            outs = candidates[place]
            stays = all(n in alive and n not in ours and n not in returned for n in outs)
            only_for_kept = not launched.keys() & {*outs} and all(users.get(n) and users[n] <= kept for n in outs)
            if stays or only_for_kept:
                kept.add(place)
        return kept

    def _rows(self, kept: set[int]) -> tuple[tuple[OperatorRow, ...], list[OperatorRow]]:
        counts: Counter[tuple[Operator, bool]] = Counter(
            (e.operator, place in kept) for place, e in enumerate(self.events) if e.operator is not None
        )
        rows = [
            OperatorRow(x.name, _signature(x), count, x.nbytes * count, "kept" if is_kept else x.kind)
            for (x, is_kept), count in counts.items()
        ]
        rows.sort(key=lambda row: (-row.nbytes, row))
        return tuple(sorted(rows[:MAX_ROWS])), rows[MAX_ROWS:]


def _held_by_others(tensor: Any, held: Sequence[Any]) -> bool:
    """Whether something other than the capture refers to a tensor: a module, a cache, a list of the user's."""
    mine = ("kerntune.", "triton.")
    for referrer in gc.get_referrers(tensor):
        if referrer is held or type(referrer).__name__ in ("frame", "generator", "list_iterator", "tuple_iterator"):
            continue
        if isinstance(referrer, (list, tuple)) or type(referrer).__module__.startswith(mine):
            continue
        if isinstance(referrer, dict) and not _is_kernels_own(referrer):
            return True
        if not isinstance(referrer, dict):
            return True
    return False


def _is_kernels_own(referrer: dict[Any, Any]) -> bool:
    """Whether a dictionary holds the arguments of a launch."""
    return any(
        type(owner).__module__.startswith(("kerntune.", "triton."))
        for owner in gc.get_referrers(referrer)
        if hasattr(type(owner), "__module__")
    )


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


def _given(traits: Traits, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """The arguments that an operator writes."""
    for place, name in traits.writes:
        yield args[place] if place < len(args) else kwargs.get(name)


def _operator(traits: Traits, takes: list[SeenTensor], makes: list[SeenTensor], writes: list[SeenTensor]) -> Operator:
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


def _signature(operator: Operator) -> str:
    """``float16[64,128], float16[128] -> float32[64]``."""
    return " -> ".join(", ".join(map(_layout_text, side)) for side in (operator.takes, operator.makes))


def _layout_text(layout: TensorLayout) -> str:
    dtype, shape = layout
    return f"{str(dtype).removeprefix('torch.')}[{','.join(map(str, shape))}]"
