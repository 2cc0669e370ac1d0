"""A time against the rates that a device reaches."""

from __future__ import annotations

import re

import pytest
import torch

from kerntune.base.roofline import MATMUL, MEMORY, Roofline, bits_of

H200 = {"bandwidth": 4e12, "matmul_peak": 800e12}


def test_a_copy_is_limited_by_memory() -> None:
    found = Roofline(10_000.0, nbytes=20_000_000, **H200)
    assert (found.bytes_per_second, found.of_bandwidth, found.roof) == (2e12, 0.5, MEMORY)
    assert found.of_roof == pytest.approx(0.5)
    assert (found.flops_per_second, found.of_matmul, found.intensity) == (None, None, None)


def test_a_large_product_is_limited_by_tensor_cores() -> None:
    n = 8192
    found = Roofline(2_000_000.0, nbytes=3 * 2 * n * n, flops=2 * n**3, **H200)
    assert found.roof == MATMUL
    assert found.intensity == pytest.approx(n / 3)
    assert found.flops_per_second == pytest.approx(2 * n**3 / 2e-3)
    assert found.of_matmul == pytest.approx(2 * n**3 / 2e-3 / 800e12)
    assert found.of_roof == pytest.approx(found.of_matmul)


def test_a_thin_product_is_limited_by_memory() -> None:
    found = Roofline(10_000.0, nbytes=2 * 8192 * 8192, flops=2 * 8192 * 8192, **H200)
    assert found.roof == MEMORY
    assert found.of_roof == pytest.approx(found.of_bandwidth)


def test_nothing_follows_from_what_is_not_known() -> None:
    empty = Roofline(None, 1e6, 1e9, **H200)
    assert (empty.of_roof, empty.bytes_per_second, empty.flops_per_second) == (None, None, None)
    assert empty.roof == MEMORY or empty.roof == MATMUL, "what limits it does not depend on its time"
    unknown = Roofline(10.0, 1e6, 1e9)
    assert (unknown.roof, unknown.of_roof, unknown.of_bandwidth, unknown.of_matmul) == ("", None, None, None)
    assert Roofline(0.0, 1.0, 1.0, 1.0, 1.0).of_roof is None


DTYPES = sorted(str(x).removeprefix("torch.") for x in vars(torch).values() if isinstance(x, torch.dtype))


@pytest.mark.parametrize("name", [name for name in DTYPES if re.fullmatch("(u?int|float|bfloat|complex|bool).*", name)])
def test_bits_of_a_dtype_are_torchs(name: str) -> None:
    """Of whole bytes: torch holds integers of fewer bits in one each."""
    own = re.fullmatch(r"u?int([1-7])", name)
    assert bits_of(name) == (int(own[1]) if own else getattr(torch, name).itemsize * 8)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("quint4x2", 2), ("bits", 8), ("", 8), ("a" * 99 + "4", 4), ("1" * 9999, 111_111_111), ("float6_e2m3fn", 6)],
)
def test_an_unknown_dtype_has_the_bits_that_its_name_says(dtype: str, bits: int) -> None:
    assert bits_of(dtype) == bits
