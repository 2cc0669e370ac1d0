"""All kernels of the tuning suite, by name."""

from __future__ import annotations

from benchmarks.suite.case import Case
from benchmarks.suite.matrix_kernels import GATED_MLP, MATMUL, SPLIT_MATMUL
from benchmarks.suite.other_kernels import ATTENTION, BIAS_GELU, TRANSPOSE
from benchmarks.suite.row_kernels import CROSS_ENTROPY, LAYER_NORM_BACKWARD, RMS_NORM, SOFTMAX

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        MATMUL,
        SOFTMAX,
        RMS_NORM,
        LAYER_NORM_BACKWARD,
        CROSS_ENTROPY,
        ATTENTION,
        BIAS_GELU,
        SPLIT_MATMUL,
        TRANSPOSE,
        GATED_MLP,
    )
}
