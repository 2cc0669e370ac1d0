"""Which references have one right result for equal numbers, halves and zeros; and what rounding of operators does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch.nn.functional import conv1d, conv_transpose1d

from kerntune.base.device import Target, typical_device
from kerntune.gpu.base import tensors_in
from kerntune.gpu.interpreter import Interpreter
from kerntune.referee.reference_operators import as_kernels, exact_results, kinds_of, promises_indices, rounded

X, Y = torch.randn(2, 8, 5).unbind(0)
HALF, WHOLE, FAR = X.half(), torch.arange(40).reshape(8, 5), X * 2.0**40
LONG = torch.randn(2, 1024)


def is_exact(run: Callable[[], Any], where: str = "grid") -> bool:
    return exact_results(lambda: ([*tensors_in((run(),))], (), ""), where) != []


@pytest.mark.parametrize(
    ("run", "exact"),
    [
        (lambda: X >= Y, True),
        (lambda: (X * 8).round().to(torch.int32), True),
        (lambda: X.round(decimals=1), False),
        (lambda: (X * 0.1).round(), False),
        (lambda: (X * Y) > 0, False),
        (lambda: (X + 0.25) > Y, True),
        (lambda: (X + 0.1) > Y, False),
        (lambda: torch.add(X, 0.25, alpha=0.1) > Y, False),
        (lambda: (HALF + 0.25) > 0, False),
        (lambda: (HALF * 0.25) > 0, True),
        (lambda: (HALF * 3) > 0, False),
        (lambda: X.argsort(dim=-1, stable=True), True),
        (lambda: X.argsort(dim=-1), False),
        (lambda: X.argmax(-1), True),
        (lambda: torch.bucketize(X, Y[0].sort().values), True),
        (lambda: X.topk(2).indices, False),
        (lambda: X.topk(2, sorted=False).values, False),
        (lambda: X.exp().topk(2).values, False),
        (lambda: torch.bucketize(X, torch.tensor([0.0, 1.0])), True),
        (lambda: (X > 3).sum(-1), True),
        (lambda: X.sum(-1) > 0, False),
        (lambda: WHOLE * WHOLE + WHOLE.sum(), True),
        (lambda: torch.where(X < 0, X, Y).sigmoid() > 0.5, False),
    ],
)  # fmt: skip
def test_all_operators_must_be_exact(run: Callable[[], Any], exact: bool) -> None:
    assert is_exact(run) == exact


@pytest.mark.parametrize(
    ("run", "where"),
    [
        (lambda: ~(X <= Y), ["grid", "decided", "nan"]), (lambda: X[:, 1:].isnan().any(-1), ["grid", "decided", "nan"]),
        (lambda: (X > Y).to(torch.int32), ["grid", "decided", "nan"]),
        (lambda: FAR.to(torch.int32), ["grid", "decided"]),
        (lambda: X.argmax(-1), ["grid", "decided"]), (lambda: X.sort(dim=-1, stable=True), ["grid", "decided"]),
        (lambda: (X * 8).round(), ["grid"]), (lambda: WHOLE.sum() < WHOLE * 3, ["grid", "decided", "nan"]),
        (lambda: torch.ops.aten.to.dtype(X, torch.float64) > 0, ["grid", "decided", "nan"]),
        (lambda: X.clamp(0, 1).t(), ["grid", "decided"]), (lambda: X.exp(), []),
    ],
)  # fmt: skip
def test_fewer_operators_are_exact_of_any_numbers_and_of_nan(run: Callable[[], Any], where: list[str]) -> None:
    assert [one for one in ("grid", "decided", "nan") if is_exact(run, one)] == where


@pytest.mark.parametrize(
    ("run", "where"),
    [
        (lambda: X.t().contiguous(), ["sized", "nan", "kept"]), (lambda: X.half(), ["sized", "nan", "kept"]),
        (lambda: X.to(torch.float8_e4m3fn), ["nan"]), (lambda: FAR.to(torch.int32), []),
        (lambda: FAR.clamp(-7, 7).to(torch.int32), ["sized"]), (lambda: (X / 0).to(torch.int32), []),
        (lambda: X.floor(), ["sized"]), (lambda: X.fmod(3.0), ["sized"]), (lambda: X.topk(2).values, ["sized"]),
        (lambda: X.nan_to_num(), ["sized", "nan", "kept"]),
        (lambda: X.tril(), ["sized", "nan"]), (lambda: X.abs() <= 1, ["sized", "nan"]),
        (lambda: torch.cat([X, -Y]), ["sized", "nan"]), (lambda: X.amax(-1), ["sized"]),
    ],
)  # fmt: skip
def test_sizes_and_nan_stay_where_numbers_are_moved(run: Callable[[], Any], where: list[str]) -> None:
    assert [one for one in ("sized", "nan", "kept") if is_exact(run, one)] == where


@pytest.mark.parametrize(
    ("run", "chain"),
    [
        (lambda: 3 * X, (True, 0.0, False, "")), (lambda: torch.cat([X, X[:, :1] * 1e-8], -1), (True, 0.0, False, "")),
        (lambda: X + Y, (True, 0.0, False, "")), (lambda: torch.add(X, Y, alpha=0.3), (True, None, False, "")),
        (lambda: X * X.sigmoid(), (True, None, False, "")), (lambda: X.log(), (True, None, False, "ends")),
        (lambda: X.nan_to_num(), (True, None, False, "kept")),
        (lambda: torch.hypot(X, Y), (True, None, False, "specks")), (lambda: X.softmax(-1), (False, None, True, "")),
        (lambda: X.softmax(0), (False, None, False, "")), (lambda: X.t().contiguous(), (False, None, False, "")),
        (lambda: LONG @ LONG.t(), (False, 0.42 * 512**0.5, False, "")),
        (lambda: LONG.half() @ LONG.half().t(), (False, None, False, "")),
        (lambda: X @ X.t(), (False, 4.0, False, "")),
        (lambda: conv1d(X[:, None], Y[:1, None, :3]), (False, 2.0, False, "")),
        (lambda: conv_transpose1d(X[:, None], Y[:1, None, :3]), (False, None, False, "")),
        (lambda: X.sum(-1), (False, None, False, "")),
        (lambda: launched(torch.zeros(32)).exp(), (False, None, False, "")),
    ],
)  # fmt: skip
def test_what_is_known_of_all_operators(run: Callable[[], Any], chain: tuple[object, ...]) -> None:
    with Interpreter(typical_device(Target.parse("cuda:90"))).activate():
        found = kinds_of(lambda: ([run()], (), "")).chain
    assert msgspec.structs.astuple(found) == pytest.approx(chain) if isinstance(chain[1], float) else chain


def test_each_result_is_exact_or_not() -> None:
    """What a number of Python's follows from isn't known, nor is what operators write to a buffer beside."""

    def in_place(out: Any) -> Any:
        out.copy_(X.exp())
        return out, out.round()

    assert exact_results(lambda: ((X * 0.3, X > 0, X.exp().view(-1) > 0), (Y,), "")) == [False, True, False, True]
    assert exact_results(lambda: ((X.gt(float(X.sum())), X > 0), (Y,), "")) == []
    assert exact_results(lambda: ((X[:, :2] > 0, *in_place(torch.zeros(8, 5))), (), "")) == [True, False, False]
    assert exact_results(lambda: ((), (X, Y.clone().copy_(X)), "")) == [True, True]
    assert exact_results(lambda: ((), (X, Y.clone().exp_()), "")) == []


@pytest.mark.parametrize(
    ("run", "promised"),
    [
        (lambda: X.argmax(-1), True), (lambda: (X * 3).argmax(-1), False), (lambda: X.topk(2).indices, False),
        (lambda: X.exp(), False),
    ],
)  # fmt: skip
def test_indices_of_the_inputs_own_numbers_are_promised(run: Callable[[], Any], promised: bool) -> None:
    assert promises_indices(lambda: (run(), [X], "")) == promised


@triton.jit
def copy_kernel(x, o, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at))


def launched(out: Any) -> Any:
    copy_kernel[(1,)](X, out, BLOCK=32)
    return out


def unseen(out: Any) -> Any:
    np.copyto(out.numpy(), X.numpy())
    return out


def filled(out: Any) -> Any:
    return out.copy_(X)


@pytest.mark.parametrize(
    ("run", "exact"),
    [
        (lambda: launched(torch.empty_like(X)), False), (lambda: launched(X.clone()), False),
        (lambda: unseen(torch.empty(8, 5)), False), (lambda: filled(torch.empty(8, 5)), True),
        (lambda: torch.index_select(X, 0, torch.tensor([1]), out=torch.empty(1, 5)), True),
    ],
)  # fmt: skip
def test_what_others_than_torchs_operators_compute_is_not_known_as_exact(run: Callable[[], Any], exact: bool) -> None:
    """Such as matmuls by kernels, whose sums are rounded in any order."""
    with Interpreter(typical_device(Target.parse("cuda:90"))).activate():
        assert is_exact(run) == exact
        assert promises_indices(lambda: (X.argmax(-1), [X], run())) == exact


def test_an_operator_of_another_library_is_not_known_as_exact() -> None:
    with torch.library._scoped_library("kerntune_tests", "DEF") as library:
        library.define("abs(Tensor x) -> Tensor")
        library.impl("abs", lambda x: x.exp(), "CPU")
        assert not is_exact(lambda: torch.ops.kerntune_tests.abs(X))


WIDE = torch.rand(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(5)) + 1
TERMS = torch.full((6, 4), 1.1, dtype=torch.float64)
WHOLES = torch.arange(1000.0, dtype=torch.float64)


def drawn(run: Callable[[], Any]) -> Any:
    with rounded(torch.Generator().manual_seed(1), 2.0**-24):
        return run()


@pytest.mark.parametrize(
    ("run", "off"),
    [
        (lambda: WIDE.exp(), True), (lambda: WIDE * 3.3, True), (lambda: WIDE.clone().mul_(3.3), True),
        (lambda: torch.exp(WIDE, out=torch.empty_like(WIDE)), True), (lambda: WIDE.clone().view(-1, 2).add_(0.1), True),
        (lambda: (WIDE * 3.3).sort(), True), (lambda: WIDE.float() * 3.3, False), (lambda: WIDE.clone(), False),
        (lambda: WIDE.view(-1, 2), False), (lambda: -WIDE, False), (lambda: WIDE > 1.5, False),
        (lambda: WHOLES * 0.5, False), (lambda: WHOLES.cumsum(0), False), (lambda: WHOLES.floor_divide(3), False),
        (lambda: WIDE.unfold(0, 2, 1), False), (lambda: WIDE / 16, False), (lambda: WIDE.clone().mul_(-0.25), False),
        (lambda: WIDE / 10, True), (lambda: WIDE / torch.full_like(WIDE, 16), True),
    ],
)  # fmt: skip
def test_results_of_operators_that_round_are_off(run: Callable[[], Any], off: bool) -> None:
    """By up to the unit in either direction; what is exact, or is taken as it is, isn't."""
    (exact, *_), (found, *_) = ((x if isinstance(x, tuple) else (x,)) for x in (run(), drawn(run)))
    if not off:
        assert torch.equal(found, exact)
        return
    relative = (found / exact - 1) * 2.0**24
    assert -2.5 < relative.min() < -0.9
    assert 0.9 < relative.max() < 2.5
    assert -0.1 < relative.mean() < 0.1


QUOTIENTS = torch.rand(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(6)) + 1


@pytest.mark.parametrize(
    ("run", "roundings"),
    [
        (lambda: (WIDE / QUOTIENTS).round() + 128, 0), (lambda: (WIDE / QUOTIENTS).round() * 3 - WHOLES, 0),
        (lambda: WHOLES.sum(), 0), (lambda: WHOLES * 0.3, 1), (lambda: WHOLES + 0.5, 1), (lambda: WHOLES / 3, 4),
        (lambda: WIDE / QUOTIENTS, 4), (lambda: WIDE / QUOTIENTS / QUOTIENTS, 8), (lambda: WIDE.exp(), 4),
        (lambda: WIDE * QUOTIENTS, 1),
    ],
)  # fmt: skip
def test_where_every_number_is_off_whole_ones_of_whole_ones_are_not(run: Callable[[], Any], roundings: int) -> None:
    """What the hardware approximates is off by four roundings, to either side, also of two in a row to the same one."""
    with rounded(torch.Generator().manual_seed(1), 2.0**-24, every=True):
        found = run()
    relative = torch.where(run() == 0, 0.0, found / run() - 1) * 2.0**24
    assert relative.max() == pytest.approx(roundings, rel=0.05, abs=1e-9)
    assert relative.min() == pytest.approx(-roundings, rel=0.05, abs=1e-9)
    if roundings == 8:
        assert 0.4 < (relative.abs() > 7.9).double().mean() < 0.6


@pytest.mark.parametrize(
    "run",
    [
        lambda x: torch.fft.fft(torch.complex(x, x)), torch.fft.rfft, lambda x: torch.fft.fft2(torch.complex(x, x)),
        lambda x: torch.fft.irfft(torch.complex(x, x)),
    ],
)  # fmt: skip
def test_transforms_are_off_by_a_share_of_their_terms(run: Callable[[Any], Any]) -> None:
    """Of numbers far from zero all but one frequency cancel."""
    x = torch.rand(32, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(7)) + 1000
    exact, found = run(x), drawn(lambda: run(x))
    size = exact.abs().maximum(exact.abs().square().mean().sqrt())
    off = (found - exact).abs() / size * 2.0**24
    assert 1 < off.median() < 20
    assert off.max() < 100


def deviation_of(run: Callable[[], Any], stored: float = 0.0, draws: int = 200) -> Any:
    """Of each element, in units of 2**-24."""
    generator = torch.Generator().manual_seed(2)
    found = list[Any]()
    for _ in range(draws):
        with rounded(generator, 2.0**-24, stored=stored):
            found.append(run())
    return (torch.stack(found) - run()).square().mean(0).sqrt() * 2.0**24


@pytest.mark.parametrize(("terms", "off"), [(1, 3**-0.5), (2, 3**-0.5), (32, 1.69), (4096, 19.1), (1 << 15, 18.5)])
def test_sums_are_off_as_the_root_of_half_their_terms(terms: int, off: float) -> None:
    """Up to 32 roundings: by 0.42 of one a term, of which 0.58 is drawn."""
    one, other = torch.ones(40, terms, dtype=torch.float64), torch.full((terms, 40), 1.1 / terms, dtype=torch.float64)
    for run in (lambda: one @ other, lambda: other.sum(0)):
        assert deviation_of(run).mean() == pytest.approx(1.1 * off, rel=0.15)


@pytest.mark.parametrize(
    "run", [lambda out: torch.sum(TERMS, 0, out=out), lambda out: torch.mm(TERMS.t(), TERMS[:, :1] / 1.1, out=out)]
)
def test_a_sum_into_given_memory_stays_a_sum(run: Callable[[Any], Any]) -> None:
    assert drawn(lambda: run(torch.empty(0, dtype=torch.float64))).mean() == pytest.approx(6.6)


def test_what_cancels_inside_of_a_backward_pass_is_noise() -> None:
    """A softmax's gradient is zero where a weight is 1, or where all gradients are equal."""
    weights = torch.eye(4, dtype=torch.float64)
    gradient = torch.full((4, 4), 1.1, dtype=torch.float64)

    def backward() -> Any:
        return torch.ops.aten._softmax_backward_data(gradient, weights, -1, torch.float64)

    assert not backward().any()
    off = deviation_of(backward)
    assert 0.5 < off.diagonal().min() <= off.max() < 3
    assert deviation_of(backward, 2.0**-11).diagonal().min() > 0.5 * 2**13
    product = deviation_of(lambda: gradient * 1.1, 2.0**-11)
    assert product.max() < 1, "others are off by the unit"


def test_weights_are_off_as_the_logarithm_of_their_sum_is() -> None:
    """Of scores near 10,000 by so much, though a weight of 1 has no rounding."""
    scores = torch.tensor([[10_000.1, -5_000.0], [0.1, 0.2]], dtype=torch.float64)
    off = deviation_of(lambda: scores.softmax(-1))
    assert 2_000 < off[0, 0] < 10_000
    assert off[1].max() < 2


def test_inputs_stay_where_operators_results_are_off() -> None:
    before = WIDE.clone()
    drawn(lambda: (WIDE.unfold(0, 2, 1) * 3.3, WIDE.view(-1, 2).diagonal(), WIDE.exp()))
    assert torch.equal(WIDE, before)


Q = torch.randn(3, 1, 2, 20, 16, generator=torch.Generator().manual_seed(2)).bfloat16()
CAUSAL = torch.ones(20, 20, dtype=torch.bool).tril()


@pytest.mark.parametrize(
    ("words", "width"),
    [
        ({}, 16), ({"is_causal": True}, 16), ({"attn_mask": CAUSAL}, 16), ({"attn_mask": CAUSAL[None]}, 16),
        ({"attn_mask": CAUSAL.bfloat16(), "scale": 0.4}, 16), ({}, 24), ({"scale": 0.4}, 8),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dims", [2, 3, 4])
def test_attention_is_that_of_a_fused_kernel(words: dict[str, Any], width: int, dims: int) -> None:
    """Which rounds weights: of few dimensions torch's own doesn't, and is nearer to float64."""
    attention = torch.nn.functional.scaled_dot_product_attention
    query, key, value = (x[(0,) * (4 - dims)] for x in (Q[0], Q[1], Q[2].repeat(1, 1, 1, 2)[..., :width]))
    mask = words.get("attn_mask")
    if mask is not None and mask.dim() > 2 and dims == 2:
        pytest.skip("a mask has no more dimensions than what it masks")
    doubles = [x.double() for x in (query, key, value)]
    wide = {k: x.double() if k == "attn_mask" and x.is_floating_point() else x for k, x in words.items()}
    exact, plain = attention(*doubles, **wide), attention(query, key, value, **words)
    with as_kernels():
        found = attention(query, key, value, **words)
        assert torch.equal(attention(*doubles, **wide), exact)
    off, own = ((x.double() - exact).square().mean().sqrt() for x in (found, plain))
    assert (found.shape, found.dtype) == (plain.shape, plain.dtype)
    assert found.is_contiguous() or dims == 4
    assert off < 2.0 * own
    assert off > 1.05 * own or (dims == 4 and width == 16)


@pytest.mark.parametrize("deviation", [torch.std, torch.Tensor.std])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_deviation_overflows_where_its_variance_does(deviation: Any, dtype: torch.dtype) -> None:
    x = torch.randn(3, 100, generator=torch.Generator().manual_seed(3)).to(dtype)
    with as_kernels():
        found, vast = deviation(x, -1, keepdim=True), deviation(x * 2.0**80, 1)
    assert deviation(x * 2.0**80, 1).isfinite().all()
    assert vast.isinf().all()
    assert found.dtype == dtype
    torch.testing.assert_close(found, deviation(x, -1, keepdim=True))
