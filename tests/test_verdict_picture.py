"""The picture of ``benchmarks/``: every process is a dot where its change lies."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import verdict_picture

    return verdict_picture


def rows(change: float, count: int) -> list[dict[str, Any]]:
    noise = [1 + (i % 5 - 2) * 1e-4 for i in range(36)]
    return [
        {"a": [1e4 * n for n in noise], "b": [1e4 * (1 + change + i * 1e-4) for _ in noise],
         **({"b_event": [1.1e4 * (1 + change)] * 9} if i % 2 else {"a_event": [1.1e4 + i] * 9})}
        for i in range(count)
    ]  # fmt: skip


def recorded() -> dict[str, Any]:
    variants = {"same": rows(0, 6), "twin": rows(0.0005, 6), "slow_1_5": rows(0.0155, 5), "slow_3": rows(0.031, 4)}
    planted = {"slow_1_5": {"true": 0.0155}, "slow_3": {"true": 0.031}}
    cases = {"a <case>": {"planted": planted, "variants": variants}}
    return {"environment": {"device": "NVIDIA H200"}, "cases": cases}


def test_every_process_is_a_dot_in_both_halves(module: Any) -> None:
    root = ET.fromstring(module.picture(recorded(), "a <case>"))
    dots = root.findall(f"{SVG}circle")
    assert len(dots) == (6 + 6 + 5 + 4) + (3 + 3 + 2 + 2)
    width, height = (float(x) for x in root.attrib["viewBox"].split()[2:])
    for dot in dots:
        assert 0 < float(dot.attrib["cx"]) < width
        assert 0 < float(dot.attrib["cy"]) < height
    text = " ".join(t.text or "" for t in root.findall(f"{SVG}text"))
    assert "a <case>, 10 µs on one NVIDIA H200" in text
    assert "slower by 3.10 %" in text


def test_dots_lie_at_their_change(module: Any) -> None:
    dots = module.paired(rows(0.0155, 3))
    assert [d.at for d in dots] == pytest.approx([1.55, 1.56, 1.57], abs=0.02)
    assert all(d.low <= d.at <= d.high for d in dots)
    axis = module.Axis(dots)
    assert axis.x(axis.low) == module.LEFT
    assert axis.x(axis.high) == module.WIDTH - module.RIGHT
    assert 0 in axis.ticks()


def test_stored_numbers_are_another_process_s(module: Any) -> None:
    same, today = rows(0, 3), rows(0.02, 7)
    found = [d.at for d in module.stored(same, today)]
    assert found == pytest.approx([100 * (1.1e4 * 1.02 / (1.1e4 + i) - 1) for i in (0, 2, 0)])
