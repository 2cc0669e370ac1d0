import pytest
import torch
from fla import ops


def t(*shape):
    return torch.randn(shape or (2, 512, 4, 64), device="cuda", dtype=torch.bfloat16, requires_grad=True)


CASES = {
    "chunk_abc": lambda: ops.chunk_abc(t(), t(), t(), t())[0],
    "chunk_delta_rule": lambda: ops.chunk_delta_rule(t(), t(), t(), t(2, 512, 4).sigmoid())[0],
    "chunk_gla": lambda: ops.chunk_gla(t(), t(), t(), -t().exp())[0],
    "chunk_gsa": lambda: ops.chunk_gsa(t(), t(), t(), t(), -t().exp())[0],
    "chunk_lightning_attn": lambda: ops.chunk_lightning_attn(t(), t(), t(), 3, 12)[0],
    "chunk_linear_attn": lambda: ops.chunk_linear_attn(t(), t(), t(), normalize=False)[0],
    "chunk_retention": lambda: ops.chunk_retention(t(), t(), t())[0],
    "fused_chunk_based": lambda: ops.fused_chunk_based(t(2, 512, 4, 16), t(2, 512, 4, 16), t()),
    "fused_chunk_linear_attn": lambda: ops.fused_chunk_linear_attn(t(), t(), t(), normalize=False)[0],
    "fused_recurrent_delta_rule": lambda: ops.fused_recurrent_delta_rule(t(), t(), t(), t(2, 512, 4).sigmoid())[0],
    "fused_recurrent_gla": lambda: ops.fused_recurrent_gla(t(), t(), t(), -t().exp())[0],
    "fused_recurrent_hgrn": lambda: ops.fused_recurrent_hgrn(t(2, 512, 512), -t(2, 512, 512).exp())[0],
    "fused_recurrent_linear_attn": lambda: ops.fused_recurrent_linear_attn(t(), t(), t())[0],
    "fused_recurrent_rwkv6": lambda: ops.fused_recurrent_rwkv6(t(), t(), t(), -t().exp(), t(4, 64))[0],
    "parallel_attn": lambda: ops.parallel_attn(t(2, 512, 8, 64), t(2, 512, 2, 64), t(2, 512, 2, 64)),
    "parallel_based": lambda: ops.parallel_based(t(2, 512, 4, 16), t(2, 512, 4, 16), t()),
    "parallel_forgetting_attn": lambda: ops.parallel_forgetting_attn(t(), t(), t(), -t(2, 512, 4).float().exp()),
    "parallel_retention": lambda: ops.parallel_retention(t(), t(), t())[0],
    "parallel_simple_gla": lambda: ops.parallel_simple_gla(t(), t(), t(), -t(2, 512, 4).float().exp())[0],
    "parallel_stickbreaking_attn": lambda: ops.parallel_stickbreaking_attn(t(), t(), t())[0],
}


@pytest.mark.parametrize("name", CASES)
def test_speed(autotune, name):
    autotune(lambda: (out := CASES[name]()).backward(torch.ones_like(out)))
