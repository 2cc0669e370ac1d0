"""Which tests may notice a mutant, the most specific first, by coverage.py's database with a context for each test."""

from __future__ import annotations

import ast
import re
import sqlite3
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks.harness import ROOT

SOURCES = ("kerntune", "pytest_kerntune")
"""Folders whose packages are mutated."""

TESTS = 600
"""Tests that are listed of a mutant. Their time is limited to much less."""

DECLARATIONS = "tests/test_declarations.py"
"""Looks at the classes of all modules, at decorators, defaults and switches of calls, and at what is imported for types
alone."""

SWITCH = re.compile(
    r"\b(autojunk|capture_output|check|closefd|daemon|dirs_exist_ok|disable_numparse|endpoint|exist_ok|"
    r"follow_symlinks|ignore_errors|missing_ok|parents|pytrace|start_new_session|strict|use_errno)=$"
)
"""Before the value of a call's switch that is set alike in all modules."""

ROUND = 3
"""Of a test function's cases so many run before those of other functions do."""


class Ran:
    """What ``pytest --cov=kerntune --cov=pytest_kerntune --cov-context=test --cov-report=`` has written, at the commit
    ``at`` where that is another one: lines that have moved since are found again.

    FileNotFoundError without such a file, ValueError for one of another folder's modules.
    """

    def __init__(self, path: Path, at: str = "") -> None:
        from coverage import CoverageData

        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file; pytest --cov-context=test writes it as .coverage")
        self._data = CoverageData(str(path))
        self._data.read()
        if not any(Path(file).is_relative_to(ROOT) for file in self._data.measured_files()):
            raise ValueError(f"{path}: it has no module below {ROOT}; coverage.py names files by their whole path")
        self._at = at
        self._size: Counter[str] = Counter()
        """Lines that each test runs of all modules."""
        with sqlite3.connect(path) as base:
            rows = base.execute("select context, numbits from line_bits join context on context.id = context_id")
            for context, bits in rows:
                self._size[_test(context)] += int.from_bytes(bits, "big").bit_count()

    def tests_of(self, mutant: dict[str, Any]) -> dict[str, Any]:
        """``tests``: those that run the mutant's statement. ``near``: files of tests that may run it in a process of
        their own, where no line is seen. ``first``: files that look at declarations of all modules, for one of these;
        and of what runs at an import those that are named after the module, whose tests may use a value without
        running any of its lines.

        What runs when a module is imported has those tests that use what it defines: of a default value those that run
        the function, of a name those that run a line with that name or with the name of its class.
        """
        module, lines = mutant["module"], range(mutant["line"], mutant["line"] + mutant["old"].count("\n") + 1)
        place = Place.of(module, lines)
        known = self._lines(module)
        layers = [] if place.imported else [_any(known, place.span)]
        if place.imported or not layers[0]:
            layers += [_any(known, place.body), *self._using(module, place.names)]
            layers.append(_any(known, known) if not any(layers) else set())
        ranked = self._ranked(module, layers)
        found: dict[str, Any] = {"tests": ranked[:TESTS], "ran_its_line": len(ranked), "near": near(module)}
        named = [file for file in found["near"] if belongs(module, file) == NAMED]
        declares = place.declares or SWITCH.search((ROOT / module).read_text()[: mutant["at"]])
        return found | {"first": [*[DECLARATIONS] * bool(declares), *(named if place.imported else [])]}

    @cache  # noqa: B019 - one object a program
    def _lines(self, module: str) -> dict[int, set[str]]:
        """Tests by the line that they run."""
        found = self._data.contexts_by_lineno(str(ROOT / module))
        now = _moved(module, self._at) if self._at else {line: line for line in found}
        return {now[line]: {_test(c) for c in contexts if c} for line, contexts in found.items() if line in now}

    def _using(self, module: str, names: set[str]) -> Iterator[set[str]]:
        """Tests that run a line with one of these names, in this module and in others."""
        if not names:
            return
        asked = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
        for modules in ([module], all_modules()):
            found: set[str] = set()
            for one in modules:
                text = (ROOT / one).read_text().splitlines()
                found |= _any(self._lines(one), [i for i, line in enumerate(text, 1) if asked.search(line)])
            yield found

    def _ranked(self, module: str, layers: list[set[str]]) -> list[str]:
        """By files, those that belong to the module and run little else first; of files that aren't named after it a
        few cases of each function, then the rest."""
        layer = {test: i for i in reversed(range(len(layers))) for test in layers[i] if _is_there(test)}
        files: dict[str, list[str]] = defaultdict(list)
        for test in sorted(layer, key=lambda test: (layer[test], self._size[test], test)):
            files[test.partition("::")[0]].append(test)
        order = sorted(files, key=lambda f: (-belongs(module, f), layer[files[f][0]], self._size[files[f][0]]))
        rounds: dict[bool, list[str]] = {False: [], True: []}
        for file in order:
            cases: Counter[str] = Counter()
            for test in files[file]:
                function = test.partition("[")[0]
                rounds[cases[function] >= ROUND and belongs(module, file) < NAMED].append(test)
                cases[function] += 1
        return rounds[False] + rounds[True]


def _any(known: Mapping[int, set[str]], lines: Iterable[int]) -> set[str]:
    return set().union(*(known.get(line, ()) for line in lines))


def _test(context: str) -> str:
    return context.rpartition("|")[0]


def _is_there(test: str) -> bool:
    return (ROOT / test.partition("::")[0]).exists()


def _moved(module: str, at: str) -> dict[int, int]:
    """Today's numbers of a module's lines, by those of a commit; none of a module that it hasn't."""
    then = subprocess.run(["git", "show", f"{at}:{module}"], cwd=ROOT, capture_output=True, text=True, check=False)
    lines = SequenceMatcher(None, then.stdout.splitlines(), (ROOT / module).read_text().splitlines(), autojunk=False)
    return {old + i + 1: new + i + 1 for old, new, size in lines.get_matching_blocks() for i in range(size)}


NAMED = 2


def belongs(module: str, file: str) -> int:
    """:data:`NAMED` for a test file that is named after the module, 1 for one of its folder, 0 for others."""
    folder = tests_folder(module)
    if not file.startswith(f"{folder}/"):
        return 0
    return 1 + bool(
        re.fullmatch(rf"test_{PurePosixPath(module).stem.lstrip('_')}(_\w+)?\.py", PurePosixPath(file).name)
    )


def tests_folder(module: str) -> str:
    """Where tests of a module's package lie: ``tests`` has the same folders, or the ones above."""
    path = PurePosixPath(module)
    folder = PurePosixPath("tests", *path.parent.parts[path.parts[0] == "kerntune" :])
    while not any((ROOT / folder).glob("test_*.py")):
        folder = folder.parent
    return str(folder)


NEAR = 4


def near(module: str) -> list[str]:
    """Files of the module's folder of tests, named after it or naming the most of what it defines."""
    tree = ast.parse((ROOT / module).read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / tests_folder(module)).glob("test_*.py"))

    def score(file: str) -> tuple[int, int]:
        return belongs(module, file), len(names & set(re.findall(r"\w+", (ROOT / file).read_text())))

    return sorted(files, key=score, reverse=True)[:NEAR]


@cache
def all_modules() -> list[str]:
    """Every module of ours, by its path; ``__init__`` as well."""
    return sorted(path.relative_to(ROOT).as_posix() for name in SOURCES for path in (ROOT / name).rglob("*.py"))


FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Place:
    """The statement that a mutant changes."""

    imported: bool
    """Runs when the module is imported, or is the head of a function."""

    span: range
    """Its lines; of one with a body those of its head. A statement of several lines may be seen at its first alone."""

    body: range
    """What it defines: lines of a function or class."""

    names: set[str]
    """What it binds, and the class that it belongs to."""

    declares: bool = False
    """A class or one of its fields, the head of a function, or an ``if`` of a module."""

    @classmethod
    def of(cls, module: str, lines: range) -> Place:
        found = [one for one in _statements(module) if one[0] <= lines[0] <= one[1]]
        if not found:
            return cls(True, lines, range(0), set())
        first, last, node, around = min(found, key=lambda one: one[1] - one[0])
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        body = range(0)
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            body, names = range(node.body[0].lineno, (node.end_lineno or 0) + 1), {node.name}
        inside = any(isinstance(one, FUNCTION) for one in around)
        if not inside and around and isinstance(around[-1], ast.ClassDef):
            names.add(around[-1].name)
        field = bool(around) and isinstance(node, (ast.Assign, ast.AnnAssign))
        declares = field or isinstance(node, (ast.ClassDef, ast.If, *FUNCTION))
        span = range(first, max(last, lines[-1]) + 1)
        return cls(not inside or bool(body), span, body, names if not inside else set(), declares and not inside)


@cache
def _statements(module: str) -> list[tuple[int, int, ast.stmt, tuple[ast.AST, ...]]]:
    """First and last line of each statement, of one with a body those of its head; itself, and what it is in."""

    def walk(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[tuple[int, int, ast.stmt, tuple[ast.AST, ...]]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                inner = next((one for one in getattr(child, "body", ()) or getattr(child, "cases", ())), None)
                first = min([child.lineno, *(d.lineno for d in getattr(child, "decorator_list", ()))])
                begins = getattr(inner, "lineno", None) or (inner.pattern.lineno if inner else None)
                yield first, max(first, begins - 1) if begins else child.end_lineno or first, child, around
            yield from walk(child, (*around, child) if isinstance(child, (*FUNCTION, ast.ClassDef)) else around)

    return list(walk(ast.parse((ROOT / module).read_text()), ()))
