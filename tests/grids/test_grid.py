"""What every grid can do: be called, bound, folded, checked, and never changed."""

from __future__ import annotations

import itertools
from types import MappingProxyType

import pytest

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import GridError
from kerntune.grids import FixedGrid, Grid1D, Grid2D, Grid2DWithYZOverflow, Grid3D, SplitScanGrid
from kerntune.grids.expr import Const, Name
from kerntune.grids.grid import GridChoice

from . import differential

H100 = TYPICAL_DEVICES["cuda:90"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]
ROWS = Grid1D("n", "BLOCK")

script = differential.load()


@pytest.mark.parametrize("name", script.FAMILIES)
def test_calling_and_binding_change_nothing(name) -> None:
    """Arguments may be read-only mappings, as a launcher's could be; grids are hashable values."""
    for case in itertools.islice(script.FAMILIES[name](), 40):
        meta = MappingProxyType({**case.config, **case.sizes})
        before = repr(case.ours), hash(case.ours)
        outcome = script.attempt(lambda c=case, m=meta: c.ours(m))
        assert outcome == script.attempt(lambda c=case, m=meta: c.ours(m))
        script.attempt(lambda c=case: c.ours.bind(MappingProxyType(c.config)) and None)
        assert (repr(case.ours), hash(case.ours)) == before


def test_serves_as_a_triton_grid() -> None:
    """Triton calls a grid with all bound arguments, tensors and None among them."""
    assert callable(ROWS)
    assert ROWS({"x_ptr": object(), "n": 1000, "bias": None, "BLOCK": 128}) == (8, 1, 1)


def test_bind_folds_what_is_known() -> None:
    bound = ROWS.bind({"BLOCK": 128})
    assert bound.names == {"n"}
    assert bound.constant is None
    assert bound({"n": 1000}) == bound({"n": 1000, "BLOCK": 128}) == (8, 1, 1)
    assert bound.bind({"n": 1000}).constant == (8, 1, 1)
    assert bound.bind({"n": 1000}).axes == (Const(8), Const(1), Const(1))


def test_a_launch_may_not_contradict_what_was_bound() -> None:
    with pytest.raises(GridError, match="bound to BLOCK=128, but the launch gives BLOCK=64"):
        ROWS.bind({"BLOCK": 128})({"n": 1000, "BLOCK": 64})


def test_bind_ignores_what_the_grid_does_not_use() -> None:
    assert ROWS.bind({"num_warps": 4, "other": object(), "BLOCK": None}).axes == ROWS.axes


def test_specialize_settles_missing_blocks() -> None:
    grid = Grid2D().specialize({"YBLOCK": 64})
    assert grid.names == {"xnumel", "ynumel"}
    assert grid.axes[0] == Name("xnumel")
    assert grid({"xnumel": 100, "ynumel": 100}) == (100, 2, 1)
    with pytest.raises(GridError, match="bound to XBLOCK=1"):
        grid({"xnumel": 100, "ynumel": 100, "XBLOCK": 32})
    assert Grid2D().bind({"YBLOCK": 64})({"xnumel": 100, "ynumel": 100, "XBLOCK": 32}) == (4, 2, 1)


def test_specialize_keeps_the_rules_of_the_grid() -> None:
    assert SplitScanGrid().specialize({"R0_BLOCK": 256})({"xnumel": 3, "r0_numel": 300}) == (2, 3, 1)
    with pytest.raises(GridError, match="XBLOCK is 2"):
        SplitScanGrid().specialize({"XBLOCK": 2})


def test_constant_sizes_fold_at_once() -> None:
    assert Grid1D(1000, 128).constant == (8, 1, 1)
    assert Grid1D(0, 128).constant == (0, 1, 1)
    assert Grid1D(1000, "BLOCK").constant is None


def test_rendered_text_is_folded() -> None:
    grid = Grid2DWithYZOverflow(1000, 131071, 128, 1)
    assert grid.to_python() == grid.to_cpp() == ("8", "43691", "3")


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"n": 2**31, "BLOCK": 1}, "kernel softmax: grid axis x is 2147483648"),
        ({"n": -5, "BLOCK": 1}, "kernel softmax: n is -5"),
        ({"n": 5, "BLOCK": 0}, "kernel softmax: block BLOCK is 0"),
        ({"n": 5}, "kernel softmax: the grid needs BLOCK"),
        ({"n": 5.0, "BLOCK": 1}, r"kernel softmax: n is 5\.0"),
    ],
)
def test_resolve_names_the_kernel(meta, message) -> None:
    with pytest.raises(GridError, match=message):
        ROWS.resolve(meta, kernel="softmax", spec=H100)


def test_resolve_counts_clusters_and_threads() -> None:
    meta = {"n": 2**30, "BLOCK": 1}
    assert ROWS.resolve(meta, kernel="softmax", spec=H100) == (2**30, 1, 1)
    with pytest.raises(GridError, match="num_ctas 2"):
        ROWS.resolve(meta, kernel="softmax", spec=H100, num_ctas=2)
    with pytest.raises(GridError, match="hip:gfx942"):
        ROWS.resolve(meta, kernel="softmax", spec=MI300, num_warps=8)


def test_a_zero_axis_resolves_to_no_blocks() -> None:
    assert ROWS.resolve({"n": 0, "BLOCK": 128}, kernel="softmax", spec=H100) == (0, 1, 1)


def test_grids_are_frozen() -> None:
    with pytest.raises(AttributeError):
        FixedGrid(1).x = 2  # type: ignore[misc]
    assert FixedGrid(1, "n") == FixedGrid(1, "n")
    assert len({Grid1D(), Grid1D(), Grid2D()}) == 2


def test_a_block_of_inductors_that_a_config_lacks_is_one_element() -> None:
    """Of each axis."""
    sizes = {"xnumel": 7, "ynumel": 9, "znumel": 5, "r0_numel": 11}
    assert Grid3D()(sizes) == (7, 9, 5)
    assert SplitScanGrid()(sizes) == (11, 7, 1)


def test_axes_that_are_not_given_have_one_block() -> None:
    assert FixedGrid(3)({}) == GridChoice.of({}, 3).grid({}) == (3, 1, 1)
    assert GridChoice.of({"B": 2, "A": 1}, "n", 4).config == (("A", 1), ("B", 2))
