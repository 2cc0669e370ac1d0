"""Arguments flattened: as many, and of the same types, as the parameters that the compiler gave the binary."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import COMPILER, bind, scale_kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from triton.tools.tensor_descriptor import TensorDescriptor

from kerntune.base.device import Target
from kerntune.base.recording import Param
from kerntune.capture.memory_plan import Plan
from kerntune.compiling.compiler import Compiled
from kerntune.errors import CaptureError
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.specialize import TMA_DTYPE_DEVICE_TO_HOST, Specialized, flatten, pointer_views

SM90, SM80, GFX942 = Target.parse("cuda:90"), Target.parse("cuda:80"), Target.parse("hip:gfx942")

PTX_WIDTH = {"*": 64, "i1": 8, "u1": 8, "i8": 8, "i16": 16, "i32": 32, "u32": 32, "i64": 64, "u64": 64, "fp32": 32}
"""Bits of a PTX parameter; a truth value takes a byte."""


@triton.jit
def mixed_kernel(x_ptr, y_ptr, one, n, wide, flag, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n) * factor + one + wide.to(tl.float32)
    if flag:
        x += 1
    if y_ptr is not None:
        x += tl.load(y_ptr + i, mask=i < n)
    tl.store(x_ptr + i, x, mask=i < n)


@triton.jit
def tuple_kernel(pair, scalars, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n, inner = scalars
    tl.store(pair[1] + i, tl.load(pair[0] + i, mask=i < n) * inner[0] + inner[1], mask=i < n)


@triton.jit
def tile_kernel(source, n, target, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    target.store([row, 0], source.load([row, 0]) * n)


def flat(backend: FakeBackend, launch: Specialized, compiled: Compiled | None = None) -> tuple[Param, ...]:
    plan, found = Plan(backend), flatten(launch, compiled.metadata if compiled else {})
    return tuple(p if tensor is None else replace(p, view=plan.view_of(tensor)) for p, tensor in found)


def entry_parameters(ptx: str) -> list[str]:
    """The declarations between the entry's parentheses."""
    found = re.search(r"\.entry\s+\w+\s*\((.*?)\)", ptx, re.DOTALL)
    assert found
    return re.findall(r"\.param[^,\n]*", found[1])


def width(declaration: str) -> int:
    found = re.search(r"\.[busf](\d+)", declaration)
    assert found
    return int(found[1])


def agree(params: tuple[Param, ...], ptx: str) -> None:
    """As many parameters as the binary has but the two scratch pointers, each as wide."""
    declared = entry_parameters(ptx)
    assert len(declared) == len(params) + 2
    for param, text in zip(params, declared, strict=False):
        if param.type == "nvTmaDesc":
            assert ".b8" in text
            assert "[128]" in text
        else:
            assert width(text) == PTX_WIDTH["*" if param.type.startswith("*") else param.type], (param, text)


def tensors(count: int = 2, *shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(*(shape or (4096,)), device="cuda", dtype=dtype) for _ in range(count)]


def parameters(backend: FakeBackend, *call: Any, **options: Any) -> tuple[Param, ...]:
    """Those of a launch, which agree with its binary's."""
    launch = bind(backend, *call, BLOCK=64, **options)
    compiled = COMPILER.compile(launch)
    params = flat(backend, launch, compiled)
    agree(params, compiled.asm)
    return params


CASES = {
    "all present": ((2, 4096, 1 << 40, True, 2.5), ["x_ptr", "y_ptr", "one", "n", "wide", "flag", "factor"]),
    "ones are constants": ((1, 1, 1 << 40, False, 1.0), ["x_ptr", "y_ptr", "wide", "flag", "factor"]),
    "unsigned and odd": ((3, 4097, 2**63, True, -0.0), ["x_ptr", "y_ptr", "one", "n", "wide", "flag", "factor"]),
}


@pytest.mark.parametrize("case", CASES)
def test_scalars_and_pointers(backend: FakeBackend, case: str) -> None:
    (one, n, wide, flag, factor), names = CASES[case]
    x, y = tensors()
    params = parameters(backend, mixed_kernel, x, y, one, n, wide, flag, factor)
    assert [p.name for p in params] == names
    given = {"one": one, "n": n, "wide": wide, "flag": flag, "factor": factor}
    assert {p.name: p.value for p in params if p.view is None} == {k: v for k, v in given.items() if k in names}
    assert [type(p.value) for p in params[-2:]] == [bool, float]


def test_null_pointers_are_constants(backend: FakeBackend) -> None:
    (x,) = tensors(1)
    params = parameters(backend, mixed_kernel, x, None, 2, 4096, 1 << 40, True, 2.5)
    assert [p.name for p in params] == ["x_ptr", "one", "n", "wide", "flag", "factor"]


class Pair(NamedTuple):
    source: Any
    target: Any


@pytest.mark.parametrize("make", [tuple, lambda pair: Pair(*pair)], ids=["tuple", "named tuple"])
def test_tuples_are_expanded_in_order(backend: FakeBackend, make: Any) -> None:
    x, y = tensors()
    params = parameters(backend, tuple_kernel, make((x, y)), (4096, (2.0, 3)))
    assert [p.name for p in params] == ["pair[0]", "pair[1]", "scalars[0]", "scalars[1][0]", "scalars[1][1]"]
    assert [(p.view, p.value) for p in params] == [(0, None), (1, None), (None, 4096), (None, 2.0), (None, 3)]


def test_ones_in_tuples_are_constants(backend: FakeBackend) -> None:
    x, y = tensors()
    params = parameters(backend, tuple_kernel, (x, y), (4096, (2.0, 1)))
    assert [p.name for p in params] == ["pair[0]", "pair[1]", "scalars[0]", "scalars[1][0]"]


def descriptors(dtype: torch.dtype = torch.float16, **options: Any) -> list[TensorDescriptor]:
    return [TensorDescriptor.from_tensor(t, [64, 32], **options) for t in tensors(2, 256, 32, dtype=dtype)]


def test_descriptors_become_tensor_maps_where_there_is_tma(backend: FakeBackend) -> None:
    source, target = descriptors()
    params = parameters(backend, tile_kernel, source, 3, target)
    parts = ["map", "shape[0]", "shape[1]", "strides[0]", "strides[1]"]
    assert [p.name for p in params] == [*(f"source.{x}" for x in parts), "n", *(f"target.{x}" for x in parts)]
    tensor_map = params[0].tensor_map
    assert tensor_map is not None
    assert (tensor_map.shape, tensor_map.strides, tensor_map.block) == ((256, 32), (32, 1), (64, 32))
    assert (tensor_map.elem_size, tensor_map.nan_padding) == (2, False)
    assert [params[0].view, params[6].view] == [0, 1]


def test_descriptors_become_pointers_and_strides_elsewhere(backend: FakeBackend) -> None:
    source, target = descriptors()
    params = parameters(backend, tile_kernel, source, 3, target, target=SM80)
    assert params[0] == Param("source.base", "*fp16", view=0)
    assert all(p.tensor_map is None for p in params)
    values = {p.name: p.value for p in params}
    assert (values["source.shape[0]"], values["source.strides[0]"], values["source.strides[1]"]) == (256, 32, 1)


def test_padding_enters_the_tensor_map(backend: FakeBackend) -> None:
    source, target = descriptors(padding="nan")
    tensor_map = parameters(backend, tile_kernel, source, 3, target)[0].tensor_map
    assert tensor_map is not None
    assert tensor_map.nan_padding is True


def test_element_types_of_maps_are_the_drivers() -> None:
    """``CUtensorMapDataType``: 6 float16, 7 float32, 8 float64, 9 bfloat16, 10 float32 with zeroed denormals."""
    assert TMA_DTYPE_DEVICE_TO_HOST == {8: 10, 9: 8, 10: 9}


@pytest.mark.parametrize(("dtype", "number"), [(torch.float16, 6), (torch.float32, 7), (torch.bfloat16, 9)])
def test_element_types(backend: FakeBackend, dtype: torch.dtype, number: int) -> None:
    """Numbers from cuda.h, ``CUtensorMapDataType_enum``."""
    source, target = descriptors(dtype)
    tensor_map = parameters(backend, tile_kernel, source, 3, target)[0].tensor_map
    assert tensor_map is not None
    assert tensor_map.elem_type == number


def test_pointers_given_as_numbers_or_without_memory_are_refused(backend: FakeBackend) -> None:
    class Pointer:
        dtype = torch.float32

        def __init__(self, address: int) -> None:
            self.address = address

        def data_ptr(self) -> int:
            return self.address

    (x,) = tensors(1)
    launch = bind(backend, scale_kernel, x, Pointer(1 << 41), 4096, 2.0, BLOCK=64)
    with pytest.raises(CaptureError, match="a Pointer: Triton can only reach"):
        flat(backend, launch)


def test_views_follow_the_pointers_of_the_ttir(backend: FakeBackend) -> None:
    source, target = descriptors()
    launch = bind(backend, tile_kernel, source, 3, target, BLOCK=64)
    compiled = COMPILER.compile(launch)
    assert pointer_views(flat(backend, launch, compiled)) == [0, 1]
    assert list(compiled.access.reads) == [0]
    assert list(compiled.access.writes) == [1]


def test_amd_binaries_take_the_same_list(backend: FakeBackend) -> None:
    x, y = tensors()
    launch = bind(backend, scale_kernel, x, y, 4096, 2.0, target=GFX942, BLOCK=64)
    compiled = COMPILER.compile(launch)
    metadata = re.search(r"\.args:(.*?)\.group_segment", compiled.asm, re.DOTALL)
    assert metadata
    declared = re.findall(r"\.size:\s+(\d+)", metadata[1])
    params = flat(backend, launch, compiled)
    assert [int(n) * 8 for n in declared[: len(params)]] == [64, 64, 32, 32]
    assert len(declared) == len(params) + 2


# properties without a compiler

numbers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0, 1, -1, 16, 2**31 - 1, 2**31, 2**63])
floats = st.floats(allow_nan=False)
leaves = st.none() | st.booleans() | numbers | floats | st.just("tensor")
trees = st.recursive(leaves, lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=6)


@triton.jit
def two_kernel(a, b, BLOCK: tl.constexpr):
    pass


def materialise(tree: Any, tensor: torch.Tensor) -> Any:
    if isinstance(tree, tuple):
        return tuple(materialise(x, tensor) for x in tree)
    return tensor if tree == "tensor" and isinstance(tree, str) else tree


def expected(tree: Any) -> list[Any]:
    """What is left of an argument: None and whole numbers equal to 1 are constants, truth values are not."""
    if isinstance(tree, tuple):
        return [leaf for x in tree for leaf in expected(x)]
    constant = tree is None or (isinstance(tree, int) and not isinstance(tree, bool) and tree == 1)
    return [] if constant else [tree]


@settings(max_examples=60, deadline=None)
@given(a=trees, b=trees)
def test_what_is_left_of_any_arguments(shared: FakeBackend, a: Any, b: Any) -> None:
    (tensor,) = tensors(1, 16)
    launch = bind(shared, two_kernel, materialise(a, tensor), materialise(b, tensor), BLOCK=64)
    params = flat(shared, launch)
    left = [*expected(a), *expected(b)]
    assert len(params) == len(left)
    for param, value in zip(params, left, strict=True):
        if isinstance(value, str):
            assert (param.type, param.view, param.value) == ("*fp32", 0, None)
        else:
            assert param.view is None
            if isinstance(value, float) and not math.isfinite(value):
                value = str(value)  # JSON has neither infinities nor NaN
            assert type(param.value) is type(value)
            assert param.value == value
