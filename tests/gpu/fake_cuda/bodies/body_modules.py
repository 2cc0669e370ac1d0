"""Modules on CUDA."""

import copy

import pytest
import torch
from torch import nn


def test_module_moves_trains_and_copies():
    m = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 4))
    m = m.cuda().half().to("cuda")
    copied = copy.deepcopy(m)
    optimizer = torch.optim.AdamW(m.parameters(), lr=1e-3)
    m(torch.randn(8, 32, device="cuda", dtype=torch.half)).float().sum().backward()
    assert all(p.grad.shape == p.shape for p in m.parameters())
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    assert all(p.is_cuda and isinstance(p, nn.Parameter) and p.dtype == torch.half for p in copied.parameters())
    copied.load_state_dict(m.state_dict())


def test_moving_keeps_what_needs_no_move():
    m = nn.Linear(3, 3).cuda()
    before = m.weight
    assert m.cuda().weight is before
    assert m.to(torch.bfloat16).weight.dtype == torch.bfloat16
    assert not m.cpu().weight.is_cuda


@pytest.mark.parametrize("device", [0, "cuda", torch.device("cuda")])
def test_to_device(device):
    assert nn.Linear(2, 2).to(device).weight.is_cuda
    assert nn.Linear(2, 2, device=device).bias.is_cuda


def test_buffers_and_nested_modules():
    m = nn.Sequential(nn.BatchNorm1d(4), nn.Sequential(nn.Conv1d(4, 4, 1))).cuda()
    assert m[0].running_mean.is_cuda
    assert m.train()(torch.randn(2, 4, 8, device="cuda")).shape == (2, 4, 8)


def test_attention_made_under_a_device():
    with torch.device("cuda"):
        m, x = nn.MultiheadAttention(32, 4), torch.randn(5, 2, 32)
    m(x, x, x)[0].sum().backward()
    assert m.in_proj_weight.grad.shape == m.in_proj_weight.shape
    q = torch.randn(1, 2, 8, 16, device="cuda", dtype=torch.half)
    assert torch.nn.functional.scaled_dot_product_attention(q, q, q).shape == q.shape


def test_autocast():
    x = torch.randn(4, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
    torch.amp.GradScaler("cuda").scale(torch.randn((), device="cuda", requires_grad=True)).backward()


def test_compiled_functions_run_eagerly():
    @torch.compile(dynamic=True)
    def double(x):
        return x * 2

    assert double(torch.randn(3, device="cuda")).shape == (3,)
    assert torch.compile(nn.Linear(3, 2).cuda())(torch.randn(1, 3, device="cuda")).shape == (1, 2)
