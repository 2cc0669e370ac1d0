"""Values as texts: what compiles otherwise reads otherwise, in every process alike."""

from __future__ import annotations

import hashlib
import math
from enum import Enum
from types import SimpleNamespace
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
from kerntune.kernels.specialize import tensor_of


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


class TensorWrapper:
    def __init__(self, base: Any) -> None:
        self.base = base


class TensorDescriptorOfAnother(TensorWrapper):
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.empty(2, 3, dtype=torch.float16), "torch.float16(2, 3)(3, 1)"),
        (torch.empty(2, 3).t(), "torch.float32(3, 2)(1, 3)"),
        (True, "True"), (3, "3"), (0.5, "0.5"), ("a", "'a'"), (None, "None"), ((1, [2, None]), "(1, (2, None))"),
        (torch.bfloat16, "torch.bfloat16"), (tl.float16, "fp16"), (tl.constexpr(3), "constexpr(3)"),
        (SimpleNamespace(data_ptr=0, dtype="f8"), "SimpleNamespace(f8)"),
        (SimpleNamespace(data_ptr=0), "SimpleNamespace()"),
        (SimpleNamespace(src="return 1"), f"function({hashlib.sha256(b'return 1').hexdigest()[:16]})"),
        (math.sqrt, "math.sqrt"), (object(), "object"), (complex(1, 2), "(1+2j)"),
        (SimpleNamespace(stride=1), "namespace(stride=1)"),
        (SimpleNamespace(dtype=1, shape=2), "namespace(dtype=1, shape=2)"),
    ],
)  # fmt: skip
def test_texts_of_values(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("value", "tensor"),
    [(3, 3), (TensorWrapper("x"), "x"), (TensorWrapper(TensorDescriptorOfAnother("x")), "x"),
     (SimpleNamespace(base="x"), SimpleNamespace(base="x"))],
)  # fmt: skip
def test_the_tensor_behind_views_of_tritons(value: Any, tensor: Any) -> None:
    assert tensor_of(value) == tensor
