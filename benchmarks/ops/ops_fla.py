"""Ops of the package flash-linear-attention, each a function that makes its inputs and calls the op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.ops.ops_inputs import (
    BATCH,
    DIM,
    HEADS,
    HIDDEN,
    LENGTH,
    ROWS,
    VOCABULARY,
    full,
    gate,
    heads,
    labels,
    leaf,
    normal,
    share,
    unit,
)

OPS: dict[str, Callable[[], Any]] = {}


def op(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter an op under its function's name; the function gets ``fla.ops``."""

    def run() -> Any:
        import fla.ops

        return function(fla.ops)

    OPS[function.__name__] = run
    return function


def module(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """As :func:`op`, for ``fla.modules``."""

    def run() -> Any:
        import fla.modules

        return function(fla.modules)

    OPS[function.__name__] = run
    return function


@op
def chunk_abc(ops: Any) -> Any:
    return ops.chunk_abc(heads(), heads(), heads(), heads())[0]


@op
def parallel_attn(ops: Any) -> Any:
    return ops.parallel_attn(heads(number=8), heads(number=2), heads(number=2))


@op
def fused_attnres(ops: Any) -> Any:
    return ops.fused_attnres(normal(HIDDEN), [normal(2, 128, HIDDEN) for _ in range(3)], normal(HIDDEN))


@op
def fused_chunk_based(ops: Any) -> Any:
    return ops.fused_chunk_based(heads(16), heads(16), heads())


@op
def parallel_based(ops: Any) -> Any:
    return ops.parallel_based(heads(16), heads(16), heads())


@op
def chunk_comba(ops: Any) -> Any:
    return ops.chunk_comba(heads(), unit(), heads(), unit(), gate(HEADS), share(HEADS))[0]


@op
def chunk_delta_rule(ops: Any) -> Any:
    return ops.chunk_delta_rule(heads(), unit(), heads(), share(HEADS))[0]


@op
def chunk_delta_rule_varlen(ops: Any) -> Any:
    q, k, v, beta = (x.detach().flatten(0, 1)[None] for x in (heads(), unit(), heads(), share(HEADS)))
    ends = torch.tensor([0, 300, 700, BATCH * LENGTH], device="cuda")
    return ops.chunk_delta_rule(leaf(q), leaf(k), leaf(v), leaf(beta), cu_seqlens=ends)[0]


@op
def fused_recurrent_delta_rule(ops: Any) -> Any:
    return ops.fused_recurrent_delta_rule(heads(), unit(), heads(), share(HEADS))[0]


@op
def parallel_forgetting_attn(ops: Any) -> Any:
    return ops.parallel_forgetting_attn(heads(), heads(), heads(), gate(HEADS))


@op
def chunk_gated_delta_rule(ops: Any) -> Any:
    return ops.chunk_gated_delta_rule(heads(), unit(), heads(), gate(HEADS), share(HEADS))[0]


@op
def chunk_gated_delta_rule_l2norm(ops: Any) -> Any:
    q, k, v = heads(), heads(), heads()
    return ops.chunk_gated_delta_rule(q, k, v, gate(HEADS), share(HEADS), use_qk_l2norm_in_kernel=True)[0]


@op
def chunk_dplr_delta_rule(ops: Any) -> Any:
    a, b = unit(), unit()
    return ops.chunk_dplr_delta_rule(heads(), unit(), heads(), a, b, gate(HEADS, DIM, dtype=torch.bfloat16))[0]


@op
def chunk_iplr_delta_rule(ops: Any) -> Any:
    return ops.chunk_iplr_delta_rule(heads(), unit(), heads(), unit(), unit())[0]


@op
def fused_recurrent_iplr_delta_rule(ops: Any) -> Any:
    return ops.fused_recurrent_iplr_delta_rule(heads(), unit(), heads(), unit(), unit())[0]


@op
def chunk_gla(ops: Any) -> Any:
    return ops.chunk_gla(heads(), heads(), heads(), gate(HEADS, DIM))[0]


@op
def fused_recurrent_gla(ops: Any) -> Any:
    return ops.fused_recurrent_gla(heads(), heads(), heads(), gate(HEADS, DIM))[0]


@op
def chunk_gsa(ops: Any) -> Any:
    return ops.chunk_gsa(heads(), heads(), heads(), heads(), gate(HEADS, DIM))[0]


@op
def fused_recurrent_gsa(ops: Any) -> Any:
    return ops.fused_recurrent_gsa(heads(), heads(), heads(), heads(), gate(HEADS, DIM))[0]


@op
def fused_recurrent_hgrn(ops: Any) -> Any:
    return ops.fused_recurrent_hgrn(normal(BATCH, LENGTH, 512), gate(512, dtype=torch.bfloat16))[0]


@op
def chunk_kda(ops: Any) -> Any:
    return ops.chunk_kda(heads(), unit(), heads(), gate(HEADS, DIM), share(HEADS))[0]


@op
def chunk_lightning_attn(ops: Any) -> Any:
    return ops.chunk_lightning_attn(heads(), heads(), heads(), 3, 12)[0]


@op
def chunk_linear_attn(ops: Any) -> Any:
    return ops.chunk_linear_attn(heads(), heads(), heads(), normalize=False)[0]


@op
def fused_chunk_linear_attn(ops: Any) -> Any:
    return ops.fused_chunk_linear_attn(heads(), heads(), heads(), normalize=False)[0]


@op
def fused_recurrent_linear_attn(ops: Any) -> Any:
    return ops.fused_recurrent_linear_attn(heads(), heads(), heads())[0]


@op
def chunk_log_linear_attn(ops: Any) -> Any:
    levels = share(HEADS, 10)
    return ops.chunk_log_linear_attn(heads(number=1), heads(number=1), heads(), gate(HEADS), levels)[0]


@op
def chunk_mesa_net(ops: Any) -> Any:
    lamb = leaf(torch.rand(HEADS, DIM, device="cuda") * 0.5 + 0.25)
    return ops.chunk_mesa_net(unit(), unit(), heads(), gate(HEADS), share(HEADS, dtype=torch.float32), lamb)[0]


@op
def parallel_nsa(ops: Any) -> Any:
    q, k, v = heads(number=16), heads(number=1), heads(number=1)
    gates = [share(16) for _ in range(3)]
    return ops.parallel_nsa(q, k, v, *gates, block_counts=4, block_size=32)


@op
def parallel_parallax(ops: Any) -> Any:
    return ops.parallel_parallax(heads(), heads(), heads(), heads())


@op
def parallel_path_attn(ops: Any) -> Any:
    w, beta = leaf(unit().float()), share(HEADS, dtype=torch.float32)
    return ops.parallel_path_attn(heads(), heads(), heads(), w, beta, gate(HEADS))[0]


@op
def chunk_retention(ops: Any) -> Any:
    return ops.chunk_retention(heads(), heads(), heads())[0]


@op
def fused_chunk_retention(ops: Any) -> Any:
    return ops.fused_chunk_retention(heads(), heads(), heads())[0]


@op
def parallel_retention(ops: Any) -> Any:
    return ops.parallel_retention(heads(), heads(), heads())[0]


@op
def chunk_rwkv6(ops: Any) -> Any:
    return ops.chunk_rwkv6(heads(), heads(), heads(), gate(HEADS, DIM), normal(HEADS, DIM))[0]


@op
def fused_recurrent_rwkv6(ops: Any) -> Any:
    return ops.fused_recurrent_rwkv6(heads(), heads(), heads(), gate(HEADS, DIM), normal(HEADS, DIM))[0]


@op
def chunk_rwkv7(ops: Any) -> Any:
    decay = leaf(-0.6 * torch.rand(BATCH, LENGTH, HEADS, DIM, device="cuda", dtype=torch.bfloat16))
    return ops.chunk_rwkv7(heads(), decay, unit(), heads(), unit(), unit())[0]


@op
def chunk_simple_gla(ops: Any) -> Any:
    return ops.chunk_simple_gla(heads(), heads(), heads(), gate(HEADS))[0]


@op
def fused_chunk_simple_gla(ops: Any) -> Any:
    return ops.fused_chunk_simple_gla(heads(), heads(), heads(), gate(HEADS))[0]


@op
def parallel_simple_gla(ops: Any) -> Any:
    return ops.parallel_simple_gla(heads(), heads(), heads(), gate(HEADS))[0]


@op
def parallel_stickbreaking_attn(ops: Any) -> Any:
    return ops.parallel_stickbreaking_attn(heads(), heads(), heads())


@op
def parallel_wall_attn(ops: Any) -> Any:
    return ops.parallel_wall_attn(heads(), heads(), heads(), gate(HEADS, DIM))


@module
def fused_rms_norm_gated(modules: Any) -> Any:
    layer = modules.FusedRMSNormGated(HIDDEN, device="cuda", dtype=torch.bfloat16)
    return layer(normal(BATCH, LENGTH, HIDDEN), normal(BATCH, LENGTH, HIDDEN))


@module
def layer_norm_module(modules: Any) -> Any:
    layer = modules.LayerNorm(HIDDEN, bias=True, device="cuda", dtype=torch.bfloat16)
    return layer(normal(BATCH, LENGTH, HIDDEN))


@module
def rms_norm_prenorm(modules: Any) -> Any:
    layer = modules.RMSNorm(128, device="cuda", dtype=torch.bfloat16)
    x, residual = normal(BATCH, LENGTH, 128), normal(BATCH, LENGTH, 128)
    return layer(x, residual=residual, prenorm=True)


@module
def group_norm_module(modules: Any) -> Any:
    layer = modules.GroupNorm(8, HIDDEN, device="cuda", dtype=torch.bfloat16)
    return layer(normal(BATCH, LENGTH, HIDDEN))


@module
def short_convolution(modules: Any) -> Any:
    layer = modules.ShortConvolution(HIDDEN, 4, device="cuda", dtype=torch.bfloat16)
    return layer(normal(BATCH, LENGTH, HIDDEN))[0]


@module
def rotary_embedding(modules: Any) -> Any:
    layer = modules.RotaryEmbedding(DIM, device="cuda")
    return layer(heads(), heads())


@module
def l2_norm(modules: Any) -> Any:
    return modules.L2Norm()(heads())


@module
def fused_cross_entropy_loss(modules: Any) -> Any:
    return modules.FusedCrossEntropyLoss()(normal(ROWS, VOCABULARY), labels(ROWS))


@module
def fused_kl_div_loss(modules: Any) -> Any:
    weights = normal(4096, 512), normal(4096, 512, grad=False)
    return modules.FusedKLDivLoss()(normal(ROWS, 512), normal(ROWS, 512, grad=False), *weights)


@module
def fused_linear_cross_entropy_loss(modules: Any) -> Any:
    return modules.FusedLinearCrossEntropyLoss()(normal(ROWS, 512), labels(ROWS), normal(VOCABULARY, 512))


@module
def token_shift(modules: Any) -> Any:
    from fla.modules.token_shift import token_shift as shift

    return shift(full(BATCH, LENGTH, HIDDEN))


@module
def activations_swiglu(modules: Any) -> Any:
    from fla.modules.activations import swiglu

    return swiglu(normal(BATCH, LENGTH, HIDDEN), normal(BATCH, LENGTH, HIDDEN))


@module
def activations_logsigmoid(modules: Any) -> Any:
    from fla.modules.activations import logsigmoid

    return logsigmoid(normal(BATCH, LENGTH, HIDDEN))


@op
def mean_pooling(ops: Any) -> Any:
    return ops.utils.mean_pooling(heads(), 64)
