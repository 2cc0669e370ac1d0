"""What the mutation run mutates, and that its operators and its list are right."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CONFIG = ROOT / "benchmarks" / "mutants.toml"


@pytest.fixture
def config() -> dict[str, Any]:
    return pytest.importorskip("tomllib").loads(CONFIG.read_text())


def test_every_module_and_test_that_is_listed_exists(config: dict[str, Any]) -> None:
    paths = [*config["tests"], *config["common"], *(path for tests in config["tests"].values() for path in tests)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_packages_are_listed_whole(config: dict[str, Any]) -> None:
    """A module that is added to the gate, the farm or the cache is mutated, too."""
    listed = {ROOT / path for path in config["tests"]}
    whole = {path.parent for path in listed if len(set(path.parent.glob("*.py")) & listed) > 5}
    assert len(whole) == 3
    missing = {path for folder in whole for path in folder.glob("*.py") if path.name != "__init__.py"} - listed
    assert sorted(str(path.relative_to(ROOT)) for path in missing) == []


def test_annotations_and_large_numbers_stay() -> None:
    mutants = module()
    source = "def f(x: int | None = 3) -> int | None:\n    y: str | int = 100\n    return x | y + 99\n"
    skipped = list(mutants._skipped(ast.parse(source)))
    lines = source.splitlines()
    assert sorted(lines[a[0] - 1][a[1] : b[1]] for a, b in skipped) == ["100", "int | None", "int | None", "str | int"]


def test_calls_are_left_out_one_at_a_time() -> None:
    mutants = module()
    from cosmic_ray.mutating import mutate_code

    source = 'def f():\n    """Says f()."""\n    g(1)\n    x = g(2)\n    if x:\n        a.b.c()\n    return x\n'
    found = [mutate_code(source, mutants.DropCall(), i) for i in range(3)]
    assert found == [source.replace("g(1)", "pass"), source.replace("a.b.c()", "pass"), None]


def module() -> Any:
    pytest.importorskip("cosmic_ray")
    from benchmarks import mutants

    return mutants
