"""The comparison of two revisions: its order, its ratios, and that the modules it measures exist."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import before_after, before_after_child

ROOT = Path(__file__).resolve().parents[2]


def rounds(factor: float, count: int = 10, drift: float = 0.0) -> list[dict[str, list[dict[str, float]]]]:
    """Rounds of a figure that takes ``factor`` times as long after; each measurement slows by ``drift``."""
    clock = iter(range(10_000))

    def measure(side: Any) -> dict[str, float]:
        step = next(clock)
        noise = 1 + 0.001 * math.sin(step * 12.9898)
        return {"wall": (factor if side == "after" else 1.0) * noise * math.exp(drift * step)}

    sides: Any = {"before": "before", "after": "after"}
    return [before_after.round_of(measure, sides) for _ in range(count)]


def test_a_round_measures_both_sides_twice_so_that_drift_cancels() -> None:
    seen: list[str] = []
    sides: Any = {"before": "A", "after": "B"}
    before_after.round_of(lambda side: seen.append(str(side)) or {"wall": 1.0}, sides)
    assert "".join(seen) == "ABBA"
    found = before_after.compared(rounds(1.01, drift=0.05), "wall")
    assert found["ratio"] == pytest.approx(1.01, abs=0.002)


@pytest.mark.parametrize(("factor", "within"), [(0.98, True), (1.0, True), (1.015, True), (1.025, False), (1.1, False)])
def test_only_an_interval_below_the_limit_is_within(factor: float, within: bool) -> None:
    found = before_after.compared(rounds(factor), "wall")
    assert found["interval"][0] < factor < found["interval"][1]
    assert found["within"] is within


def test_too_few_rounds_show_nothing() -> None:
    found = before_after.compared(rounds(0.5, count=2), "wall")
    assert found["interval"] == [None, None]
    assert not found["within"]


def test_every_kind_of_seconds_is_compared_and_no_count() -> None:
    times = {"wall": 2.0, "cpu": 1.0, "passed": 3.0}
    found = before_after.summary([{"before": [times, times], "after": [times, times]}])
    assert set(found) == {"rounds", "wall", "cpu"}


@pytest.mark.parametrize("key", sorted({*before_after_child.MODULES, *before_after_child.IMPORTED}))
def test_measured_modules_have_a_name_in_this_checkout(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newer name is first, so that this fails when a module moves again, before it is measured."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names = before_after_child.MODULES.get(key) or before_after_child.IMPORTED[key]
    assert before_after_child.name_of(names) == names[0]


def test_every_figure_of_the_child_is_measured() -> None:
    assert {"counts", *before_after.DISPATCH, *before_after.STARTS} == set(before_after_child.FIGURES)


def test_a_tar_of_git_archive_is_a_revision_where_there_is_no_repository(tmp_path: Path) -> None:
    commit, content = before_after.archived("HEAD")
    (tmp_path / "one.tar").write_bytes(content)
    assert before_after.archived(str(tmp_path / "one.tar")) == (commit, content)
    checkout = before_after.Checkout(str(tmp_path / "one.tar"), tmp_path, "before")
    assert (checkout.folder / "kerntune" / "__init__.py").is_file()


def test_a_checkout_is_found_before_what_the_caller_has_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    checkout = before_after.Checkout("HEAD", tmp_path, "before")
    assert checkout.environment()["PYTHONPATH"] == f"{checkout.folder}:/elsewhere"
