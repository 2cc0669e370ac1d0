"""Kernels of liger-kernel as it is installed, as a reviewer would call them, and two calls with a planted error."""

import torch
from liger_kernel.ops.dyt import LigerDyTFunction
from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
from liger_kernel.ops.geglu import LigerGELUMulFunction
from liger_kernel.ops.jsd import LigerJSDFunction
from liger_kernel.ops.kl_div import LigerKLDivLossFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.poly_norm import LigerPolyNormFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from liger_kernel.ops.tvd import LigerTVDLossFunction


def rms_norm(x, w):
    return LigerRMSNormFunction.apply(x, w, 1e-6)


def rms_norm_with_another_epsilon(x, w):
    return LigerRMSNormFunction.apply(x, w, 1e-2)


def rms_norm_by_rows(x, w):
    return LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", True, False)


def rms_norm_of_gemma(x, w):
    return LigerRMSNormFunction.apply(x, w, 1e-6, 1.0, "gemma")


def rms_norm_of_gemma_without_offset(x, w):
    return LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "gemma")


def swiglu(a, b):
    return LigerSiLUMulFunction.apply(a, b)


def geglu(a, b):
    return LigerGELUMulFunction.apply(a, b)


def layer_norm(x, w, b):
    return LigerLayerNormFunction.apply(x, w, b, 1e-5)


def softmax(x):
    return LigerSoftmaxFunction.apply(x)


def kl_divergence(p, q):
    return LigerKLDivLossFunction.apply(p, q, "none", True)


def total_variation(p, q):
    return LigerTVDLossFunction.apply(p, q, None, "none")


def add_and_norm(x, r, w):
    return LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6)


def dynamic_tanh(x, a, g, b):
    return LigerDyTFunction.apply(x, a, g, b)


def poly_norm(x, w, b):
    return LigerPolyNormFunction.apply(x, w, b)


def divergence(p, q):
    return LigerJSDFunction.apply(p, q)


def _gradients(function, g, *given):
    """Backward passes sum what their programs have summed, by torch."""
    own = [x.detach().requires_grad_() for x in given]
    return torch.autograd.grad(function(*own), own, g)


def rms_norm_gradients(x, w, g):
    return _gradients(lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6), g.clone(), x, w)


def layer_norm_gradients(x, w, b, g):
    return _gradients(lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, 1e-5), g, x, w, b)


def layer_norm_gradients_of_a_part(x, w, b, g):
    dx, dw, db = layer_norm_gradients(x, w, b, g)
    return dx, dw, db + dw[:1]


def dynamic_tanh_gradients(x, a, g, b, d):
    return _gradients(LigerDyTFunction.apply, d, x, a, g, b)
