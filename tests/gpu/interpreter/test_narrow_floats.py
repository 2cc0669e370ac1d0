"""Floats that numpy lacks, held against torch's conversions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from kerntune.errors import InterpreterLimit
from kerntune.gpu.interpreter.narrow_types import decode, encode, is_fp8, is_narrow

FLOATS = st.floats(width=32)
FINITE = st.floats(-440, 440, width=32)
FP8 = {tl.float8e5: torch.float8_e5m2, tl.float8e4nv: torch.float8_e4m3fn}


@given(st.lists(FLOATS, min_size=1, max_size=20))
def test_bf16_rounds_as_torch_does(values: list[float]) -> None:
    ours = decode(encode(np.array(values, np.float32), tl.bfloat16), tl.bfloat16)
    theirs = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(ours, theirs)


@given(st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=20))
def test_bf16_patterns_come_back(patterns: list[int]) -> None:
    bits = np.array(patterns, np.uint16)
    values = decode(bits, tl.bfloat16)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(encode(values, tl.bfloat16)[number], bits[number])


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
