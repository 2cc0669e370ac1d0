"""The tables that adoption is tried with, and what the results say of it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="pip install pyyaml")

from benchmarks.adoption.adoption import PROJECTS
from benchmarks.harness import RESULTS, ROOT
from kerntune.cli.init import FoundTests
from kerntune.gate.project import Project

PAGE = ROOT / "docs" / "how-to" / "adopt-in-a-large-repository.md"


@pytest.mark.parametrize("name", PROJECTS)
def test_a_table_of_twenty_operators_has_thirty_lines(name: str) -> None:
    text = (ROOT / "benchmarks" / "adoption" / f"{name}_table.py").read_text()
    (cases,) = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Dict)]
    assert len({key.value for key in cases.keys if isinstance(key, ast.Constant)}) == 20
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 30


@pytest.mark.parametrize("name", PROJECTS)
def test_init_gates_the_table(name: str, tmp_path: Path) -> None:
    path = tmp_path / PROJECTS[name].test
    path.parent.mkdir(parents=True)
    path.write_text((ROOT / "benchmarks" / "adoption" / f"{name}_table.py").read_text())
    assert FoundTests(Project(tmp_path), []).using == [path]


@pytest.mark.parametrize("name", PROJECTS)
def test_a_spill_makes_one_comment_and_the_next_push_edits_it(name: str) -> None:
    """And the page says what was measured."""
    found = json.loads((RESULTS / f"adoption_{name}.json").read_text())
    first, second, third = (found["phases"][f"push {what}"] for what in ("1, unchanged", "2, a spill", "3, mended"))
    assert (first["exit"], first["comments"]) == (0, 0)
    assert (second["exit"], second["comments"], second["said"]) == (1, 1, "commented on pull request 7")
    assert second["regressed_rows"] > 0
    assert (third["exit"], third["comments"], third["said"]) == (0, 1, "edited the comment on pull request 7")
    assert third["regressed_rows"] == 0
    column = 1 + list(PROJECTS).index(name)
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    said = [row[column] for row in rows if row[0] != "what"]
    pushes = [v["cpu_s"] for k, v in found["phases"].items() if re.fullmatch(r"push [^:]*", k)]
    assert said == [
        str(found["operators"]),
        str(found["lines_by_hand"]),
        str(found["baselines_mb"]),
        f"{found['phases']['record']['cpu_s']:.0f}",
        f"{min(pushes):.0f} to {max(pushes):.0f}",
    ]


def test_the_page_says_how_often_baselines_change() -> None:
    history = json.loads((RESULTS / "adoption_history.json").read_text())["history"]
    changed = [str(row["changed"]) for row in history["commits"] if row["changed"]]
    assert (len(history["commits"]), history["changed_in"], len(changed)) == (8, 3, 3)
    assert all(row["verdicts"] in ("20 NEW", "20 PASS") for row in history["commits"])
    assert f"three changed some of the 20 baselines: {changed[0]}, {changed[1]} and {changed[2]} " in PAGE.read_text()
