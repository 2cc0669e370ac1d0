"""Presets by their names."""

from __future__ import annotations

from kerntune.heuristics import INDUCTOR_2_13, INDUCTOR_2_15, MEASURED_2026, PRESETS


def test_presets_are_found_by_name() -> None:
    assert set(PRESETS.values()) == {INDUCTOR_2_13, INDUCTOR_2_15, MEASURED_2026}
    assert list(PRESETS) == [preset.name for preset in PRESETS.values()]
