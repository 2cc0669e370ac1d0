"""Every grid against torch's own class of that name, on a sample of the cases that the full script runs."""

from __future__ import annotations

from importlib import metadata

import pytest

from . import differential

ORACLE = "2.13"
SAMPLE = 400

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


def test_both_refuse_what_the_kernel_can_not_run() -> None:
    refused = {name: script.compare(name, 200).both_raise for name in ("MixOrderReductionGrid", "SplitScanGrid")}
    assert all(refused.values()), refused


def test_a_wrong_grid_is_noticed() -> None:
    """The comparison can fail: a 2-D grid held against the 1-D oracle disagrees wherever y isn't one block."""
    tally = script.Tally()
    for case in script.itertools.islice(script.FAMILIES["Grid2D"](), 100):
        script.record(tally, "Grid1D", case)
    assert len(tally.disagreements) > 50
