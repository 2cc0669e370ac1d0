"""Builds a memory plan while a call runs: which storages its launches touch, and what those held before.

Numbers in memory that may be addresses are looked up: whose memory they point into is part of the plan.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import msgspec
import numpy as np

from kerntune.base.recording import LOWEST_ADDRESS, Normal, Param, Storage, Stored, Uniform, View, Zeros
from kerntune.compiling.compiler import Compiled
from kerntune.errors import CaptureError, KerntuneError, MeasurementError, TrialError
from kerntune.gpu.base import Backend, Buffer, Gpu, Tensors
from kerntune.gpu.memory import INTEGERS, STORE_LIMIT, Source, describe_content, keep_at_home, require_memory
from kerntune.kernels.access import Access
from kerntune.kernels.specialize import Specialized, flatten, pointer_views

HIGHEST_ADDRESS = 1 << 57
"""Larger integers are hashes and times: processors and GPUs map at most 57 bits."""


def possible_addresses(data: bytes) -> list[int]:
    """The different 64-bit words that could be addresses, in the order of their first appearance."""
    words = np.frombuffer(data[: len(data) // 8 * 8], "<u8")
    words = words[(words >= LOWEST_ADDRESS) & (words < HIGHEST_ADDRESS)]
    _, first = np.unique(words, return_index=True)
    return [int(w) for w in words[np.sort(first)]]


class Spans:
    """Pieces of memory by address: each its first address, the one after its last, and whose it is.

    What lies inside of another piece is left out: some tensors are windows of memory that others hold whole.
    """

    def __init__(self, spans: Iterable[tuple[int, int, Any]]) -> None:
        self._spans: list[tuple[int, int, Any]] = []
        for span in sorted(spans, key=lambda s: (s[0], -s[1])):
            if not self._spans or span[1] > self._spans[-1][1]:
                self._spans.append(span)
        self._starts = [start for start, _, _ in self._spans]

    def at(self, address: int) -> Any:
        """The owner of the memory that an address lies in; None if there is none."""
        index = bisect_right(self._starts, address) - 1
        return self._spans[index][2] if index >= 0 and address < self._spans[index][1] else None


def holders(tensors: Tensors, addresses: Sequence[int]) -> tuple[list[Any], list[int]]:
    """Tensors over the storages that addresses lie in, one each, in the order of ``addresses``; and the addresses that
    lie in none.

    While such a tensor is alive, its memory isn't used for anything else. This goes through all tensors that Python
    tracks: about 0.1 s where a process has a million objects. Some of them may be frozen (:func:`gc.freeze`): then, if
    that leaves any address, through all that modules lead to, which takes about ten times as long.
    """
    found = _lookup(tensors, addresses, gc.get_objects())
    if gc.get_freeze_count() and None in found.values():
        found = _lookup(tensors, addresses, _reachable())
    held = {id(tensor): tensor for tensor in found.values() if tensor is not None}
    return list(held.values()), [address for address, tensor in found.items() if tensor is None]


def whose(address: int) -> str:
    """Why no tensor holds the memory at an address, as far as that is known: a sentence's end."""
    frozen = gc.get_freeze_count()
    hidden = f" (of {frozen:,} objects under gc.freeze() those were found that modules lead to)" if frozen else ""
    return f"the address {address:#x} lies in memory of no tensor that Python knows{hidden}"


def _lookup(tensors: Tensors, addresses: Sequence[int], things: Iterable[Any]) -> dict[int, Any]:
    alive = Spans(_alive(tensors, things))
    return {address: alive.at(address) for address in addresses}


def _reachable() -> Iterator[Any]:
    """All objects that may refer to others, from what the collector lists, modules and running functions on: it doesn't
    list frozen ones. To unfreeze them would be to change how the process collects, and couldn't be undone."""
    seen: dict[int, Any] = {}
    level = [*gc.get_objects(), sys.modules, *_locals()]
    while level:
        new = {id(x): x for x in level if gc.is_tracked(x) and id(x) not in seen}
        yield from new.values()
        seen |= new
        level = gc.get_referents(*new.values())


LOCALS_STAY_AS_THEY_ARE = sys.version_info >= (3, 13)
"""Before, to ask a function for its variables makes a dictionary that keeps them alive until it ends (PEP 667)."""


def _locals() -> Iterator[Any]:
    """What running functions hold, where asking changes nothing."""
    if LOCALS_STAY_AS_THEY_ARE:
        for top in sys._current_frames().values():
            frame: FrameType | None = top
            while frame is not None:
                yield from frame.f_locals.values()
                frame = frame.f_back


def _alive(tensors: Tensors, things: Iterable[Any]) -> Iterator[tuple[int, int, Any]]:
    import torch

    with torch._C.DisableTorchFunctionSubclass():
        for thing in things:
            if issubclass(type(thing), torch.Tensor):  # isinstance would ask proxies, which may do anything
                with contextlib.suppress(Exception):  # tensors without memory of their own, users' kinds of tensors
                    if tensors.is_tensor(thing) and (size := int(thing.untyped_storage().nbytes())):
                        start = tensors.storage_address(thing)
                        yield start, start + size, thing


TABLES = ("int64", "uint64")
TABLE_LIMIT = 64 << 20
"""Bytes of a tensor of 64-bit integers that are searched for addresses. Pointer tables hold a few entries a group."""

BYTES = ("int8", "uint8", "int32", "uint32")
BYTES_LIMIT = 1 << 16
"""Of other integers, in which structures with addresses (descriptors, say) may be packed: what is larger is data."""

MOST_ADDRESSES = 1 << 16
"""Numbers that may be addresses; asking the driver about one takes about a microsecond."""

SAMPLE_BYTES = 1 << 20
"""What is read of a storage to describe its content; a megabyte tells a distribution."""


class Plan:
    """Storages in the order of their first use. Keeps every tensor it has seen, so that no address is used twice."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tensors: list[Any] = []
        self._dtypes: list[str] = []
        self._sizes: list[int] = []
        self._index: dict[int, int] = {}
        self._views: dict[View, int] = {}
        self._snapshots: dict[int, Buffer] = {}
        self._homes: dict[int, Source] = {}
        self._bytes, self._held_at_home = 0, 0
        self.follows = False
        """Whether a launch follows addresses that it loads or makes: another process's would be others."""

        self.searched = False
        """Whether what a launch may write by such addresses has been looked for."""

        self.unsaved = ""
        """Why launches can't be run again without changing memory that can't be put back."""

    @property
    def views(self) -> tuple[View, ...]:
        """All views, in the order of their indices."""
        return tuple(self._views)

    def storage_of_view(self, view: int) -> int:
        """The storage behind a view."""
        return self.views[view].storage

    def params_of(self, launch: Specialized, compiled: Compiled) -> tuple[Param, ...]:
        """A launch's parameters, each pointer with its view."""
        flat = flatten(launch, compiled.metadata)
        return tuple(
            p if to is None else msgspec.structs.replace(p, view=self.view_of(to, f"kernel {launch.name}: {p.name}"))
            for p, to in flat
        )

    def view_of(self, value: Any, argument: str = "a kernel argument") -> int:
        """The index of a tensor's view; the storage is added if it is new. Errors call it ``argument``."""
        tensor = getattr(value, "base", value) if type(value).__name__ == "TensorWrapper" else value
        if not self._backend.tensors.is_tensor(tensor):
            what = f"a tensor on {tensor.device}" if hasattr(tensor, "device") else f"a {type(tensor).__name__}"
            raise CaptureError(
                f"{argument} is {what}: Triton can only reach the GPU's memory and pinned memory, and kerntune "
                "can only keep and restore torch's tensors on the GPU; in a test, make it with device=autotune.device"
            )
        dtype = str(value.dtype).removeprefix("torch.")
        storage = self._storage(tensor, dtype)
        tensors = self._backend.tensors
        empty = 0 in tensor.shape  # its address is 0
        view = View(
            storage=storage,
            dtype=dtype,
            shape=tuple(int(n) for n in tensor.shape),
            strides=tuple(int(n) for n in tensor.stride()),
            offset_bytes=0 if empty else tensors.address(tensor) - tensors.storage_address(tensor),
        )
        return self._views.setdefault(view, len(self._views))

    def view_in(self, tensor: Any, view: View) -> int:
        """The index of another view of a tensor's storage."""
        view = msgspec.structs.replace(view, storage=self._storage(tensor, view.dtype))
        return self._views.setdefault(view, len(self._views))

    def _refuse_other_gpu(self, tensor: Any) -> None:
        """The memory of the GPU that is launched on is kept and restored, and no other."""
        mine, other = self._backend.ordinal, tensor.device.index
        if other not in (None, mine):
            raise CaptureError(
                f"a kernel on cuda:{mine} follows an address into a tensor on cuda:{other}: what it writes there can't "
                "be put back; have all tensors of a launch on one device"
            )

    def _storage(self, tensor: Any, dtype: str) -> int:
        address = self._backend.tensors.storage_address(tensor)
        if address not in self._index:  # all empty tensors (address 0) are one storage of no bytes
            self._index[address] = len(self._tensors)
            self._tensors.append(tensor)
            self._dtypes.append(dtype)
            self._sizes.append(int(tensor.untyped_storage().nbytes()))
            self._bytes += self._sizes[-1]
        return self._index[address]

    def observe(self, compiled: Compiled, launch: Specialized) -> None:
        """Before a launch: keep what it is about to overwrite."""
        params = self.params_of(launch, compiled)
        self._follow(params, compiled.access, launch.name)
        for index in self.touched(pointer_views(params), compiled.access.writes):
            if index not in self._snapshots and index not in self._homes:
                gpu, original = self._gpu, self._gpu.borrow(self._tensors[index])
                require_memory(gpu, original.nbytes, "keeping the first content of what a kernel writes")
                copy = gpu.allocate(original.nbytes)
                gpu.copy(copy, original)
                self._snapshots[index] = copy

    def look_ahead(self, compiled: Compiled, launch: Specialized) -> None:
        """As :meth:`observe`, for a launch that will work on copies, but for what it reaches by addresses."""
        self._follow(self.params_of(launch, compiled), compiled.access, launch.name)

    def touched(self, views: list[int | None], pointers: Iterable[int]) -> list[int]:
        """Storages behind some of a kernel's pointer parameters."""
        found = {views[i] for i in pointers if i < len(views)}
        return sorted({self.storage_of_view(v) for v in found if v is not None})

    @property
    def _gpu(self) -> Gpu:
        assert self._backend.gpu is not None
        return self._backend.gpu

    # what kernels reach by addresses

    def _follow(self, params: Sequence[Param], access: Access, kernel: str) -> None:
        """Find and keep the memory that a launch may write by addresses among its numbers; or say in :attr:`unsaved`
        why that can't be done."""
        self.follows = self.follows or access.follows
        if not access.beyond or self.unsaved:
            return
        self.searched = True
        numbers = [int(p.value) for p in params if isinstance(p.value, int) and p.value >= LOWEST_ADDRESS]
        tables = {self.storage_of_view(p.view) for p in params if p.view is not None}
        try:
            why = "" if self._reach(numbers, tables) else "none of its arguments holds the address of a tensor"
        except KerntuneError as exc:
            why = str(exc)
        if why:
            self.unsaved = f"kernel {kernel} writes where no argument points ({access.beyond[0]}), and {why}"

    def _reach(self, numbers: list[int], tables: set[int]) -> bool:
        """Use in place what numbers and the words in tables point to, and what tables among that point to. Whether
        there is anything."""
        seen, some = set(tables), False
        while numbers or tables:
            words = [w for table in sorted(tables) for w in possible_addresses(self._words(table))]
            found = self._stay(list(dict.fromkeys([*numbers, *words])))
            some = some or bool(found)
            numbers, tables = [], {i for i in found if self._dtypes[i] in TABLES} - seen
            seen |= tables
        return some

    def _words(self, storage: int) -> bytes:
        dtypes = {self._dtypes[storage], *(v.dtype for v in self._views if v.storage == storage)}
        size = self._sizes[storage]
        if size > TABLE_LIMIT and not dtypes.isdisjoint(TABLES):
            what = f"a tensor of {size >> 20} MiB of 64-bit integers"
            raise MeasurementError(f"{what} is too large to search for addresses")
        limit = BYTES_LIMIT if dtypes.isdisjoint(TABLES) else TABLE_LIMIT
        searched = size <= limit and not dtypes.isdisjoint((*TABLES, *BYTES))
        return self._gpu.read(self._gpu.borrow(self._tensors[storage])) if searched else b""

    def _stay(self, addresses: list[int]) -> list[int]:
        """The storages that addresses lie in, which will be used in place from now on. :class:`MeasurementError` if one
        lies in memory that can't be kept."""
        if len(addresses) > MOST_ADDRESSES:
            raise MeasurementError(f"{len(addresses):,} numbers among its arguments may be addresses")
        mine = self._spans()
        inside = {a: i for a in addresses if (i := mine.at(a)) is not None}
        others = [a for a in addresses if a not in inside and self._gpu.reaches(a)]
        tensors, nobodys = holders(self._backend.tensors, others) if others else ([], [])
        if nobodys:
            raise MeasurementError(whose(nobodys[0]))
        for tensor in tensors:
            self._refuse_other_gpu(tensor)
        found = [*inside.values(), *(self._storage(t, str(t.dtype).removeprefix("torch.")) for t in tensors)]
        for index in dict.fromkeys(found):
            self._keep_at_home(index)
        return found

    def _spans(self) -> Spans:
        return Spans((start, start + self._sizes[i], i) for start, i in self._index.items())

    def _keep_at_home(self, index: int) -> None:
        if index in self._homes:
            return
        original = self._gpu.borrow(self._tensors[index])
        if index in self._snapshots:
            self._homes[index] = Source(self._snapshots[index], shared=False, home=original)
        else:
            self._homes[index] = keep_at_home(self._gpu, original, self._bytes, self._held_at_home)
        self._held_at_home += original.nbytes

    def beyond(self, access: Access) -> list[int]:
        """Storages that a kernel may write by addresses of its own; they are used in place. :class:`TrialError` if they
        weren't looked for before the call ran."""
        if access.beyond and self._backend.gpu is not None and not self.searched:
            why = "which the recorded run did not, so nothing there is kept"
            raise TrialError(f"it writes where no argument points, {why}")
        return sorted(self._homes) if access.beyond else []

    def homes_preserved(self) -> contextlib.AbstractContextManager[None]:
        """Undo what happens meanwhile to memory that is used in place."""
        return self.preserving([self._tensors[i] for i in self._homes])

    def among(self, values: Iterable[Any]) -> dict[int, Any]:
        """Those of some values that are tensors which launches touch, one for each storage."""
        tensors = [value for value in values if self._backend.tensors.is_tensor(value)]
        address = self._backend.tensors.storage_address
        places = ((self._index.get(address(tensor)), tensor) for tensor in tensors)
        return {index: tensor for index, tensor in places if index is not None and self._sizes[index]}

    def tensors(self) -> list[Any]:
        """A tensor of each storage that the launches touch."""
        return list(self._tensors)

    def moved(self) -> bool:
        """Whether a tensor has other memory now than when it was launched on (``x.data = y``)."""
        address = self._backend.tensors.storage_address
        return any(self._index.get(address(tensor)) != index for index, tensor in enumerate(self._tensors))

    def rewind(self) -> None:
        """Put back what storages held before the first launch that wrote them."""
        for index in {**self._snapshots, **self._homes}:
            self._gpu.copy(self._gpu.borrow(self._tensors[index]), self._source(index).pristine)

    @contextlib.contextmanager
    def preserving(self, values: Iterable[Any]) -> Iterator[None]:
        """Undo what happens to the tensors among ``values`` meanwhile."""
        kept = [] if self._backend.gpu is None else self._kept_content(values)
        try:
            yield
        finally:
            for tensor, copy in kept:
                self._gpu.copy(self._gpu.borrow(tensor), copy)

    def _kept_content(self, values: Iterable[Any]) -> list[tuple[Any, Buffer]]:
        """Tensors with copies of their storages, in the host's memory where those would fill the device's."""
        gpu, tensors = self._gpu, [v for v in values if self._backend.tensors.is_tensor(v)]
        inputs, held, kept = sum(gpu.borrow(t).nbytes for t in tensors), 0, []
        for tensor in tensors:
            original = gpu.borrow(tensor)
            kept.append((tensor, keep_at_home(gpu, original, inputs, held).pristine))
            held += original.nbytes
        return kept

    def sources(self) -> list[Source]:
        """Per storage, its first content: a snapshot where a launch wrote, the user's memory where none did."""
        return [self._source(i) for i in range(len(self._tensors))]

    def _source(self, index: int) -> Source:
        if index in self._homes:
            return self._homes[index]
        if index in self._snapshots:
            return Source(self._snapshots[index], shared=False)
        return Source(self._gpu.borrow(self._tensors[index]), shared=True)

    def storages(self, reads: set[int], writes: set[int]) -> tuple[Storage, ...]:
        """Storages as a recording lists them, their content not yet described."""
        return tuple(
            Storage(size, dtype, Zeros(), read=i in reads, written=i in writes)
            for i, (size, dtype) in enumerate(zip(self._sizes, self._dtypes, strict=True))
        )

    def hides_pointers(self, params: Iterable[Param]) -> bool:
        """Whether launches follow addresses of their own, or an integer argument is one of a storage here."""
        large = [int(p.value) for p in params if isinstance(p.value, int) and p.value >= LOWEST_ADDRESS]
        mine = self._spans() if large else Spans(())
        return self.follows or any(mine.at(n) is not None for n in large)


def describe(
    storages: tuple[Storage, ...], sources: list[Source], backend: Backend, store_limit: int = STORE_LIMIT
) -> tuple[tuple[Storage, ...], dict[str, bytes]]:
    """Storages with their content described, and the contents to keep, by checksum. Reads device memory.

    Whole numbers of up to ``store_limit`` bytes are kept as they are.
    """
    gpu, kept, out = backend.gpu, {}, []
    assert gpu is not None
    for seed, (storage, source) in enumerate(zip(storages, sources, strict=True)):
        if not storage.read:
            out.append(storage)
            continue
        kept_whole = storage.dtype in INTEGERS and storage.nbytes <= store_limit
        seen = gpu.read(source.pristine, None if kept_whole else SAMPLE_BYTES)
        content, data = describe_content(seen, storage.dtype, storage.nbytes, store_limit)
        if isinstance(content, (Normal, Uniform)):
            content = msgspec.structs.replace(content, seed=seed)
        if isinstance(content, Stored) and data is not None:
            kept[content.sha256] = data
        out.append(msgspec.structs.replace(storage, content=content))
    return tuple(out), kept
