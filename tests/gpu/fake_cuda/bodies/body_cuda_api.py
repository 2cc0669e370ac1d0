"""What torch and Triton say of the device."""

import pytest
import torch
import triton

if not torch.cuda.is_available():
    pytest.fail("stand-ins came too late for this module")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_is_not_skipped():
    assert torch.cuda.device_count() == 1


def test_properties():
    assert torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.get_device_name() == "NVIDIA H100"
    properties = torch.cuda.get_device_properties(0)
    assert (properties.multi_processor_count, properties.major, properties.warp_size) == (132, 9, 32)
    assert properties.shared_memory_per_block_optin == 232448
    assert torch.cuda.is_bf16_supported()
    assert torch.version.cuda
    assert torch.version.hip is None
    assert torch.accelerator.current_accelerator().type == "cuda"
    assert torch.get_device_module() is torch.get_device_module(torch.device("cuda", 0)) is torch.cuda
    assert torch.get_device_module("cpu") is torch.cpu


def test_memory_and_seeds():
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory.max_memory_allocated() == 0
    assert torch.cuda.mem_get_info()[1] == torch.cuda.get_device_properties("cuda").total_memory
    torch.cuda.set_rng_state(torch.cuda.get_rng_state())
    with torch.random.fork_rng():
        torch.manual_seed(5)


def test_streams_events_graphs():
    stream, start, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream), torch.cuda.device(0):
        start.record()
        end.record(stream)
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    assert torch.cuda.current_stream().cuda_stream == torch._C._cuda_getCurrentRawStream(0) == 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x = torch.randn(3, device="cuda") * 2
    graph.replay()
    assert x.is_cuda


def test_triton_driver():
    driver = triton.runtime.driver.active
    target = driver.get_current_target()
    assert (target.backend, target.arch, target.warp_size) == ("cuda", 90, 32)
    assert driver.get_active_torch_device() == torch.device("cuda", 0)
    assert driver.utils.get_device_properties(driver.get_current_device())["multiprocessor_count"] == 132
    assert driver.get_device_interface() is torch.cuda
    assert triton.runtime.driver.default is driver
