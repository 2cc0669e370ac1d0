"""The README's figures are those of ``benchmarks/results/``, and what is compared there is comparable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import readme_figures

    return readme_figures


def test_the_readme_has_what_the_script_makes_of_the_results(figures: Any) -> None:
    text = figures.README.read_text()
    assert figures.written(text) == text, "run benchmarks/readme_figures.py --write"


def test_another_result_is_another_readme(figures: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = figures.load
    monkeypatch.setattr(
        figures, "load", lambda name: changed(plain(name)) if name == "tuning_suite_h200" else plain(name)
    )
    text = figures.README.read_text()
    assert figures.written(text) != text


def changed(suite: dict[str, Any]) -> dict[str, Any]:
    return {**suite, "added": [{**row, "seconds": 2 * row["seconds"]} for row in suite["added"]]}


def test_an_added_config_is_compared_with_the_same_caches(figures: Any) -> None:
    steps = [("triton", "cold", 24.0), ("triton", "new process", 7.0), ("kerntune", "new process", 1.1)]
    rows = [{"engine": engine, "step": step, "seconds": seconds} for engine, step, seconds in steps]
    assert figures.added({"added": rows})[1:] == ("7.0 s", "1.1 s")


@pytest.mark.parametrize(
    ("values", "text"),
    [([14.1, 66.4, 30.0, 685.8], "14 to 66 ms, once 686 ms"), ([14.1, 20.0], "14 to 20 ms"), ([9.0], "9 to 9 ms")],
)
def test_a_call_that_took_far_longer_is_told_by_itself(figures: Any, values: list[float], text: str) -> None:
    assert figures.spread_ms(values) == text


def test_kernels_that_were_never_run_are_named(figures: Any) -> None:
    assert "attention and gated MLP have not been run" in figures.section()
