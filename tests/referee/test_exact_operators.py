"""Which references have one right result for equal numbers, halves and zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kerntune.referee.exact_operators import is_exact, promises_indices

X, Y = torch.randn(2, 8, 5).unbind(0)
HALF, WHOLE = X.half(), torch.arange(40).reshape(8, 5)


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
        (lambda: torch.bucketize(X, Y[0].sort().values), False),
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
    ("run", "promised"),
    [
        (lambda: X.argmax(-1), True), (lambda: (X * 3).argmax(-1), False), (lambda: X.topk(2).indices, False),
        (lambda: X.exp(), False),
    ],
)  # fmt: skip
def test_indices_of_the_inputs_own_numbers_are_promised(run: Callable[[], Any], promised: bool) -> None:
    assert promises_indices(lambda: (run(), [X], "")) == promised
