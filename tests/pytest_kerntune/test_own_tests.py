"""What the tests themselves depend on: neither where they run, nor the order of folders on the command line."""

from __future__ import annotations

import ast
import os
import textwrap
from pathlib import Path

import pytest
from forked import Copies
from source_path import source_path

TESTS = Path(__file__).parents[1]

USERS = {
    "CI": "true",
    "BUILD_NUMBER": "7",
    "KERNTUNE_TUNE": "frozen",
    "KERNTUNE_VERIFY": "off",
    "KERNTUNE_WINNERS": "/nowhere",
    "KERNTUNE_FORKS": "0",
}


def test_variables_that_change_what_kerntune_does_are_not_the_users(copies: Copies) -> None:
    """A run in CI fails cases without a baseline: a test that forgets this passes everywhere else."""
    probe = f"import conftest, os; print([name for name in {list(USERS)} if name in os.environ])"
    done = copies.run("-c", probe, cwd=TESTS, env=os.environ | USERS)
    assert done.stdout.splitlines() == ["[]"], done.stderr


@pytest.mark.slow
def test_a_knob_that_a_test_sets_ends_with_it(copies: Copies, tmp_path: Path) -> None:
    """Triton's own way back from a set knob is ``scope()``: ``monkeypatch`` sets the value that it had by default."""
    tests = """
        from triton import knobs

        def test_one(monkeypatch):
            monkeypatch.setattr(knobs.compilation, "disable_line_info", True)
            knobs.runtime.debug = True

        def test_two():
            assert "disable_line_info" not in vars(knobs.compilation)
            assert "debug" not in vars(knobs.runtime)
    """
    file = tmp_path / "test_knobs.py"
    file.write_text(textwrap.dedent(tests))
    environ = os.environ | {"PYTHONPATH": source_path(TESTS)}
    arguments = ("-m", "pytest", "-q", "-p", "no:randomly", "-p", "conftest", "--rootdir", str(tmp_path), str(file))
    done = copies.run(*arguments, cwd=tmp_path, env=environ)
    assert done.returncode == 0, done.stdout


def imported(path: Path) -> set[str | None]:
    """What a file imports by absolute names."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0}
    return names | {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


@pytest.mark.slow
def test_nothing_is_imported_from_a_conftest() -> None:
    """Several folders have one, and which of them is ``conftest`` depends on what pytest is called with."""
    files = [path for path in TESTS.rglob("*.py") if path.is_file()]
    assert [str(path) for path in files if "conftest" in imported(path)] == []
