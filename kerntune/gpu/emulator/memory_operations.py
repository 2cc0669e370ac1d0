"""Operations of TTIR on memory: loads, stores, atomics, and tensor descriptors that the kernel makes itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kerntune.errors import KernelFault
from kerntune.gpu.emulator.elements import bytes_of, numpy_of, updated
from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.program_order import ProgramOrder
from kerntune.gpu.emulator.races import Races, RunningProgram
from kerntune.gpu.emulator.ttir_program import TtirOperation, TtirProgram, ValueType

ValueTable = dict[int, Any]

PAD_NAN = 2
"""``tt.PaddingOption`` (TritonAttrDefs.td): what a descriptor gives outside of its tensor; 0 otherwise."""

DESCRIPTOR_ALIGN = 16
"""Of a descriptor's base and strides but the last, in bytes (CUDA driver API, ``cuTensorMapEncodeTiled``)."""


class MemoryOperations:
    """The part of a machine that accesses memory. Without ``_races`` nothing is known of other accesses."""

    _program: TtirProgram
    _memory: FlatMemory
    _races: Races | None
    _order: ProgramOrder
    _running: RunningProgram

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
        if mask.any():
            if op.attributes.get("volatile"):
                found[mask] = self._volatile(addresses[mask], mask, kind.element)
            else:
                found[mask] = self._read(addresses, mask, kind.element)
        return (found,)

    def _volatile(self, places: np.ndarray, mask: np.ndarray, element: str) -> np.ndarray:
        found = self._memory.load(places, element)
        if self._races is not None:
            self._races.volatile_load(self._running, places, bytes_of(element), mask)
        self._await(places, found)
        return found

    def store(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = self._program.types[op.operands[1]]
        addresses, value, mask = self._with_mask(op, values, kind.shape)
        if mask.any():
            self._write(addresses, value, mask, kind.element)
        return ()

    def atomic(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = op.types[0]
        addresses, value, mask = self._with_mask(op, values, kind.shape)
        old, new = (np.zeros(kind.shape, numpy_of(kind.element)) for _ in range(2))
        distinct = len(np.unique(addresses[mask])) == np.count_nonzero(mask)
        for at in [mask] if distinct else (tuple(index[:, None]) for index in np.argwhere(mask)):
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
        for at in np.ndindex(kind.shape):
            found = self._memory.load(addresses[at].reshape(1), kind.element)
            old[at] = left[at] = found[0]
            if found[0] == expected[at]:
                self._memory.store(addresses[at].reshape(1), np.asarray(new[at]).reshape(1), kind.element)
                left[at] = new[at]
        self._update(op, addresses, np.ones(kind.shape, np.bool_), old, left, kind.element)
        return (old,)

    # descriptors

    def make_descriptor(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        base, *rest = (values[o] for o in op.operands)
        kind = op.types[0]
        rank = len(kind.shape)
        sizes, strides = [int(x) for x in rest[:rank]], [int(x) for x in rest[rank : 2 * rank]]
        apart = [stride * bytes_of(kind.pointee) for stride in strides[:-1]]
        if any(n % DESCRIPTOR_ALIGN for n in (int(base), *apart)):
            raise KernelFault(
                f"a descriptor's base and strides must be multiples of {DESCRIPTOR_ALIGN} bytes; "
                f"they are {int(base):#x} and {apart}"
            )
        outside = math.nan if op.attributes["padding"] == PAD_NAN else 0
        return ((int(base), sizes, strides, kind, outside),)

    def _descriptor_places(
        self, op: TtirOperation, values: ValueTable, first: int
    ) -> tuple[np.ndarray, np.ndarray, ValueType]:
        base, sizes, strides, kind, _ = values[op.operands[0]]
        starts = [int(values[o]) for o in op.operands[first : first + len(sizes)]]
        inside: Any = np.ones(kind.shape, np.bool_)
        place: Any = np.zeros(kind.shape, np.int64)
        for axis, (size, stride, start) in enumerate(zip(sizes, strides, starts, strict=True)):
            along = start + np.arange(kind.shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(sizes))])
            inside, place = inside & (along >= 0) & (along < size), place + along * stride
        return base + place * bytes_of(kind.pointee), np.asarray(inside), kind

    def descriptor_load(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        places, inside, kind = self._descriptor_places(op, values, 1)
        found = np.full(kind.shape, values[op.operands[0]][-1], numpy_of(kind.pointee))
        self.barrier(op, values)
        if inside.any():
            found[inside] = self._read(places, inside, kind.pointee, tma=True)
        return (found.reshape(op.types[0].shape),)

    def descriptor_store(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        places, inside, kind = self._descriptor_places(op, values, 2)
        value = np.asarray(values[op.operands[1]]).reshape(kind.shape)
        if inside.any():
            self._write(places, value, inside, kind.pointee, tma=True)
        self.barrier(op, values)
        return ()
