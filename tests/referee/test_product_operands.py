"""Products of a reference that upcasts: which operands count as 16 bits, and what a verdict allows by that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch.nn.functional import conv1d, scaled_dot_product_attention

from kerntune.referee.errors_together import BY_PRODUCTS, ShapeComparison, errors_of, together_of
from kerntune.referee.hostile_recording import checked
from kerntune.referee.judgement import Bench, judge
from kerntune.referee.product_operands import sixteen_bits, with_products
from kerntune.referee.sealing import landlock_version
from kerntune.referee.tasks import ExpectedResult, ExpectedSeed
from kerntune.referee.verdicts import Word
from tests.referee.recordings import CALL, CASE, TARGET

Q, K, V = torch.randn(3, 2, 20, 16, generator=torch.Generator().manual_seed(0)).bfloat16().unbind(0)
WIDE = torch.randn(16, 16)
FILE = Path(__file__).with_name("upcast_products.py")


def rounded(run: Callable[[], Any]) -> set[str]:
    """The dtypes to which operands are rounded, by which what ``run`` computes is another."""
    taken = set[str]()
    with sixteen_bits(taken):
        other = run()
    assert bool(taken) == bool((other != run()).any())
    return taken


@pytest.mark.parametrize(
    "run",
    [
        lambda: Q.float().sigmoid() @ V.float().mT, lambda: (Q.float() * 1.1) @ (K.float() * 1.1).mT,
        lambda: torch.einsum("bqd,bkd->bqk", Q.float().exp(), K.float()),
        lambda: torch.addmm(WIDE[0], Q[0].float().exp(), V[0, :16].float()),
        lambda: (Q.float().exp()[:, :, None] * V.float()[:, None]).sum(-1),
        lambda: (Q.float().exp()[0, 0] * V[0].float()).sum(-1, keepdim=True),
        lambda: scaled_dot_product_attention(Q.float(), K.float(), V.float()),
        lambda: conv1d(Q.float().exp(), V.float().reshape(32, 20, 1)),
        lambda: torch.softmax(Q.float() @ K.float().mT + WIDE[0, 0], -1) @ V.float(),
    ],
)  # fmt: skip
def test_products_of_what_follows_from_16_bits_have_operands_of_these(run: Callable[[], Any]) -> None:
    assert rounded(run) == {"bfloat16"}


@pytest.mark.parametrize(
    "run",
    [
        lambda: Q.float() @ K.float().mT, lambda: Q.float().exp() @ WIDE,
        lambda: Q.float().exp() @ (WIDE * 1.1).T.clone(),
        lambda: WIDE.exp() @ WIDE, lambda: Q.float().exp() * V.float(), lambda: (Q.float().exp() * V.float()).sum(-1),
        lambda: Q.float().exp()[:, :, None] * V.float()[:, None], lambda: Q.float().exp().sum(-1),
        lambda: Q[:, :1].float().exp() @ V[:, :1].float().mT, lambda: Q.sigmoid() @ V.mT,
        lambda: (Q.float().exp()[:, :, None] * V.float()[:, None]).exp().sum(-1),
        lambda: conv1d(Q.float().exp(), V[0].float()[:, None], groups=20), lambda: (WIDE * 1.1).sum(0),
        lambda: ((Q > 0).float() * 1.1) @ torch.ones(16, 1),
    ],
)  # fmt: skip
def test_others_are_as_they_are(run: Callable[[], Any]) -> None:
    assert rounded(run) == set()


def test_numbers_of_8_bits_become_operands_of_16_and_of_two_kinds_the_finer_one() -> None:
    assert rounded(lambda: Q.to(torch.float8_e5m2).float() * 1.1 @ K.to(torch.int8).float().mT) == {"bfloat16"}
    assert rounded(lambda: Q.float().sigmoid() @ V.half().float().mT) == {"float16"}


def test_memory_that_is_taken_again_follows_from_what_is_written_there() -> None:
    def run() -> Any:
        buffer = torch.empty(16, 16)
        buffer.copy_(V[0, :16].float().exp())
        first = buffer @ V[0, :16].float()
        del buffer
        return first + torch.empty(16, 16).copy_(WIDE) @ WIDE

    assert rounded(run) == {"bfloat16"}


@pytest.mark.parametrize("far", [False, True])
def test_what_overflows_in_16_bits_is_finite_of_usual_inputs(far: bool) -> None:
    large = torch.full((4, 4), 300.0).half()

    def run(rounding: Any) -> tuple[list[Any], list[Any], str]:
        with rounding():
            return [large.float().square() @ large.float()], [large], "tensor"

    native = large.float().square() @ large.float()
    one = ExpectedResult("float32", (4, 4), (4, 1), native.numpy().tobytes(), b"")
    (found, none), again = with_products(run, [one, None], [native, large], far)
    assert np.isinf(np.frombuffer(found.by_products, "f4")).all() == far
    assert (none, again) == (None, True)


def test_a_reference_that_fails_so_has_no_such_results(capsys: pytest.CaptureFixture[str]) -> None:
    def run(rounding: Any) -> Any:
        raise ValueError("no modes")

    assert with_products(run, [None], [WIDE], False) == ([None], False)
    assert "no rounded operands: no modes" in capsys.readouterr().err


def errors_beside(found: np.ndarray, by_products: bool) -> Any:
    """The error of 600 elements that are 1 in float64, and as they are, and 0.99 by products of 16 bits; and what all
    contents together have of it."""
    one, other = np.ones(600, "f4"), np.full(600, 0.99, "f4")
    want = ExpectedResult("float32", (600,), (1,), one.tobytes(), b"")
    want = replace(want, by_products=other.tobytes()) if by_products else want
    seed = ExpectedSeed((bytes(2400), bytes(2400)), (want,))
    of = ShapeComparison(CASE, checked(CALL, CASE, TARGET), together_of(CASE, [seed]))
    seen = list[Any]()
    of.together[0].add = lambda *known: seen.append(known[3])  # type: ignore[method-assign]
    left = dict.fromkeys(of.call.wanted, bytes(2400)) | {2: found.astype("f4").tobytes()}
    (error,) = errors_of(of, seed, b"\xff" * 8, [left[i] for i in of.call.wanted], ())
    return error, seen


def test_what_is_right_beside_the_reference_as_it_is_is_compared_with_that() -> None:
    error, (stock,) = errors_beside(np.ones(600), by_products=True)
    assert (error.wrong, error.by_products, stock.min()) == ("", False, 1.0)


def test_what_products_of_16_bits_explain_is_right_and_says_so() -> None:
    error, (stock,) = errors_beside(np.full(600, 0.985), by_products=True)
    assert (error.wrong, error.by_products) == ("", True)
    assert stock.max() < 1  # all contents together have it, too
    assert errors_beside(np.full(600, 0.985), by_products=False)[0].wrong


def test_what_they_do_not_explain_is_wrong_and_says_so() -> None:
    error, _ = errors_beside(np.full(600, 0.9), by_products=True)
    assert error.wrong.endswith(f"; {BY_PRODUCTS}")
    assert BY_PRODUCTS not in errors_beside(np.full(600, 0.9), by_products=False)[0].wrong


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


HEADS = "q: bf16[2,90,32]; k: bf16[2,90,32]; v: bf16[2,90,32]"
FAR = "q: f16[2,90,32] normal(2, 1); k: f16[2,90,32] normal(2, 1); v: f16[2,90,32]"


@pytest.mark.slow
@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
@pytest.mark.parametrize(
    ("candidate", "reference", "line", "word"),
    [
        ("attention", "attention_reference", HEADS, Word.UNTIMED),
        ("attention", "attention_by_sums", HEADS.replace("bf16", "f16"), Word.UNTIMED),
        ("narrow_scores", "attention_reference", FAR, Word.WRONG),
        ("no_small_weights", "attention_reference", HEADS, Word.WRONG),
        ("eight_bit_weights", "attention_reference", HEADS, Word.WRONG),
        ("narrow_sums", "attention_reference", HEADS.replace("90", "190"), Word.WRONG),
        ("rounded_weights", "linear", "x: bf16[50,32]; w: f32[32,32]", Word.WRONG),
    ],
)
def test_weights_of_16_bits_are_right_and_nothing_else_is(
    candidate: str, reference: str, line: str, word: Word, bench: Bench
) -> None:
    verdict = judge(f"{FILE}::{candidate}", f"{FILE}::{reference}", line, bench=bench)
    assert verdict.word is word, verdict.shapes[0].text
    assert (BY_PRODUCTS in verdict.shapes[0].remarks) == (word is Word.UNTIMED)
