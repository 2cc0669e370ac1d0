"""Each result says where it is from, and what is said of changes since is true."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import figures_page, provenance

FILES = sorted(provenance.RESULTS.glob("*.json"))
IN_README = (
    "tuning_suite_h200", "tuning_suite_24_cases", "cold_attention_mlp_h200", "profiled_winners_h200",
    "cold_public_h200", "warm_start_h200", "dispatch_h200", "heuristic_cost",
)  # fmt: skip


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def wrong_marks(path: Path) -> list[str]:
    """What is wrong with a result's mark."""
    mark = load(path).get("provenance")
    if mark is None:
        return ["no mark"]
    removed = path.stem in provenance.removed_programs()
    right = {
        "commit": re.fullmatch("[0-9a-f]{40}", mark["commit"]),
        "commit_is": mark["commit_is"] in ("measured", "recorded"),
        "date": re.fullmatch(r"20\d\d-\d\d-\d\d", mark["date"]),
        "environment": mark["environment"],
        "runs": mark["runs"] >= 1,
        "measures": removed or mark["measures"] == list(provenance.measures(path.stem)),
        "measured files": removed or all((provenance.ROOT / name).exists() for name in mark["measures"]),
        "code": re.fullmatch("[0-9a-f]{16}", mark["code"]),
        "content, which isn't what was stamped": mark["content"] == provenance.content(load(path)),
    }
    return [name for name, holds in right.items() if not holds]


@pytest.mark.slow
def test_each_result_says_where_it_is_from() -> None:
    assert FILES
    wrong = {path.name: found for path in FILES if (found := wrong_marks(path))}
    assert wrong == {}, "run benchmarks/provenance.py for these"


def in_history(commit: str) -> bool:
    """Whether git is here, and has a commit."""
    command = ["git", "cat-file", "-e", commit]
    return (
        shutil.which("git") is not None
        and subprocess.run(command, cwd=provenance.ROOT, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.slow
def test_a_result_without_a_program_names_the_commits_that_have_it() -> None:
    """The commit of the table has the program, and that of the stamp is in the history."""
    removed = provenance.removed_programs()
    assert len(removed) > 40
    assert set(removed) <= {path.stem for path in FILES}
    for name, (program, commit) in removed.items():
        assert not (provenance.ROOT / program).exists(), f"{program} is here: {name} needs no row"
        mark = load(provenance.RESULTS / f"{name}.json")["provenance"]
        if in_history(commit):
            assert in_history(f"{commit}:{program}"), program
            assert in_history(mark["commit"]), name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cache_crowd", "cache_scale_store", "ranks_nccl_h200"])
def test_a_result_without_a_program_is_held_against_its_commit(name: str) -> None:
    """All of them hold; these measured little, so their code is read quickly."""
    mark = load(provenance.RESULTS / f"{name}.json")["provenance"]
    if not in_history(mark["commit"]):
        pytest.skip("the history isn't here")
    assert mark["code"] == provenance.code_at(mark["commit"], mark["measures"])


def test_programs_that_documents_name_by_a_commit_are_in_it() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((provenance.ROOT / "docs").rglob("*.md"))]
    named = {match for text in texts for match in re.findall(r"([0-9a-f]{8}):(benchmarks/[\w/]+\.py)", text)}
    assert len(named) > 30
    for commit, program in named:
        assert not in_history(commit) or in_history(f"{commit}:{program}"), program


def test_a_result_without_a_program_gets_no_new_stamp() -> None:
    with pytest.raises(SystemExit, match="cache_crowd: its program was removed"):
        provenance.measures("cache_crowd")


def test_only_packages_that_exist_are_measured() -> None:
    assert all((provenance.ROOT / name).exists() for names in provenance.MEASURES.values() for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_README)
def test_a_row_is_marked_if_and_only_if_git_sees_other_code(name: str) -> None:
    """Git compares texts, so what has no other text has no mark; what has a mark has another text."""
    result = load(provenance.RESULTS / f"{name}.json")
    mark = result["provenance"]
    if not in_history(mark["commit"]):
        pytest.skip("the history isn't here")
    text = provenance.git("diff", mark["commit"], "--", *mark["measures"])
    changed = provenance.has_changed(result)
    assert not (changed and not text), "marked, though nothing differs"
    assert changed == (provenance.code_at(mark["commit"], mark["measures"]) != provenance.code_here(mark["measures"]))
    assert mark["commit_is"] == "measured" or mark["code"] == provenance.code_at(mark["commit"], mark["measures"])
    assert ("†" in provenance.said_of(result, changed=" †")) == changed


@pytest.mark.slow
def test_the_readme_marks_the_rows_of_changed_code(monkeypatch: pytest.MonkeyPatch) -> None:
    now = figures_page.section()
    rows = [line for line in now.splitlines() if line.startswith("| a call after tuning")]
    assert len(rows) == 1
    assert rows[0].rstrip(" |").endswith("†") == provenance.has_changed(figures_page.load("dispatch_h200"))
    plain = figures_page.load

    def fresh(name: str) -> dict[str, Any]:
        found = plain(name)
        here = provenance.code_here(found["provenance"]["measures"])
        return {**found, "provenance": {**found["provenance"], "code": here}}

    monkeypatch.setattr(figures_page, "load", fresh)
    assert "†" not in figures_page.section(), "nothing has changed since it was measured"


def test_comments_and_docstrings_are_no_code() -> None:
    source = b'"""About."""\n\nX = 1\n"""What X is."""\n\n\ndef f(a, b=2):\n    """Says."""\n    return a + b\n'
    told = b"# other\nX = 1  # one\n\ndef f(a, b = 2):\n    return (a\n            + b)\n"
    other = told.replace(b"b = 2", b"b = 3")
    assert provenance.code_of("a.py", source) == provenance.code_of("a.py", told)
    assert provenance.code_of("a.py", told) != provenance.code_of("a.py", other)
    assert provenance.code_of("a.c", b"int a;") != provenance.code_of("a.c", b"int a; ")


def test_a_stamp_leaves_the_rest_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "git", lambda *words: "0" * 40)
    for text in ('{\n "date": "2026-11-22",\n "rows": [1.50, 2]\n}\n', '{"date":"2026-11-22","rows":[1.50,2]}\n'):
        path = tmp_path / "dispatch_new.json"
        path.write_text(text)
        provenance.stamp(path)
        stamped = path.read_text()
        assert stamped.endswith(text.lstrip("{\n"))
        mark = load(path)["provenance"]
        assert (mark["date"], mark["runs"], mark["measures"]) == ("2026-11-22", 1, list(provenance.DISPATCH))
        assert mark["code"] == provenance.code_here(provenance.DISPATCH)
        provenance.stamp(path, 3)
        assert path.read_text() == stamped.replace('"runs": 1', '"runs": 3')
    with pytest.raises(SystemExit, match="unheard_of: add to MEASURES"):
        provenance.measures("unheard_of")


def test_figures_that_were_measured_again_need_a_new_stamp() -> None:
    result = load(provenance.RESULTS / "dispatch_h200.json")
    assert provenance.content({**result, "calls": 1}) != result["provenance"]["content"]


@pytest.mark.slow
def test_runs_are_counted_in_words() -> None:
    first, second = (load(provenance.RESULTS / f"{name}.json") for name in ("dispatch_h200", "cold_public_h200"))
    assert ", one run" in provenance.said_of(first)
    assert ", 2 runs" in provenance.said_of(second)
    assert ", 3 runs" in provenance.said_of(first, second)
