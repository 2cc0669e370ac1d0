"""Launches once more, in float64: what kernels compute but for their roundings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kerntune.base.device import Target, typical_device
from kerntune.gpu.interpreter import Interpreter
from kerntune.gpu.interpreter.wider_programs import noted_launches, reduces_by_order, rounds, wider_launches

MINUS_INFINITY = tl.constexpr(float("-inf"))


@triton.jit
def softmax_kernel(x, o, n, BLOCK: tl.constexpr):
    """With a rounding inside, and a constant that is no number."""
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=MINUS_INFINITY).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0)).to(tl.bfloat16).to(tl.float32)
    tl.store(o + at, e / tl.sum(e, 0), mask=at < n)


@triton.jit
def loop_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float16)
    i = 0
    while i < n:
        acc += tl.load(x + i * BLOCK + at).to(tl.float16)
        i += 1
    if n > 1000:
        return
    tl.store(o + at, acc)


@triton.jit
def bits_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    bits = tl.load(x + at, mask=at < n).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    tl.store(o + at, bits.to(tl.float32, bitcast=True), mask=at < n)


@triton.jit
def eighth_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n).to(tl.float32) / 3
    tl.store(o + at, v.to(tl.float8e4nv).to(tl.float32), mask=at < n)


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    with Interpreter(typical_device(Target.parse("cuda:90"))).activate():
        yield


def launch(kernel: Any, x: torch.Tensor, n: int, dtype: torch.dtype) -> torch.Tensor:
    o = torch.zeros(64, dtype=dtype)
    kernel[(1,)](x, o, n, BLOCK=64)
    return o


def both(
    kernel: Any, x: torch.Tensor, n: int, wide: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.double
) -> Any:
    with noted_launches() as launches:
        native = launch(kernel, x, n, torch.float32)
    with wider_launches(launches):
        return native, launch(kernel, wide(x), n, torch.float64)


def test_a_kernel_without_its_roundings() -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(3)).half()
    native, wide = both(softmax_kernel, x, 50)
    exact = torch.cat([x[:50].double().softmax(0), torch.zeros(14, dtype=torch.float64)])
    assert (wide - exact).abs().max() < 1e-15 < 1e-4 < (native - exact).abs().max()


def test_loops_and_branches_without_their_roundings() -> None:
    x = torch.randn(320, generator=torch.Generator().manual_seed(3))
    native, wide = both(loop_kernel, x, 5)
    exact = x.double().reshape(5, 64).sum(0)
    assert (wide - exact).abs().max() < 1e-15 < 1e-4 < (native - exact).abs().max()


def test_eight_bit_floats_stay() -> None:
    x = torch.arange(64.0).to(torch.float8_e4m3fn)
    native, wide = both(eighth_kernel, x, 64, wide=lambda x: x)
    assert native.tolist() == wide.tolist() == (x.double() / 3).to(torch.float8_e4m3fn).double().tolist()


@pytest.mark.parametrize(
    ("kernel", "x", "wide"),
    [
        (bits_kernel, torch.ones(64), torch.Tensor.float),
        (softmax_kernel, torch.ones(64), torch.Tensor.float),
        (eighth_kernel, torch.ones(64).to(torch.float8_e4m3fn), torch.Tensor.double),
    ],
)
def test_other_launches_are_as_they_are(kernel: Any, x: torch.Tensor, wide: Callable[..., Any]) -> None:
    """Where bits count, or memory has other types than the wider program. Of one launch no second is known."""
    with noted_launches() as launches:
        launch(kernel, x, 64, torch.float32)
        plain = launch(kernel, wide(x), 64, torch.float32)
    programs = [one.program for one in launches]
    with wider_launches(launches[:1]), noted_launches() as again:
        found = [launch(kernel, wide(x), 64, torch.float32) for _ in range(2)]
    assert [one.program for one in again] == [programs[1]] * 2
    assert all(torch.equal(one, plain) for one in found)


def test_another_kernel_is_as_it_is() -> None:
    with noted_launches() as launches:
        launch(softmax_kernel, torch.ones(64), 64, torch.float32)
    with wider_launches(launches), noted_launches() as again:
        launch(eighth_kernel, torch.ones(64), 64, torch.float32)
    assert "f32" in {kind.element for kind in again[0].program.types.values()}


@triton.jit
def index_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value, index = tl.max(tl.load(x + at, mask=at < n, other=MINUS_INFINITY), 0, return_indices=True)
    tl.store(o, tl.where(value > 0, value, index))


@triton.jit
def late_index_kernel(x, o, n, BLOCK: tl.constexpr):
    if n > 1000:
        return
    value, index = tl.max(tl.load(x + tl.arange(0, BLOCK)), 0, return_indices=True)
    tl.store(o, tl.where(value > 0, value, index))


@pytest.mark.parametrize(("kernel", "by_order"), [
    (index_kernel, True), (late_index_kernel, True), (softmax_kernel, False), (loop_kernel, False),
])  # fmt: skip
def test_a_maximum_with_its_index_depends_on_the_order_beside_nan(kernel: Any, by_order: bool) -> None:
    with noted_launches() as launches:
        launch(kernel, torch.ones(320), 5, torch.float32)
    assert [reduces_by_order(one.program) for one in launches] == [by_order]


@triton.jit
def casts_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    found = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(o + at, found * tl.load(x + at))


@triton.jit
def late_casts_kernel(x, o, n, BLOCK: tl.constexpr):
    if n > 1000:
        return
    at = tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at).to(tl.float32) * 3)


@triton.jit
def counts_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at) * (at.to(tl.float32) / n))


@triton.jit
def read_bits_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    bits = tl.load((x + at).to(tl.pointer_type(tl.int32), bitcast=True), mask=at < n)
    tl.store(o + at, bits)


@triton.jit
def takes_kernel(x, o, n, BLOCK: tl.constexpr):
    """Its own numbers are exact in float32; the largest of two is, too."""
    at = tl.arange(0, BLOCK)
    found = tl.load(x + at, mask=at < n, other=-1.0)
    tl.store(o + at, tl.where(found > 0.5, found * found, tl.abs(found)))


@pytest.mark.parametrize(("kernel", "narrow"), [
    (casts_kernel, True), (late_casts_kernel, True), (counts_kernel, True), (read_bits_kernel, True),
    (takes_kernel, False),
])  # fmt: skip
def test_what_is_rounded_inside_is_not_float64(kernel: Any, narrow: bool) -> None:
    """Though its results are: all that these kernels are given is."""
    with noted_launches() as launches:
        launch(kernel, torch.ones(64, dtype=torch.float64), 64, torch.float64)
        launch(kernel, torch.ones(64), 64, torch.float32)
    assert [rounds(one.program) for one in launches] == [narrow, True]
