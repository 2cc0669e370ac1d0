"""Launches that a device refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.static.occupancy import cuda_occupancy, launch_violations

H100 = TYPICAL_DEVICES["cuda:90"]
A100 = TYPICAL_DEVICES["cuda:80"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]


def test_within_the_limits() -> None:
    assert launch_violations(H100, registers=64, shared_bytes=232448, threads=1024) == ()
    assert launch_violations(A100, registers=255, shared_bytes=0, threads=256) == ()


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "columns", "expected"),
    [
        (32, 232449, 128, 0, [("shared memory", 232449, 232448)]),
        (32, 0, 2048, 0, [("threads", 2048, 1024)]),
        (72, 0, 1024, 0, [("registers", 73728, 65536)]),
        (65, 0, 1024, 0, [("registers", 73728, 65536)]),
        (256, 0, 128, 0, [("registers", 256, 255)]),
        (32, 0, 128, 513, [("tensor memory", 513, 512)]),
        (128, 300000, 1024, 0, [("shared memory", 300000, 232448), ("registers", 131072, 65536)]),
    ],
)
def test_over_a_limit(
    registers: int, shared: int, threads: int, columns: int, expected: list[tuple[str, int, int]]
) -> None:
    found = launch_violations(
        H100, registers=registers, shared_bytes=shared, threads=threads, tensor_memory_columns=columns
    )
    assert [(v.resource, v.needed, v.limit) for v in found] == expected


def test_a_violation_says_its_numbers() -> None:
    (found,) = launch_violations(A100, registers=32, shared_bytes=200000, threads=128)
    assert str(found) == "shared memory: needs 200,000 bytes a block, the device has 166,912 (33,088 too many)"


def test_amd_registers_are_the_compilers_business() -> None:
    assert launch_violations(MI300, registers=512, shared_bytes=65536, threads=1024) == ()
    (found,) = launch_violations(MI300, registers=512, shared_bytes=65537, threads=1024)
    assert found.resource == "shared memory"


@given(
    st.sampled_from(["cuda:75", "cuda:80", "cuda:86", "cuda:90", "cuda:100", "cuda:120"]),
    st.integers(1, 255),
    st.integers(0, 300000),
    st.integers(1, 64).map(lambda warps: warps * 32),
)
def test_what_cannot_be_launched_has_no_occupancy(device: str, registers: int, shared: int, threads: int) -> None:
    spec = TYPICAL_DEVICES[device]
    over = launch_violations(spec, registers=registers, shared_bytes=shared, threads=threads)
    occupancy = cuda_occupancy(spec, registers=registers, shared_bytes=shared, threads=threads)
    assert bool(over) == (occupancy.blocks == 0)
