"""A proposal in the words of one kernel."""

from __future__ import annotations

import pytest

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import HintError
from kerntune.heuristics import named_blocks, pointwise
from kerntune.heuristics.hints import KernelHints

H100 = TYPICAL_DEVICES["cuda:90"]
TILE = Config(kwargs={"XBLOCK": 8, "R0_BLOCK": 64, "RSPLIT": 4}, num_warps=8, num_stages=2, options={"waves_per_eu": 1})


def test_blocks_get_the_kernels_names_and_the_rest_stays() -> None:
    (config,) = named_blocks([TILE], {"x": "BLOCK_M", "r0": "BLOCK_N"})
    assert config == TILE.replace(kwargs={"BLOCK_M": 8, "BLOCK_N": 64, "RSPLIT": 4})


def test_a_vector_kernel() -> None:
    found = named_blocks(pointwise(KernelHints(sizes={"x": 1 << 20}), H100), {"x": "BLOCK_SIZE"})
    assert [(c.kwargs, c.num_warps) for c in found] == [({"BLOCK_SIZE": 1024}, 4), ({"BLOCK_SIZE": 512}, 8)]


def test_an_axis_without_a_name_must_have_blocks_of_one() -> None:
    rows = [TILE.replace(XBLOCK=1), TILE.replace(XBLOCK=1, R0_BLOCK=128)]
    assert [c.kwargs["N"] for c in named_blocks(rows, {"r0": "N"})] == [64, 128]
    assert "XBLOCK" not in named_blocks(rows, {"r0": "N"})[0].kwargs
    with pytest.raises(HintError, match="kernel sum: no parameter for XBLOCK, but the config XBLOCK=8"):
        named_blocks([*rows, TILE], {"r0": "N"}, kernel="sum")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"w": "BLOCK"}, "unknown axis 'w'"),
        ({"x": "B", "r0": "B"}, "two axes with one block parameter"),
        ({"x": "A", "r0": "B", "y": "C"}, "C is to be YBLOCK, but this family proposes no YBLOCK"),
    ],
)
def test_names_that_fit_no_block_are_refused(names: dict[str, str], message: str) -> None:
    with pytest.raises(HintError) as caught:
        named_blocks([TILE], names)
    assert message in str(caught.value)
