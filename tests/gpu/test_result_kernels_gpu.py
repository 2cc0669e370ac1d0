"""The kernels that compare results, on a GPU: they count what numpy counts, in torch's memory and in our own."""

from __future__ import annotations

import numpy as np
import pytest

from kerntune.gpu.base import Buffer, Executor
from kerntune.gpu.number_formats import BITS, FLOAT_FORMATS, INTEGER_FORMATS, NumberFormat, count_differences
from kerntune.gpu.probe import has_cuda
from kerntune.gpu.result_kernels import ResultKernels

NOWHERE = (1 << 64) - 1


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="needs a CUDA GPU")]

FORMATS = {**FLOAT_FORMATS, **INTEGER_FORMATS, "bytes": BITS}
ELEMENTS = 1 << 16


@pytest.fixture(scope="module")
def gpu() -> Executor:
    from kerntune.gpu.driver_gpu import DriverGpu

    return DriverGpu(0)


def put(gpu: Executor, data: bytes) -> Buffer:
    buffer = gpu.allocate(len(data))
    gpu.write(buffer, data)
    return buffer


def sides(kind: NumberFormat, elements: int = ELEMENTS) -> tuple[bytes, bytes, bytes]:
    """All kinds of bits; half of them equal, some near, some not written; and a mask."""
    chance = np.random.default_rng(kind.width)
    a = chance.integers(0, 1 << 8 * kind.width, elements, dtype=np.uint64)
    b = np.where(chance.random(elements) < 0.5, a, a + np.uint64(1))
    b = np.where(chance.random(elements) < 0.1, chance.integers(0, 1 << 8 * kind.width, elements, dtype=np.uint64), b)
    b = np.where(chance.random(elements) < 0.01, np.uint64(kind.poison), b)
    stored = f"<u{kind.width}"
    mask = (chance.random(elements) < 0.01).astype("u1").tobytes()
    return a.astype(stored).tobytes(), b.astype(stored).tobytes(), mask


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_device_counts_what_numpy_counts(gpu: Executor, name: str) -> None:
    kind = FORMATS[name]
    a, b, mask = sides(kind)
    kernels = ResultKernels(gpu)
    x, y, m = put(gpu, a), put(gpu, b), put(gpu, mask)
    for varies, poisoned in ((None, False), (mask, True)):
        expected = count_differences(a, b, varies, kind, poisoned)
        given = m if varies is not None else None
        assert kernels.count(x, y, given, kind, poisoned) == expected
        if expected.ulp:
            wanted = count_differences(a, b, varies, kind, poisoned, expected.ulp)
            assert kernels.count(x, y, given, kind, poisoned, expected.ulp) == wanted
            assert wanted.worst != NOWHERE
    kernels.close()


@pytest.mark.parametrize("size", [1, 15, 16, 17, 4096, (1 << 22) + 3])
def test_equal_bits_are_told_to_the_last_byte(gpu: Executor, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    kernels = ResultKernels(gpu)
    for place in {0, size // 2, size - 1}:
        other = bytearray(data)
        other[place] ^= 0x10
        pairs = [(put(gpu, data), put(gpu, data)), (put(gpu, data), put(gpu, bytes(other)))]
        assert kernels.equal(pairs) == [True, False]
    kernels.close()


def test_pinned_memory_of_the_host_is_read_in_place(gpu: Executor) -> None:
    """What a storage held may have had no room on the device."""
    data = np.random.default_rng(0).bytes(1 << 20)
    device, far = put(gpu, data), gpu.allocate_host(1 << 20)
    gpu.copy(far, device)
    gpu.synchronize()
    kernels = ResultKernels(gpu)
    assert kernels.equal([(far, device)]) == [True]
    gpu.fill(gpu.part(device, 77, 1), data[77] ^ 1)
    assert kernels.equal([(far, device)]) == [False]
    kernels.close()
