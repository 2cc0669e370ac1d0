"""Ops of the package liger-kernel, each a function that makes its inputs, calls the op and returns what it gave."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.ops.ops_inputs import (
    HIDDEN,
    ROWS,
    VOCABULARY,
    Ops,
    bound,
    full,
    labels,
    leaf,
    log_probabilities,
    normal,
    probabilities,
)


def cross_entropy_all_options(ops: Any) -> Any:
    options = (-100, 1e-4, 0.1, "mean", 30.0, True, True, True)
    return ops.LigerCrossEntropyFunction.apply(normal(ROWS, VOCABULARY), labels(ROWS), None, *options)[:2]


def cross_entropy_weighted(ops: Any) -> Any:
    weight = torch.rand(VOCABULARY, device="cuda")
    return ops.LigerCrossEntropyFunction.apply(normal(ROWS, VOCABULARY), labels(ROWS), weight)[0]


def fused_add_rms_norm(ops: Any) -> Any:
    x, residual, weight = normal(ROWS, HIDDEN), normal(ROWS, HIDDEN), normal(HIDDEN)
    return ops.LigerFusedAddRMSNormFunction.apply(x, residual, weight, 1e-6)


def fused_ce_tvd(ops: Any) -> Any:
    student, teacher = normal(ROWS, VOCABULARY), normal(ROWS, VOCABULARY, grad=False)
    return ops.LigerFusedCETVDFunction.apply(student, teacher, labels(ROWS))


def fused_linear_cross_entropy(ops: Any) -> Any:
    hidden, weight = normal(ROWS, 512), normal(VOCABULARY, 512)
    return ops.LigerFusedLinearCrossEntropyFunction.apply(hidden, weight, labels(ROWS))[0]


def fused_linear_jsd(ops: Any) -> Any:
    student, teacher = (normal(ROWS, 512), normal(4096, 512)), (normal(ROWS, 512), normal(4096, 512))
    return ops.LigerFusedLinearJSDFunction.apply(*student, *teacher)


def fused_linear_kl_div(ops: Any) -> Any:
    target = probabilities(ROWS, 4096).detach()
    return ops.LigerFusedLinearKLDivFunction.apply(normal(ROWS, 512), normal(4096, 512), target)


def fused_moe(ops: Any) -> Any:
    experts, chosen = 8, 2
    index = labels(512, chosen, upto=experts).to(torch.int32)
    weights = torch.rand(512, chosen, device="cuda", dtype=torch.bfloat16).requires_grad_()
    gate_up, down = normal(experts, 1024, 512), normal(experts, 512, 512)
    return ops.LigerFusedMoEFunction.apply(normal(512, 512), gate_up, down, index, weights)


def fused_neighborhood_attention(ops: Any) -> Any:
    q, k, v = (full(2, 4, 256, 64) for _ in range(3))
    return ops.LigerFusedNeighborhoodAttentionFunction.apply(q, k, v, 7, 1, None)


def grpo_loss(ops: Any) -> Any:
    batch, length = 4, 128
    old, reference = (torch.rand(batch, length, device="cuda") for _ in range(2))
    mask = torch.ones(batch, length, device="cuda", dtype=torch.int32)
    ids, advantages = labels(batch, length, upto=4096), torch.randn(batch, device="cuda")
    logits = normal(batch, length + 1, 4096)
    return ops.GrpoLossFunction.apply(
        logits, -old, -reference, ids, advantages, mask, 0.9, 0.04, 0.2, 0.4, False, "grpo"
    )[0]


def jsd_with_labels(ops: Any) -> Any:
    p, q = log_probabilities(ROWS, 4096), log_probabilities(ROWS, 4096).detach()
    return ops.LigerJSDFunction.apply(p, q, labels(ROWS, upto=4096), 0.1, 3)


def llama4_rope(ops: Any) -> Any:
    q, k = normal(2, 256, 8, 64), normal(2, 256, 2, 64)
    freqs = torch.polar(torch.ones(256, 32, device="cuda"), torch.rand(256, 32, device="cuda"))
    return ops.LigerLlama4RopeFunction.apply(q, k, freqs)


def mhc_coeffs(ops: Any) -> Any:
    streams, width = 4, 512
    m = streams * streams + 2 * streams
    scalars = [torch.rand((), device="cuda").requires_grad_() for _ in range(3)]
    x, phi, b = normal(2, 128, streams, width), normal(streams * width, m), full(m)
    return ops.LigerMHCCoeffsFunction.apply(x, phi, b, *scalars, False, 20, 1e-6, 0.0, 1e-6, 2.0)


def mhc_post_res(ops: Any) -> Any:
    x, out = normal(2, 128, 4, 512), normal(2, 128, 512)
    return ops.LigerMHCPostResFunction.apply(x, out, full(2, 128, 4), full(2, 128, 4, 4))


def mlp(ops: Any) -> Any:
    x, gate_, up, down = normal(2, 512, 1024), normal(2048, 1024), normal(2048, 1024), normal(1024, 2048)
    return ops.LigerMLPFunction.apply(x, gate_, up, down)


def modulated_rms_norm(ops: Any) -> Any:
    x, weight = normal(2, 512, HIDDEN), normal(HIDDEN)
    return ops.LigerModulatedRMSNormFunction.apply(x, weight, normal(2, HIDDEN), normal(2, HIDDEN), 1e-6)


def multi_token_attention_sparse(ops: Any) -> Any:
    function = ops.LigerMultiTokenAttentionFunction
    return function.apply(full(2, 4, 128, 128), full(4, 4, 3, 3), full(4), 1, 1, 1, 1, True)


def qwen2vl_mrope(ops: Any) -> Any:
    q, k = normal(2, 8, 256, 128), normal(2, 2, 256, 128)
    cos, sin = normal(3, 2, 256, 128, grad=False), normal(3, 2, 256, 128, grad=False)
    return ops.LigerQwen2VLMRopeFunction.apply(q, k, cos, sin, [16, 24, 24])


def rope(ops: Any) -> Any:
    q, k = normal(2, 8, 256, 64), normal(2, 2, 256, 64)
    return ops.LigerRopeFunction.apply(q, k, normal(1, 256, 64, grad=False), normal(1, 256, 64, grad=False))


def swiglu_of_slices(ops: Any) -> Any:
    both = normal(ROWS, 2 * HIDDEN)
    return ops.LigerSiLUMulFunction.apply(both[:, :HIDDEN], both[:, HIDDEN:])


def tiled_mlp(ops: Any) -> Any:
    layer = torch.nn.Linear(512, 512, device="cuda", dtype=torch.bfloat16)

    def body(module: Any, x: torch.Tensor) -> torch.Tensor:
        return ops.LigerSiLUMulFunction.apply(module(x), x)

    return ops.apply_tiled_mlp(body, layer, normal(2, 512, 512), 4, list(layer.parameters()))


CALLS: Ops = {
    "attn_res": lambda ops: ops.LigerAttnResFunction.apply(
        normal(4, 2, 256, HIDDEN), normal(HIDDEN), normal(HIDDEN), 1e-6
    ),
    "cross_entropy": lambda ops: ops.LigerCrossEntropyFunction.apply(normal(ROWS, VOCABULARY), labels(ROWS), None)[0],
    "cross_entropy_all_options": cross_entropy_all_options,
    "cross_entropy_scaled": lambda ops: (
        3.0 * ops.LigerCrossEntropyFunction.apply(normal(ROWS, VOCABULARY), labels(ROWS), None)[0]
    ),
    "cross_entropy_weighted": cross_entropy_weighted,
    "dyt": lambda ops: ops.LigerDyTFunction.apply(normal(ROWS, HIDDEN), normal(1), normal(HIDDEN), normal(HIDDEN)),
    "embedding": lambda ops: ops.LigerEmbeddingFunction.apply(normal(VOCABULARY, HIDDEN), labels(2, 512)),
    "fused_add_rms_norm": fused_add_rms_norm,
    "fused_ce_tvd": fused_ce_tvd,
    "fused_linear_cross_entropy": fused_linear_cross_entropy,
    "fused_linear_jsd": fused_linear_jsd,
    "fused_linear_kl_div": fused_linear_kl_div,
    "fused_moe": fused_moe,
    "fused_neighborhood_attention": fused_neighborhood_attention,
    "geglu": lambda ops: ops.LigerGELUMulFunction.apply(normal(ROWS, HIDDEN), normal(ROWS, HIDDEN)),
    "group_norm": lambda ops: ops.LigerGroupNormFunction.apply(full(4, 64, 4096), full(64), full(64), 64, 8, 1e-6),
    "grpo_loss": grpo_loss,
    "jsd": lambda ops: ops.LigerJSDFunction.apply(
        log_probabilities(ROWS, 4096), log_probabilities(ROWS, 4096).detach()
    ),
    "jsd_with_labels": jsd_with_labels,
    "kl_div": lambda ops: ops.LigerKLDivLossFunction.apply(
        log_probabilities(ROWS, 4096), probabilities(ROWS, 4096).detach()
    ),
    "layer_norm": lambda ops: ops.LigerLayerNormFunction.apply(
        normal(ROWS, HIDDEN), normal(HIDDEN), normal(HIDDEN), 1e-6
    ),
    "llama4_rope": llama4_rope,
    "mhc_coeffs": mhc_coeffs,
    "mhc_pre": lambda ops: ops.LigerMHCPreFunction.apply(normal(2, 128, 4, 512), full(2, 128, 4)),
    "mhc_post_res": mhc_post_res,
    "mlp": mlp,
    "modulated_rms_norm": modulated_rms_norm,
    "multi_token_attention": lambda ops: ops.LigerMultiTokenAttentionFunction.apply(
        full(2, 4, 128, 128), full(4, 4, 3, 3), full(4), 1, 1
    ),
    "multi_token_attention_sparse": multi_token_attention_sparse,
    "poly_norm": lambda ops: ops.LigerPolyNormFunction.apply(normal(ROWS, HIDDEN), normal(3), normal()),
    "qwen2vl_mrope": qwen2vl_mrope,
    "relu_squared": lambda ops: ops.LigerReLUSquaredFunction.apply(normal(ROWS, HIDDEN)),
    "rms_norm": lambda ops: ops.LigerRMSNormFunction.apply(normal(ROWS, HIDDEN), normal(HIDDEN), 1e-6),
    "rms_norm_gemma": lambda ops: ops.LigerRMSNormFunction.apply(
        normal(ROWS * 16, 256), normal(256), 1e-6, 1.0, "gemma", False
    ),
    "rope": rope,
    "softmax": lambda ops: ops.LigerSoftmaxFunction.apply(normal(ROWS, 8192)),
    "sparsemax": lambda ops: ops.LigerSparsemaxFunction.apply(full(ROWS, 1024), -1),
    "swiglu": lambda ops: ops.LigerSiLUMulFunction.apply(normal(ROWS, HIDDEN), normal(ROWS, HIDDEN)),
    "swiglu_fused_gate_up": lambda ops: ops.LigerFusedGateUpSiLUMulFunction.apply(normal(ROWS, 2 * HIDDEN)),
    "swiglu_of_slices": swiglu_of_slices,
    "tiled_mlp": tiled_mlp,
    "tvd": lambda ops: ops.LigerTVDLossFunction.apply(probabilities(ROWS, 4096), probabilities(ROWS, 4096).detach()),
    "layer_norm_odd_width": lambda ops: ops.LigerLayerNormFunction.apply(
        normal(ROWS, 1000), leaf(normal(1000)), leaf(normal(1000)), 1e-6
    ),
}

OPS = bound("liger_kernel.ops", CALLS)
