import pytest
import torch
from liger_kernel import ops


def t(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


CASES = {
    "attn_res": lambda: ops.LigerAttnResFunction.apply(t(4, 2, 256, 2048), t(2048), t(2048), 1e-6),
    "cross_entropy": lambda: ops.LigerCrossEntropyFunction.apply(t(999, 9999), torch.arange(999).cuda(), None)[0],
    "dyt": lambda: ops.LigerDyTFunction.apply(t(1024, 2048), t(1), t(2048), t(2048)),
    "embedding": lambda: ops.LigerEmbeddingFunction.apply(t(8192, 2048), torch.arange(1024, device="cuda")),
    "fused_add_rms_norm": lambda: ops.LigerFusedAddRMSNormFunction.apply(t(9, 4096), t(9, 4096), t(4096), 1e-6)[0],
    "fused_linear_jsd": lambda: ops.LigerFusedLinearJSDFunction.apply(*(t(2048, 2048) for _ in range(4))),
    "geglu": lambda: ops.LigerGELUMulFunction.apply(t(1024, 4096), t(1024, 4096)),
    "group_norm": lambda: ops.LigerGroupNormFunction.apply(t(4, 64, 4096), t(64), t(64), 64, 8, 1e-6),
    "jsd": lambda: ops.LigerJSDFunction.apply(t(1024, 4096).log_softmax(-1), t(1024, 4096).log_softmax(-1)),
    "kl_div": lambda: ops.LigerKLDivLossFunction.apply(t(1024, 4096).log_softmax(-1), t(1024, 4096).softmax(-1)),
    "layer_norm": lambda: ops.LigerLayerNormFunction.apply(t(4096, 4096), t(4096), t(4096), 1e-6),
    "mhc_pre": lambda: ops.LigerMHCPreFunction.apply(t(2, 128, 4, 512), t(2, 128, 4).float()),
    "poly_norm": lambda: ops.LigerPolyNormFunction.apply(t(1024, 2048), t(3), t()),
    "relu_squared": lambda: ops.LigerReLUSquaredFunction.apply(t(1024, 2048)),
    "rms_norm": lambda: ops.LigerRMSNormFunction.apply(t(4096, 4096), t(4096), 1e-6),
    "rope": lambda: ops.LigerRopeFunction.apply(t(2, 8, 256, 64), t(2, 2, 256, 64), t(1, 256, 64), t(1, 256, 64))[0],
    "softmax": lambda: ops.LigerSoftmaxFunction.apply(t(1024, 8192)),
    "sparsemax": lambda: ops.LigerSparsemaxFunction.apply(t(1024, 1024), -1),
    "swiglu": lambda: ops.LigerSiLUMulFunction.apply(t(1024, 4096), t(1024, 4096)),
    "tvd": lambda: ops.LigerTVDLossFunction.apply(t(1024, 4096).softmax(-1), t(1024, 4096).softmax(-1)),
}


@pytest.mark.parametrize("name", CASES)
def test_speed(autotune, name):
    autotune(lambda: (out := CASES[name]()).backward(torch.ones_like(out)))
