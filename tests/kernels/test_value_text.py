"""Values as texts: what compiles otherwise reads otherwise, in every process alike."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

from kerntune.kernels.value_text import text_of


class Mode(Enum):
    FAST = 1
    EXACT = 2


def doubled(x: Any) -> Any:
    return x * 2


class Plain:
    """Has no text of its own."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tl.constexpr(64), tl.constexpr(128)),
        (tl.constexpr(tl.float16), tl.constexpr(tl.float32)),
        (Mode.FAST, Mode.EXACT),
        (np.int32(3), np.int32(4)),
        (np.int32(3), np.int64(3)),
        (tl.exp, tl.sqrt),
        (triton.constexpr_function(doubled), triton.constexpr_function(text_of)),
        ((tl.exp, 1), (tl.sqrt, 1)),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_values_that_compile_otherwise_have_other_texts(one: Any, other: Any) -> None:
    """A winner, or a failed trial, of one must not be believed of the other."""
    assert text_of(one) != text_of(other)


def test_texts_hold_no_addresses() -> None:
    """They are stored, and read by another process."""
    values = (Plain(), doubled, tl.constexpr(doubled), triton.constexpr_function(doubled))
    assert all("0x" not in text_of(value) for value in values)
