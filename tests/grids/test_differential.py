"""Every grid against torch's own class of that name, on a sample of the cases that the full script runs."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from . import differential
from .differential import RECORDED, SAMPLE, digest, sample

ORACLE = "2.13"

script = differential.load()


def oracle_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "none"


pytestmark = pytest.mark.skipif(
    not oracle_version().startswith(ORACLE), reason=f"the oracle is torch {ORACLE}; installed: {oracle_version()}"
)


@pytest.mark.parametrize("name", script.FAMILIES)
def test_same_triple_as_inductor(name: str) -> None:
    tally = script.compare(name, SAMPLE)
    assert tally.disagreements == []
    assert tally.cases == SAMPLE
    assert tally.same_triple >= SAMPLE // 3
    assert digests(name) == json.loads(RECORDED.read_text())[name]


def digests(name: str) -> str:
    """As they are recorded."""
    outcomes = [script.intended(name, x) if x.difference else script.their_outcome(name, x) for x in sample(name)]
    return "".join(map(digest, outcomes))


BLOCKS_OF = {
    "Grid1D": {"XBLOCK": 8},
    "Grid2D": {"XBLOCK": 8, "YBLOCK": 8},
    "Grid3D": {"XBLOCK": 8, "YBLOCK": 8, "ZBLOCK": 8},
    "BatchMatmulGrid3D": {"XBLOCK": 8, "YBLOCK": 8, "ZBLOCK": 8},
    "Grid2DWithYZOverflow": {"XBLOCK": 8, "YBLOCK": 8},
    "MixOrderReductionGrid": {"RSPLIT_SIZE": 64},
    "CooperativeReductionGrid": {"XBLOCK": 8, "RSPLIT": 2},
    "SplitScanGrid": {"R0_BLOCK": 8},
}
SIZES = {"xnumel": 100, "ynumel": 100, "znumel": 100, "r0_numel": 100}


@pytest.mark.parametrize(("name", "block"), [(name, block) for name, blocks in BLOCKS_OF.items() for block in blocks])
def test_blocks_below_one_are_refused_where_inductor_counts_backwards(name: str, block: str) -> None:
    """With a negative block Inductor's grid is negative or covers nothing; 0 is refused by both."""
    blocks = {"XBLOCK": 1, **BLOCKS_OF[name]}
    for value in (0, -1, -64) if block != "RSPLIT" else (-1, -64):
        case = script.Case(getattr(script.grids, name)(), {}, {**blocks, block: value}, SIZES)
        theirs = script.their_outcome(name, case)
        assert script.our_outcomes(case) == {None}
        assert (theirs is None) == (value == 0)
        assert theirs is None or min(theirs) <= 0


def test_both_refuse_what_the_kernel_can_not_run() -> None:
    refused = {name: script.compare(name, 200).both_raise for name in ("MixOrderReductionGrid", "SplitScanGrid")}
    assert all(refused.values()), refused


def test_a_wrong_grid_is_noticed() -> None:
    """The comparison can fail: a 2-D grid held against the 1-D oracle disagrees wherever y isn't one block."""
    tally = script.Tally()
    for case in script.itertools.islice(script.FAMILIES["Grid2D"](), 100):
        script.record(tally, "Grid1D", case)
    assert len(tally.disagreements) > 50


if __name__ == "__main__":  # python -m tests.grids.test_differential, where torch is 2.13
    RECORDED.write_text(json.dumps({name: digests(name) for name in script.FAMILIES}, indent=1) + "\n")
