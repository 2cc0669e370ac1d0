"""Memory plans: contents described and made again, copies, restores."""

from __future__ import annotations

import hashlib
import math
import warnings
from typing import Any

import msgspec
import numpy as np
import pytest
from host_gpu import HostGpu
from hypothesis import given
from hypothesis import strategies as st
from samples import H100, launch, recording

from kerntune import codec
from kerntune.errors import MeasurementError, ReplayError
from kerntune.memory import (
    FLOATS,
    INTEGERS,
    MAX_REPLICAS,
    STORE_LIMIT,
    Memory,
    Source,
    content_bytes,
    decode_floats,
    describe_content,
    encode_floats,
    in_place_storages,
    make_source,
    require_memory,
    used_storages,
    written_storages,
)
from kerntune.recording import Launch, Normal, Recording, Storage, Stored, Uniform, Zeros

replace = msgspec.structs.replace
RANDOM = np.random.default_rng(11)
SMALL = replace(H100, l2_bytes=1 << 20)


def remembered(data: bytes, dtype: str) -> tuple[Storage, bytes]:
    """``data`` described, written to disk, read again and made again."""
    content, kept = describe_content(data, dtype)
    storage = msgspec.json.decode(codec.to_json(Storage(len(data), dtype, content)), type=Storage, strict=True)
    made = content_bytes(storage, kept)
    return storage, bytes(len(data)) if made is None else made


# what a storage held

FLOAT_TYPES = [*FLOATS, "bfloat16"]
OTHER_TYPES = ["float8_e4m3fn", "float8_e5m2", "complex64"]


@pytest.mark.parametrize("dtype", [*FLOAT_TYPES, *INTEGERS, *OTHER_TYPES])
@pytest.mark.parametrize("nbytes", [0, 8, 4096])
def test_zeros_are_zeros(dtype: str, nbytes: int) -> None:
    assert remembered(bytes(nbytes), dtype) == (Storage(nbytes, dtype, Zeros()), bytes(nbytes))


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (3.0, 0.5), (-100.0, 2.0), (0.001, 0.0001)])
def test_floats_keep_mean_and_spread(dtype: str, mean: float, std: float) -> None:
    data = encode_floats(RANDOM.normal(mean, std, 10_000).astype("f4"), dtype)
    storage, made = remembered(data, dtype)
    assert isinstance(storage.content, Normal)
    assert len(made) == len(data)
    before, after = decode_floats(data, dtype), decode_floats(made, dtype)
    assert after.mean() == pytest.approx(before.mean(), abs=std / 10 + abs(mean) / 100)
    assert after.std() == pytest.approx(before.std(), rel=0.1)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_few_whole_numbers_are_kept_as_they_are(dtype: str) -> None:
    data = RANDOM.integers(0, 2 if dtype == "bool" else 100, 1000).astype(INTEGERS[dtype]).tobytes()
    storage, made = remembered(data, dtype)
    assert storage.content == Stored(hashlib.sha256(data).hexdigest())
    assert made == data


@pytest.mark.parametrize("dtype", INTEGERS)
def test_many_whole_numbers_keep_their_range(dtype: str) -> None:
    kind = np.dtype(INTEGERS[dtype])
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(kind).min, np.iinfo(kind).max)
    numbers = RANDOM.integers(low, high, STORE_LIMIT + 8, dtype=kind, endpoint=True)
    numbers[:2] = low, high
    storage, made = remembered(numbers.tobytes(), dtype)
    assert storage.content == Uniform(int(low), int(high))
    after = np.frombuffer(made, kind)
    assert len(after) == len(numbers)
    assert after.mean(dtype="f8") == pytest.approx(numbers.mean(dtype="f8"), abs=0.02 * (float(high) - float(low)))


@given(st.binary(min_size=1, max_size=200), st.sampled_from(list(INTEGERS)))
def test_any_bytes_of_a_small_integer_storage_come_back(data: bytes, dtype: str) -> None:
    assert remembered(data, dtype)[1] == data


def test_the_start_of_a_large_storage_speaks_for_all_of_it() -> None:
    """Only some of a large storage is read; then its start is no whole content to keep."""
    data = np.arange(100, dtype="<i4").tobytes()
    assert describe_content(data, "int32", len(data)) == describe_content(data, "int32")
    assert describe_content(data, "int32", STORE_LIMIT) == (Stored(hashlib.sha256(data).hexdigest()), data)
    assert describe_content(data, "int32", STORE_LIMIT + 1) == (Uniform(0, 99), None)
    assert describe_content(bytes(400), "int32", 1 << 30) == (Zeros(), None)


@pytest.mark.parametrize("dtype", [*FLOAT_TYPES, *OTHER_TYPES])
@pytest.mark.parametrize("nbytes", [1, 3, 8, 10, 4099])
def test_made_content_has_the_storages_size(dtype: str, nbytes: int) -> None:
    made = content_bytes(Storage(nbytes, dtype, Normal(1.0, 0.1)))
    assert made is not None
    assert len(made) == nbytes
    assert nbytes < 8 or any(made)


def test_made_content_is_the_same_every_time_and_by_seed() -> None:
    made = [content_bytes(Storage(400, "float32", Normal(seed=seed))) for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]
    whole = [content_bytes(Storage(400, "int32", Uniform(0, 99, seed=seed))) for seed in (0, 0, 1)]
    assert whole[0] == whole[1] != whole[2]


def test_numbers_that_are_none_do_not_count() -> None:
    numbers = np.array([1.0, 3.0, np.nan, np.inf, -np.inf, 2.0, 2.0, 2.0], "f4")
    assert describe_content(numbers.tobytes(), "float32") == (Normal(2.0, 0.6325), None)
    assert describe_content(np.full(8, np.nan, "f4").tobytes(), "float32") == (Normal(), None)


def test_eight_bit_floats_stay_near_one() -> None:
    """Random bytes would be NaN and huge numbers, which no kernel sees and some are slow on."""
    made = content_bytes(Storage(10_000, "float8_e4m3fn", Normal()))
    assert made is not None
    assert 32 <= min(made) <= max(made) < 80


@pytest.mark.parametrize("stored", [None, b"", b"123"])
def test_stored_content_must_be_there_and_fit(stored: bytes | None) -> None:
    with pytest.raises(ReplayError, match="abababababab "):
        content_bytes(Storage(4, "int8", Stored("ab" * 32)), stored)


@pytest.mark.parametrize(("numbers", "mean"), [([1000.0], 1000.0), ([2.0, 2.0, 5.0], 3.0)])
def test_short_storages_keep_their_mean(numbers: list[float], mean: float) -> None:
    """A scale, a temperature, an epsilon: one number in device memory."""
    content, _ = describe_content(np.array(numbers, "f4").tobytes(), "float32")
    assert isinstance(content, Normal)
    assert content.mean == mean


def test_garbage_in_fresh_memory_is_no_trouble() -> None:
    """torch.empty's memory is described too; in float64 any bytes may be 1e300."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content, _ = describe_content(np.full(4, 1e308).tobytes(), "float64")
    assert isinstance(content, Normal)
    assert math.isfinite(content.mean)
    assert math.isfinite(content.std)


@pytest.mark.parametrize(("dtype", "std"), [("float16", 6e4), ("float32", 3e38)])
def test_wide_spreads_make_no_warnings(dtype: str, std: float) -> None:
    content_bytes(Storage(4000, dtype, Normal(0.0, std)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_floats_survive_decoding_and_encoding(dtype: str) -> None:
    """All 65,536 of them; NaNs may lose what marks them as signalling."""
    bits = np.arange(1 << 16, dtype="<u2")
    with np.errstate(invalid="ignore"):
        numbers = decode_floats(bits.tobytes(), dtype)
        again = np.frombuffer(encode_floats(numbers.astype("f4"), dtype), "<u2")
    finite = ~np.isnan(numbers)
    assert (again[finite] == bits[finite]).all()
    assert finite.sum() == (1 << 16) - 2 * (1023 if dtype == "float16" else 127)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_decoding_any_bytes_makes_no_warning(dtype: str) -> None:
    signalling = np.array([0x7F800001], "<u4").tobytes() if dtype == "float32" else b"\x81\x7f"
    assert np.isnan(decode_floats(signalling, dtype)).all()


@pytest.mark.parametrize(("number", "bits"), [(1.0, 0x3F80), (-2.0, 0xC000), (0.0, 0), (3.389e38, 0x7F7E)])
def test_bfloat16_is_the_upper_half_of_float32(number: float, bits: int) -> None:
    assert encode_floats(np.array([number], "f4"), "bfloat16") == np.array([bits], "<u2").tobytes()


# who uses what


def using(*launches: tuple[tuple[int, ...], tuple[int, ...]]) -> Recording:
    return recording(launches=tuple(launch(reads=reads, writes=writes) for reads, writes in launches))


@pytest.mark.parametrize(
    ("launches", "used", "written", "in_place"),
    [
        ([], [], [], []),
        ([((0,), (1,))], [0, 1], [1], []),
        ([((0, 1), (1,))], [0, 1], [1], [1]),
        ([((0,), (0,))], [0], [0], [0]),
        ([((0,), (1,)), ((1,), (1,))], [0, 1], [1], []),
        ([((0,), (1,)), ((1,), (0,))], [0, 1], [0, 1], [0]),
        ([((1,), ()), ((), (1,))], [1], [1], [1]),
        ([((), (1,)), ((), (1,)), ((0,), ())], [0, 1], [1], []),
    ],
)
def test_uses(
    launches: list[tuple[tuple[int, ...], tuple[int, ...]]], used: list[int], written: list[int], in_place: list[int]
) -> None:
    a = using(*launches)
    assert (used_storages(a), written_storages(a), in_place_storages(a)) == (used, written, in_place)


def test_an_empty_launch_writes_nothing() -> None:
    writes: Launch = launch(grid=(0, 1, 1), reads=(), writes=(1,))
    a = recording(launches=(writes, launch(reads=(1,), writes=(1,))))
    assert in_place_storages(a) == [1]


# copies


def memory(gpu: Any, *contents: tuple[bytes, bool]) -> Memory:
    storages = [Storage(len(data), "uint8", Zeros(), written=not shared) for data, shared in contents]
    sources = []
    for data, shared in contents:
        buffer = gpu.allocate(len(data))
        gpu.write(buffer, data)
        sources.append(Source(buffer, shared))
    return Memory(gpu, storages, sources)


def test_copy_zero_of_what_nobody_writes_is_the_users_memory() -> None:
    gpu: Any = HostGpu(SMALL)
    made = memory(gpu, (b"read", True), (b"written", False))
    made.ensure(3)
    assert made.replicas == 3
    assert made.buffer(0, 0) is made.sources[0].pristine
    assert made.buffer(0, 1) is not made.sources[1].pristine
    buffers = [made.buffer(r, s) for r in range(3) for s in range(2)]
    assert len({b.address for b in buffers}) == 6
    assert [gpu.read(b) for b in buffers] == [b"read", b"written"] * 3


def test_ensure_makes_only_what_is_missing() -> None:
    gpu: Any = HostGpu(SMALL)
    made = memory(gpu, (b"1234", False))
    first = made.buffer(0, 0)
    made.ensure(2)
    copies = gpu.copies
    made.ensure(2)
    made.ensure(1)
    assert gpu.copies == copies
    assert made.buffer(0, 0) is first


def test_restore_is_for_one_copy_and_some_storages() -> None:
    gpu: Any = HostGpu(SMALL)
    made = memory(gpu, (b"aa", False), (b"bb", False), (b"cc", True))
    made.ensure(2)
    for replica in range(2):
        for storage in range(2):
            gpu.fill(made.buffer(replica, storage), 0)
    made.restore(1, [1, 2])
    assert [gpu.read(made.buffer(0, s)) for s in range(2)] == [b"\0\0", b"\0\0"]
    assert [gpu.read(made.buffer(1, s)) for s in range(2)] == [b"\0\0", b"bb"]
    assert [gpu.read(s.pristine) for s in made.sources] == [b"aa", b"bb", b"cc"]
    copies = gpu.copies
    made.restore(0, [2])
    assert gpu.copies == copies, "the user's own memory is its own first content"


def test_no_room_for_a_copy_leaves_the_ones_there() -> None:
    gpu: Any = HostGpu(SMALL, memory_bytes=1000)
    made = memory(gpu, (bytes(300), False))
    made.ensure(5)
    for replica in (0, 1):
        made.buffer(replica, 0)
    with pytest.raises(MeasurementError):
        made.buffer(2, 0)
    assert gpu.read(made.buffer(1, 0)) == bytes(300)


def plan_of(sizes: list[int], **changes: Any) -> Recording:
    indices = tuple(range(len(sizes)))
    return recording(launches=(launch(reads=indices, writes=indices[-1:]),), **changes)


@pytest.mark.parametrize(
    ("sizes", "free", "replicas"),
    [
        ([4096], 1 << 30, MAX_REPLICAS),
        ([1 << 18, 1 << 18], 1 << 30, 4),
        ([1 << 20, 1], 1 << 30, 2),
        ([1 << 24], 1 << 30, 2),
        ([1 << 24], 4 << 24, 1),
        ([1 << 18, 1 << 18], 12 << 18, 1),
    ],
)
def test_rotation_holds_twice_the_cache_within_a_quarter_of_the_memory(
    sizes: list[int], free: int, replicas: int
) -> None:
    gpu: Any = HostGpu(SMALL, memory_bytes=free)
    made = memory(gpu, *[(bytes(n), True) for n in sizes])
    assert made.rotation(plan_of(sizes)) == replicas


def test_hidden_pointers_forbid_rotation() -> None:
    made = memory(HostGpu(SMALL), (bytes(4096), True))
    assert made.rotation(plan_of([4096], hidden_pointers=True)) == 1


def test_nothing_to_rotate() -> None:
    made = memory(HostGpu(SMALL), (bytes(4096), True))
    assert made.rotation(recording(launches=())) == 1


@given(st.lists(st.integers(1, 1 << 16), min_size=1, max_size=4), st.integers(1 << 19, 1 << 24))
def test_rotation_always_fits(sizes: list[int], free: int) -> None:
    gpu: Any = HostGpu(SMALL, memory_bytes=free)
    made = memory(gpu, *[(bytes(n), True) for n in sizes])
    replicas = made.rotation(plan_of(sizes))
    assert 1 <= replicas <= MAX_REPLICAS
    made.ensure(replicas)
    assert gpu.free_bytes() >= 0


@pytest.mark.parametrize(
    ("content", "stored", "written", "data"),
    [
        (Zeros(), None, True, bytes(8)),
        (Stored("ab" * 32), b"12345678", False, b"12345678"),
        (Uniform(7, 7), None, False, b"\x07" * 8),
    ],
)
def test_sources_from_what_is_stored(content: Any, stored: bytes | None, written: bool, data: bytes) -> None:
    gpu: Any = HostGpu(SMALL)
    source = make_source(gpu, Storage(8, "uint8", content, written=written), stored)
    assert gpu.read(source.pristine) == data
    assert source.shared is not written


def test_require_memory_says_what_for_and_how_much() -> None:
    gpu: Any = HostGpu(SMALL, memory_bytes=1 << 30)
    require_memory(gpu, 1 << 30, "a copy")
    with pytest.raises(MeasurementError, match=r"a copy needs 1\.5 GiB, the device has 1\.0 GiB free"):
        require_memory(gpu, 3 << 29, "a copy")
