"""Two calls in turn: what a ratio of their times means, whichever is first."""

from __future__ import annotations

import pytest

from benchmarks import graph_pairs


@pytest.mark.parametrize("begins", [True, False])
def test_a_round_is_the_firsts_time_over_the_seconds(monkeypatch: pytest.MonkeyPatch, begins: bool) -> None:
    """A device that gets slower by the same amount from run to run changes nothing: each is first and last once."""
    clock = [0.0]

    def milliseconds(run: object) -> float:
        clock[0] += 0.01
        return {"a": 3.0, "b": 2.0}[str(run)] + clock[0]

    monkeypatch.setattr(graph_pairs, "milliseconds", milliseconds)
    assert graph_pairs._round("a", "b", begins) == pytest.approx(3.025 / 2.025)  # type: ignore[arg-type]
