"""The settings of the revision that a run is held against: files of a change don't say what it is compared with."""

from __future__ import annotations

import ast
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from kerntune.base.device import Target, targets_of_folders
from kerntune.errors import UsageError
from kerntune.gate import git
from kerntune.gate.project import INI_FILES, Project, settings_in
from pytest_kerntune.marker import nodeid_of

LINES = 20
"""Differences that are listed; a change of more of them is one of the test suite."""


@dataclass(frozen=True, kw_only=True)
class ReferenceSettings(Project):
    """What ``revision`` says. ``root`` is the folder of its ini file, as this checkout would have it; ``values`` are
    the settings there."""

    revision: str
    top: Path
    commit: str
    _known: dict[Path, tuple[Mapping[str, list[str]], Mapping[str, list[str]]]] = field(default_factory=dict)
    """What :meth:`_files` has found."""

    def has_folder(self, path: Path) -> bool:
        """Whether there is such a folder: in the revision, if the path is one of the repository."""
        name = git.name_in(self.top, path)
        return path.is_dir() if name is None else git.names_at(self.top, self.commit, name) is not None

    def targets(self, baselines: Path) -> tuple[Target, ...]:
        """The targets of which the revision has baselines."""
        top, name = git.place_of(baselines, self.top)
        names = git.names_at(top, git.commit_of(top, self.revision), name, folders=True) or ()
        return tuple(targets_of_folders(names))

    def differences(self, config: pytest.Config) -> tuple[str, ...]:
        """A line for each setting of kerntune that the ini file here has otherwise."""
        here = (settings_in(config.inipath) if config.inipath is not None else None) or {}
        names = [n for n in {**self.values, **here} if n.startswith("kerntune") or n == "addopts"]
        counts = f" (which counts for what is read from {self.revision})"
        return tuple(
            f"the ini file says otherwise than {self.revision}'s: {name} is {_shown(here, name)}, "
            f"there {_shown(self.values, name)}{counts if name in OF_REVISION else ''}"
            for name in sorted(names)
            if here.get(name) != self.values.get(name)
        )

    def marker_differences(self, items: Iterable[pytest.Item]) -> list[str]:
        """A line for each test whose markers ``autotune`` are others than there."""
        found: dict[str, None] = {}
        for item in items:
            nodeid = nodeid_of(item).partition("[")[0]
            mine, theirs = self._files(item.path)
            scopes = _scopes(nodeid)
            here, there = ([mark for scope in scopes for mark in side.get(scope, ())] for side in (mine, theirs))
            if theirs and here != there:
                text = f"{', '.join(here) or 'none'}, there {', '.join(there) or 'none'}"
                found[f"the marker of {nodeid} is another than {self.revision}'s: {text}"] = None
        lines = list(found)
        rest = [f"... and {len(lines) - LINES} more markers"] if len(lines) > LINES else []
        return [*lines[:LINES], *rest]

    def own_marks(self, nodeid: str, root: Path) -> list[pytest.Mark] | None:
        """The markers ``autotune`` that the revision's file has on a test, the closest first; None where one of them
        can't be read as literals, on a parameter of the test for example. ``root`` is what node ids begin at."""
        test = nodeid.partition("[")[0]
        name = git.name_in(self.top, root / test.partition("::")[0])
        content = None if name is None else git.file_at(self.top, self.commit, name)
        scopes, found = _scopes(test), []
        for scope, node in _marked_in(content or b"") or ():
            if scope in scopes:
                marks = _literal_marks(node)
                if marks is None:
                    return None
                found += [(scopes.index(scope), mark) for mark in marks]
        return [mark for _, mark in sorted(found, key=lambda one: -one[0])]

    def _files(self, path: Path) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
        """The markers in a file by scope: here, and in the revision; both empty where the file is the same."""
        if path not in self._known:
            name = git.name_in(self.top, path)
            there = None if name is None else git.file_at(self.top, self.commit, name)
            here = path.read_bytes() if path.is_file() else b""
            same = there is None or there == here
            self._known[path] = ({}, {}) if same else (_marks(here), _marks(there or b"") or {"": []})
        return self._known[path]


OF_REVISION = ("kerntune_baselines", "kerntune_anchor")
"""Settings that say what a run is compared with. They are the revision's unless the command line has them."""


def reference_settings(revision: str, config: pytest.Config, given: Any, root: Path) -> ReferenceSettings:
    """What ``revision`` says of the tests that pytest was called for; :class:`UsageError` if git can't tell.

    Its ini file is looked for as pytest does, but in the revision: from the folder of the tests upwards.
    """
    top = git.top_of(root.resolve())
    commit = git.commit_of(top, revision)
    found = partial(ReferenceSettings, revision=revision, top=top, commit=commit)
    start = _start(config, given)
    name = git.name_in(top, start)
    if name is None:
        return found(root)
    if named := getattr(given, "inifilename", None):
        path = Path(os.path.abspath(config.invocation_params.dir / named))
        values = _settings_at(top, commit, git.name_in(top, path))
        return found(path.parent, values=values or {})
    folder = PurePosixPath(name)
    for up, inside in enumerate([folder, *folder.parents]):
        names = git.names_at(top, commit, str(inside)) or []
        for ini in (x for x in INI_FILES if x in names):
            values = _settings_at(top, commit, str(inside / ini))
            if values is not None:
                return found([start, *start.parents][up], values=values)
    return found(root)


def on_command_line(config: pytest.Config, flag: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether who called pytest gave an option. One of ``addopts`` is the ini file's, and looks the same."""
    words = [*map(str, config.invocation_params.args), *shlex.split(environ.get("PYTEST_ADDOPTS", ""))]
    return any(word == flag or word.startswith(f"{flag}=") for word in words)


def _settings_at(top: Path, commit: str, name: str | None) -> Mapping[str, Any] | None:
    content = None if name is None else git.file_at(top, commit, name)
    if name is None or content is None:
        return None
    try:
        return settings_in(Path(name), content)
    except UsageError as exc:
        raise UsageError(f"of commit {commit[:10]}: {exc}") from None


def _start(config: pytest.Config, given: Any) -> Path:
    """Where pytest begins to look for its ini file: the folder that all its arguments have in common."""
    base = Path(os.path.abspath(config.invocation_params.dir))
    named = [base / str(w).partition("::")[0] for w in getattr(given, "file_or_dir", None) or ()]
    there = [os.path.abspath(path) for path in named if path.exists()]
    common = Path(os.path.commonpath(there)) if there else base
    return common if common.is_dir() else common.parent


def _shown(values: Mapping[str, Any], name: str) -> str:
    return repr(values[name])[:200] if name in values else "unset"


def _scopes(nodeid: str) -> list[str]:
    """The module, the classes and the function of a test: ``""``, ``TestIt``, ``TestIt::test_a``."""
    names = nodeid.split("::")[1:]
    return ["", *("::".join(names[: i + 1]) for i in range(len(names)))]


def _marks(source: bytes) -> dict[str, list[str]]:
    """The markers ``autotune`` of a file as texts, by the scope that they are on; empty if it can't be parsed."""
    nodes = _marked_in(source)
    found: dict[str, list[str]] = {} if nodes is None else {"": []}
    for scope, node in nodes or ():
        found.setdefault(scope, []).extend(_marks_in(node))
    return found


def _marked_in(source: bytes) -> list[tuple[str, ast.AST]] | None:
    """What may have markers in a file, with the scope that it marks; None for a file that can't be parsed."""
    try:
        return list(_marked(ast.parse(source), ""))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _literal_marks(node: ast.AST) -> list[pytest.Mark] | None:
    """The markers of a decorator or a ``pytestmark``; None if one has more than literals, or is inside of another."""
    if isinstance(node, (ast.List, ast.Tuple)):
        parts = [_literal_marks(one) for one in node.elts]
        return None if None in parts else [mark for part in parts for mark in part or ()]
    if not any(isinstance(x, ast.Attribute) and x.attr == "autotune" for x in ast.walk(node)):
        return []
    call = node if isinstance(node, ast.Call) else None
    function = node if call is None else call.func
    if not (isinstance(function, ast.Attribute) and function.attr == "autotune") or (call is not None and call.args):
        return None
    try:
        said = {x.arg or "": ast.literal_eval(x.value) for x in (call.keywords if call is not None else ())}
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None
    return None if "" in said else [pytest.mark.autotune(**said).mark]


def _marked(node: ast.Module | ast.ClassDef, scope: str) -> Iterator[tuple[str, ast.AST]]:
    """Expressions that may have markers, with what they mark: decorators, and what is assigned to ``pytestmark``."""
    for child in node.body:
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = f"{scope}::{child.name}" if scope else child.name
            yield from ((inner, decorator) for decorator in child.decorator_list)
            if isinstance(child, ast.ClassDef):
                yield from _marked(child, inner)
        elif isinstance(child, (ast.Assign, ast.AnnAssign)) and child.value is not None:
            names = child.targets if isinstance(child, ast.Assign) else [child.target]
            if any(isinstance(n, ast.Name) and n.id == "pytestmark" for n in names):
                yield scope, child.value


def _marks_in(node: ast.AST) -> Iterator[str]:
    calls = {id(x.func): x for x in ast.walk(node) if isinstance(x, ast.Call)}
    for found in ast.walk(node):
        if isinstance(found, ast.Attribute) and found.attr == "autotune":
            holder = found.value
            if (holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")) == "mark":
                call = calls.get(id(found))
                words = [] if call is None else [ast.unparse(x) for x in (*call.args, *call.keywords)]
                yield f"autotune({', '.join(words)})"[:300]
