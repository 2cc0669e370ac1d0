"""The package's docstring: every module of a case's check with its noun, each importing only from those below it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import kerntune.gate

FOLDER = Path(kerntune.gate.__file__).parent
TEXT = kerntune.gate.__doc__ or ""
CHECK = re.findall(r"^(\w+) {2,}\S", TEXT, re.MULTILINE)
"""Modules of a check, the one that runs the others first."""


def gate_imports(module: str) -> set[str]:
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    froms = (node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {name.rpartition(".")[2] for name in froms if name.startswith("kerntune.gate.")}


def test_every_module_is_named_once() -> None:
    named = [*CHECK, *re.findall(r"``(\w+)``", TEXT), *re.findall(r":mod:`kerntune\.gate\.(\w+)`", TEXT)]
    assert sorted(named) == sorted([*(p.stem for p in FOLDER.glob("*.py") if p.stem != "__init__"), "reporting"])


def test_modules_of_a_check_import_from_below() -> None:
    wrong = {m: sorted(gate_imports(m) & {*CHECK[: i + 1]}) for i, m in enumerate(CHECK)}
    assert {m: found for m, found in wrong.items() if found} == {}


def test_what_they_rest_on_imports_none_of_them() -> None:
    """But for types alone, as ``bundle`` names what it packs."""
    beneath = set(re.findall(r"``(\w+)``", TEXT))
    wrong = {m: sorted(gate_imports(m) & set(CHECK)) for m in sorted(beneath)}
    assert {m: found for m, found in wrong.items() if found} == {"bundle": ["call"]}


def test_a_check_has_few_modules_of_a_size_to_read() -> None:
    lines = {m: len((FOLDER / f"{m}.py").read_text(encoding="utf-8").splitlines()) for m in CHECK}
    assert len(CHECK) <= 15
    assert {m: n for m, n in lines.items() if not 80 <= n <= 400} == {}


def functions(module: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods with their full names."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = node.body if isinstance(node, (ast.Module, ast.ClassDef)) else []
        owner = f"{module}.{node.name}" if isinstance(node, ast.ClassDef) else module
        yield from ((f"{owner}.{f.name}", f) for f in body if isinstance(f, ast.FunctionDef))


def test_steps_of_a_check_take_few_values() -> None:
    counts = {name: len(f.args.args + f.args.kwonlyargs) for m in CHECK for name, f in functions(m)}
    assert {name: n for name, n in counts.items() if n > 7} == {}, "self and six"


CHANGING = {"session.Session", "gpu_capture.GpuCapture", "call_tuning.Tuning", "case_identity.Renames"}
"""Objects that live as long as a run or a call's tuning, and change."""


def test_steps_of_a_check_set_nothing_on_the_side() -> None:
    wrong = [
        f"{name}: self.{node.attr}"
        for m in CHECK
        for name, function in functions(m)
        if not name.endswith(".__init__") and name.rpartition(".")[0] not in CHANGING
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    ]
    assert wrong == []
