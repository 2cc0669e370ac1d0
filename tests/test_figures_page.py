"""The README's figures are those of ``benchmarks/results/``, and what is compared there is comparable."""

from __future__ import annotations

import re
from typing import Any

import pytest

from benchmarks import harness, provenance


@pytest.fixture
def figures() -> Any:
    from benchmarks import figures_page

    return figures_page


@pytest.mark.slow
def test_the_readme_has_what_the_script_makes_of_the_results(figures: Any) -> None:
    text = figures.PAGE.read_text()
    assert figures.written(text) == text, "run benchmarks/figures_page.py --write"


@pytest.mark.slow
def test_another_result_is_another_readme(figures: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = figures.load
    monkeypatch.setattr(
        figures, "load", lambda name: changed(plain(name)) if name == "tuning_suite_h200" else plain(name)
    )
    text = figures.PAGE.read_text()
    assert figures.written(text) != text


def changed(suite: dict[str, Any]) -> dict[str, Any]:
    return {**suite, "added": [{**row, "seconds": 2 * row["seconds"]} for row in suite["added"]]}


def test_an_added_config_is_compared_with_the_same_caches(figures: Any) -> None:
    steps = [("triton", "cold", 24.0), ("triton", "new process", 7.0), ("kerntune", "new process", 1.1)]
    rows = [{"engine": engine, "step": step, "seconds": seconds} for engine, step, seconds in steps]
    assert figures.added({"added": rows})[1:] == ("7.0 s", "1.1 s")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([14.1, 66.4, 30.0, 685.8], "14 to 66 ms, once 686 ms"),
        ([14.1, 66.4, 30.0, 20.0, 21.0, 22.0, 685.8, 531.0], "14 to 66 ms, 2 of 8 times 531 to 686 ms"),
        ([14.1, 20.0], "14 to 20 ms"),
        ([9.0], "9 to 9 ms"),
    ],
)
def test_a_call_that_took_far_longer_is_told_by_itself(figures: Any, values: list[float], text: str) -> None:
    assert figures.spread_ms(values) == text


@pytest.mark.slow
def test_kernels_that_were_never_run_are_named(figures: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "have not been run" not in figures.section()
    suite, again = figures.load("tuning_suite_h200"), figures.load("tuning_suite_24_cases")
    assert "attention and gated MLP have not been run" in figures.gaps(suite, [suite, again])


def test_winners_by_another_instrument_have_their_worst_beside_the_mean(figures: Any) -> None:
    rows = [
        {"case": f"{name}[n=1]", "winner_by_profiler": share, "ours_ns": {"1": ns, "2": 9e3}}
        for name, share, ns in (("small", 0.5, 2400.0), ("large", 1.0, 8e3), ("failed", None, 1.0))
    ]
    what, peer, ours = figures.profiled({"profiled": rows})
    assert "2 cases" in what
    assert "(`small`, 2.4 µs)" in what
    assert (peer, ours) == ("not run", "0.707, 0.50")


README = harness.ROOT / "README.md"


@pytest.mark.slow
def test_the_readmes_promises_have_their_results(figures: Any) -> None:
    """Each figure with the date, commit and runs of its result, and the mark of code that has changed since."""
    text = " ".join(README.read_text(encoding="utf-8").split())
    simulated, planted, ops = map(figures.load, ("simulate_verdicts", "edit_planted_by_argument", "ops_gate"))
    equal = [row for row in simulated["rows"] if row["rule"] == "kerntune" and row["true_change"] == 0]
    assert sum(row["slower"] + row["faster"] for row in equal) == 0
    decisions = sum(row["decisions"] for row in equal)
    (found, harmful), (failed, harmless) = (
        planted["last"][name].split(" of ") for name in ("harmful_found", "harmless_failed")
    )
    assert failed == "0"
    said = {
        f"In {decisions:,} simulated comparisons of equal code none failed": simulated,
        f"It found {found} of {harmful} planted losses, and failed none of {harmless} harmless edits": planted,
        f"Of {ops['ops']} public operators, {ops['verdicts']['PASS']} were recorded and passed again": ops,
    }
    for sentence, result in said.items():
        mark = provenance.said_of(result, changed=figures.CHANGED)
        assert re.search(rf"{re.escape(sentence)}[^.(]* \({re.escape(mark)}\)\.", text), f"{sentence} ({mark})"
    assert (figures.CHANGED in text) == ("code that was measured has changed since" in text)
