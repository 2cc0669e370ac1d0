"""Ops of the package liger-kernel, each a function that makes its inputs, calls the op and returns what it gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.ops.ops_inputs import (
    HIDDEN,
    ROWS,
    VOCABULARY,
    full,
    labels,
    leaf,
    log_probabilities,
    normal,
    probabilities,
)

OPS: dict[str, Callable[[], Any]] = {}


def op(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter an op under its function's name; the function gets ``liger_kernel.ops``."""

    def run() -> Any:
        import liger_kernel.ops

        return function(liger_kernel.ops)

    OPS[function.__name__] = run
    return function


@op
def attn_res(ops: Any) -> Any:
    return ops.LigerAttnResFunction.apply(normal(4, 2, 256, HIDDEN), normal(HIDDEN), normal(HIDDEN), 1e-6)


@op
def cross_entropy(ops: Any) -> Any:
    return ops.LigerCrossEntropyFunction.apply(normal(ROWS, VOCABULARY), labels(ROWS), None)[0]


@op
def cross_entropy_all_options(ops: Any) -> Any:
    options = (-100, 1e-4, 0.1, "mean", 30.0, True, True, True)
    return ops.LigerCrossEntropyFunction.apply(normal(ROWS, VOCABULARY), labels(ROWS), None, *options)[:2]


@op
def cross_entropy_scaled(ops: Any) -> Any:
    return 3.0 * ops.LigerCrossEntropyFunction.apply(normal(ROWS, VOCABULARY), labels(ROWS), None)[0]


@op
def cross_entropy_weighted(ops: Any) -> Any:
    weight = torch.rand(VOCABULARY, device="cuda")
    return ops.LigerCrossEntropyFunction.apply(normal(ROWS, VOCABULARY), labels(ROWS), weight)[0]


@op
def dyt(ops: Any) -> Any:
    return ops.LigerDyTFunction.apply(normal(ROWS, HIDDEN), normal(1), normal(HIDDEN), normal(HIDDEN))


@op
def embedding(ops: Any) -> Any:
    return ops.LigerEmbeddingFunction.apply(normal(VOCABULARY, HIDDEN), labels(2, 512))


@op
def fused_add_rms_norm(ops: Any) -> Any:
    x, residual, weight = normal(ROWS, HIDDEN), normal(ROWS, HIDDEN), normal(HIDDEN)
    return ops.LigerFusedAddRMSNormFunction.apply(x, residual, weight, 1e-6)


@op
def fused_ce_tvd(ops: Any) -> Any:
    student, teacher = normal(ROWS, VOCABULARY), normal(ROWS, VOCABULARY, grad=False)
    return ops.LigerFusedCETVDFunction.apply(student, teacher, labels(ROWS))


@op
def fused_linear_cross_entropy(ops: Any) -> Any:
    hidden, weight = normal(ROWS, 512), normal(VOCABULARY, 512)
    return ops.LigerFusedLinearCrossEntropyFunction.apply(hidden, weight, labels(ROWS))[0]


@op
def fused_linear_jsd(ops: Any) -> Any:
    student, teacher = (normal(ROWS, 512), normal(4096, 512)), (normal(ROWS, 512), normal(4096, 512))
    return ops.LigerFusedLinearJSDFunction.apply(*student, *teacher)


@op
def fused_linear_kl_div(ops: Any) -> Any:
    target = probabilities(ROWS, 4096).detach()
    return ops.LigerFusedLinearKLDivFunction.apply(normal(ROWS, 512), normal(4096, 512), target)


@op
def fused_moe(ops: Any) -> Any:
    experts, chosen = 8, 2
    index = labels(512, chosen, upto=experts).to(torch.int32)
    weights = torch.rand(512, chosen, device="cuda", dtype=torch.bfloat16).requires_grad_()
    gate_up, down = normal(experts, 1024, 512), normal(experts, 512, 512)
    return ops.LigerFusedMoEFunction.apply(normal(512, 512), gate_up, down, index, weights)


@op
def fused_neighborhood_attention(ops: Any) -> Any:
    q, k, v = (full(2, 4, 256, 64) for _ in range(3))
    return ops.LigerFusedNeighborhoodAttentionFunction.apply(q, k, v, 7, 1, None)


@op
def geglu(ops: Any) -> Any:
    return ops.LigerGELUMulFunction.apply(normal(ROWS, HIDDEN), normal(ROWS, HIDDEN))


@op
def group_norm(ops: Any) -> Any:
    return ops.LigerGroupNormFunction.apply(full(4, 64, 4096), full(64), full(64), 64, 8, 1e-6)


@op
def grpo_loss(ops: Any) -> Any:
    batch, length = 4, 128
    old, reference = (torch.rand(batch, length, device="cuda") for _ in range(2))
    mask = torch.ones(batch, length, device="cuda", dtype=torch.int32)
    ids, advantages = labels(batch, length, upto=4096), torch.randn(batch, device="cuda")
    logits = normal(batch, length + 1, 4096)
    return ops.GrpoLossFunction.apply(
        logits, -old, -reference, ids, advantages, mask, 0.9, 0.04, 0.2, 0.4, False, "grpo"
    )[0]


@op
def jsd(ops: Any) -> Any:
    return ops.LigerJSDFunction.apply(log_probabilities(ROWS, 4096), log_probabilities(ROWS, 4096).detach())


@op
def jsd_with_labels(ops: Any) -> Any:
    p, q = log_probabilities(ROWS, 4096), log_probabilities(ROWS, 4096).detach()
    return ops.LigerJSDFunction.apply(p, q, labels(ROWS, upto=4096), 0.1, 3)


@op
def kl_div(ops: Any) -> Any:
    return ops.LigerKLDivLossFunction.apply(log_probabilities(ROWS, 4096), probabilities(ROWS, 4096).detach())


@op
def layer_norm(ops: Any) -> Any:
    return ops.LigerLayerNormFunction.apply(normal(ROWS, HIDDEN), normal(HIDDEN), normal(HIDDEN), 1e-6)


@op
def llama4_rope(ops: Any) -> Any:
    q, k = normal(2, 256, 8, 64), normal(2, 256, 2, 64)
    freqs = torch.polar(torch.ones(256, 32, device="cuda"), torch.rand(256, 32, device="cuda"))
    return ops.LigerLlama4RopeFunction.apply(q, k, freqs)


@op
def mhc_coeffs(ops: Any) -> Any:
    streams, width = 4, 512
    m = streams * streams + 2 * streams
    scalars = [torch.rand((), device="cuda").requires_grad_() for _ in range(3)]
    x, phi, b = normal(2, 128, streams, width), normal(streams * width, m), full(m)
    return ops.LigerMHCCoeffsFunction.apply(x, phi, b, *scalars, False, 20, 1e-6, 0.0, 1e-6, 2.0)


@op
def mhc_pre(ops: Any) -> Any:
    return ops.LigerMHCPreFunction.apply(normal(2, 128, 4, 512), full(2, 128, 4))


@op
def mhc_post_res(ops: Any) -> Any:
    x, out = normal(2, 128, 4, 512), normal(2, 128, 512)
    return ops.LigerMHCPostResFunction.apply(x, out, full(2, 128, 4), full(2, 128, 4, 4))


@op
def mlp(ops: Any) -> Any:
    x, gate_, up, down = normal(2, 512, 1024), normal(2048, 1024), normal(2048, 1024), normal(1024, 2048)
    return ops.LigerMLPFunction.apply(x, gate_, up, down)


@op
def modulated_rms_norm(ops: Any) -> Any:
    x, weight = normal(2, 512, HIDDEN), normal(HIDDEN)
    return ops.LigerModulatedRMSNormFunction.apply(x, weight, normal(2, HIDDEN), normal(2, HIDDEN), 1e-6)


@op
def multi_token_attention(ops: Any) -> Any:
    return ops.LigerMultiTokenAttentionFunction.apply(full(2, 4, 128, 128), full(4, 4, 3, 3), full(4), 1, 1)


@op
def multi_token_attention_sparse(ops: Any) -> Any:
    function = ops.LigerMultiTokenAttentionFunction
    return function.apply(full(2, 4, 128, 128), full(4, 4, 3, 3), full(4), 1, 1, 1, 1, True)


@op
def poly_norm(ops: Any) -> Any:
    return ops.LigerPolyNormFunction.apply(normal(ROWS, HIDDEN), normal(3), normal())


@op
def qwen2vl_mrope(ops: Any) -> Any:
    q, k = normal(2, 8, 256, 128), normal(2, 2, 256, 128)
    cos, sin = normal(3, 2, 256, 128, grad=False), normal(3, 2, 256, 128, grad=False)
    return ops.LigerQwen2VLMRopeFunction.apply(q, k, cos, sin, [16, 24, 24])


@op
def relu_squared(ops: Any) -> Any:
    return ops.LigerReLUSquaredFunction.apply(normal(ROWS, HIDDEN))


@op
def rms_norm(ops: Any) -> Any:
    return ops.LigerRMSNormFunction.apply(normal(ROWS, HIDDEN), normal(HIDDEN), 1e-6)


@op
def rms_norm_gemma(ops: Any) -> Any:
    return ops.LigerRMSNormFunction.apply(normal(ROWS * 16, 256), normal(256), 1e-6, 1.0, "gemma", False)


@op
def rope(ops: Any) -> Any:
    q, k = normal(2, 8, 256, 64), normal(2, 2, 256, 64)
    return ops.LigerRopeFunction.apply(q, k, normal(1, 256, 64, grad=False), normal(1, 256, 64, grad=False))


@op
def softmax(ops: Any) -> Any:
    return ops.LigerSoftmaxFunction.apply(normal(ROWS, 8192))


@op
def sparsemax(ops: Any) -> Any:
    return ops.LigerSparsemaxFunction.apply(full(ROWS, 1024), -1)


@op
def swiglu(ops: Any) -> Any:
    return ops.LigerSiLUMulFunction.apply(normal(ROWS, HIDDEN), normal(ROWS, HIDDEN))


@op
def swiglu_fused_gate_up(ops: Any) -> Any:
    return ops.LigerFusedGateUpSiLUMulFunction.apply(normal(ROWS, 2 * HIDDEN))


@op
def swiglu_of_slices(ops: Any) -> Any:
    both = normal(ROWS, 2 * HIDDEN)
    return ops.LigerSiLUMulFunction.apply(both[:, :HIDDEN], both[:, HIDDEN:])


@op
def tiled_mlp(ops: Any) -> Any:
    layer = torch.nn.Linear(512, 512, device="cuda", dtype=torch.bfloat16)

    def body(module: Any, x: torch.Tensor) -> torch.Tensor:
        return ops.LigerSiLUMulFunction.apply(module(x), x)

    return ops.apply_tiled_mlp(body, layer, normal(2, 512, 512), 4, list(layer.parameters()))


@op
def tvd(ops: Any) -> Any:
    return ops.LigerTVDLossFunction.apply(probabilities(ROWS, 4096), probabilities(ROWS, 4096).detach())


@op
def layer_norm_odd_width(ops: Any) -> Any:
    return ops.LigerLayerNormFunction.apply(normal(ROWS, 1000), leaf(normal(1000)), leaf(normal(1000)), 1e-6)
