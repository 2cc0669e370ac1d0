"""Functions of the devices' libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kerntune.errors import InterpreterLimit
from kerntune.gpu.emulator.libdevice import elementwise

BEFORE_HALF = float(np.nextafter(np.float32(0.5), np.float32(0)))


@pytest.mark.parametrize(
    ("symbol", "arguments", "result"),
    [
        ("__nv_roundf", [[0.5, 1.5, 2.5, -0.5, BEFORE_HALF, 8388609.0]], [1.0, 2.0, 3.0, -1.0, 0.0, 8388609.0]),
        ("__nv_rintf", [[0.5, 1.5, 2.5]], [0.0, 2.0, 2.0]),
        ("__nv_nearbyintf", [[0.5, 1.5, 2.5]], [0.0, 2.0, 2.0]),
        ("__nv_truncf", [[-1.5, 1.5]], [-1.0, 1.0]),
        ("__nv_fabsf", [[-1.5, 1.5]], [1.5, 1.5]),
        ("__nv_exp10f", [[-1.0, 2.0]], [np.float32(0.1), 100.0]),
        ("__nv_rsqrtf", [[4.0, 0.25]], [0.5, 2.0]),
        ("__nv_rcp_rn", [[4.0]], [0.25]),
        ("__nv_fast_fdividef", [[3.0], [2.0]], [1.5]),
        ("__nv_div_rn", [[3.0], [2.0]], [1.5]),
        ("__nv_mul_rn", [[3.0], [2.0]], [6.0]),
        ("__nv_add_rn", [[3.0], [2.0]], [5.0]),
        ("__nv_sub_rn", [[3.0], [2.0]], [1.0]),
        ("__nv_sqrt_rn", [[4.0]], [2.0]),
        ("__nv_fdiv_rn", [[3.0], [2.0]], [1.5]),
        ("__nv_fsub_rn", [[3.0], [2.0]], [1.0]),
        ("__nv_frcp_rn", [[4.0]], [0.25]),
        ("__nv_fsqrt_rn", [[4.0]], [2.0]),
        ("__nv_fmaf_rn", [[3.0], [2.0], [1.0]], [7.0]),
        ("__nv_powf", [[3.0], [2.0]], [9.0]),
        ("__nv_fmodf", [[-5.0], [3.0]], [-2.0]),
        ("__nv_atan2f", [[0.0], [1.0]], [0.0]),
        ("__nv_tgammaf", [[4.0, -0.5, -1.5]], [6.0, -3.5449077, 2.3632717]),
        ("__nv_lgammaf", [[1.0, 2.0]], [0.0, 0.0]),
        ("__nv_fmaf", [[1 + 2**-12], [1 + 2**-12], [-1 - 2**-11]], [2**-24]),
        ("__nv_fma_rn", [[1 + 2**-12], [1 + 2**-12], [-1 - 2**-11]], [2**-24]),
        ("__nv_isnand", [[np.nan, np.inf, 1.0]], [True, False, False]),
        ("__nv_isinff", [[np.nan, -np.inf, 1.0]], [False, True, False]),
        ("__nv_finitef", [[np.nan, np.inf, 1.0]], [False, False, True]),
        ("__ocml_pown_f32", [[3.0], [2.0]], [9.0]),
        ("__ocml_isfinite_f64", [[np.nan, 1.0]], [False, True]),
        ("__triton_hip_fast_expf", [[1.0]], [np.e]),
        ("__nv_signbitf", [[-0.0, 0.0, 1.0]], [True, False, False]),
    ],
)  # fmt: skip
def test_functions_of_libdevice_are_computed(symbol: str, arguments: list[list[float]], result: Any) -> None:
    found = elementwise(symbol)(*(np.array(a, np.float32) for a in arguments))
    np.testing.assert_allclose(found, np.array(result), rtol=1e-6)


def test_a_function_that_the_cpu_lacks_is_refused_by_name() -> None:
    with pytest.raises(InterpreterLimit, match=r"^the kernel calls __nv_j0f, which kerntune has no CPU function for$"):
        elementwise("__nv_j0f")


@pytest.mark.parametrize(
    ("symbol", "dtype", "results"),
    [
        ("__nv_popc", np.int32, [0, 1, 3, 32]),
        ("__nv_popcll", np.int64, [0, 1, 3, 64]),
        ("__nv_clz", np.int32, [32, 31, 28, 0]),
        ("__nv_clzll", np.int64, [64, 63, 60, 0]),
        ("__ockl_popcount_u64", np.int64, [0, 1, 3, 64]),
        ("__nv_ffs", np.int32, [0, 1, 2, 1]),
    ],
)
def test_bits_are_counted_in_an_integers_own_width(symbol: str, dtype: Any, results: list[int]) -> None:
    found = elementwise(symbol)(np.array([0, 1, 14, -1], dtype))
    assert (found.dtype, found.tolist()) == (np.int32, results)
