"""A recording's memory plan made real: buffers on a device, in several copies, with their first content."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from weakref import finalize, ref

from kerntune.base.recording import Content, Normal, Recording, Storage, Stored, Uniform, Zeros
from kerntune.errors import MeasurementError, ReplayError
from kerntune.gpu.base import Buffer, Executor
from kerntune.gpu.compare import FLOATS, SENSIBLE, decode_floats, is_float, whole_elements
from kerntune.gpu.guards import between_zones, guards_bytes

if TYPE_CHECKING:  # as in gpu/compare
    import numpy as np

TILE = 1 << 19
"""Floating-point numbers that are made at most; what holds more repeats them. Kernels see the same distribution, and
64 Mi numbers, which take a second to draw, would be drawn anew in every process of a replay."""


def content_bytes(storage: Storage, stored: bytes | None = None) -> bytes | None:
    """A storage's first content as bytes; None for all zeros. ``stored`` is the artifact of :class:`Stored` content.

    More than :data:`TILE` floating-point numbers are that many, over and over: then only these are given.
    """
    content = storage.content
    if isinstance(content, Zeros):
        return None
    if isinstance(content, Stored):
        if stored is None or len(stored) != storage.nbytes:
            raise ReplayError(f"the stored content {content.sha256[:12]} of a storage is missing or has another size")
        return stored
    import numpy as np

    if isinstance(content, Normal):
        width = np.dtype(FLOATS.get(storage.dtype, "<f2" if storage.dtype == "bfloat16" else "u1")).itemsize
        count = min(TILE, -(-storage.nbytes // width))
        with np.errstate(all="ignore"):
            numbers = standard_normal(content.seed, count) * content.std + content.mean
            return encode_floats(numbers, storage.dtype)[: storage.nbytes]
    kind = np.dtype(INTEGERS.get(storage.dtype, "u1"))
    count = -(-storage.nbytes // kind.itemsize)
    numbers = np.random.default_rng(content.seed).integers(content.low, content.high, count, dtype=kind, endpoint=True)
    return bytes(numbers.tobytes())[: storage.nbytes]


INTEGERS = {"int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "i1", "uint8": "u1", "bool": "u1",
            "uint16": "<u2", "uint32": "<u4", "uint64": "<u8"}  # fmt: skip


def standard_normal(seed: int, count: int) -> np.ndarray:
    """``count`` standard normal numbers, at most :data:`TILE`; a longer row begins as a shorter one does."""
    import numpy as np

    return _standard_tile(seed)[:count] if count > TILE // 8 else np.random.default_rng(seed).standard_normal(count)


@lru_cache(maxsize=8)
def _standard_tile(seed: int) -> np.ndarray:
    """4 MiB each: a process that serves several requests draws them once."""
    import numpy as np

    return np.random.default_rng(seed).standard_normal(TILE)


def encode_floats(numbers: np.ndarray, dtype: str) -> bytes:
    """Numbers as little-endian bytes of a torch dtype; bfloat16 by dropping mantissa bits, float8 as raw bytes
    of small magnitude (exponents around 1), which is what random data looks like to a kernel."""
    if dtype in FLOATS:
        return numbers.astype(FLOATS[dtype]).tobytes()
    if dtype == "bfloat16":
        return (numbers.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return bytes(((abs(numbers) * 16).astype("u1") % 48 + 32).tobytes())


STORE_LIMIT = 1 << 16
"""Integers up to this many bytes are stored as they are: indices, offsets and masks can't be made up."""


def describe_content(
    data: bytes, dtype: str, nbytes: int | None = None, store_limit: int = STORE_LIMIT
) -> tuple[Content, bytes | None]:
    """How to remember what a storage held, and the bytes to keep as an artifact, if any.

    ``data`` is the start of a storage of ``nbytes`` bytes (default: all of it). Whole numbers are kept when they are
    few; many of them, and all floating-point numbers, as a distribution.
    """
    if not any(data):
        return Zeros(), None
    import numpy as np

    if dtype in FLOATS or dtype == "bfloat16":
        found = decode_floats(data, dtype)
        sensible = found[np.isfinite(found) & (np.abs(found) < SENSIBLE)]
        if not sensible.size:
            return Normal(), None
        return Normal(mean=_rounded(sensible.mean()), std=_rounded(sensible.std())), None
    if dtype not in INTEGERS:
        return Normal(), None
    if (len(data) if nbytes is None else nbytes) <= store_limit:
        return Stored(sha256(data).hexdigest()), data
    kind = np.dtype(INTEGERS[dtype])
    numbers = np.frombuffer(whole_elements(data, kind.itemsize), kind)
    return Uniform(int(numbers.min()), int(numbers.max())), None


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


MAX_REPLICAS = 256
ROTATION_FACTOR = 2.0
"""Rotated copies hold this many times the L2 cache, so that none is still cached when its turn comes."""

MEMORY_SHARE = 0.25
"""Of the free device memory, at most this much goes into copies."""

COPY_SHARE, FREE_SHARE = 0.09, 1 / 16
"""A call that fills the card must not take more than a tenth on top; what is small beside the free memory may."""


class Source(NamedTuple):
    """What a storage held before its first use: ``pristine`` is never written.

    ``shared`` is whether copy 0 may be the pristine buffer itself (it is never written). ``home`` is the memory to work
    in where kernels find it by addresses of their own: it has no copies, and is written. ``far``: ``pristine`` is the
    host's.
    """

    pristine: Buffer
    shared: bool
    home: Buffer | None = None
    far: bool = False


def copies_allowed(gpu: Executor, inputs: int, held: int) -> int:
    """Bytes of device memory that further copies of a call's storages may take; the call itself holds ``inputs`` bytes.

    A tenth of what the call holds, or a sixteenth of what is free where that is more; never more than a quarter of
    what is free. ``held`` are the bytes that such copies take already.
    """
    free = gpu.free_bytes() + held
    return int(min(free * MEMORY_SHARE, max(inputs * COPY_SHARE, free * FREE_SHARE))) - held


def keep_at_home(gpu: Executor, buffer: Buffer, inputs: int, held: int) -> Source:
    """A copy of a buffer, for work in the buffer itself: on the device if it may be there, else in pinned memory of
    the host."""
    far = buffer.nbytes > copies_allowed(gpu, inputs, held)
    copy = gpu.allocate_host(buffer.nbytes) if far else gpu.allocate(buffer.nbytes)
    gpu.copy(copy, buffer)
    return Source(copy, shared=False, home=buffer, far=far)


PIECES = 64
LEAST_KEPT = 64 << 20
"""Of what is too large to keep, this many pieces are kept, of so many bytes together at least."""

PIECE_ALIGN = 512


def pieces(nbytes: int, limit: int) -> list[tuple[int, int]]:
    """Offsets and sizes: one piece of ``nbytes`` if that is within ``limit``, else evenly spread ones, the first at the
    start and the last at the end."""
    if nbytes <= limit:
        return [(0, nbytes)] if nbytes else []
    size = max(limit // PIECES // PIECE_ALIGN, 1) * PIECE_ALIGN
    step = (nbytes - size) / (PIECES - 1)
    starts = [int(i * step) // PIECE_ALIGN * PIECE_ALIGN for i in range(PIECES)]
    return [(start, size) for start in starts[:-1]] + [(starts[-1], nbytes - starts[-1])]


class Memory:
    """Buffers for one memory plan. Copy ``r`` of storage ``s`` is ``buffer(r, s)``.

    A buffer is made when it is first asked for: a small kernel's many copies don't copy what only its neighbours use.

    A ``frugal`` memory makes no copy that would raise the device's peak much (:func:`copies_allowed`): it keeps the
    first content in the host's memory, works in the pristine buffer itself, and requires a call of :meth:`give_back`.
    So must every memory of which sources have homes.

    In a ``spaced`` memory every storage has copies of its own, each with unused memory before and behind it: for
    launches that are known to write outside of their tensors. The caller's tensors lie among others; a copy may lie at
    the end of what is mapped, where such a write would end all work of the process on the device.
    """

    def __init__(
        self,
        gpu: Executor,
        storages: Sequence[Storage],
        sources: Sequence[Source],
        frugal: bool = False,
        spaced: bool = False,
    ) -> None:
        self.gpu = gpu
        self.storages = tuple(storages)
        self.inputs = sum(s.nbytes for s in self.storages)
        """Bytes that the call itself holds."""

        self.sources = list(sources)
        """Per storage, its first content."""

        self._copies: list[dict[int, Buffer]] = []
        self._frugal, self._spaced = frugal, spaced
        self._held_bytes, self._spaces = 0, list[Buffer]()
        self.ensure(1)
        self._fill_homes()

    def _fill_homes(self) -> None:
        for source in self.sources:
            if source.home is not None:
                self.gpu.copy(source.home, source.pristine)

    @property
    def replicas(self) -> int:
        """How many copies exist."""
        return len(self._copies)

    def buffer(self, replica: int, storage: int) -> Buffer:
        """One copy of one storage. :class:`MeasurementError` if the device has no room for it."""
        if (home := self.sources[storage].home) is not None:
            return home
        copy = self._copies[replica]
        if storage not in copy:
            copy[storage] = self._make(storage, shareable=replica == 0)
        return copy[storage]

    def _make(self, storage: int, shareable: bool) -> Buffer:
        source = self.sources[storage]
        if source.shared and shareable and not self._spaced:
            return source.pristine
        nbytes = source.pristine.nbytes
        if self._frugal and shareable and nbytes > copies_allowed(self.gpu, self.inputs, self._held_bytes):
            home = self.sources[storage].pristine
            kept = self.gpu.allocate_host(home.nbytes)
            self.gpu.copy(kept, home)
            self.sources[storage] = Source(kept, shared=False, home=home, far=True)
            return home
        if self._spaced:
            before, buffer, behind = between_zones(self.gpu, nbytes)
            self._spaces += [before, behind]
        else:
            buffer = self.gpu.allocate(nbytes)
        self._count(buffer)
        self.gpu.copy(buffer, source.pristine)
        return buffer

    def _count(self, buffer: Buffer) -> None:
        """Count a buffer among those that are held, until it goes."""
        self._held_bytes += buffer.nbytes
        finalize(buffer, _let_go, ref(self), buffer.nbytes).atexit = False

    def give_back(self) -> None:
        """Put the first content back where it was not a copy that was worked in; the memory can't be used on."""
        self._fill_homes()
        self.gpu.synchronize()
        self._copies.clear()
        self._spaces.clear()

    def keep(self, storage: int) -> list[tuple[int, Buffer]]:
        """What copy 0 of a storage holds now, in pieces with their offsets: all of it, or where there is no room for
        that, evenly spread ones."""
        buffer = self.buffer(0, storage)
        allowed = copies_allowed(self.gpu, self.inputs, self._held_bytes)
        kept = []
        for offset, nbytes in pieces(buffer.nbytes, max(allowed // 2, LEAST_KEPT)):
            piece = self.gpu.part(buffer, offset, nbytes)
            source = keep_at_home(self.gpu, piece, self.inputs, self._held_bytes)
            if not source.far:
                self._count(source.pristine)
            kept.append((offset, source.pristine))
        return kept

    def will_write(self, storages: Sequence[int]) -> None:
        """From now on these storages don't share the pristine memory.

        Another config may write what the recorded one only read.
        """
        for index in storages:
            source = self.sources[index]
            if source.shared:
                self.sources[index] = Source(source.pristine, shared=False)
                self._copies[0].pop(index, None)

    def ensure(self, replicas: int) -> None:
        """Let there be ``replicas`` copies at least."""
        self._copies += [{} for _ in range(replicas - len(self._copies))]

    def restore(self, replica: int, storages: Sequence[int], timing: bool = False) -> None:
        """Enqueue the first content back into some storages of one copy.

        For ``timing``, numbers whose first content has moved to the host stay: a card's worth takes seconds to come
        back, and a kernel takes as long for other numbers. Integers, which may be indices, do come back.
        """
        for index in storages:
            buffer = self.buffer(replica, index)
            source = self.sources[index]
            if buffer is not source.pristine and not (timing and self.may_stay(index, source)):
                self.gpu.copy(buffer, source.pristine)

    def may_stay(self, storage: int, source: Source) -> bool:
        """Whether what a storage is to begin with needn't come back for timing: numbers that are the host's."""
        return source.far and is_float(self.storages[storage].dtype)

    def rotation(self, recording: Recording) -> int:
        """How many copies a timer should rotate through: 1 where the call's memory must stay in place."""
        storages = used_storages(recording)
        if recording.hidden_pointers or any(self.sources[i].home is not None for i in storages):
            return 1
        sizes = [max(self.storages[i].nbytes, 256) for i in storages]
        used, space = sum(sizes), guards_bytes() * len(sizes) if self._spaced else 0
        if not used:
            return 1
        wanted = min(MAX_REPLICAS, max(2, int(-(-ROTATION_FACTOR * self.gpu.spec.l2_bytes // used))))
        room = int(self.gpu.free_bytes() * MEMORY_SHARE // (used + space))
        return wanted if wanted <= self.replicas + room else 1


def _let_go(memory: ref[Memory], nbytes: int) -> None:
    if (still := memory()) is not None:
        still._held_bytes -= nbytes


def used_storages(recording: Recording) -> list[int]:
    """Indices of the storages that any launch reads or writes."""
    return sorted({i for launch in recording.launches for i in (*launch.reads, *launch.writes)})


def written_storages(recording: Recording) -> list[int]:
    """Indices of the storages that any launch writes."""
    return sorted({i for launch in recording.launches for i in launch.writes})


def in_place_storages(recording: Recording) -> list[int]:
    """Indices of written storages whose first use is a read: what a launch makes of them depends on what they held."""
    first: dict[int, bool] = {}
    for launch in (x for x in recording.launches if 0 not in x.grid):
        reads = set(launch.reads)
        for i in (*launch.reads, *launch.writes):
            first.setdefault(i, i in reads)
    return [i for i in written_storages(recording) if first.get(i)]


def make_source(gpu: Executor, storage: Storage, stored: bytes | None = None) -> Source:
    """A pristine buffer with the content that a stored recording describes."""
    buffer = gpu.allocate(storage.nbytes)
    data = content_bytes(storage, stored)
    if data is None:
        gpu.fill(buffer, 0)
    else:
        gpu.repeat(buffer, data)
    return Source(buffer, shared=not storage.written)


def require_memory(gpu: Executor, nbytes: int, what: str) -> None:
    """:class:`MeasurementError` if the device has not ``nbytes`` left for ``what``."""
    free = gpu.free_bytes()
    if nbytes > free:
        raise MeasurementError(
            f"{what} needs {nbytes / 2**30:.1f} GiB, the device has {free / 2**30:.1f} GiB free; "
            "use smaller inputs or free memory before the call"
        )
