"""Runs a recording with the driver alone: loaded binaries, bound memory, launches in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import NamedTuple, Union

from kerntune.base.recording import Artifacts, Binary, Launch, Param, Recording
from kerntune.errors import ReplayError
from kerntune.gpu.base import Buffer, Executor, Function, GpuGraph
from kerntune.gpu.memory import Memory, Source, in_place_storages, keep_at_home, used_storages, written_storages

First = Mapping[int, Union[Source, None]]
"""What a program finds in some storages instead of the memory's first content; None for that very content, where
another program on the same memory finds something else."""

ALIKE: First = MappingProxyType({})
"""All programs find the same."""

SCRATCH = (Param("global_scratch", "*i8"), Param("profile_scratch", "*i8"))
"""What every binary takes after the parameters that it names."""


class Loader:
    """Loads each binary once and frees all of them together."""

    def __init__(self, gpu: Executor) -> None:
        self.gpu = gpu
        self._loaded: dict[tuple[str, str], Function] = {}

    def load(self, binary: Binary, artifacts: Artifacts) -> Function:
        """The loaded kernel. :class:`ReplayError` if its bytes are missing or it is for another kind of GPU."""
        key = (binary.sha256, binary.symbol)
        if key not in self._loaded:
            if binary.unreplayable:
                raise ReplayError(f"kernel {binary.symbol}: {binary.unreplayable}")
            if binary.sha256 not in artifacts:
                raise ReplayError(f"kernel {binary.symbol}: its binary {binary.sha256[:12]} is not stored here")
            self._loaded[key] = self.gpu.load(binary, artifacts[binary.sha256])
        return self._loaded[key]

    def close(self) -> None:
        """Unload everything."""
        self.gpu.synchronize()
        for function in self._loaded.values():
            self.gpu.unload(function)
        self._loaded.clear()


class PlacedLaunch(NamedTuple):
    """A launch, but for the addresses of the copy that it runs on: hundreds of copies are prepared for one timing."""

    function: Function
    grid: tuple[int, int, int]
    params: list[Param]
    addresses: list[int | None]
    """0 for each pointer, None for a scalar."""

    views: list[tuple[int, int, int]]
    """Of each pointer into a storage: its place among the parameters, the storage, the offset in bytes."""

    scratch: list[tuple[int, int]]
    """Places of pointers to memory of the launch's own, and how many bytes it needs there."""


class Program:
    """A recording bound to memory: ``enqueue(r)`` runs all its launches on copy ``r``.

    ``cycle`` is how many whole copies there are (None: as many as are asked for); from there on ``r`` has copies of its
    own only of what the launches change and depend on, and takes the others in turn. ``first`` has a program's own
    first content, which it depends on as well.
    """

    def __init__(
        self, loader: Loader, recording: Recording, memory: Memory, artifacts: Artifacts, first: First = ALIKE
    ) -> None:
        self.gpu = loader.gpu
        self.recording = recording
        self.memory = memory
        self.functions = [loader.load(b, artifacts) for b in recording.binaries]
        self.written = written_storages(recording)
        self.first = {i: content for i, content in first.items() if i in used_storages(recording)}
        self.in_place = sorted({*in_place_storages(recording), *self.first})
        memory.will_write([*self.written, *self.first])
        self.cycle: int | None = None
        self._scratch: list[Buffer] = []
        self._calls: dict[int, list[Callable[[], None]]] = {}

    def enqueue(self, replica: int = 0) -> None:
        """Enqueue every launch, in order."""
        if replica not in self._calls:
            self.memory.ensure(replica + 1)
            self._calls[replica] = self.bound(replica)
        for call in self._calls[replica]:
            call()

    def rotate(self, replicas: int, runs: int) -> int:
        """Have ``replicas`` whole copies, and one for each of ``runs`` executions of what is restored. How many copies
        executions have."""
        self.cycle = replicas
        copies = runs if self.in_place else replicas
        self.memory.ensure(copies)
        return copies

    def graph(self, runs: int, replicas: int) -> GpuGraph:
        """``runs`` executions, on each of ``replicas`` copies in turn, as one graph. None of them runs here."""

        def work() -> None:  # a graph keeps its work: it refers to no slot, which would hold the memory in a cycle
            for i in range(runs):
                self.enqueue(i % replicas)

        return self.gpu.graph(work)

    def restore(self, replica: int = 0) -> None:
        """Enqueue the first content back into what the launches change and depend on."""
        self._begin(replica, self.in_place, timing=True)

    def reset(self, replica: int = 0) -> None:
        """Enqueue the first content back into everything the launches write."""
        self._begin(replica, sorted({*self.written, *self.first}))

    def _begin(self, replica: int, storages: Sequence[int], timing: bool = False) -> None:
        own = {i: content for i in storages if (content := self.first.get(i)) is not None}
        self.memory.restore(replica, [i for i in storages if i not in own], timing)
        for i, content in own.items():
            if not (timing and self.memory.may_stay(i, content)):
                self.gpu.copy(self.memory.buffer(replica, i), content.pristine)

    def bound(self, replica: int) -> list[Callable[[], None]]:
        """What enqueues the launches that run any block, each on a copy's memory."""
        return [self._bind(x, replica) for x in self._launches]

    def place(self, replica: int, storage: int) -> Buffer:
        """Where a storage lies for a copy."""
        own = self.cycle is None or storage in self.in_place
        return self.memory.buffer(replica if own else replica % (self.cycle or 1), storage)

    def _bind(self, launch: PlacedLaunch, replica: int) -> Callable[[], None]:
        addresses = [*launch.addresses]
        for place, storage, offset in launch.views:
            addresses[place] = self.place(replica, storage).address + offset
        for place, nbytes in launch.scratch:
            buffer = self.gpu.allocate(nbytes)
            self.gpu.fill(buffer, 0)
            self._scratch.append(buffer)
            addresses[place] = buffer.address
        return self.gpu.prepare(launch.function, launch.grid, launch.params, addresses)

    @cached_property
    def _launches(self) -> list[PlacedLaunch]:
        return [self._placed(launch) for launch in self.recording.launches if 0 not in launch.grid]

    def _placed(self, launch: Launch) -> PlacedLaunch:
        binary, params = self.recording.binary_of(launch), [*launch.params, *SCRATCH]
        views = [(i, self.recording.views[p.view]) for i, p in enumerate(params) if p.view is not None]
        blocks, first = prod(launch.grid) * binary.num_ctas, len(launch.params)
        sizes = (binary.global_scratch.size, binary.profile_scratch.size)
        return PlacedLaunch(
            self.functions[launch.binary],
            launch.grid,
            params,
            [0 if p.type.startswith("*") else None for p in params],
            [(i, view.storage, view.offset_bytes) for i, view in views],
            [(first + i, size * blocks) for i, size in enumerate(sizes) if size],
        )


def memory_at(
    loader: Loader,
    recording: Recording,
    sources: Sequence[Source],
    artifacts: Artifacts,
    index: int,
    *,
    frugal: bool = False,
    spaced: bool = False,
) -> Memory:
    """Memory as launch ``index`` found it: the launches before it are run once, their results become first content.

    ``frugal`` and ``spaced`` as for :class:`Memory`.
    """
    if index == 0:
        return Memory(loader.gpu, recording.storages, sources, frugal=frugal, spaced=spaced)
    before = Memory(loader.gpu, recording.storages, sources, spaced=spaced)
    prefix = recording.but(launches=recording.launches[:index]).pruned()
    Program(loader, prefix, before, artifacts).enqueue()
    changed = set(written_storages(prefix))
    later = [_found(before, i) if i in changed else s for i, s in enumerate(sources)]
    loader.gpu.synchronize()
    return Memory(loader.gpu, recording.storages, later, frugal=frugal, spaced=spaced)


def _found(before: Memory, storage: int) -> Source:
    left, source = before.buffer(0, storage), before.sources[storage]
    if source.home is None:
        return Source(left, shared=False)
    return keep_at_home(before.gpu, left, before.inputs, held=0)
