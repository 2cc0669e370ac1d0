"""Operations of TTIR on memory: loads, stores, atomics, and tensor descriptors."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerntune.errors import InterpreterLimit, KernelFault, KernelTimeout
from kerntune.gpu.emulator.elements import bytes_of, nearest_tf32, numpy_of, updated
from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.program_order import ProgramOrder
from kerntune.gpu.emulator.promises import HintedAccess
from kerntune.gpu.emulator.races import Races, RunningProgram
from kerntune.gpu.emulator.ttir_program import TtirOperation, TtirProgram, ValueType

ValueTable = dict[int, Any]

PAD_NAN = 2
"""``tt.PaddingOption`` (TritonAttrDefs.td): what a descriptor gives outside of its tensor; 0 otherwise."""

DESCRIPTOR_UPDATES = ("add", "and", "or", "xor")
"""What a descriptor may update by. Whether a minimum is of numbers without a sign, isn't looked at."""

DESCRIPTOR_ALIGN = 16
"""Of a descriptor's base and strides but the last, in bytes (CUDA driver API, ``cuTensorMapEncodeTiled``)."""


@dataclass(frozen=True)
class Descriptor:
    """A tensor in memory, of which blocks are read and written. What is read outside of it is 0, or ``nan``; float32
    elements may be read as ``tf32``."""

    base: int
    sizes: Sequence[int]
    strides: Sequence[int]
    kind: ValueType
    nan: bool = False
    tf32: bool = False

    def checked(self) -> Descriptor:
        """Itself; :class:`KernelFault` for one that no GPU takes."""
        apart = [stride * bytes_of(self.kind.pointee) for stride in self.strides[:-1]]
        if any(n % DESCRIPTOR_ALIGN for n in (self.base, *apart)):
            raise KernelFault(
                f"a descriptor's base and strides must be multiples of {DESCRIPTOR_ALIGN} bytes; "
                f"they are {self.base:#x} and {apart}"
            )
        return self

    def places(self, along: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Addresses of elements with these indices along each axis, and which of them are in the tensor."""
        grid = np.ix_(*along)
        place: Any = sum(at * stride for at, stride in zip(grid, self.strides, strict=True))
        inside: Any = True
        for at, size in zip(grid, self.sizes, strict=True):
            inside = inside & (at >= 0) & (at < size)
        return self.base + place * bytes_of(self.kind.pointee), np.asarray(inside)


class MemoryOperations:
    """The part of a machine that accesses memory. Without ``_races`` nothing is known of other accesses. ``_drawn`` has
    the orders that ``_chance`` has drawn."""

    _chance: random.Random | None
    _drawn: dict[object, np.ndarray]
    _program: TtirProgram
    _memory: FlatMemory
    _races: Races | None
    _order: ProgramOrder
    _running: RunningProgram
    _deadline: float
    _hinted: Mapping[int, HintedAccess]

    def _any_order(self, key: object, count: int) -> np.ndarray | slice:
        """An order that no GPU promises, the same each time: a compiled kernel has one."""
        if self._chance is None:
            return slice(None)
        if (key, count) not in self._drawn:
            random_state = np.random.default_rng(self._chance.getrandbits(64))
            self._drawn[key, count] = random_state.permutation(count)
        return self._drawn[key, count]

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise KernelTimeout("it has not ended within the time for emulating it")

    def _read(self, addresses: np.ndarray, mask: np.ndarray, element: str, tma: bool = False) -> np.ndarray:
        """Elements where the mask is true."""
        places = addresses[mask]
        found = self._memory.load(places, element)
        if self._races is not None:
            self._races.load(self._running, places, bytes_of(element), mask, tma)
        return found

    def _write(
        self, addresses: np.ndarray, value: np.ndarray, mask: np.ndarray, element: str, tma: bool = False
    ) -> None:
        places, new = addresses[mask], value[mask]
        if self._races is not None:
            self._memory.check(places, element, "written")
            self._races.store(
                self._running, places, bytes_of(element), mask, tma,
                lambda: self._memory.holds(places, new, element),
            )  # fmt: skip
        self._memory.store(places, new, element)

    def _update(
        self, op: TtirOperation, addresses: np.ndarray, mask: np.ndarray, old: np.ndarray, new: np.ndarray, element: str
    ) -> None:
        """What has to be known of an atomic that has found ``old``, and left ``new`` where it differs."""
        places = addresses[mask]
        if self._races is not None and places.size:
            order, scope = str(op.attributes["order"]), str(op.attributes["scope"])
            self._races.atomic(self._running, places, bytes_of(element), mask, order, scope)
        self._await(places, old[mask])
        self._order.changed(places[old[mask] != new[mask]].tolist())

    def _await(self, places: np.ndarray, found: np.ndarray) -> None:
        if self._running.loops:
            self._running.awaited.append((tuple(places.tolist()), found.tobytes()))

    def barrier(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        if self._races is not None:
            self._races.barrier(self._running)
        return ()

    def _with_mask(self, op: TtirOperation, values: ValueTable, shape: Sequence[int]) -> Iterable[np.ndarray]:
        """Addresses, values and mask of an operation that writes; all is written where it has none."""
        addresses, value, *mask = (values[o] for o in op.operands)
        return (np.broadcast_to(x, shape) for x in (addresses, value, *(mask or [True])))

    def load(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = op.types[0]
        addresses, *more = (values[o] for o in op.operands)
        other = more.pop() if len(more) > 1 else self._memory.undefined(kind.element)
        addresses, mask = (np.broadcast_to(x, kind.shape) for x in (addresses, *(more or [True])))
        found = np.array(np.broadcast_to(other, kind.shape))
        with self._accessed(op, addresses, mask, False) as (places, taken):
            if not taken.any():
                return (found,)
            if op.attributes.get("volatile"):
                found[taken] = self._volatile(places[taken], taken, kind.element)
            else:
                found[taken] = self._read(places, taken, kind.element)
        return (found,)

    def _accessed(
        self, op: TtirOperation, addresses: np.ndarray, mask: np.ndarray, writes: bool
    ) -> AbstractContextManager[tuple[np.ndarray, np.ndarray]]:
        """Addresses and mask as a GPU takes them."""
        hinted = self._hinted.get(id(op))
        return nullcontext((addresses, mask)) if hinted is None else hinted.accessed(addresses, mask, writes)

    def _volatile(self, places: np.ndarray, mask: np.ndarray, element: str) -> np.ndarray:
        found = self._memory.load(places, element)
        if self._races is not None:
            self._races.volatile_load(self._running, places, bytes_of(element), mask)
        self._await(places, found)
        return found

    def store(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = self._program.types[op.operands[1]]
        addresses, value, mask = self._with_mask(op, values, kind.shape)
        with self._accessed(op, addresses, mask, True):
            if mask.any():
                self._write(addresses, value, mask, kind.element)
        return ()

    def _lanes(self, op: TtirOperation, mask: np.ndarray) -> np.ndarray:
        """Indices where the mask is true. Of elements of one atomic no GPU says which comes first."""
        found = np.argwhere(mask)
        return found[self._any_order(id(op), len(found))]

    def atomic(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = op.types[0]
        addresses, value, mask = self._with_mask(op, values, kind.shape)
        old = np.full(kind.shape, self._memory.undefined(kind.element))
        new = np.array(old)
        with self._accessed(op, addresses, mask, True):
            self._memory.check(addresses[mask], kind.element, "updated")
        distinct = len(np.unique(addresses[mask])) == np.count_nonzero(mask)
        for at in [mask] if distinct else (tuple(index[:, None]) for index in self._lanes(op, mask)):
            old[at] = self._memory.load(addresses[at], kind.element)
            new[at] = updated(op.attributes["atomic_rmw_op"], old[at], value[at], kind.element)
            self._memory.store(addresses[at], new[at], kind.element)
        self._update(op, addresses, mask, old, new, kind.element)
        return (old,)

    def compare_and_swap(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = op.types[0]
        addresses, expected, new = (np.broadcast_to(values[o], kind.shape) for o in op.operands)
        old = np.zeros(kind.shape, numpy_of(kind.element))
        left = old.copy()
        self._memory.check(addresses, kind.element, "updated")
        for at in map(tuple, self._lanes(op, np.ones(kind.shape, np.bool_))):
            found = self._memory.load(addresses[at].reshape(1), kind.element)
            old[at] = left[at] = found[0]
            if found[0] == expected[at]:
                self._memory.store(addresses[at].reshape(1), np.asarray(new[at]).reshape(1), kind.element)
                left[at] = new[at]
        self._update(op, addresses, np.ones(kind.shape, np.bool_), old, left, kind.element)
        return (old,)

    def atomic_load(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = op.types[0]
        addresses, mask = (np.broadcast_to(values[o], kind.shape) for o in op.operands)
        found = np.full(kind.shape, self._memory.undefined(kind.element))
        found[mask] = self._volatile(addresses[mask], mask, kind.element)
        return (found,)

    def atomic_store(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = self._program.types[op.operands[1]]
        addresses, new, mask = self._with_mask(op, values, kind.shape)
        old = np.array(new)
        old[mask] = self._memory.load(addresses[mask], kind.element)
        self._memory.store(addresses[mask], new[mask], kind.element)
        self._update(op, addresses, mask, old, new, kind.element)
        return ()

    def poll(self, op: TtirOperation, values: ValueTable) -> Generator[None, None, Sequence[Any]]:
        """Waits until the memory holds what is expected, at every place; one with a time limit may end at once."""
        addresses, expected, *limit = (np.asarray(values[o]) for o in op.operands)
        everything, element = np.ones(addresses.shape, np.bool_), self._program.types[op.operands[1]].element
        program = self._running
        program.loops += 1
        while True:
            self._check_time()
            mark = len(program.awaited)
            matched = self._volatile(addresses[everything], everything, element).reshape(addresses.shape) == expected
            if limit or matched.all():
                program.loops -= 1
                return (matched,)
            yield
            del program.awaited[mark:]

    # descriptors

    def make_descriptor(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        base, *rest = (values[o] for o in op.operands)
        kind = op.types[0]
        rank = len(kind.shape)
        sizes, strides = [int(x) for x in rest[:rank]], [int(x) for x in rest[rank : 2 * rank]]
        made = Descriptor(int(base), sizes, strides, kind, op.attributes["padding"] == PAD_NAN)
        return (made.checked(),)

    def _block(self, op: TtirOperation, values: ValueTable, first: int) -> list[np.ndarray]:
        """Along each axis, where a descriptor's block lies."""
        shape = values[op.operands[0]].kind.shape
        return [int(values[op.operands[first + i]]) + np.arange(n) for i, n in enumerate(shape)]

    def _rows(self, op: TtirOperation, values: ValueTable) -> list[np.ndarray]:
        """The same of several rows, anywhere."""
        rows, first = (np.asarray(values[o]) for o in op.operands[1:3])
        return [rows.astype(np.int64), int(first) + np.arange(values[op.operands[0]].kind.shape[1])]

    def _read_described(self, op: TtirOperation, values: ValueTable, along: Sequence[np.ndarray]) -> Sequence[Any]:
        descriptor: Descriptor = values[op.operands[0]]
        places, inside = descriptor.places(along)
        element = descriptor.kind.pointee
        found = np.full(inside.shape, math.nan if descriptor.nan else 0, numpy_of(element))
        self.barrier(op, values)
        if inside.any():
            found[inside] = self._read(places, inside, element, tma=True)
        return ((nearest_tf32(found) if descriptor.tf32 else found).reshape(op.types[0].shape),)

    def _write_described(
        self, op: TtirOperation, values: ValueTable, along: Sequence[np.ndarray], value: np.ndarray
    ) -> Sequence[Any]:
        descriptor: Descriptor = values[op.operands[0]]
        places, inside = descriptor.places(along)
        if inside.any():
            self._write(places, value.reshape(inside.shape), inside, descriptor.kind.pointee, tma=True)
        self.barrier(op, values)
        return ()

    def descriptor_load(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return self._read_described(op, values, self._block(op, values, 1))

    def descriptor_store(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return self._write_described(op, values, self._block(op, values, 2), np.asarray(values[op.operands[1]]))

    def descriptor_reduce(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        """Atomic updates, which order nothing else."""
        descriptor: Descriptor = values[op.operands[0]]
        places, inside = descriptor.places(self._block(op, values, 2))
        element, how = descriptor.kind.pointee, op.attributes["kind"]
        if how not in DESCRIPTOR_UPDATES:
            raise InterpreterLimit(f"a descriptor updates by {how or 'what is unknown'}, which can't be emulated")
        value = np.asarray(values[op.operands[1]]).reshape(inside.shape)[inside]
        if value.size:
            if self._races is not None:
                self._races.atomic(self._running, places[inside], bytes_of(element), inside, "relaxed", "gpu")
            old = self._memory.load(places[inside], element)
            how = "fadd" if how == "add" and not element.startswith("i") else how
            self._memory.store(places[inside], updated(how, old, value, element), element)
        self.barrier(op, values)
        return ()

    def descriptor_gather(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return self._read_described(op, values, self._rows(op, values))

    def descriptor_scatter(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return self._write_described(op, values, self._rows(op, values), np.asarray(values[op.operands[3]]))
