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


def test_a_spill_makes_one_comment_and_the_next_push_edits_it() -> None:
    """And the page says what was measured."""
    found = json.loads((RESULTS / "adoption_liger.json").read_text())
    first, second, third = (found["phases"][f"push {what}"] for what in ("1, unchanged", "2, a spill", "3, mended"))
    assert (first["exit"], first["comments"]) == (0, 0)
    assert (second["exit"], second["comments"], second["said"]) == (1, 1, "commented on pull request 7")
    assert second["regressed_rows"] > 0
    assert (third["exit"], third["comments"], third["said"]) == (0, 1, "edited the comment on pull request 7")
    assert third["regressed_rows"] == 0
    said = dict(re.findall(r"^\| ([a-z ,]+) \| ([\d.]+)", PAGE.read_text(), re.M))
    assert int(said["operators"]) == found["operators"]
    assert int(said["lines written by hand"]) == found["lines_by_hand"]
    assert float(said["baselines"]) == found["baselines_mb"]
    assert int(said["first recording"]) == round(found["phases"]["record"]["cpu_s"])
    pushes = [v["cpu_s"] for k, v in found["phases"].items() if re.fullmatch(r"push [^:]*", k)]
    assert int(said["a push"]) == round(min(pushes))
