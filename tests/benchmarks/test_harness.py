"""Result files: parts are merged, and any value comes back as it was."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness import layout, merge

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=60,
)


@given(VALUES)
def test_layout_is_json(value: object) -> None:
    assert json.loads(layout(value)) == value


def test_a_config_is_a_line() -> None:
    rows = [{"config": f"BLOCK={i}", "instructions": {str(n): n for n in range(60)}} for i in range(5)]
    assert layout({"configs": rows}).count("BLOCK=") == 5
    assert len([line for line in layout({"configs": rows}).splitlines() if "BLOCK=" in line]) == 5


def test_parts_are_merged_and_others_stay(tmp_path: Path) -> None:
    file = tmp_path / "new" / "out.json"
    merge(file, cold=[1], environment={"a": 1})
    assert merge(file, quality=[2], environment={"a": 2}) == {"cold": [1], "quality": [2], "environment": {"a": 2}}
    assert json.loads(file.read_text()) == {"cold": [1], "quality": [2], "environment": {"a": 2}}
