"""Ops of the package flash-linear-attention, each a function that makes its inputs and calls the op."""

from __future__ import annotations

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
    Ops,
    bound,
    full,
    gate,
    heads,
    labels,
    leaf,
    normal,
    share,
    unit,
)


def chunk_delta_rule_varlen(ops: Any) -> Any:
    q, k, v, beta = (x.detach().flatten(0, 1)[None] for x in (heads(), unit(), heads(), share(HEADS)))
    ends = torch.tensor([0, 300, 700, BATCH * LENGTH], device="cuda")
    return ops.chunk_delta_rule(leaf(q), leaf(k), leaf(v), leaf(beta), cu_seqlens=ends)[0]


def chunk_gated_delta_rule_l2norm(ops: Any) -> Any:
    q, k, v = heads(), heads(), heads()
    return ops.chunk_gated_delta_rule(q, k, v, gate(HEADS), share(HEADS), use_qk_l2norm_in_kernel=True)[0]


def chunk_dplr_delta_rule(ops: Any) -> Any:
    a, b = unit(), unit()
    return ops.chunk_dplr_delta_rule(heads(), unit(), heads(), a, b, gate(HEADS, DIM, dtype=torch.bfloat16))[0]


def chunk_log_linear_attn(ops: Any) -> Any:
    levels = share(HEADS, 10)
    return ops.chunk_log_linear_attn(heads(number=1), heads(number=1), heads(), gate(HEADS), levels)[0]


def chunk_mesa_net(ops: Any) -> Any:
    lamb = leaf(torch.rand(HEADS, DIM, device="cuda") * 0.5 + 0.25)
    return ops.chunk_mesa_net(unit(), unit(), heads(), gate(HEADS), share(HEADS, dtype=torch.float32), lamb)[0]


def parallel_nsa(ops: Any) -> Any:
    q, k, v = heads(number=16), heads(number=1), heads(number=1)
    gates = [share(16) for _ in range(3)]
    return ops.parallel_nsa(q, k, v, *gates, block_counts=4, block_size=32)


def parallel_path_attn(ops: Any) -> Any:
    w, beta = leaf(unit().float()), share(HEADS, dtype=torch.float32)
    return ops.parallel_path_attn(heads(), heads(), heads(), w, beta, gate(HEADS))[0]


def chunk_rwkv7(ops: Any) -> Any:
    decay = leaf(-0.6 * torch.rand(BATCH, LENGTH, HEADS, DIM, device="cuda", dtype=torch.bfloat16))
    return ops.chunk_rwkv7(heads(), decay, unit(), heads(), unit(), unit())[0]


def fused_rms_norm_gated(modules: Any) -> Any:
    layer = modules.FusedRMSNormGated(HIDDEN, device="cuda", dtype=torch.bfloat16)
    return layer(normal(BATCH, LENGTH, HIDDEN), normal(BATCH, LENGTH, HIDDEN))


def layer_norm_module(modules: Any) -> Any:
    layer = modules.LayerNorm(HIDDEN, bias=True, device="cuda", dtype=torch.bfloat16)
    return layer(normal(BATCH, LENGTH, HIDDEN))


def rms_norm_prenorm(modules: Any) -> Any:
    layer = modules.RMSNorm(128, device="cuda", dtype=torch.bfloat16)
    x, residual = normal(BATCH, LENGTH, 128), normal(BATCH, LENGTH, 128)
    return layer(x, residual=residual, prenorm=True)


def group_norm_module(modules: Any) -> Any:
    layer = modules.GroupNorm(8, HIDDEN, device="cuda", dtype=torch.bfloat16)
    return layer(normal(BATCH, LENGTH, HIDDEN))


def short_convolution(modules: Any) -> Any:
    layer = modules.ShortConvolution(HIDDEN, 4, device="cuda", dtype=torch.bfloat16)
    return layer(normal(BATCH, LENGTH, HIDDEN))[0]


def rotary_embedding(modules: Any) -> Any:
    layer = modules.RotaryEmbedding(DIM, device="cuda")
    return layer(heads(), heads())


def fused_kl_div_loss(modules: Any) -> Any:
    weights = normal(4096, 512), normal(4096, 512, grad=False)
    return modules.FusedKLDivLoss()(normal(ROWS, 512), normal(ROWS, 512, grad=False), *weights)


def token_shift(modules: Any) -> Any:
    from fla.modules.token_shift import token_shift as shift

    return shift(full(BATCH, LENGTH, HIDDEN))


def activations_swiglu(modules: Any) -> Any:
    from fla.modules.activations import swiglu

    return swiglu(normal(BATCH, LENGTH, HIDDEN), normal(BATCH, LENGTH, HIDDEN))


def activations_logsigmoid(modules: Any) -> Any:
    from fla.modules.activations import logsigmoid

    return logsigmoid(normal(BATCH, LENGTH, HIDDEN))


CALLS: Ops = {
    "chunk_abc": lambda ops: ops.chunk_abc(heads(), heads(), heads(), heads())[0],
    "parallel_attn": lambda ops: ops.parallel_attn(heads(number=8), heads(number=2), heads(number=2)),
    "fused_attnres": lambda ops: ops.fused_attnres(
        normal(HIDDEN), [normal(2, 128, HIDDEN) for _ in range(3)], normal(HIDDEN)
    ),
    "fused_chunk_based": lambda ops: ops.fused_chunk_based(heads(16), heads(16), heads()),
    "parallel_based": lambda ops: ops.parallel_based(heads(16), heads(16), heads()),
    "chunk_comba": lambda ops: ops.chunk_comba(heads(), unit(), heads(), unit(), gate(HEADS), share(HEADS))[0],
    "chunk_delta_rule": lambda ops: ops.chunk_delta_rule(heads(), unit(), heads(), share(HEADS))[0],
    "chunk_delta_rule_varlen": chunk_delta_rule_varlen,
    "fused_recurrent_delta_rule": lambda ops: ops.fused_recurrent_delta_rule(heads(), unit(), heads(), share(HEADS))[0],
    "parallel_forgetting_attn": lambda ops: ops.parallel_forgetting_attn(heads(), heads(), heads(), gate(HEADS)),
    "chunk_gated_delta_rule": lambda ops: ops.chunk_gated_delta_rule(
        heads(), unit(), heads(), gate(HEADS), share(HEADS)
    )[0],
    "chunk_gated_delta_rule_l2norm": chunk_gated_delta_rule_l2norm,
    "chunk_dplr_delta_rule": chunk_dplr_delta_rule,
    "chunk_iplr_delta_rule": lambda ops: ops.chunk_iplr_delta_rule(heads(), unit(), heads(), unit(), unit())[0],
    "fused_recurrent_iplr_delta_rule": lambda ops: ops.fused_recurrent_iplr_delta_rule(
        heads(), unit(), heads(), unit(), unit()
    )[0],
    "chunk_gla": lambda ops: ops.chunk_gla(heads(), heads(), heads(), gate(HEADS, DIM))[0],
    "fused_recurrent_gla": lambda ops: ops.fused_recurrent_gla(heads(), heads(), heads(), gate(HEADS, DIM))[0],
    "chunk_gsa": lambda ops: ops.chunk_gsa(heads(), heads(), heads(), heads(), gate(HEADS, DIM))[0],
    "fused_recurrent_gsa": lambda ops: ops.fused_recurrent_gsa(heads(), heads(), heads(), heads(), gate(HEADS, DIM))[0],
    "fused_recurrent_hgrn": lambda ops: ops.fused_recurrent_hgrn(
        normal(BATCH, LENGTH, 512), gate(512, dtype=torch.bfloat16)
    )[0],
    "chunk_kda": lambda ops: ops.chunk_kda(heads(), unit(), heads(), gate(HEADS, DIM), share(HEADS))[0],
    "chunk_lightning_attn": lambda ops: ops.chunk_lightning_attn(heads(), heads(), heads(), 3, 12)[0],
    "chunk_linear_attn": lambda ops: ops.chunk_linear_attn(heads(), heads(), heads(), normalize=False)[0],
    "fused_chunk_linear_attn": lambda ops: ops.fused_chunk_linear_attn(heads(), heads(), heads(), normalize=False)[0],
    "fused_recurrent_linear_attn": lambda ops: ops.fused_recurrent_linear_attn(heads(), heads(), heads())[0],
    "chunk_log_linear_attn": chunk_log_linear_attn,
    "chunk_mesa_net": chunk_mesa_net,
    "parallel_nsa": parallel_nsa,
    "parallel_parallax": lambda ops: ops.parallel_parallax(heads(), heads(), heads(), heads()),
    "parallel_path_attn": parallel_path_attn,
    "chunk_retention": lambda ops: ops.chunk_retention(heads(), heads(), heads())[0],
    "fused_chunk_retention": lambda ops: ops.fused_chunk_retention(heads(), heads(), heads())[0],
    "parallel_retention": lambda ops: ops.parallel_retention(heads(), heads(), heads())[0],
    "chunk_rwkv6": lambda ops: ops.chunk_rwkv6(heads(), heads(), heads(), gate(HEADS, DIM), normal(HEADS, DIM))[0],
    "fused_recurrent_rwkv6": lambda ops: ops.fused_recurrent_rwkv6(
        heads(), heads(), heads(), gate(HEADS, DIM), normal(HEADS, DIM)
    )[0],
    "chunk_rwkv7": chunk_rwkv7,
    "chunk_simple_gla": lambda ops: ops.chunk_simple_gla(heads(), heads(), heads(), gate(HEADS))[0],
    "fused_chunk_simple_gla": lambda ops: ops.fused_chunk_simple_gla(heads(), heads(), heads(), gate(HEADS))[0],
    "parallel_simple_gla": lambda ops: ops.parallel_simple_gla(heads(), heads(), heads(), gate(HEADS))[0],
    "parallel_stickbreaking_attn": lambda ops: ops.parallel_stickbreaking_attn(heads(), heads(), heads()),
    "parallel_wall_attn": lambda ops: ops.parallel_wall_attn(heads(), heads(), heads(), gate(HEADS, DIM)),
    "mean_pooling": lambda ops: ops.utils.mean_pooling(heads(), 64),
}

MODULES: Ops = {
    "fused_rms_norm_gated": fused_rms_norm_gated,
    "layer_norm_module": layer_norm_module,
    "rms_norm_prenorm": rms_norm_prenorm,
    "group_norm_module": group_norm_module,
    "short_convolution": short_convolution,
    "rotary_embedding": rotary_embedding,
    "l2_norm": lambda modules: modules.L2Norm()(heads()),
    "fused_cross_entropy_loss": lambda modules: modules.FusedCrossEntropyLoss()(normal(ROWS, VOCABULARY), labels(ROWS)),
    "fused_kl_div_loss": fused_kl_div_loss,
    "fused_linear_cross_entropy_loss": lambda modules: modules.FusedLinearCrossEntropyLoss()(
        normal(ROWS, 512), labels(ROWS), normal(VOCABULARY, 512)
    ),
    "token_shift": token_shift,
    "activations_swiglu": activations_swiglu,
    "activations_logsigmoid": activations_logsigmoid,
}

OPS = {**bound("fla.ops", CALLS), **bound("fla.modules", MODULES)}
