"""Calls that Triton compiles the same code for are one kind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from kerntune.base.config import Config
from kerntune.base.tuning_job import ConstantText, DescriptorText, ScalarText, SequenceText, TensorText
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning.many import hand_out
from kerntune.tuning.many.describing import describe
from kerntune.tuning.many.hand_out import kind_of
from kerntune.tuning.many.tune_many import tuning_job
from tuning.many import kernels


def kind(x: torch.Tensor, n: int, factor: Any = 2.0, kernel: Any = kernels.scaled) -> str:
    return kind_of(tuning_job(kernel, kernels.grid(n), x, torch.empty_like(x), n, factor))


@pytest.fixture
def x(this_gpu: FakeBackend) -> torch.Tensor:
    return torch.empty(4096, device="cuda")


def test_sizes_that_only_change_the_work_are_one_kind(x: torch.Tensor) -> None:
    wide = torch.empty(1 << 20, device="cuda")
    assert kind(x, 4096) == kind(wide, 1 << 20) == kind(x, 4096, factor=3.5)
    assert kind(x[:-1], 4095) == kind(x[:-3], 4093)


def test_what_triton_compiles_for_makes_another(x: torch.Tensor) -> None:
    """Divisibility by 16, the number 1, 64 bits, a dtype, an address."""
    several = [kind(x, n) for n in (4096, 4095, 1, 1 << 40)]
    several += [kind(x.half(), 4096), kind(x[1:], 4096), kind(x, 4096, factor=2), kind(x, 4096, factor=None)]
    assert len(set(several)) == len(several)


def test_kernels_and_given_configs_are_apart(x: torch.Tensor) -> None:
    words = {"grid": (1,)}
    configs = [Config({"BLOCK": block}) for block in (64, 128)]
    plain = [describe(kernels.plain.fn, (x, x, 4096), words, configs=[c]) for c in configs]
    assert len({kind(x, 4096), kind(x, 4096, kernel=kernels.unkept), *map(kind_of, plain)}) >= 3


TENSOR = TensorText("float16", (8,), (1,), 0, 4096)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ScalarText("int", "1"), "int 1"),
        (ScalarText("int", "17"), "int32"),
        (ScalarText("int", "-16"), "int32 divisible"),
        (ScalarText("int", str(2**31 - 1)), "int32"),
        (ScalarText("int", str(2**31)), "int64 divisible"),
        (ScalarText("int", str(-(2**31))), "int32 divisible"),
        (ScalarText("int", str(-(2**31) - 1)), "int64"),
        (ScalarText("float", "1.5"), "float"),
        (ScalarText("bool", "True"), "bool True"),
        (TENSOR, "float16"),
        (msgspec.structs.replace(TENSOR, offset=8), "float16 misaligned"),
        (msgspec.structs.replace(TENSOR, offset=8, misaligned=8), "float16"),
        (msgspec.structs.replace(TENSOR, misaligned=15, host=True), "float16 misaligned host"),
        (SequenceText("tuple", (TENSOR, ScalarText("int", "1"))), "tuple(float16,int 1)"),
        (DescriptorText(TENSOR, (8,), (1,), (4,)), "descriptor float16 (4,)"),
    ],
)
def test_what_triton_compiles_for_is_told_of_each_argument(value: Any, text: str) -> None:
    assert hand_out._of(value) == text


def test_constants_are_told_by_their_values() -> None:
    one, two = (hand_out._of(ConstantText(ScalarText("int", text))) for text in "12")
    assert one != two
    assert "text='1'" in one
