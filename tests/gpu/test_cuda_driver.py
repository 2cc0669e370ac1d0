"""What is asked of the driver for a kernel, by a library that notes the calls."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import triton

from kerntune.base.device import DeviceSpec, Target
from kerntune.gpu import cuda, cuda_driver, driver_gpu, host_gpus, replay_script

STATIC, MOST = 1024, 232448


class Library:
    """As libcuda: each kernel has some static shared memory, and all calls succeed."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> int:
            self.calls.append((name, *args[1:]))
            if name == "cuFuncGetAttribute":
                args[0]._obj.value = STATIC
            return 0

        return call


@pytest.mark.parametrize(("shared", "reserved"), [(48 << 10, []), ((48 << 10) + 1, [MOST - STATIC])])
def test_a_kernel_beyond_the_static_limit_may_have_all_that_the_device_allows(
    monkeypatch: pytest.MonkeyPatch, shared: int, reserved: list[int]
) -> None:
    library = Library()
    monkeypatch.setattr(cuda_driver, "library", lambda: library)
    binary: Any = SimpleNamespace(symbol="k", shared=shared, num_warps=4, warp_size=32, num_ctas=1)
    cuda_driver.CudaFunction(binary, b"", MOST)
    asked = [
        call[2]
        for call in library.calls
        if call[:2] == ("cuFuncSetAttribute", replay_script.FUNCTION_MAX_DYNAMIC_SHARED)
    ]
    assert asked == reserved


HEADER = Path(triton.__file__).parent / "backends" / "nvidia" / "include" / "cuda.h"
ENUMERATION = re.compile(r"\b(CU_\w+|CUDA_\w+) *= *(0x[0-9a-fA-F]+|\d+)")

DEVICE, FUNCTION, LAUNCH = "CU_DEVICE_ATTRIBUTE_", "CU_FUNC_ATTRIBUTE_", "CU_LAUNCH_ATTRIBUTE_"
NUMBERS = {
    f"{DEVICE}MULTIPROCESSOR_COUNT": driver_gpu.ATTRIBUTES["sm_count"],
    f"{DEVICE}MAX_THREADS_PER_MULTIPROCESSOR": driver_gpu.ATTRIBUTES["max_threads_per_sm"],
    f"{DEVICE}MAX_THREADS_PER_BLOCK": driver_gpu.ATTRIBUTES["max_threads_per_block"],
    f"{DEVICE}MAX_REGISTERS_PER_MULTIPROCESSOR": driver_gpu.ATTRIBUTES["registers_per_sm"],
    f"{DEVICE}MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": driver_gpu.ATTRIBUTES["shared_memory_per_sm"],
    f"{DEVICE}MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": driver_gpu.ATTRIBUTES["shared_memory_per_block"],
    f"{DEVICE}L2_CACHE_SIZE": driver_gpu.ATTRIBUTES["l2_bytes"],
    f"{DEVICE}COMPUTE_CAPABILITY_MAJOR": driver_gpu.MAJOR,
    f"{DEVICE}COMPUTE_CAPABILITY_MINOR": driver_gpu.MINOR,
    f"{DEVICE}COMPUTE_MODE": cuda.COMPUTE_MODE,
    f"{DEVICE}MPS_ENABLED": cuda.MPS_ENABLED,
    "CU_COMPUTEMODE_DEFAULT": cuda.COMPUTE_DEFAULT,
    "CU_COMPUTEMODE_EXCLUSIVE_PROCESS": host_gpus.EXCLUSIVE_PROCESS,
    "CU_POINTER_ATTRIBUTE_MEMORY_TYPE": driver_gpu.MEMORY_TYPE,
    "CU_STREAM_NON_BLOCKING": driver_gpu.STREAM_NON_BLOCKING,
    "CU_STREAM_CAPTURE_MODE_RELAXED": driver_gpu.CAPTURE_RELAXED,
    f"{FUNCTION}MAX_DYNAMIC_SHARED_SIZE_BYTES": replay_script.FUNCTION_MAX_DYNAMIC_SHARED,
    f"{FUNCTION}NUM_REGS": cuda_driver.NUM_REGS,
    f"{FUNCTION}MAX_THREADS_PER_BLOCK": cuda_driver.MAX_THREADS_PER_BLOCK,
    f"{FUNCTION}SHARED_SIZE_BYTES": replay_script.FUNCTION_STATIC_SHARED,
    f"{FUNCTION}NON_PORTABLE_CLUSTER_SIZE_ALLOWED": replay_script.FUNCTION_NON_PORTABLE_CLUSTER,
    "CU_FUNC_CACHE_PREFER_SHARED": replay_script.PREFER_SHARED,
    f"{LAUNCH}COOPERATIVE": replay_script.LAUNCH_COOPERATIVE,
    f"{LAUNCH}CLUSTER_DIMENSION": replay_script.LAUNCH_CLUSTER,
    f"{LAUNCH}CLUSTER_SCHEDULING_POLICY_PREFERENCE": replay_script.LAUNCH_CLUSTER_SCHEDULING,
    f"{LAUNCH}PROGRAMMATIC_STREAM_SERIALIZATION": replay_script.LAUNCH_PDL,
    "CU_CLUSTER_SCHEDULING_POLICY_SPREAD": replay_script.CLUSTER_SCHEDULING_SPREAD,
    "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS": cuda_driver.IPC_LAZY_PEER_ACCESS,
    "CUDA_ERROR_NOT_READY": cuda_driver.CUDA_ERROR_NOT_READY,
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": cuda_driver.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
}


def test_numbers_are_those_of_cuda_h() -> None:
    """Triton's wheels carry the header. Another number asks the driver for something else, without an error."""
    theirs = {name: int(number, 0) for name, number in ENUMERATION.findall(HEADER.read_text(encoding="utf-8"))}
    assert {name: theirs[name] for name in NUMBERS} == NUMBERS


def test_structures_lie_as_the_driver_reads_them() -> None:
    """``CUlaunchAttribute`` and ``CUlaunchConfig`` of cuda.h: an attribute's value at a multiple of eight bytes."""
    attribute, config = replay_script.LaunchAttribute, replay_script.LaunchSettings
    assert (ctypes.sizeof(attribute), attribute.id.offset, attribute.value.offset, attribute.value.size) == (
        72,
        0,
        8,
        64,
    )
    offsets = {name: getattr(config, name).offset for name, _ in config._fields_}
    names = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")
    assert offsets == {
        **{name: 4 * i for i, name in enumerate(names)}, "stream": 32, "attributes": 40, "attribute_count": 48
    }  # fmt: skip
    assert ctypes.sizeof(cuda_driver.IpcHandle) == 64


@pytest.mark.parametrize(
    ("uuid", "node", "name"),
    [("", None, ""), ("8932f937-d72c", "/dev/nvidia12", "GPU 12"), ("8932f937-d72c", None, "GPU-8932f937"),
     ("8932f937-d72c", "/dev/nvidia", "GPU-8932f937")],
)  # fmt: skip
def test_a_gpu_goes_by_its_node_s_number_or_its_uuid(
    monkeypatch: pytest.MonkeyPatch, uuid: str, node: str | None, name: str
) -> None:
    monkeypatch.setattr(host_gpus, "device_node", lambda uuid: Path(node) if node else None)
    spec = DeviceSpec(Target("cuda", "90"), "H200", 132, uuid=uuid)
    assert (host_gpus.gpu_name(spec), host_gpus.gpu_id(spec)) == (name, f"GPU-{uuid}" if uuid else "")
