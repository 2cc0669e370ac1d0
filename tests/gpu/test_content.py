"""What a storage held: described, written to disk, read and made again."""

from __future__ import annotations

import hashlib
import math
import warnings

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base import codec
from kerntune.base.recording import Normal, Storage, Stored, Uniform, Zeros
from kerntune.errors import ReplayError
from kerntune.gpu.compare import FLOATS, SENSIBLE, decode_floats
from kerntune.gpu.memory import INTEGERS, content_bytes, describe_content, encode_floats, standard_normal

STORE_LIMIT = 1 << 16


RANDOM = np.random.default_rng(11)


def remembered(data: bytes, dtype: str) -> tuple[Storage, bytes]:
    """``data`` described, written to disk, read again and made again."""
    content, kept = describe_content(data, dtype)
    storage = msgspec.json.decode(codec.to_json(Storage(len(data), dtype, content)), type=Storage, strict=True)
    made = content_bytes(storage, kept)
    return storage, bytes(len(data)) if made is None else made


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
    huge = np.array([1.0, SENSIBLE, -SENSIBLE, 3.0])
    assert describe_content(huge.tobytes(), "float64") == (Normal(2.0, 1.0), None)


def test_long_rows_of_a_seed_are_drawn_once_and_begin_as_short_ones() -> None:
    short, long = 1 << 16, (1 << 16) + 1
    assert np.shares_memory(standard_normal(3, long), standard_normal(3, 1 << 19))
    assert not np.shares_memory(standard_normal(3, long), standard_normal(3, short))
    assert np.array_equal(standard_normal(3, long)[:short], standard_normal(3, short))


def test_eight_bit_floats_stay_near_one() -> None:
    """Random bytes would be NaN and huge numbers, which no kernel sees and some are slow on."""
    made = content_bytes(Storage(10_000, "float8_e4m3fn", Normal()))
    assert made is not None
    assert 32 <= min(made) <= max(made) < 80


@pytest.mark.parametrize("stored", [None, b"", b"123"])
def test_stored_content_must_be_there_and_fit(stored: bytes | None) -> None:
    with pytest.raises(ReplayError, match="stored content abababababab of a storage is missing or has another size"):
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
