"""Every deliberate difference has a row in the document and a test, both of one name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "heuristics.md"
TESTS = HERE / "test_deliberate_differences.py"


def test_each_deliberate_difference_has_its_test_and_its_row() -> None:
    section = DOCUMENT.read_text(encoding="utf-8").split("### Deliberate differences")[1].split("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    functions = [node.name for node in ast.parse(TESTS.read_text()).body if isinstance(node, ast.FunctionDef)]
    tests = [name.removeprefix("test_") for name in functions if name.startswith("test_")]
    assert sorted(rows) == sorted(tests)
    assert len(rows) == len(set(rows)) > 15
    cells = [row.strip("|").split("|") for row in section.splitlines() if row.startswith("| `")]
    assert all(len(row) == 4 and all(cell.strip() for cell in row) for row in cells)
