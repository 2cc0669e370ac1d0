"""Floats that numpy lacks, held against torch's conversions; libdevice's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from kerntune.errors import InterpreterLimit
from kerntune.gpu.interpreter.narrow_types import (
    NARROW,
    decode,
    elementwise,
    encode,
    from_narrow,
    is_fp8,
    is_narrow,
    to_narrow,
    word_type,
)

FLOATS = st.floats(width=32)
FINITE = st.floats(-440, 440, width=32)
FP8 = {tl.float8e5: torch.float8_e5m2, tl.float8e4nv: torch.float8_e4m3fn}


@given(st.lists(FLOATS, min_size=1, max_size=20))
def test_bf16_rounds_as_torch_does(values: list[float]) -> None:
    ours = decode(encode(np.array(values, np.float32), tl.bfloat16), tl.bfloat16)
    theirs = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", NARROW.values(), ids=str)
def test_every_pattern_is_torch_s_number_and_comes_back(kind: torch.dtype) -> None:
    bits = np.arange(1 << 8 * kind.itemsize, dtype=f"u{kind.itemsize}")
    values = from_narrow(bits, kind)
    np.testing.assert_array_equal(values, torch.from_numpy(bits.view(f"i{kind.itemsize}")).view(kind).float().numpy())
    finite = np.isfinite(values)
    np.testing.assert_array_equal(to_narrow(values, kind)[finite], bits[finite])


@given(st.lists(FINITE, min_size=1, max_size=20), st.sampled_from(sorted(FP8, key=str)))
def test_fp8_rounds_as_torch_does(values: list[float], dtype: tl.dtype) -> None:
    ours = decode(encode(np.array(values, np.float32), dtype), dtype)
    theirs = torch.tensor(values, dtype=torch.float32).to(FP8[dtype]).float().numpy()
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("dtype", "largest"), [(tl.float8e4nv, 448.0), (tl.float8e5, 57344.0)])
def test_fp8_saturates_as_the_hardware_does(dtype: tl.dtype, largest: float) -> None:
    ours = decode(encode(np.array([1e9, -1e9, np.inf, np.nan], np.float32), dtype), dtype)
    np.testing.assert_array_equal(ours, np.array([largest, -largest, largest, np.nan], np.float32))


@given(st.lists(st.floats(-60000, 60000, width=32), min_size=1, max_size=20), st.sampled_from(["bf16", "fp16"]))
def test_toward_zero_never_grows_and_is_the_nearest_that_does_not(values: list[float], name: str) -> None:
    dtype = tl.bfloat16 if name == "bf16" else tl.float16
    exact = np.array(values, np.float32)
    cut = encode(exact, dtype, toward_zero=True)
    found = np.abs(decode(cut, dtype).astype(np.float32))
    assert (found <= np.abs(exact)).all()
    patterns = cut if name == "bf16" else cut.view(np.uint16)
    above = (patterns + np.uint16(1)).astype(np.uint16)
    larger = np.abs(decode(above if name == "bf16" else above.view(np.float16), dtype).astype(np.float32))
    assert (larger > np.abs(exact)).all()


def test_a_format_that_torch_lacks_is_refused_by_name() -> None:
    with pytest.raises(InterpreterLimit, match="fp8e4b15"):
        encode(np.zeros(1, np.float32), tl.float8e4b15)


def test_types_that_are_kept_as_bit_patterns() -> None:
    kinds = (tl.bfloat16, tl.float8e5, tl.float8e4nv, tl.float16, tl.float32, tl.int8)
    assert [is_narrow(kind) for kind in kinds] == [True, True, True, False, False, False]
    assert [is_fp8(kind) for kind in kinds] == [False, True, True, False, False, False]


def test_words_of_signatures_are_tritons_types() -> None:
    words = ("fp32", "i64", "bf16", "u8", "u1", "i1")
    assert [word_type(w) for w in words] == [tl.float32, tl.int64, tl.bfloat16, tl.uint8, tl.int1, tl.int1]


# libdevice

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
        ("__nv_ffs", np.int32, [0, 1, 2, 1]),
    ],
)
def test_bits_are_counted_in_an_integers_own_width(symbol: str, dtype: Any, results: list[int]) -> None:
    found = elementwise(symbol)(np.array([0, 1, 14, -1], dtype))
    assert (found.dtype, found.tolist()) == (np.int32, results)
