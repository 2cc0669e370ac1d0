"""What the results say of adoption in other projects, and the page of them."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.harness import RESULTS, ROOT

PAGE = ROOT / "docs" / "how-to" / "adopt-in-a-large-repository.md"
PROJECTS = ("liger", "fla")


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
    column = 1 + PROJECTS.index(name)
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
