"""The texts of kernels that are made of parts, line by line."""

from __future__ import annotations

import linecache
from typing import Any

import pytest

from kerntune.errors import ConfigError
from kerntune.kernels.combined import PartCode, alone_kernel, block_names, round_robin_kernel, sequential_kernel

LINE = PartCode(None, "line", ("x_ptr", "n", "BLOCK"), frozenset({"BLOCK"}), {"x": ("n",)}, {"x": "BLOCK"})
PLANE = PartCode(
    None, "plane", ("a", "rows", "cols", "YB", "XB", "R"), frozenset({"YB", "XB", "R"}),
    {"y": ("rows",), "x": ("cols", "rows"), "r0": ("cols",)}, {"y": "YB", "x": "XB", "r0": "R"}, frozenset({"rows"}),
)  # fmt: skip
ROWS = PartCode(None, "rows", ("a", "n"), frozenset(), {"x": ("n",)}, {})
ONE = PartCode(None, "one", ("a", "R0"), frozenset({"R0"}), {"r0": ("n",)}, {"r0": "R0"})


def text(kernel: Any) -> list[str]:
    return [line.rstrip("\n") for line in linecache.cache[kernel.fn.__code__.co_filename][2]]


def test_a_part_alone_has_its_own_names() -> None:
    assert text(alone_kernel(PLANE)) == [
        "def plane(a, rows, cols, YB: tl.constexpr, XB: tl.constexpr, R: tl.constexpr):",
        "    part_0(tl.program_id(0), tl.program_id(1), a=a, rows=rows, cols=cols, YB=YB, XB=XB, R=R)",
    ]
    assert text(alone_kernel(ONE))[1] == "    part_0(a=a, R0=R0)"


def test_parts_one_after_the_other() -> None:
    """A part's y is folded into x."""
    assert text(sequential_kernel("both", [LINE, PLANE])) == [
        "def both(x_ptr_0, n_0, a_1, rows, cols_1, XBLOCK_0: tl.constexpr, YBLOCK_1: tl.constexpr, "
        "XBLOCK_1: tl.constexpr, R0_BLOCK_1: tl.constexpr):",
        "    block = tl.program_id(0)",
        "    x_0_blocks = tl.cdiv(n_0, XBLOCK_0)",
        "    end_0 = 0 + x_0_blocks",
        "    x_1_blocks = tl.cdiv(cols_1 * rows, XBLOCK_1)",
        "    end_1 = end_0 + x_1_blocks * tl.cdiv(rows, YBLOCK_1)",
        "    if block < end_0:",
        "        part_0((block - 0), x_ptr=x_ptr_0, n=n_0, BLOCK=XBLOCK_0)",
        "    elif block < end_1:",
        "        part_1((block - end_0) % x_1_blocks, (block - end_0) // x_1_blocks, a=a_1, rows=rows, cols=cols_1, "
        "YB=YBLOCK_1, XB=XBLOCK_1, R=R0_BLOCK_1)",
    ]


def test_parts_with_the_same_blocks() -> None:
    """Of the grid's axes; a reduction's stay the part's own."""
    lines = text(sequential_kernel("both", [LINE, PLANE], one_block=True))
    assert lines[0].endswith("XBLOCK: tl.constexpr, YBLOCK: tl.constexpr, R0_BLOCK_1: tl.constexpr):")
    assert lines[2] == "    x_0_blocks = tl.cdiv(n_0, XBLOCK)"
    assert lines[-1].endswith("YB=YBLOCK, XB=XBLOCK, R=R0_BLOCK_1)")


def test_parts_in_turn() -> None:
    """Without a block an element is one, and a part without an axis has one block."""
    assert text(round_robin_kernel("turns", [LINE, ROWS, ONE])) == [
        "def turns(x_ptr_0, n_0, a_1, n_1, a_2, XBLOCK: tl.constexpr, R0_BLOCK_2: tl.constexpr):",
        "    turn, block = tl.program_id(0) % 3, tl.program_id(0) // 3",
        "    if turn == 0:",
        "        if block < tl.cdiv(n_0, XBLOCK):",
        "            part_0(block, x_ptr=x_ptr_0, n=n_0, BLOCK=XBLOCK)",
        "    elif turn == 1:",
        "        if block < (n_1):",
        "            part_1(block, a=a_1, n=n_1)",
        "    elif turn == 2:",
        "        if block < (1):",
        "            part_2(a=a_2, R0=R0_BLOCK_2)",
    ]


def test_blocks_of_a_combined_kernel() -> None:
    assert block_names([LINE, PLANE], one_block=False) == ("XBLOCK_0", "YBLOCK_1", "XBLOCK_1", "R0_BLOCK_1")
    assert block_names([LINE, PLANE], one_block=True) == ("XBLOCK", "YBLOCK", "R0_BLOCK_1")


def test_equal_texts_have_one_file_in_every_process() -> None:
    files = [sequential_kernel(name, [LINE]).fn.__code__.co_filename for name in ("same", "same", "other")]
    assert files[0] == files[1] != files[2]
    assert files[0].startswith("<kerntune same ")
    assert len(files[0]) == len("<kerntune same >") + 16


def test_what_can_not_be_combined() -> None:
    with pytest.raises(ConfigError, match="combo t: plane has an axis y; parts that take turns have x only"):
        round_robin_kernel("t", [LINE, PLANE])
    with pytest.raises(ConfigError, match="'not a name' can't be a kernel's name"):
        sequential_kernel("not a name", [LINE])
    with pytest.raises(ConfigError, match="combo c: n_0 would stand for two of its parameters; rename one in its part"):
        sequential_kernel(
            "c", [LINE, PartCode(None, "other", ("n_0",), frozenset({"n_0"}), {}, {}, frozenset({"n_0"}))]
        )
