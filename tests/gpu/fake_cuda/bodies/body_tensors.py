"""Making, moving, viewing, copying tensors."""

import copy

import numpy as np
import pytest
import torch


def test_size_costs_nothing():
    assert torch.randn(1 << 45, device="cuda").numel() == 1 << 45
    assert torch.zeros(1 << 40).cuda().is_cuda
    assert torch.arange(1 << 40).numel() == 1 << 40


@pytest.mark.parametrize("device", ["cuda", "cuda:0", 0, torch.device("cuda"), torch.device("cuda", 0)])
def test_every_way_to_name_the_device(device):
    made = [torch.empty(3, device=device), torch.ones(3).to(device), torch.ones(3).cuda()]
    made += [torch.tensor([1.0], device=device), torch.as_tensor(np.ones(3), device=device)]
    made += [torch.ones(3).to(device=device, dtype=torch.half), torch.zeros_like(torch.ones(3), device=device)]
    made += [torch.ones(3).cuda(0), torch.from_numpy(np.ones(3)).to(device, non_blocking=True)]
    assert {str(tensor.device) for tensor in made} == {"cuda:0"}
    assert made[0].get_device() == 0


def test_default_device_and_context():
    with torch.device("cuda"):
        assert torch.randn(3).is_cuda
    torch.set_default_device("cuda")
    try:
        assert torch.randn(3).is_cuda
        assert torch.tensor([1.0]).is_cuda
    finally:
        torch.set_default_device(None)
    assert not torch.randn(3).is_cuda


def test_small_cpu_tensors_are_real():
    n = torch.randint(1, 10, (1,), device="cpu").item()
    assert 1 <= n < 10
    x = torch.randn(n, n)
    assert torch.allclose(x, x)
    assert not torch.allclose(x, x + 1)
    assert x.numpy().shape == (n, n)
    assert [int(i) for i in torch.arange(3)] == [0, 1, 2]
    assert torch.from_numpy(np.ones(3)).sum() == 3
    assert torch.scalar_tensor(1e9).item() == torch.full((), 1e9).item() == 1e9
    with pytest.raises(AssertionError):
        torch.testing.assert_close(x, x + 1)


def test_addresses_show_offsets():
    x, y = torch.randn(100, device="cuda", dtype=torch.half), torch.randn(100, device="cuda")
    assert x.data_ptr() % 256 == 0
    assert x[1:].data_ptr() == x.data_ptr() + 2
    assert x.view(torch.int16)[3:].data_ptr() == x.data_ptr() + 6
    assert x.data_ptr() + 200 <= y.data_ptr() or y.data_ptr() + 400 <= x.data_ptr()
    assert x.clone().data_ptr() != x.data_ptr()


def test_strides_views_and_indexing():
    x = torch.empty_strided((3, 4), (1, 3), device="cuda")
    assert x.stride() == (1, 3)
    assert x.t().is_contiguous()
    assert x[:, 1:].storage_offset() == 3
    x[1:3] = 0
    x[torch.arange(2, device="cuda")] = 1
    assert x[None].expand(5, 3, 4).stride() == (0, 1, 3)
    assert torch.cat([x, x]).shape == (6, 4)
    assert x.to(torch.float8_e4m3fn).dtype == torch.float8_e4m3fn
    assert x.new_zeros(3).is_cuda


def test_copies():
    x = torch.randn(4, device="cuda", requires_grad=True)
    deep, shallow = copy.deepcopy(x), copy.copy(x)
    assert deep.requires_grad
    assert deep.is_leaf
    assert deep.data_ptr() != x.data_ptr()
    assert shallow.data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(x * 2)


def test_pinned_memory_and_streams_change_nothing():
    x = torch.randn(3, pin_memory=True)
    assert torch.equal(x.pin_memory(), x)
    x.cuda(non_blocking=True).record_stream(torch.cuda.current_stream())


def test_generators():
    g = torch.Generator(device="cuda")
    g.manual_seed(3)
    assert g.device.type == "cuda"
    assert isinstance(g, torch.Generator)
    assert torch.randn(4, device="cuda", generator=g).is_cuda
    assert torch.empty(3, device="cuda").normal_(generator=g).is_cuda
    cpu = torch.Generator()
    first = torch.randn(3, generator=cpu.manual_seed(1))
    assert torch.equal(first, torch.randn(3, generator=cpu.manual_seed(1)))


def test_printing_needs_no_value():
    x = torch.randn(3, device="cuda")
    assert "(3,)" in f"{x:.3f}"
    assert "cuda:0" in repr(x)


def test_mixing_devices_or_shapes_still_fails():
    x = torch.randn(4, device="cuda")
    with pytest.raises(RuntimeError):
        x + torch.randn(5, device="cuda")
    with pytest.raises(RuntimeError):
        x + torch.randn(4)
