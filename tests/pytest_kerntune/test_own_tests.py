"""What the tests themselves depend on: neither where they run, nor the order of folders on the command line."""

from __future__ import annotations

import ast
import os
from pathlib import Path

from forked import Copies

TESTS = Path(__file__).parents[1]

USERS = {
    "CI": "true",
    "BUILD_NUMBER": "7",
    "KERNTUNE_TUNE": "frozen",
    "KERNTUNE_VERIFY": "off",
    "KERNTUNE_VERIFY_IGNORE": "x",
    "KERNTUNE_STATIC_PRUNE": "spills",
    "KERNTUNE_WINNERS": "/nowhere",
    "KERNTUNE_FORKS": "0",
}


def test_variables_that_change_what_kerntune_does_are_not_the_users(copies: Copies) -> None:
    """A run in CI fails cases without a baseline: a test that forgets this passes everywhere else."""
    probe = f"import conftest, os; print([name for name in {list(USERS)} if name in os.environ])"
    done = copies.run("-c", probe, cwd=TESTS, env=os.environ | USERS)
    assert done.stdout.splitlines() == ["[]"], done.stderr


def imported(path: Path) -> set[str | None]:
    """What a file imports by absolute names."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0}
    return names | {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


def test_nothing_is_imported_from_a_conftest() -> None:
    """Several folders have one, and which of them is ``conftest`` depends on what pytest is called with."""
    files = [path for path in TESTS.rglob("*.py") if path.is_file()]
    assert [str(path) for path in files if "conftest" in imported(path)] == []
