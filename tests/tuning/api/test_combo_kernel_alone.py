"""Parts of combos and foreach that launch nothing: grids, and which arguments each launch gets."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kerntune
from kerntune import ComboPart
from kerntune.errors import ConfigError, UsageError
from kerntune.grids import RoundRobinComboKernelGrid, SequentialComboKernelGrid, SequentialFlattenComboKernelGrid
from kerntune.tuning.api import combo_kernel
from kerntune.tuning.api.combo_kernel import _kind
from kerntune.tuning.api.combo_tuner import ComboChoice

from .combo_parts import SCALE, SOFTMAX, SUMS, TRANSPOSE, each, softmax


class Kernel:
    """Notes its launches."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, tuple[Any, ...]]] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args: self.launches.append((grid, args))


ROWS = ComboPart(softmax, {"r0": "cols"}, {"r0": "COLS"}, kind="persistent_reduction")


@pytest.mark.parametrize(
    ("part", "grid"),
    [
        (SCALE, (16, 1, 1)),
        (TRANSPOSE, (4, 15, 1)),
        (SUMS, (3, 1, 1)),
        (SOFTMAX, (5, 1, 1)),
        (ROWS, (1, 1, 1)),
    ],
)
def test_a_part_alone_has_a_grid_of_its_own(part: ComboPart, grid: tuple[int, ...]) -> None:
    _, found = part.alone({})
    assert (
        found({"n": 1000, "BLOCK": 64, "w": 50, "h": 30, "BX": 16, "BY": 2, "rows": 5, "cols": 300, "ROWS": 2}) == grid
    )


def test_only_options_that_hold_for_parts_reach_them() -> None:
    kernel, _ = SCALE.alone({"cache_results": False, "tune": "frozen", "descend": True, "key": ["n"]})
    assert (kernel.cache_results, kernel.tune_mode.value, kernel.descent, kernel.keys) == (False, "frozen", None, [])


@pytest.mark.parametrize(
    ("parts", "order", "kind"),
    [
        ([SCALE, SUMS], "sequential", SequentialFlattenComboKernelGrid),
        ([SCALE, SUMS], "round robin", RoundRobinComboKernelGrid),
    ],
)
def test_a_combos_grid_is_that_of_its_order(parts: list[ComboPart], order: str, kind: type) -> None:
    grid = kerntune.combo(parts, order=order).grid
    assert type(grid) is kind
    meta = {"n_0": 1000, "rows_1": 5, "XBLOCK": 64, "XBLOCK_0": 64, "XBLOCK_1": 2}
    assert grid(meta) == ((16 + 3, 1, 1) if kind is SequentialFlattenComboKernelGrid else (2 * 16, 1, 1))


def test_a_parts_y_and_what_has_no_block_count_in_the_grid() -> None:
    grid = kerntune.combo([TRANSPOSE, SOFTMAX]).grid
    assert grid({"w_0": 50, "h_0": 30, "XBLOCK_0": 16, "YBLOCK_0": 2, "rows_1": 5}) == (4 * 15 + 5, 1, 1)


def test_parts_one_by_one_get_their_own_arguments() -> None:
    kernel, made = kerntune.combo([SCALE, SUMS]), [Kernel(), Kernel()]
    kernel.apart = [(made[0], "first"), (made[1], "second")]  # type: ignore[list-item]
    kernel._apart(list("abcdefgh"))
    assert [one.launches for one in made] == [[("first", tuple("abcd"))], [("second", tuple("efgh"))]]


def test_a_kind_of_call_is_of_sizes_and_dtypes() -> None:
    kernel = kerntune.combo([SCALE, SUMS])
    x, half = torch.empty(4), torch.empty(4, dtype=torch.float16)
    calls = [[x, x, n, 2.0, y, y, rows, cols] for n, y, rows, cols in
             ((7, x, 8, 9), (7, x[1:], 8, 9), (6, x, 8, 9), (7, half, 8, 9), (7, x, 5, 9), (7, x, 8, 5))]  # fmt: skip
    keys = [kernel._key(flat) for flat in calls]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 5
    assert keys[0][:2] == ((7, 8, 9), (x.dtype, x.dtype, None, None, x.dtype, x.dtype, None, None))


def test_a_known_kind_goes_the_way_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, gone = kerntune.combo([SCALE]), list[str]()
    monkeypatch.setattr(kernel, "_together", lambda flat: gone.append("together"))
    monkeypatch.setattr(kernel, "_apart", lambda flat: gone.append("apart"))
    x = torch.empty(4)
    for together in (True, False):
        kernel.choices[kernel._key([x, x, 4, 2.0])] = ComboChoice(together)
        kernel((x, x, 4, 2.0))
    assert gone == ["together", "apart"]
    with pytest.raises(UsageError, match=r"for each part \(scale: x_ptr, y_ptr, n, factor\); got 3, 1 arguments"):
        kernel((x, x, 4), (2.0,))


def test_a_name_is_of_the_parts_each_once() -> None:
    assert kerntune.combo([SCALE, SUMS, SCALE]).name == "combo_scale_sums"
    assert kerntune.combo([SCALE], name="mine").name == "mine"


# foreach


def lists(count: int) -> tuple[list[str], list[str], list[int], float]:
    return [f"x{i}" for i in range(count)], [f"y{i}" for i in range(count)], list(range(count)), 2.0


LISTED = [True, True, True, False]


def test_launches_share_the_tensors_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    many, kernel, asked = each(), Kernel(), list[int]()
    monkeypatch.setattr(many, "tuner_of", lambda size, listed: (asked.append(size) or kernel, "grid"))
    monkeypatch.setattr(many, "at_once", lambda listed: 4)
    many._together(9, LISTED, lists(9))
    assert asked == [3, 3, 3]
    assert kernel.launches[1] == ("grid", ("x3", "y3", 3, 2.0, "x4", "y4", 4, "x5", "y5", 5))
    asked.clear()
    many._together(5, LISTED, lists(5))
    assert asked == [3, 2]
    assert kernel.launches[-1] == ("grid", ("x3", "y3", 3, 2.0, "x4", "y4", 4))


def test_one_by_one_each_tensor_has_its_values() -> None:
    many, kernel = each(), Kernel()
    many.apart = kernel, "grid"
    many._one_by_one(2, LISTED, lists(2))
    assert kernel.launches == [("grid", ("x0", "y0", 0, 2.0)), ("grid", ("x1", "y1", 1, 2.0))]


@pytest.mark.parametrize(
    ("listed", "most", "count"),
    [(LISTED, 64, 20), ([True] * 4, 64, 15), (LISTED, 5, 1), (LISTED, 4, 1), ([True, False, False, False], 64, 60)],
)
def test_a_launch_has_as_many_as_its_parameters_allow(
    listed: list[bool], most: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerntune.tuning.api.combo_kernel.MAX_PARAMETERS", most)
    assert each().at_once(listed) == count


def test_a_kernel_for_many_is_made_once_and_has_one_block() -> None:
    many = each(elements=512)
    tuner, grid = many.tuner_of(2, LISTED)
    assert many.tuner_of(2, LISTED)[0] is tuner is not many.tuner_of(2, [True] * 4)[0]
    assert [(c.num_warps, c.num_stages, c.kwargs) for c in tuner.configs] == [
        (warps, 1, {"XBLOCK": 512}) for warps in (1, 2, 4, 8)
    ]
    assert type(grid) is SequentialComboKernelGrid
    assert grid({"n_0": 1000, "n_1": 10, "XBLOCK": 512}) == (3, 1, 1)
    assert tuner.arg_names == ["x_ptr_0", "y_ptr_0", "n_0", "factor", "x_ptr_1", "y_ptr_1", "n_1", "XBLOCK"]
    assert (tuner.keys, tuner.cache_results) == ([], True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (([1], [1, 2], [3], 1.0), "got 4 arguments with lists of 1, 2"),
        (([1], [1], 1.0), "got 3 arguments with lists of 1"),
        ((1, 2, 3, 4), "got 4 arguments with lists of none"),
    ],
)
def test_what_is_wrong_with_lists_is_said(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=f"foreach_scale: give x_ptr, y_ptr, n, factor, .*{said}"):
        each()(*given)


def test_a_call_goes_the_way_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    many, gone = each(), list[Any]()
    monkeypatch.setattr(many, "_together", lambda *given: gone.append(("together", *given[:2])))
    monkeypatch.setattr(many, "_one_by_one", lambda *given: gone.append(("apart", *given[:2])))
    monkeypatch.setattr(combo_kernel, "choose", lambda *ways: ComboChoice(len(gone) == 0))
    x, half = torch.empty(4), torch.empty(4, dtype=torch.float16)
    for given in (([x], [x], [4], 2.0), ([x], [x], [4], 3.0), ([half], [x], [4], 2.0), ([x], [x], [5], 2.0)):
        many(*given)
    assert [one[0] for one in gone] == ["together", "together", "apart", "apart"]
    assert gone[0][1:] == (1, LISTED)


def test_what_a_choice_depends_on_of_a_value() -> None:
    x = torch.empty(4)
    assert _kind([x, 5, "a"]) == (x.dtype, 5, None)
    assert (_kind(x), _kind((1, 2)), _kind(5)) == (x.dtype, (1, 2), None)


def test_foreach_takes_one_axis_with_a_block() -> None:
    for sizes, blocks in (({"x": "n"}, {}), ({"x": "n", "y": "n"}, {"x": "BLOCK"})):
        with pytest.raises(ConfigError, match="foreach takes parts of one axis x with a block"):
            kerntune.foreach(sizes=sizes, blocks=blocks)(SCALE.fn)
