"""Theoretical occupancy equals NVIDIA's own calculator, the header ``cuda_occupancy.h``."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec, Target
from kerntune.errors import TargetError
from kerntune.static.occupancy import (
    Occupancy,
    Violation,
    amd_occupancy,
    cuda_occupancy,
    launch_violations,
    registers_per_block,
)

CUDA = ["cuda:75", "cuda:80", "cuda:86", "cuda:89", "cuda:90", "cuda:100", "cuda:120"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]
MI355 = TYPICAL_DEVICES["hip:gfx950"]

REGISTERS = [16, 24, 25, 32, 33, 40, 64, 65, 80, 96, 127, 128, 129, 168, 232, 255]
SHARED = [0, 1, 127, 1024, 16384, 16385, 33000, 49152, 65536, 98304, 101376, 101377, 166912, 200000, 232448, 232449]
THREADS = [32, 64, 96, 128, 256, 384, 512, 1024]

PROGRAM = """
#include <cstdio>
#include <climits>
#include "cuda_occupancy.h"
int main() {
    int major, minor, registers, threads, per_sm;
    size_t shared, shared_block, shared_sm;
    while (scanf("%d %d %d %zu %d %d %zu %zu", &major, &minor, &registers, &shared, &threads, &per_sm, &shared_block,
                 &shared_sm) == 8) {
        cudaOccDeviceProp device;
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = per_sm;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 49152;
        device.sharedMemPerBlockOptin = shared_block;
        device.sharedMemPerMultiprocessor = shared_sm;
        device.reservedSharedMemPerBlock = major >= 8 ? 1024 : 0;
        device.numSms = 1;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = registers;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared;
        cudaOccDeviceState state;
        cudaOccResult result;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared)) return 1;
        printf("%d %u\\n", result.activeBlocksPerMultiprocessor, result.limitingFactors);
    }
}
"""
LIMITERS = {1: "threads", 2: "registers", 4: "shared memory", 8: "blocks"}
"""Bits of ``cudaOccLimitingFactor``, in the order in which we name one of several."""


def occupancy(device: str, registers: int, shared: int, threads: int) -> Occupancy:
    return cuda_occupancy(TYPICAL_DEVICES[device], registers=registers, shared_bytes=shared, threads=threads)


def _question(device: str, registers: int, shared: int, threads: int) -> str:
    spec = TYPICAL_DEVICES[device]
    arch = int(spec.target.arch)
    of_device = f"{spec.max_threads_per_sm} {spec.shared_memory_per_block} {spec.shared_memory_per_sm}"
    return f"{arch // 10} {arch % 10} {registers} {shared} {threads} {of_device}"


def test_equal_to_nvidias_header(tmp_path: Path) -> None:
    compiler, wheel = shutil.which("c++") or shutil.which("g++"), importlib.util.find_spec("triton")
    if compiler is None or wheel is None or wheel.origin is None:
        pytest.skip("needs a C++ compiler and Triton, whose wheel carries cuda_occupancy.h")
    headers = Path(wheel.origin).parent / "backends" / "nvidia" / "include"
    source, program = tmp_path / "oracle.cpp", tmp_path / "oracle"
    source.write_text(PROGRAM)
    subprocess.run([compiler, "-I", str(headers), str(source), "-o", str(program)], check=True, capture_output=True)
    points = list(itertools.product(CUDA, REGISTERS, SHARED, THREADS))
    text = "\n".join(_question(*point) for point in points)
    said = subprocess.run([str(program)], input=text, check=True, capture_output=True, text=True).stdout.split("\n")
    assert len(points) == len(said) - 1
    for point, line in zip(points, said, strict=False):
        blocks, factors = map(int, line.split())
        found = occupancy(*point)
        assert found.blocks == blocks, point
        if blocks:
            assert found.limiter == next(name for bit, name in LIMITERS.items() if factors & bit), point


@pytest.mark.parametrize(
    ("point", "blocks", "fraction", "limiter"),
    [
        (("cuda:80", 28, 0, 128), 16, 1.0, "threads"),
        (("cuda:90", 128, 0, 128), 4, 0.25, "registers"),
        (("cuda:90", 129, 0, 128), 3, 0.1875, "registers"),
        (("cuda:90", 32, 49152, 128), 4, 0.25, "shared memory"),
        (("cuda:90", 32, 232448, 128), 1, 0.0625, "shared memory"),
        (("cuda:80", 24, 0, 32), 32, 0.5, "blocks"),
        (("cuda:90", 32, 232449, 128), 0, 0.0, "shared memory"),
        (("cuda:120", 26, 0, 1024), 1, 1024 / 1536, "threads"),
    ],
)
def test_some_points_by_hand(point: tuple[str, int, int, int], blocks: int, fraction: float, limiter: str) -> None:
    assert occupancy(*point) == Occupancy(blocks, fraction, limiter)


_DEVICES = st.sampled_from(CUDA)
_WARPS = st.integers(1, 32)


@given(_DEVICES, st.integers(1, 254), st.integers(0, 240000), _WARPS, st.integers(1, 100))
def test_taking_more_never_helps(device: str, registers: int, shared: int, warps: int, more: int) -> None:
    plain = occupancy(device, registers, shared, warps * 32)
    assert occupancy(device, registers + more, shared, warps * 32).blocks <= plain.blocks
    assert occupancy(device, registers, shared + more * 64, warps * 32).blocks <= plain.blocks
    assert 0 <= plain.fraction <= 1


@given(_DEVICES, st.integers(1, 255), st.integers(0, 240000), _WARPS)
def test_what_is_resident_fits(device: str, registers: int, shared: int, warps: int) -> None:
    spec = TYPICAL_DEVICES[device]
    found = occupancy(device, registers, shared, warps * 32)
    assert found.blocks * warps * 32 <= spec.max_threads_per_sm
    assert found.blocks * warps * 32 * registers <= spec.registers_per_sm
    assert found.blocks * shared <= spec.shared_memory_per_sm


def test_an_unknown_architecture_names_the_known() -> None:
    spec = msgspec.structs.replace(TYPICAL_DEVICES["cuda:90"], target=Target("cuda", "52"))
    with pytest.raises(TargetError, match="no occupancy limits are known for cuda:52"):
        cuda_occupancy(spec, registers=32, shared_bytes=0, threads=128)
    with pytest.raises(TargetError):
        cuda_occupancy(MI300, registers=32, shared_bytes=0, threads=128)


@pytest.mark.parametrize(
    ("spec", "waves", "shared", "warps", "expected"),
    [
        (MI300, 8, 0, 4, Occupancy(8, 1.0, "threads")),
        (MI300, 6, 0, 4, Occupancy(6, 0.75, "registers")),
        (MI300, 8, 32768, 4, Occupancy(2, 0.25, "shared memory")),
        (MI300, 8, 32769, 4, Occupancy(1, 0.125, "shared memory")),
        (MI355, 8, 32769, 4, Occupancy(4, 0.5, "shared memory")),
        (MI300, 8, 0, 1, Occupancy(32, 1.0, "threads")),
        (MI300, 1, 0, 8, Occupancy(0, 0.0, "registers")),
        (MI300, 8, 65537, 4, Occupancy(0, 0.0, "shared memory")),
        (TYPICAL_DEVICES["hip:gfx1100"], 16, 0, 2, Occupancy(16, 1.0, "threads")),
    ],
)
def test_amd(spec: DeviceSpec, waves: int, shared: int, warps: int, expected: Occupancy) -> None:
    assert amd_occupancy(spec, waves_by_registers=waves, shared_bytes=shared, warps=warps) == expected


@pytest.mark.parametrize("device", sorted(d for d in TYPICAL_DEVICES if d.startswith("cuda:")))
def test_every_typical_device_has_its_limits(device: str) -> None:
    """A target that is added needs its number of resident blocks too, or its occupancy would never be known."""
    assert cuda_occupancy(TYPICAL_DEVICES[device], registers=32, shared_bytes=0, threads=128).blocks > 0


# launches that a device refuses


H100 = TYPICAL_DEVICES["cuda:90"]
A100 = TYPICAL_DEVICES["cuda:80"]


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


@pytest.mark.parametrize(("arch", "simds"), [("gfx942", 4), ("gfx1100", 2)])
def test_registers_of_an_amd_unit_are_those_of_its_simds(arch: str, simds: int) -> None:
    spec = msgspec.structs.replace(MI300, target=msgspec.structs.replace(MI300.target, arch=arch))
    assert amd_occupancy(spec, waves_by_registers=3, shared_bytes=0, warps=1).blocks == 3 * simds


@pytest.mark.parametrize(
    ("capability", "blocks"),
    [(75, 16), (80, 32), (86, 16), (87, 16), (88, 16), (89, 24), (90, 32), (100, 32), (101, 24), (103, 32), (110, 24),
     (120, 24), (121, 24)],
)  # fmt: skip
def test_resident_blocks_of_one_warp(capability: int, blocks: int) -> None:
    """CUDA C++ Programming Guide, "Compute Capabilities": the most resident blocks of a multiprocessor."""
    spec = msgspec.structs.replace(TYPICAL_DEVICES["cuda:90"], target=Target("cuda", str(capability)))
    found = cuda_occupancy(spec, registers=16, shared_bytes=0, threads=32)
    assert found == Occupancy(blocks, blocks / 64, "blocks")


@pytest.mark.parametrize(
    ("registers", "warps", "taken"),
    [(1, 1, 4 * 256), (8, 4, 4 * 256), (9, 4, 4 * 512), (32, 5, 8 * 1024), (255, 8, 8 * 8192)],
)
def test_registers_come_in_units_of_a_warp_and_warps_in_fours(registers: int, warps: int, taken: int) -> None:
    assert registers_per_block(H100, registers, warps) == taken


@pytest.mark.parametrize(
    ("device", "shared", "blocks"),
    [("cuda:90", 6272, 32), ("cuda:90", 6273, 31), ("cuda:75", 4096, 16), ("cuda:75", 4097, 15), ("cuda:75", 0, 16)],
)
def test_shared_memory_comes_in_units(device: str, shared: int, blocks: int) -> None:
    """Of 128 bytes with a kibibyte that is the system's, or of 256 before sm_80."""
    found = cuda_occupancy(TYPICAL_DEVICES[device], registers=16, shared_bytes=shared, threads=32)
    assert found.blocks == blocks


@pytest.mark.parametrize(("warps", "blocks"), [(1, 64), (2, 16), (4, 16)])
def test_groups_of_more_than_one_wave_have_sixteen_barriers(warps: int, blocks: int) -> None:
    """Of a compute unit that could hold twice as many waves as there are today."""
    spec = msgspec.structs.replace(MI300, max_threads_per_sm=2 * MI300.max_threads_per_sm)
    found = amd_occupancy(spec, waves_by_registers=16, shared_bytes=0, warps=warps)
    assert (found.blocks, found.fraction) == (blocks, blocks * warps / 64)


@pytest.mark.parametrize(("shared", "blocks"), [(0, 32), (1, 32), (512, 32), (4096, 16), (4097, 14), (65536, 1)])
def test_lds_comes_in_units_of_512_bytes(shared: int, blocks: int) -> None:
    assert amd_occupancy(MI300, waves_by_registers=8, shared_bytes=shared, warps=1).blocks == blocks


@pytest.mark.parametrize(("shared", "blocks"), [(5120, 32), (5121, 25), (6400, 25), (6401, 21)])
def test_lds_of_160_kib_comes_in_units_of_1280_bytes(shared: int, blocks: int) -> None:
    assert amd_occupancy(MI355, waves_by_registers=8, shared_bytes=shared, warps=1).blocks == blocks


@pytest.mark.parametrize(
    ("threads", "blocks"), [(1, 32), (33, 32), (64, 32), (65, 21), (1024, 2), (1025, 0), (2048, 0)]
)
def test_threads_come_in_whole_warps(threads: int, blocks: int) -> None:
    found = cuda_occupancy(H100, registers=16, shared_bytes=0, threads=threads)
    assert found.blocks == blocks


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("shared memory: needs 200,000 bytes a block, the device has 166,912 (33,088 too many)",
         Violation("shared memory", 200000, 166912, "bytes a block")),
        ("threads: needs 2,048 a block, the device has 1,024 (1,024 too many); registers: needs 256",
         Violation("threads", 2048, 1024, "a block")),
        ("it faulted", None),
        ("why: shared memory: needs 200,000 bytes a block, the device has 166,912 (33,088 too many)", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_violation_is_read_from_its_text(text: str, found: Violation | None) -> None:
    assert Violation.from_text(text) == found
    if found is not None:
        assert Violation.from_text(str(found)) == found


def test_a_launch_on_the_limits_is_none_over_them() -> None:
    at = {"registers": 255, "shared_bytes": 232448, "threads": 256, "tensor_memory_columns": 512}
    assert launch_violations(H100, **at) == ()
    (over,) = launch_violations(H100, **{**at, "threads": 257})
    assert str(over) == "registers: needs 98,304 a block, the device has 65,536 (32,768 too many)"
    (amd,) = launch_violations(MI300, registers=9999, shared_bytes=0, threads=1025)
    assert str(amd) == "threads: needs 1,025 a block, the device has 1,024 (1 too many)"
    assert launch_violations(H100, registers=1, shared_bytes=0, threads=32) == ()
