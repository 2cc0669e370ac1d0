"""Arguments made from a description, of memory of the host's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton.language as tl
from msgspec.structs import replace

from kerntune.base.tuning_job import (
    SCHEMA,
    ConstantText,
    DescriptorText,
    DtypeText,
    FunctionText,
    GridText,
    NamedArgument,
    ScalarText,
    SequenceText,
    TensorText,
    TuningJob,
)
from kerntune.errors import GridError, UsageError
from kerntune.gpu import made_arguments
from kerntune.gpu.made_arguments import grid_of, make_arguments, tensors_of

X = TensorText("float32", (4, 8), (8, 1), 0, 256, host=True)


def job(*values: Any, **words: Any) -> TuningJob:
    arguments = tuple(NamedArgument(f"a{i}", value) for i, value in enumerate(values))
    return TuningJob(SCHEMA, "m", "k", arguments, GridText((3,)), len(values), **words)


def made(*values: Any) -> list[Any]:
    return make_arguments(job(*values), lambda text: (text.module, text.name))[0]


def test_positions_names_and_the_grid() -> None:
    three = replace(job(ScalarText("int", "1"), ScalarText("float", "2.5"), ScalarText("none", "None")), positional=1)
    assert make_arguments(three, lambda text: None) == ([1], {"a1": 2.5, "a2": None, "grid": (3,)})


def test_a_grid_by_what_configs_set() -> None:
    grid = grid_of(replace(job(), grid=GridText((), {"B=1": (7,), "B=2": (8, 9)}, ("B",))))
    assert [grid({"B": b, "other": 0}) for b in (1, 2)] == [(7,), (8, 9)]
    told = r"^kernel m.k, key \(\): its grid is not known for B=3; the configs have changed, record the shapes anew$"
    with pytest.raises(GridError, match=told):
        grid({"B": 3})


def test_tensors_lie_as_they_did() -> None:
    """Those of one block overlap, and begin as far past an aligned address."""
    part = replace(X, shape=(2,), strides=(3,), offset=40)
    odd = TensorText("int16", (5,), (1,), 1, 10, misaligned=6, host=True)
    x, y, z, apart = made(X, part, odd, replace(X, block=2))
    assert (x.shape, x.stride(), x.dtype, x.device.type) == ((4, 8), (8, 1), torch.float32, "cpu")
    assert (y.data_ptr() - x.data_ptr(), y.stride(), y.untyped_storage().data_ptr()) == (
        40, (3,), x.untyped_storage().data_ptr(),
    )  # fmt: skip
    assert apart.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert (z.data_ptr() - z.untyped_storage().data_ptr(), z.dtype) == (6, torch.int16)
    assert [t.untyped_storage().nbytes() for t in (x, z)] == [512, 512], "a block is whole, and one more"


def test_contents_are_in_range() -> None:
    """Whole numbers may be indices of the shortest dimension; floats are normal."""
    wide = TensorText("float32", (100, 100), (100, 1), 0, 40_000, host=True)
    index = TensorText("int64", (1000, 7), (7, 1), 1, 56_000, host=True)
    flags = TensorText("bool", (1000,), (1,), 2, 1000, host=True)
    x, i, b = made(wide, index, flags)
    assert (abs(float(x.mean())) < 0.1, 0.9 < float(x.std()) < 1.1) == (True, True)
    assert (int(i.min()), int(i.max()), set(b.tolist())) == (0, 6, {False, True})


def test_a_content_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_arguments, "AT_ONCE", 64)
    (memory,) = made(TensorText("int8", (200,), (1,), 0, 200, host=True))
    assert int(memory.min()) >= 0
    assert len(set(memory[128:192].tolist())) > 20
    assert int(memory[192:].max()) >= 0


def test_other_arguments() -> None:
    scalar = ScalarText("int", "3")
    pair, listed, constant, own, torchs, tritons, descriptor = made(
        SequenceText("tuple", (scalar, scalar)), SequenceText("list", (scalar,)), ConstantText(scalar),
        FunctionText("ops", "f"), DtypeText("torch", "float16"), DtypeText("triton", "fp16"),
        DescriptorText(X, (4, 8), (8, 1), (2, 8)),
    )  # fmt: skip
    assert (pair, listed, constant.value, own, torchs, tritons) == (
        (3, 3), [3], 3, ("ops", "f"), torch.float16, tl.float16,
    )  # fmt: skip
    assert (descriptor.shape, descriptor.strides, descriptor.block_shape) == ([4, 8], [8, 1], [2, 8])
    found = tensors_of(
        job(X, SequenceText("list", (replace(X, block=1),)), DescriptorText(replace(X, block=2), (), (), ()))
    )
    assert sorted(text.block for text in found) == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (replace(X, offset=2), "kernel m.k, key (): a tensor of float32 lies at byte 2, which it can't"),
        (replace(X, dtype="float5"), "torch has no type 'float5'; record the shapes anew, or use the torch that they"),
        (replace(X, dtype="x" * 99), f"torch has no type {'x' * 80!r}; record the shapes anew, or use the torch that"),
        (replace(X, dtype="cuda.is_available"), "torch has no type 'cuda.is_available'; record"),
        (replace(X, dtype="Tensor"), "torch has no type 'Tensor'; record"),
        (DtypeText("triton", "y" * 99), f"Triton has no type {'y' * 80!r}; record the shapes anew"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_named(value: Any, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        made(value)
    assert str(refused.value).startswith(told)
