"""The study of ways to start the process for first launches: what its figures are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quarantine_child import stamps
from benchmarks.quarantine_cost import VARIANTS, starts_summary


def row(variant: str, seconds: float | None, repeat: int = 0, case: str = "softmax", **more: Any) -> dict[str, Any]:
    """One call's."""
    used = {"probe": {"wall_ms": 100.0 * (seconds or 0.0)}}
    stamp = {"name": "imports done", "at": 200.0, "ran_ms": 90.0, "waited_ms": 10.0}
    base = {"case": case, "isolate": variant, "repeat": repeat, "seconds": seconds, "phases": {}, "used": used}
    return {**base, "other_process": [] if "off" in variant else [stamp], **more}


def test_variant_is_held_against_calls_of_its_own_repeat() -> None:
    rows = [row("off", 1.0), row("now", 1.1), row("off", 2.0, repeat=1), row("now", 2.2, repeat=1)]
    found = starts_summary(rows)
    assert found["now"]["slower"] == pytest.approx(0.1)
    assert found["now"]["calls"] == 2
    assert found["now"]["by_case"]["softmax"]["other_process"]["imports done"]["at_ms"] == 200.0
    assert found["off"]["by_case"]["softmax"]["used"]["probe"]["wall_ms"] == 150.0


def test_way_that_concerns_both_is_held_against_itself_without_another_process() -> None:
    rows = [row("off", 1.0), row("ahead+off", 0.8), row("ahead", 0.88), row("niced", 1.2)]
    found = starts_summary(rows)
    assert (found["ahead"]["held_against"], found["niced"]["held_against"]) == ("ahead+off", "off")
    assert found["ahead"]["slower"] == pytest.approx(0.1)
    assert found["niced"]["slower"] == pytest.approx(0.2)


def test_each_variant_has_what_it_is_held_against() -> None:
    variants = VARIANTS.split(",")
    rows = [row(variant, 1.0) for variant in variants]
    assert all(found["held_against"] in variants for name, found in starts_summary(rows).items() if name != "failed")


def test_failed_call_counts_nowhere_and_is_told() -> None:
    found = starts_summary([row("off", 1.0), row("now", None, error="RuntimeError: no")])
    assert found["failed"][0]["error"] == "RuntimeError: no"
    assert "now" not in found


def test_stamps_are_counted_from_the_begin_of_the_call(tmp_path: Path) -> None:
    stamp = {"name": "program begun", "at": 12.5, "ran_ms": 1.0, "waited_ms": 0.0}
    (tmp_path / "stamps").write_text(json.dumps(stamp) + "\n")
    assert stamps(tmp_path / "stamps", 12.25)[0]["at"] == 250.0
    assert stamps(tmp_path / "none", 0.0) == []
