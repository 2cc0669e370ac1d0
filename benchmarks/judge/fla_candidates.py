"""Kernels of flash-linear-attention (fla-core) as it is installed, and two calls with a planted error."""

import torch
from fla.modules.activations import logsigmoid, swiglu
from fla.modules.norm.l2norm import l2norm
from fla.modules.norm.layernorm import layer_norm, rms_norm
from fla.modules.rotary import rotary_embedding
from fla.modules.token_shift import token_shift
from fla.ops.attn.parallel import parallel_attn
from fla.ops.delta_rule import fused_recurrent_delta_rule
from fla.ops.gla import fused_recurrent_gla
from fla.ops.hgrn import fused_recurrent_hgrn
from fla.ops.utils import mean_pooling
from fla.ops.utils.cumsum import chunk_global_cumsum, chunk_local_cumsum

__all__ = ["logsigmoid", "swiglu", "token_shift"]


def gated_attention(q, k, v, g):
    return fused_recurrent_gla(q, k, v, g)


def gated_attention_without_scale(q, k, v, g):
    return fused_recurrent_gla(q, k, v, g, scale=1.0)


def delta_rule(q, k, v, b):
    return fused_recurrent_delta_rule(q, k, v, b)[0]


def sums_of_chunks(g):
    return chunk_local_cumsum(g, 16)


def sums_of_chunks_backwards(g):
    return chunk_local_cumsum(g, 16, reverse=True)


def running_sums(g):
    return chunk_global_cumsum(g)


def l2_norm(x):
    return l2norm(x)


def l2_norm_backward(x, g):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(l2norm(x), x, g)[0]


def norm(x, w, b):
    return layer_norm(x, w, b)


def root_norm(x, w):
    return rms_norm(x, w, None)


def add_and_root_norm(x, w, r):
    return rms_norm(x, w, None, residual=r, prenorm=True)


def rotary(x, c, s):
    return rotary_embedding(x, c, s)


def gated_recurrence(x, g):
    return fused_recurrent_hgrn(x, g)[0]


def attention(q, k, v):
    return parallel_attn(q, k, v)


def pooled(x):
    return mean_pooling(x, 16)


def root_norm_gradients(x, w, g):
    own = [one.detach().requires_grad_() for one in (x, w)]
    return torch.autograd.grad(rms_norm(*own, None, eps=1e-6), own, g)
