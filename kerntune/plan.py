"""Builds a memory plan while a call runs: which storages its launches touch, and what those held before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kerntune.backend.base import Backend, Buffer, Gpu
from kerntune.compile import Compiled
from kerntune.errors import CaptureError
from kerntune.kernels.abi import flatten, pointer_views
from kerntune.kernels.specialize import Specialized
from kerntune.memory import INTEGERS, STORE_LIMIT, Source, describe_content, keep_content, require_memory
from kerntune.recording import LOWEST_ADDRESS, Normal, Param, Storage, Stored, Uniform, View, Zeros

TABLE_LIMIT = 1 << 20
"""Integer tensors up to this many bytes are searched for addresses (pointer tables hold a few entries a group)."""

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

    @property
    def views(self) -> tuple[View, ...]:
        """All views, in the order of their indices."""
        return tuple(self._views)

    def storage_of_view(self, view: int) -> int:
        """The storage behind a view."""
        return self.views[view].storage

    def view_of(self, value: Any) -> int:
        """The index of a tensor's view; the storage is added if it is new."""
        tensor = getattr(value, "base", value) if type(value).__name__ == "TensorWrapper" else value
        if not self._backend.tensors.is_tensor(tensor):
            where = getattr(tensor, "device", type(tensor).__name__)
            raise CaptureError(f"a kernel argument is a tensor on {where}; Triton can only reach tensors on the GPU")
        self._refuse_other_gpu(tensor)
        dtype = str(value.dtype).removeprefix("torch.")
        storage = self._storage(tensor, dtype)
        tensors = self._backend.tensors
        view = View(
            storage=storage,
            dtype=dtype,
            shape=tuple(int(n) for n in tensor.shape),
            strides=tuple(int(n) for n in tensor.stride()),
            offset_bytes=tensors.address(tensor) - tensors.storage_address(tensor),
        )
        return self._views.setdefault(view, len(self._views))

    def _refuse_other_gpu(self, tensor: Any) -> None:
        """One GPU is measured, and its memory alone is kept and restored."""
        mine, other = getattr(self._backend.gpu, "ordinal", 0), tensor.device.index
        if self._backend.gpu is not None and other not in (None, mine):
            raise CaptureError(
                f"a kernel argument is a tensor on cuda:{other}, and this run measures on cuda:{mine} alone; make the "
                "test's tensors on autotune.device (torch.cuda.set_device moves it), or choose the GPU for the whole "
                f"run with CUDA_VISIBLE_DEVICES={other}"
            )

    def _storage(self, tensor: Any, dtype: str) -> int:
        address = self._backend.tensors.storage_address(tensor)
        if address not in self._index:  # all empty tensors (address 0) are one storage of no bytes
            self._index[address] = len(self._tensors)
            self._tensors.append(tensor)
            self._dtypes.append(dtype)
            self._sizes.append(int(tensor.untyped_storage().nbytes()))
        return self._index[address]

    def observe(self, compiled: Compiled, launch: Specialized) -> None:
        """Before a launch: keep what it is about to overwrite."""
        views = pointer_views(flatten(launch, compiled.metadata, self.view_of))
        gpu = self._backend.gpu
        assert gpu is not None
        for index in self.touched(views, compiled.access.writes):
            if index not in self._snapshots:
                self._snapshots[index] = self._clone(self._tensors[index])

    def touched(self, views: list[int | None], pointers: Iterable[int]) -> list[int]:
        """Storages behind some of a kernel's pointer parameters."""
        found = {views[i] for i in pointers if i < len(views)}
        return sorted({self.storage_of_view(v) for v in found if v is not None})

    def _clone(self, tensor: Any) -> Buffer:
        gpu = self._backend.gpu
        assert gpu is not None
        original = gpu.borrow(tensor)
        require_memory(gpu, original.nbytes, "keeping the first content of what a kernel writes")
        copy = gpu.allocate(original.nbytes)
        gpu.copy(copy, original)
        return copy

    def tensors(self) -> list[Any]:
        """A tensor of each storage that the launches touch."""
        return list(self._tensors)

    def rewind(self) -> None:
        """Put back what storages held before the first launch that wrote them."""
        for index, snapshot in self._snapshots.items():
            gpu = self._backend.gpu
            assert gpu is not None
            gpu.copy(gpu.borrow(self._tensors[index]), snapshot)

    @contextlib.contextmanager
    def preserving(self, values: Iterable[Any]) -> Iterator[None]:
        """Undo what happens to the tensors among ``values`` meanwhile."""
        gpu = self._backend.gpu
        tensors = [] if gpu is None else [v for v in values if self._backend.tensors.is_tensor(v)]
        kept = [] if gpu is None else self._kept_content(gpu, tensors)
        try:
            yield
        finally:
            for tensor, copy in kept:
                assert gpu is not None
                gpu.copy(gpu.borrow(tensor), copy)

    def _kept_content(self, gpu: Gpu, tensors: list[Any]) -> list[tuple[Any, Buffer]]:
        """Tensors with copies of their storages, in the host's memory where those would fill the device's."""
        inputs, held, kept = sum(gpu.borrow(t).nbytes for t in tensors), 0, []
        for tensor in tensors:
            original = gpu.borrow(tensor)
            kept.append((tensor, keep_content(gpu, original, inputs, held)))
            held += original.nbytes
        return kept

    def sources(self) -> list[Source]:
        """Per storage, its first content: a snapshot where a launch wrote, the user's memory where none did."""
        gpu = self._backend.gpu
        assert gpu is not None
        return [
            Source(self._snapshots[i], shared=False) if i in self._snapshots else Source(gpu.borrow(t), shared=True)
            for i, t in enumerate(self._tensors)
        ]

    def storages(self, reads: set[int], writes: set[int]) -> tuple[Storage, ...]:
        """Storages as a recording lists them, their content not yet described."""
        return tuple(
            Storage(size, dtype, Zeros(), read=i in reads, written=i in writes)
            for i, (size, dtype) in enumerate(zip(self._sizes, self._dtypes, strict=True))
        )

    def hides_pointers(self, params: Iterable[Param]) -> bool:
        """Whether an integer argument, or an entry of a small integer tensor, is an address in one of the storages."""
        spans = [(a, a + self._sizes[i]) for a, i in self._index.items()]

        def inside(number: int) -> bool:
            return number >= LOWEST_ADDRESS and any(low <= number < high for low, high in spans)

        scalars = [int(p.value) for p in params if isinstance(p.value, int)]
        return any(map(inside, scalars)) or any(map(inside, self._table_entries()))

    def _table_entries(self) -> Iterator[int]:
        gpu = self._backend.gpu
        if gpu is None:
            return
        for i, tensor in enumerate(self._tensors):
            if self._dtypes[i] in ("int64", "uint64") and 0 < self._sizes[i] <= TABLE_LIMIT:
                data = gpu.read(gpu.borrow(tensor))
                yield from memoryview(data[: len(data) // 8 * 8]).cast("Q")


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
