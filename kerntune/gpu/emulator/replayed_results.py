"""A whole recording on memory with given contents: what every storage holds after its launches."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from kerntune.base.recording import Launch, Param, Recording
from kerntune.errors import InterpreterLimit, KernelFault
from kerntune.gpu.emulator.flat_memory import FlatMemory, repeated
from kerntune.gpu.emulator.machine import Machine
from kerntune.gpu.emulator.memory_operations import Descriptor
from kerntune.gpu.emulator.program_order import resident_programs
from kerntune.gpu.emulator.ttir_program import TtirProgram, ValueType, parse_ttir


@dataclass(frozen=True)
class ReplayedResults:
    """Per storage its bytes after the launches; ``outside`` counts bytes beside all storages that were changed."""

    contents: tuple[bytes, ...]
    outside: int


def _nothing(launches: int, memory: FlatMemory) -> frozenset[int]:
    return frozenset()


def replay_results(
    recording: Recording,
    ttir: Mapping[str, str],
    contents: Sequence[bytes | None],
    poison: bytes,
    seconds: float,
    beside: Callable[[int, FlatMemory], frozenset[int]] = _nothing,
) -> ReplayedResults:
    """Run the launches in order. ``ttir`` has the text by its checksum; ``contents`` the first bytes by storage, of one
    without any ``poison`` over and over. Where storages lie, and in which order the programs of a launch run, is drawn
    from the system: a kernel can read the poison, and nothing else may follow from it. ``beside`` is called before each
    launch, and after all, with the launches so far: it returns the storages that it has used.

    :class:`InterpreterLimit`, :class:`KernelFault` and :class:`KernelTimeout` name the kernel.
    """
    deadline = time.monotonic() + seconds
    first = [
        repeated(poison, storage.nbytes) if content is None else np.frombuffer(content, np.uint8)
        for storage, content in zip(recording.storages, contents, strict=True)
    ]
    chance = random.SystemRandom()
    memory = FlatMemory(first, poison, chance)
    drawn: dict[object, np.ndarray] = {}
    running: list[LaunchedStorages] = []
    for number, launch in enumerate(recording.launches):
        used = beside(number, memory)
        running = [(used, used)] if used else running
        if 0 in launch.grid:
            continue
        binary = recording.binary_of(launch)
        text = ttir.get(binary.ttir_sha256)
        try:
            if text is None:
                raise InterpreterLimit("its TTIR is missing")
            if binary.cooperative and math.prod(launch.grid) > (most := resident_programs(binary.num_warps)):
                raise KernelFault(f"a cooperative launch has more than the {most} programs that a GPU holds at once")
            program = parse_ttir(text)
            machine = Machine(program, memory, deadline, chance, binary.num_warps, drawn)
            written = _written_storages(recording, launch, program)
            if binary.pdl and WAITING.search(text):
                raise InterpreterLimit("it waits for other launches by assembly (launch_pdl)")
            running = running if binary.pdl else []
            running.append(_without_overlap(running, recording, launch, written))
            kinds = zip_longest(launch.params, program.argument_types)  # a launch with others is refused
            values = [_value(recording, memory, *one) for one in kinds if one[0] is not None]
            pointers = [(p.name, recording.views[p.view]) for p in launch.params if p.view is not None]
            memory.names = {view.storage: name for name, view in reversed(pointers)}
            machine.launch(values, launch.grid, written)
        except Exception as exc:
            raise type(exc)(f"kernel {launch.kernel}: {exc}") from exc
    beside(len(recording.launches), memory)
    storages = range(len(recording.storages))
    return ReplayedResults(tuple(memory.content(i).tobytes() for i in storages), memory.damage())


WAITING = re.compile(r'tt\.elementwise_inline_asm "[^"]*griddepcontrol\.wait')
"""PTX's instruction for a launch that may begin before others have ended (Parallel Thread Execution ISA, 9.7.13)."""

LaunchedStorages = tuple[frozenset[int], frozenset[int]]
"""The storages that a launch uses, and those among them that it may write."""


def _without_overlap(
    running: Sequence[LaunchedStorages], recording: Recording, launch: Launch, written: Sequence[bool]
) -> LaunchedStorages:
    """The launch's storages. One that may begin before others have ended (``launch_pdl``) and doesn't wait for what
    they write is in a race, a :class:`KernelFault`."""
    uses = recording.pointed_at(launch)
    writes = frozenset(i for i in uses if written[i])
    if common := sorted(i for used, wrote in running for i in (wrote & uses) | (used & writes)):
        raise KernelFault(
            f"a race: it may begin before another launch has ended (launch_pdl), which uses storage {common[0]}, too; "
            "it doesn't wait for that"
        )
    return uses, writes


def _written_storages(recording: Recording, launch: Launch, program: TtirProgram) -> list[bool]:
    """Of each storage, whether the launch may write it."""
    views = [launch.params[i].view for i in program.written if i < len(launch.params)]
    found = {recording.views[view].storage for view in views if view is not None}
    return [number in found for number in range(len(recording.storages))]


def _value(recording: Recording, memory: FlatMemory, param: Param, kind: ValueType | None) -> object:
    view = None if param.view is None else recording.views[param.view]
    address = 0 if view is None else memory.address(view.storage) + view.offset_bytes
    if (spec := param.tensor_map) is not None:
        if kind is None or kind.element != "desc" or spec.fp4_padded:
            raise InterpreterLimit("it takes a tensor descriptor that the host makes, which can't be emulated")
        return Descriptor(address, spec.shape, spec.strides, kind, spec.nan_padding, spec.tf32).checked()
    return address if view is not None or param.value is None else param.value
