"""What benchmarks share: result files, documents, children; and that each folder says what it asks."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness import RESULTS, ROOT, child_environment, layout, merge, put_between

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=60,
)


@pytest.mark.slow
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


FOLDERS = sorted(path for path in (ROOT / "benchmarks").iterdir() if any(path.glob("*.py")))


def test_each_folder_asks_one_question() -> None:
    index = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert len(FOLDERS) >= 10
    assert [f.name for f in FOLDERS if f"({f.name}/README.md)" not in index] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folders_programs_and_results_are_in_its_readme(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert text.partition("\n")[0].endswith("?")
    programs = {p.stem for p in folder.glob("*.py") if "parser.parse_args()" in p.read_text(encoding="utf-8")}
    assert programs <= set(re.findall(rf"benchmarks\.{folder.name}\.(\w+)", text))
    assert all((RESULTS / name).exists() for name in re.findall(r"`(\w[\w.]*\.json)`", text))


def test_a_section_is_replaced_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<b>\nold\n<e>\nz\n")
    put_between(page, "<b>", "<e>", "new")
    assert page.read_text() == "a\n<b>\nnew\n<e>\nz\n"
    with pytest.raises(SystemExit, match="lacks"):
        put_between(page, "<other>", "<e>", "new")


def test_a_child_finds_this_checkout_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "given")
    found = child_environment(ONE="1")
    assert (found["PYTHONPATH"], found["ONE"]) == (f"{ROOT}{os.pathsep}given", "1")
    monkeypatch.delenv("PYTHONPATH")
    assert child_environment()["PYTHONPATH"] == str(ROOT), "an empty entry is the working folder"
