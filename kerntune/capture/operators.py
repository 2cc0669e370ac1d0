"""The operators of torch that a call runs outside of captured kernels: what they move, and what results come from.

Every operator that reaches the device is observed where torch dispatches it, below autograd and in whichever thread of
Python it runs (:meth:`kerntune.gpu.base.Tensors.watching`). Storages get numbers, so that no tensor is kept alive.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from kerntune.base.operator_list import MAX_OUTSIDE, MAX_ROWS, OperatorList, OperatorRow
from kerntune.base.recording import Recording
from kerntune.base.traffic import PointerAccess, bytes_moved

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

OWN_NAMESPACES = ("prim", "inductor")
"""Operators of torch's compiler for sizes and allocations."""

TensorLayout = tuple[str, tuple[int, ...]]
"""A tensor's dtype and shape."""


@dataclass(frozen=True)
class Operator:
    """A call of an operator: what it is called, the tensors that it takes and makes, bytes, and the kind of its row."""

    name: str
    takes: tuple[TensorLayout, ...]
    makes: tuple[TensorLayout, ...]
    nbytes: int
    kind: str


@dataclass(frozen=True)
class OperatorEvent:
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
        if not self.records() or getattr(func, "namespace", "") in OWN_NAMESPACES:
            return
        takes, makes = list(tensors_of((args, kwargs))), list(tensors_of(result))
        if not any(map(self.is_device, takes)) and not any(map(self.is_device, makes)):
            return
        written = list(_written(func, args, kwargs))
        with self._lock:
            ins, outs = self._numbers_of(takes), self._numbers_of((*makes, *written))
            fresh = outs - ins
            self._made |= fresh
            if not fresh and not written:
                return  # a view
            reads_own = _reads_what_it_writes(func)
            whole = fresh | self._numbers_of(x for x in written if not reads_own and _is_whole(x))
            works = _word(func) not in ALLOCATIONS and len(self.launches) == launches
            operator = _operator(func, args, takes, makes, written) if works else None
            read = ins if reads_own else ins - self._numbers_of(written)
            read = set() if _takes_layout_alone(_word(func)) else read
            self.events.append(OperatorEvent(launches, operator, tuple(read), tuple(outs), frozenset(whole)))

    def begin(self) -> int:
        """How many launches there are before an operator runs."""
        return len(self.launches)

    def _numbers_of(self, tensors: Iterable[Any]) -> set[int]:
        return {number for x in tensors if (number := self._number(x)) is not None}

    def _number(self, tensor: Any) -> int | None:
        """A storage's number; None of a tensor that has none (a subclass that wraps others)."""
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError, AttributeError):
            return None
        if storage not in self._numbers:
            self._numbers[storage] = self._next = self._next + 1
        return self._numbers[storage]

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
        alive = set(self._numbers.values())
        ours = {number for x in held if (number := self._number(x)) is not None and not _held_by_others(x, held)}
        launched = {number for x in held if (number := self._number(x)) is not None}
        users: dict[int, set[int]] = {}
        for place, event in enumerate(self.events):
            for number in event.ins:
                users.setdefault(number, set()).add(place)
        kept: set[int] = set()
        for place in sorted(candidates, reverse=True):  # what a cache is computed from goes with it
            outs = candidates[place]
            stays = all(n in alive and n not in ours and n not in returned for n in outs)
            only_for_kept = not launched & {*outs} and all(users.get(n) and users[n] <= kept for n in outs)
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


def tensors_of(value: Any, depth: int = 4) -> Iterator[Any]:
    """The tensors in nested lists, tuples and dicts."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item, depth - 1)
    elif depth and isinstance(value, Mapping):
        yield from tensors_of(tuple(value.values()), depth - 1)


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


def _word(func: Any) -> str:
    """``mm`` for any overload of ``aten.mm``; operators of other libraries have their namespace in front."""
    name = str(getattr(func, "overloadpacket", func))
    return name.removeprefix("aten.")


def _operator(func: Any, args: Sequence[Any], takes: list[Any], makes: list[Any], written: list[Any]) -> Operator:
    word = _word(func)
    outs = [*makes, *(x for x in written if not any(x is y for y in makes))]
    takes = [] if _takes_layout_alone(word) else takes
    read = [x for x in takes if _reads_what_it_writes(func) or not any(x is y for y in written)]
    kind = "filled" if word in FILLING else "" if _is_atens(func) else "bound"
    if word in SELECTING and takes:
        whole = sum(map(_nbytes, makes))
        nbytes = min(_nbytes(takes[0]), whole) + whole + sum(_nbytes(x) for x in takes[1:])
    elif word in SCATTERING and takes:
        nbytes = sum(_nbytes(x) for x in takes[1:]) + min(_nbytes(takes[0]), _scattered(takes))
    else:
        nbytes = _distinct(read) + _distinct(outs)
    name = str(getattr(func, "overloadpacket", func))
    return Operator(name, tuple(map(_layout, takes)), tuple(map(_layout, makes)), nbytes, kind)


def _takes_layout_alone(word: str) -> bool:
    """Whether an operator takes a tensor for its layout, not for its values: ``zeros_like``, ``new_full``."""
    return word.endswith("_like") or word.startswith("new_")


def _scattered(takes: Sequence[Any]) -> int:
    """Bytes that a scatter writes: as many elements as its last tensor has."""
    return int(takes[-1].numel()) * int(takes[0].element_size())


def _is_atens(func: Any) -> bool:
    return getattr(func, "namespace", "") in ("aten", "prims", "_c10d_functional")


def _reads_what_it_writes(func: Any) -> bool:
    """Whether an operator's result depends on what it overwrites: of ``add_``, not of ``copy_`` and of ``out=``."""
    overload = str(getattr(func, "_overloadname", ""))
    return _word(func) not in OVERWRITING and not (overload == "out" or overload.endswith("_out"))


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """The tensors that an operator writes in place."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            yield from tensors_of(value)


def _distinct(tensors: Iterable[Any]) -> int:
    """Bytes of tensors, each once."""
    return sum(_nbytes(x) for x in {id(x): x for x in tensors}.values())


def _nbytes(tensor: Any) -> int:
    """Distinct elements by strides, in bytes: a broadcast dimension counts once, overlapping windows at most all of
    their storage. Nothing of a tensor whose shape isn't known."""
    try:
        shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
        count = prod(n for n, stride in zip(shape, strides, strict=True) if stride or n == 0)
        return min(count * int(tensor.element_size()), int(tensor.untyped_storage().nbytes()))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return 0


def _is_whole(tensor: Any) -> bool:
    """Whether a tensor's elements are all of its storage."""
    try:
        return _nbytes(tensor) == int(tensor.untyped_storage().nbytes())
    except (RuntimeError, NotImplementedError):
        return False


def _layout(tensor: Any) -> TensorLayout:
    try:
        shape = tuple(map(int, tensor.shape))
    except (RuntimeError, TypeError, ValueError):
        shape = (-1,)
    return str(tensor.dtype).removeprefix("torch."), shape


def _signature(operator: Operator) -> str:
    """``float16[64,128], float16[128] -> float32[64]``."""
    sides = (", ".join(f"{d}[{','.join(map(str, s))}]" for d, s in side) for side in (operator.takes, operator.makes))
    return " -> ".join(sides)
