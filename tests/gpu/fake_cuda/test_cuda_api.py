"""What ``torch.cuda`` answers for devices that don't exist: by its replacements, none of which is installed."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.gpu.fake_cuda import cuda_api
from kerntune.gpu.fake_cuda.cuda_api import CUDAGraph, Event, Generator, StreamContext, cuda_stubs, properties
from kerntune.gpu.fake_cuda.driver import DeviceNumbers

H100, A100, T4, MI300 = (TYPICAL_DEVICES[name] for name in ("cuda:90", "cuda:80", "cuda:75", "hip:gfx942"))
MEMORY = 80 << 30


def test_a_device_s_properties_are_its_own() -> None:
    assert vars(properties(H100)) == {
        "name": H100.name, "major": 9, "minor": 0, "total_memory": MEMORY, "multi_processor_count": H100.sm_count,
        "max_threads_per_multi_processor": H100.max_threads_per_sm, "regs_per_multiprocessor": H100.registers_per_sm,
        "max_threads_per_block": H100.max_threads_per_block, "shared_memory_per_block": 48 << 10,
        "shared_memory_per_block_optin": H100.shared_memory_per_block, "warp_size": 32, "gcnArchName": H100.name,
        "shared_memory_per_multiprocessor": H100.shared_memory_per_sm, "L2_cache_size": H100.l2_bytes,
        "clock_rate": 1_980_000, "memory_clock_rate": 2_619_000, "memory_bus_width": 5120, "is_integrated": 0,
        "is_multi_gpu_board": 0, "uuid": H100.uuid,
    }  # fmt: skip
    found = properties(MI300)
    assert (found.gcnArchName, found.major, found.minor, found.warp_size) == ("gfx942", 9, 4, 64)


@pytest.mark.parametrize(
    ("spec", "bf16", "tf32", "arch"),
    [
        (H100, True, True, "sm_90"),
        (A100, True, True, "sm_80"),
        (T4, False, False, "sm_75"),
        (MI300, True, False, "gfx942"),
    ],
    ids=["H100", "A100", "T4", "MI300"],
)
def test_what_a_device_can_do(spec: Any, bf16: bool, tf32: bool, arch: str) -> None:
    stubs = cuda_stubs(DeviceNumbers((spec,)))
    assert (stubs["is_bf16_supported"](), stubs["is_tf32_supported"](), stubs["get_arch_list"]()) == (
        bf16,
        tf32,
        [arch],
    )


def test_of_several_devices_each_answers_for_itself() -> None:
    numbers = DeviceNumbers((H100, A100))
    stubs, accelerator = cuda_stubs(numbers), cuda_api._accelerator_stubs(numbers)
    assert (stubs["device_count"](), accelerator["device_count"](), stubs["current_device"]()) == (2, 2, 0)
    assert (stubs["get_device_capability"](1), stubs["get_device_name"]("cuda:1")) == ((8, 0), A100.name)
    stubs["set_device"](1)
    assert (accelerator["current_device_index"](), accelerator["current_device_idx"](), numbers.current()) == (1, 1, 1)
    assert (stubs["get_device_capability"](), stubs["get_device_properties"]().name) == ((8, 0), A100.name)
    accelerator["set_device_index"](0)
    accelerator["set_device_idx"](0)
    assert stubs["current_device"]() == 0
    for name in ("device", "device_of", "_DeviceGuard"):
        with stubs[name](1):
            assert numbers.current() == 1


ANSWERS: tuple[tuple[Any, str], ...] = (
    (True, "is_available is_initialized"),
    (False, "can_device_access_peer is_current_stream_capturing"),
    (None, "init _lazy_init synchronize ipc_collect _sleep set_stream empty_cache reset_peak_memory_stats seed_all "
           "reset_max_memory_allocated reset_max_memory_cached reset_accumulated_memory_stats set_rng_state seed "
           "set_per_process_memory_fraction manual_seed manual_seed_all set_rng_state_all"),
    (0, "utilization memory_usage device_memory_used temperature power_draw current_blas_handle memory_allocated "
        "max_memory_allocated memory_reserved max_memory_reserved initial_seed"),
    (1980, "clock_rate"),
    ((0, 0), "graph_pool_handle"),
    ((MEMORY, MEMORY), "mem_get_info"),
    ("", "memory_summary"),
)  # fmt: skip


def test_a_device_does_nothing_and_holds_nothing() -> None:
    stubs = cuda_stubs(DeviceNumbers((H100,)))
    found = {name: stubs[name](1, 2, key=3) for _, names in ANSWERS for name in names.split()}
    assert found == {name: answer for answer, names in ANSWERS for name in names.split()}
    assert [type(found[name]) for name in ("is_available", "utilization")] == [bool, int]
    state, (other,) = stubs["get_rng_state"](), stubs["get_rng_state_all"]()
    assert (state.tolist(), state.dtype, other.tolist(), other.dtype) == ([0] * 16, torch.uint8, [0] * 16, torch.uint8)
    assert stubs["memory_stats"](0) == {}
    ranges = cuda_api._nvtx_stubs()
    assert [ranges[name]("x") for name in ("range_push", "range_pop", "range_start", "range_end", "mark")] == [0] * 5
    with ranges["range"]("x") as entered:
        assert entered is None


def test_queues_are_empty_and_events_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    stream, event = cuda_api.Stream(priority=-1), Event(enable_timing=True)
    assert (stream.device, stream.device_index, stream.query(), stream.is_capturing()) == (
        torch.device("cuda", 3), 3, True, False
    )  # fmt: skip
    assert (stream.cuda_stream, stream.stream_id, stream.priority, event.cuda_event) == (0, 0, 0, 0)
    assert (stream == cuda_api.Stream(), stream == event, hash(stream)) == (True, False, 0)
    assert stream.record_event(event) is event
    assert isinstance(stream.record_event(), Event)
    assert (event.query(), event.elapsed_time(event), CUDAGraph().pool()) == (True, 1000.0, (0, 0))
    nothing = (stream.synchronize(), stream.wait_stream(stream), stream.wait_event(event), event.record(stream))
    graph = CUDAGraph(keep_graph=True)
    more = (event.wait(), event.synchronize(), graph.capture_begin(pool=1), graph.capture_end(), graph.reset())
    assert {*nothing, *more, graph.replay()} == {None}
    with stream as entered, StreamContext(graph, pool=1) as inside:
        assert (entered, inside) == (stream, None)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "cpu"])
def test_a_generator_of_the_gpu_draws_on_the_host(device: str) -> None:
    first, second = Generator(device).manual_seed(7), torch.Generator().manual_seed(7)
    assert (first.device, Generator().device) == (torch.device(device), torch.device("cpu"))
    assert torch.equal(torch.rand(4, generator=first), torch.rand(4, generator=second))


@pytest.mark.parametrize("spec", [H100, MI300], ids=["H100", "MI300"])
def test_versions_are_those_of_a_build_for_the_device(monkeypatch: pytest.MonkeyPatch, spec: Any) -> None:
    amd = spec is MI300
    for cuda, hip in ((None, None), ("13.0", "7.1")):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.version, "hip", hip)
        with contextlib.ExitStack() as stack:
            cuda_api._install_versions(stack, spec)
            found = torch.version.cuda, torch.version.hip
        assert found == ((None, hip or "6.4.0") if amd else (cuda or "12.8", None))
        assert (torch.version.cuda, torch.version.hip) == (cuda, hip)
