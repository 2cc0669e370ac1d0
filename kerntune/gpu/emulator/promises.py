"""What hints to the compiler (``tl.multiple_of`` and the like) make of accesses to memory, and of equal numbers.

A thread of a GPU reads or writes several neighbours at once, at the address and under the mask of the first. Where a
hint says that numbers are neighbours which aren't, it reads others. Of numbers said to be equal it computes one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from kerntune.errors import KernelFault
from kerntune.gpu.emulator.axis_info import axis_infos
from kerntune.gpu.emulator.axis_rules import AxisInfo
from kerntune.gpu.emulator.ttir_program import TtirOperation, TtirProgram, ValueType, pointed_bytes

WIDEST = 16
"""Bytes that a thread accesses at once (PTX ISA, ``ld.global.v4``): Triton takes no wider vectors."""

MASK_OPERAND = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}
"""Operations that may access several elements at once, and where their mask is."""

MOST_EQUAL = 16
"""Neighbours, at most, of which a thread computes one where they are said to be equal: as many as bytes of a load."""

ELEMENTWISE = ("arith.", "math.", "tt.clampf", "tt.extern_elementwise", "tt.fp_to_fp", "tt.precise_", "tt.mulhiui")
"""How names of operations begin of which Triton computes equal elements once (its ``ElementwiseOpToLLVMBase.h``)."""

FUNCTIONS = {"contiguity": "tl.max_contiguous", "divisibility": "tl.multiple_of", "constancy": "tl.max_constancy"}


@dataclass(frozen=True)
class HintedAccess:
    """An operation whose threads access ``width`` elements of ``size`` bytes at once, neighbours along ``axis``, by
    ``hints`` alone: without these they would be fewer."""

    axis: int
    width: int
    size: int
    hints: str

    def places(self, addresses: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The addresses that are accessed, and the mask. :class:`KernelFault` where the first of those that go together
        has an address by which a GPU can't access all."""
        along = np.arange(addresses.shape[self.axis])
        first = along // self.width * self.width
        mask = np.take(mask, first, self.axis)
        distance = (along - first).reshape([-1 if i == self.axis else 1 for i in range(addresses.ndim)])
        found = np.take(addresses, first, self.axis) + distance * self.size
        together = self.width * self.size
        wrong = mask & (distance == 0) & (found % together != 0)
        if wrong.any():
            raise KernelFault(
                f"{self.width} elements are accessed at once at {int(found[wrong][0]):#x}, which is no multiple of "
                f"{together}, because of {self.hints}"
            )
        return found, mask

    @contextmanager
    def accessed(
        self, addresses: np.ndarray, mask: np.ndarray, writes: bool
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The same; faults inside name the hints, and so does that of a write elsewhere than at ``addresses``."""
        places, taken = self.places(addresses, mask)
        if (taken == mask).all() and (places == addresses)[mask].all():
            yield addresses, mask
            return
        try:
            if writes:
                raise KernelFault("elements are written elsewhere than the kernel says")
            yield places, taken
        except KernelFault as exc:
            raise KernelFault(f"{exc}: {self.width} are accessed at once because of {self.hints}") from None


@dataclass(frozen=True)
class HintEffects:
    """What hints change in a program. ``accesses`` has operations on memory by their ``id``. ``equal`` has, by value,
    how many neighbours along each axis are as the first of them."""

    accesses: Mapping[int, HintedAccess]
    equal: Mapping[int, tuple[int, ...]]


def hint_effects(program: TtirProgram) -> HintEffects:
    """The operations that hints change, and how."""
    operations = list(program.operations)
    if not any(op.hints for op in operations):
        return HintEffects({}, {})
    with_hints, without = (axis_infos(program, hinted) for hinted in (True, False))
    made_by = {key: op for op in operations for key in op.results}
    accesses: dict[int, HintedAccess] = {}
    equal: dict[int, tuple[int, ...]] = {}
    for op in operations:
        if op.name in MASK_OPERAND:
            kind = program.types[op.operands[0]]
            axis, width = access_width(op, kind, with_hints)
            if width > 1 and (axis, width) != access_width(op, kind, without):
                accesses[id(op)] = HintedAccess(axis, width, pointed_bytes(kind), _told(op, made_by, operations))
        elif op.name.startswith(ELEMENTWISE) and op.types[0].shape and op.results[0] in with_hints:
            key = op.results[0]
            groups = tuple(min(n, MOST_EQUAL) for n in with_hints[key].constancy)
            if key not in without or groups != tuple(min(n, MOST_EQUAL) for n in without[key].constancy):
                equal[key] = groups
    return HintEffects(accesses, equal)


def first_of_groups(value: np.ndarray, groups: tuple[int, ...]) -> np.ndarray:
    """A tensor of which each element is the first of its group."""
    for axis, length in enumerate(groups):
        if length > 1:
            value = np.take(value, np.arange(value.shape[axis]) // length * length, axis)
    return value


def access_width(op: TtirOperation, kind: ValueType, infos: Mapping[int, AxisInfo]) -> tuple[int, int]:
    """The axis along which a thread accesses neighbours, and how many at most (Triton's ``Coalesce.cpp`` and
    ``LoadStoreOpToLLVM.cpp``). A thread that has fewer elements of the tensor accesses fewer. ``kind`` is the type of
    the addresses."""
    pointer, place = infos.get(op.operands[0]), MASK_OPERAND[op.name]
    if not kind.shape or pointer is None or op.attributes.get("atomic_rmw_op", "fadd") != "fadd":
        return 0, 1
    size = pointed_bytes(kind)
    axis = max(range(len(kind.shape)), key=lambda d: (pointer.contiguity[d], d))
    width = min(WIDEST // size, kind.shape[axis], pointer.contiguity[axis], pointer.divisibility[axis] // size)
    if op.operands[place:] and op.operands[place] in infos:
        width = min(width, infos[op.operands[place]].constancy[axis])
    return axis, 1 << max(width, 1).bit_length() - 1


def _told(op: TtirOperation, made_by: Mapping[int, TtirOperation], operations: list[TtirOperation]) -> str:
    """The hints that an access follows from, for a reader."""
    behind, seen = [op], {id(op)}
    for one in behind:  # which grows
        for key in one.operands:
            maker = made_by.get(key)
            if maker is not None and id(maker) not in seen:
                seen.add(id(maker))
                behind.append(maker)
    hinted = [one for one in behind if one.hints] or [one for one in operations if one.hints]
    words = [
        f"{FUNCTIONS[word]} {' x '.join(map(str, numbers))}" for one in hinted for word, numbers in one.hints.items()
    ]
    return f"its hints ({', '.join(dict.fromkeys(words))})"
