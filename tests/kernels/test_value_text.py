"""Values as texts: what compiles otherwise reads otherwise, in every process alike."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from kerntune.kernels.source import text_of


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


def test_a_gluon_descriptors_layout_is_part_of_its_text() -> None:
    """It decides the code; that of Triton's descriptors is the same for all, and their texts stay."""
    base = torch.zeros(64, 64, dtype=torch.float16)
    wide, narrow = (gl.NVMMASharedLayout(swizzle_byte_width=w, element_bitwidth=16) for w in (128, 64))
    one, other = (GluonDescriptor.from_tensor(base, [64, 64], layout) for layout in (wide, narrow))
    assert text_of(one) != text_of(other)
    assert text_of(TensorDescriptor.from_tensor(base, [64, 64])) == (
        "descriptor(torch.float16(64, 64)(64, 1), (64, 64), (64, 1), (64, 64))"
    )


def test_texts_hold_no_addresses() -> None:
    """They are stored, and read by another process."""
    values = (Plain(), doubled, tl.constexpr(doubled), triton.constexpr_function(doubled))
    assert all("0x" not in text_of(value) for value in values)
