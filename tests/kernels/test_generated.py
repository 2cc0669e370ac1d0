"""Kernels that a compiler named: their numbers say nothing."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest

from kerntune.kernels.source import (
    GeneratedFrom,
    GeneratedKernel,
    generated,
    kernel_name,
    lines_of,
    mark_generated,
    name_without_number,
    origins_of,
    source_hash,
)

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def {name}(x, BLOCK: tl.constexpr):
    # {name}
    i = tl.arange(0, BLOCK)
    tl.store(x + i, i{more})
"""


def kernel(folder: Path, name: str, more: str = "", marked: str = "") -> Any:
    path = folder / f"{name}{len(more)}.py"
    path.write_text(SOURCE.format(name=name, more=more))
    linecache.checkcache(str(path))
    scope: dict[str, Any] = {"__name__": name}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    if marked:
        mark_generated(scope[name], GeneratedKernel(marked, name, ("aten.arange",), lines=("a.py:1",)))
    return scope[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("triton_poi_fused_add_12", "triton_poi_fused_add"),
        ("triton_red_fused_mm_2_0", "triton_red_fused_mm_2"),
        ("triton_poi_fused_log1p", "triton_poi_fused_log1p"),
    ],
)
def test_the_number_of_a_name(name: str, expected: str) -> None:
    assert name_without_number(name) == expected


def test_a_generated_kernels_name_is_no_part_of_its_source(tmp_path: Path) -> None:
    one = kernel(tmp_path, "triton_poi_fused_arange_0", marked="triton_poi_fused_arange")
    other = kernel(tmp_path, "triton_poi_fused_clone_3", marked="triton_poi_fused_clone")
    assert source_hash(one) == source_hash(other)
    assert kernel_name(one) == "triton_poi_fused_arange"
    assert (origins_of(one), lines_of(one)) == (("aten.arange",), ("a.py:1",))


def test_other_code_has_another_hash(tmp_path: Path) -> None:
    one = kernel(tmp_path, "triton_poi_fused_arange_0", marked="triton_poi_fused_arange")
    other = kernel(tmp_path, "triton_poi_fused_arange_1", " + 1", marked="triton_poi_fused_arange")
    assert source_hash(one) != source_hash(other)


def test_a_persons_kernel_keeps_its_name(tmp_path: Path) -> None:
    one, other = kernel(tmp_path, "copy_1"), kernel(tmp_path, "copy_2")
    assert generated(one) is None
    assert (origins_of(one), lines_of(one)) == ((), ())
    assert kernel_name(one) == "copy_1"
    assert source_hash(one) != source_hash(other)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (GeneratedFrom("2.13", graph="g"), GeneratedFrom("2.15", graph="g"), True),
        (GeneratedFrom("2.13", graph="g"), GeneratedFrom("2.13", graph="g"), False),
        (GeneratedFrom("2.13"), GeneratedFrom("2.15"), False),
        (GeneratedFrom("2.13", (), ("a",)), GeneratedFrom("2.15", (), ("b",)), False),
        (GeneratedFrom("2.13", ("f",), ("a",)), GeneratedFrom("2.15", ("f",), ("b",)), True),
        (GeneratedFrom("2.13", ("f",), ("a",)), GeneratedFrom("2.15", ("g",), ("b",)), False),
        (GeneratedFrom("2.13", ("f",), ("a",), "g"), GeneratedFrom("2.15", ("f",), ("a",), "h"), False),
    ],
)
def test_what_another_torch_alone_can_have_made(before: GeneratedFrom, after: GeneratedFrom, expected: bool) -> None:
    assert before.remade(after) is expected
