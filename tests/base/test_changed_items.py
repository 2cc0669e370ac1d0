"""Entries that are others for a while."""

from __future__ import annotations

import pytest

from kerntune.base.changed_items import changed_items


def test_entries_are_others_meanwhile_and_then_what_they_were() -> None:
    there = {"a": 1, "b": 2}
    with changed_items(there, {"a": 3, "c": 4}):
        assert there == {"a": 3, "b": 2, "c": 4}
        there["b"] = 5
        del there["c"]
    assert there == {"a": 1, "b": 5}, "what nobody said to change stays changed"


def test_they_are_put_back_after_an_error_too() -> None:
    there: dict[str, int | None] = {"none": None}
    with pytest.raises(ValueError, match="it"), changed_items(there, {"none": 1, "new": 2}):
        raise ValueError("it")
    assert there == {"none": None}
