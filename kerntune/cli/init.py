"""``kerntune init``: the settings, the hook and the workflow that gate the tests that a project has.

Nothing of the project is imported or run: its files are read as text. All is checked before the first file is written.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from kerntune.base.codec import write_atomic
from kerntune.errors import UsageError
from kerntune.gate.console import FINDINGS, OK, complain, counted, say
from kerntune.gate.project import DEFAULT_BASELINES, Project, find_project, settings_in
from kerntune.kernels.compat.versions import torch_version, triton_version

BASELINES = "kerntune_baselines"

TEST_FILES = ("test_*.py", "*_test.py")
"""pytest's default of ``python_files`` (its reference, "Configuration options")."""

SKIPPED = frozenset({"build", "dist", "node_modules", "venv", "CVS", "_darcs"})
"""Folders that pytest doesn't look into by default (``norecursedirs``), beside those that begin with a dot."""

JIT = re.compile(rb"^[ \t]*@[\w.]*\bjit\b", re.M)
"""Decorates a kernel, in a file that names Triton; Gluon is a part of it."""

HEADERS = {".toml": ("tool.pytest.ini_options", "tool.pytest"), ".cfg": ("tool:pytest",), ".ini": ("pytest",)}
"""Sections of pytest's settings, by the end of the file's name, the first for a file that has none."""

MARK = "kerntune init"
"""Is in each file that this command makes: such a file is left as it is, whatever was changed in it since."""

CONFTEST = '''\
"""Written by kerntune init: under --kerntune the whole body of each test below GATED is the call that is gated."""

import functools
import inspect

import pytest

GATED = (
{gated}
)


def pytest_collection_modifyitems(config, items):
    for item in items:
        if config.getoption("kerntune", False) and type(item) is pytest.Function and item.nodeid.startswith(GATED):
            item.fixturenames.append("autotune")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    names = inspect.signature(pyfuncitem.obj).parameters
    if "autotune" in names or "autotune" not in pyfuncitem.funcargs:
        return None
    given = {{name: pyfuncitem.funcargs[name] for name in names}}
    pyfuncitem.funcargs["autotune"](functools.partial(pyfuncitem.obj, **given))
    return True
'''

WORKFLOW = """\
# Written by kerntune init: kernels are compiled for the baselines' GPUs and compared with them, without a GPU.
name: kerntune
on: pull_request

permissions:
  contents: read

jobs:
  static:
    runs-on: ubuntu-latest
    timeout-minutes: 60
    permissions:
      contents: read
      pull-requests: write
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with:
          persist-credentials: false
      - uses: actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97 # v7.0.0
        with:
          python-version: "{python}"
      # uv knows where the CPU build of torch is.
      - name: Install
        run: |
          pip install uv
          uv pip install --system --torch-backend=cpu {torch}
          pip install {triton} "kerntune[report]"{project}
      - name: Gate
        run: >-
          python -m pytest --kerntune --kerntune-json=kerntune.json --kerntune-html=report.html
          --kerntune-summary="$GITHUB_STEP_SUMMARY"
          {tests}
      - name: Keep the report
        if: ${{{{ !cancelled() }}}}
        uses: actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0
        with:
          name: kerntune
          path: |
            kerntune.json
            report.html
          if-no-files-found: ignore
      # A fork's token may not write: its pull request has the summary alone.
      - name: Comment
        if: >-
          ${{{{ !cancelled() && hashFiles('kerntune.json') != '' &&
          github.event.pull_request.head.repo.full_name == github.repository }}}}
        env:
          GITHUB_TOKEN: ${{{{ github.token }}}}
        run: kerntune report kerntune.json --comment=wrong
"""


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune init`` takes."""
    parser.add_argument(
        "tests",
        metavar="TEST",
        nargs="*",
        help="files or folders of tests to gate (default: all that use autotune, or import Triton kernels)",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be written, and write nothing")


class Wanted(NamedTuple):
    """A file that the gate needs. ``content`` is None where what is there stays; ``shown`` are the new lines."""

    path: Path
    content: bytes | None = None
    shown: str = ""


class _RefusedError(UsageError):
    """A file of the user is in the way; the message has what to put into it by hand."""


def run(args: Namespace) -> int:
    """Write what is missing; 1, and nothing written, if a file of the user is in the way."""
    project = find_project(Path.cwd())
    tests = FoundTests(project, [Path(os.path.abspath(t)) for t in args.tests])
    if not tests.gated:
        raise UsageError(
            f"{project.root}: no test uses the fixture autotune, or imports a module with Triton kernels. Name the "
            "tests, kerntune init TEST ..., or write one: def test_speed(autotune): autotune(function, x)"
        )
    wanted, refused = list[Wanted](), list[str]()
    for plan in (_settings, _hook, _workflow):
        try:
            wanted += plan(project, tests)
        except _RefusedError as exc:
            refused.append(str(exc))
    if refused:
        for text in refused:
            complain(text)
        complain("nothing was written")
        return FINDINGS
    for one in wanted:
        name = os.path.relpath(one.path)
        if one.content is None:
            say(f"{name}: is there, and stays as it is")
        else:
            if not args.dry_run:
                one.path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(one.path.resolve(), one.content)
            shown = textwrap.indent(one.shown.rstrip(), "  ")
            say(f"{name}: {'would get' if args.dry_run else 'wrote'}\n{shown}")
    say(f"{counted(len(tests.gated), 'file')} of tests {'is' if len(tests.gated) == 1 else 'are'} gated. Next:")
    say(f"  pytest --kerntune --kerntune-target=cuda:90 --kerntune-update {' '.join(tests.words_here)}")
    say("It compiles for an H100, and records the baselines: commit them with the files above.")
    return OK


class FoundTests:
    """The files of tests that a project has, and those of them that are gated: ``given`` ones, else those that use
    ``autotune`` or import Triton kernels. :class:`UsageError` for a given one that isn't there."""

    def __init__(self, project: Project, given: Sequence[Path]) -> None:
        self.root = project.root
        for path in given:
            if not path.exists() or not path.is_relative_to(self.root):
                raise UsageError(f"{path}: no such file or folder in {self.root}; name tests of this project")
        patterns = _listed(project.values.get("python_files")) or list(TEST_FILES)
        starts = given or [p for text in _listed(project.values.get("testpaths")) for p in self.root.glob(text)]
        self.starts = [*starts] or [self.root]
        self.all = sorted({p for start in self.starts for p in _files(start, patterns)})
        self.using = [p for p in self.all if "autotune" in _arguments(p)]
        """Those whose tests ask for the fixture themselves."""

        others = [p for p in self.all if p not in self.using]
        self.others = [p for p in others if given or not self._kernels.isdisjoint(_imported(p))]
        """Those that the hook gates as they are."""

        self.gated = sorted([*self.using, *self.others])

    @cached_property
    def _kernels(self) -> frozenset[str]:
        """Names that can be imported and have kernels: packages and modules of the project."""
        folders = [folder for folder in (self.root, self.root / "src") if folder.is_dir()]
        paths = [path for folder in folders for path in folder.iterdir() if path not in self.starts]
        return frozenset({"triton", *(p.stem for p in paths if any(map(_has_kernel, _files(p, ["*.py"]))))})

    @property
    def words(self) -> list[str]:
        """The gated files as arguments of pytest in the root."""
        return [shlex.quote(text) for text in self.folded(self.gated)]

    @property
    def words_here(self) -> list[str]:
        """The same where the command was called; a folder keeps its slash."""
        folded = self.folded(self.gated)
        return [shlex.quote(os.path.relpath(self.root / text) + "/" * text.endswith("/")) for text in folded]

    def folded(self, files: Sequence[Path]) -> list[str]:
        """Files relative to the root; a folder below the starts, with its slash, in the place of all its tests."""
        found = list[str]()
        for file in files:
            text = file.relative_to(self.root).as_posix()
            if any(text.startswith(folder) for folder in found if folder.endswith("/")):
                continue
            below = [p for p in reversed(file.parents) if any(map(p.is_relative_to, self.starts))]
            folders = [p for p in below if p != self.root]
            whole = (p for p in folders if all(f in files for f in self.all if f.is_relative_to(p)))
            folder = next(whole, None)
            found.append(text if folder is None else f"{folder.relative_to(self.root).as_posix()}/")
        return found


def _listed(value: object) -> list[str]:
    return value.split() if isinstance(value, str) else [str(v) for v in value] if isinstance(value, list) else []


def _files(start: Path, patterns: Sequence[str]) -> Iterator[Path]:
    if start.is_file():
        yield from [start] if start.suffix == ".py" else []
        return
    for folder, folders, names in os.walk(start):
        here = Path(folder)
        folders[:] = sorted(
            f for f in folders if not (f.startswith(".") or f in SKIPPED or (here / f / "pyvenv.cfg").exists())
        )
        yield from (here / n for n in sorted(names) if any(Path(n).match(p) for p in patterns))


def _has_kernel(path: Path) -> bool:
    text = path.read_bytes()
    return b"triton" in text and JIT.search(text) is not None


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):  # pytest will say it
        return ast.Module([], [])


def _arguments(path: Path) -> set[str]:
    return {node.arg for node in ast.walk(_tree(path)) if isinstance(node, ast.arg)}


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _settings(project: Project, tests: FoundTests) -> Iterator[Wanted]:
    """The folder of the baselines, and with it an ini file: without one pytest takes another root for each call."""
    path = project.ini or project.root / "pytest.ini"
    before = path.read_bytes() if path.exists() else b""
    if BASELINES in project.values:
        yield Wanted(path)
        return
    line, content = _with_key(path, before, BASELINES, DEFAULT_BASELINES)
    try:
        safe = settings_in(path, content) == {**project.values, BASELINES: DEFAULT_BASELINES}
    except UsageError:
        safe = False
    if not safe:
        raise _RefusedError(f"{path}: can't be edited safely; add to pytest's settings there: {line}")
    yield Wanted(path, content, line)


def _with_key(path: Path, content: bytes, key: str, value: str) -> tuple[str, bytes]:
    """A key's line, and the file's content with it: below the section's header, or in a section at the end."""
    toml = path.suffix == ".toml"
    line = f'{key} = "{value}"' if toml else f"{key} = {value}"
    headers = ("pytest",) if path.stem.lstrip(".") == "pytest" else HEADERS[path.suffix]
    end = b"\r\n" if b"\r\n" in content else b"\n"
    for header in headers:
        if found := re.search(rb"^[ \t]*\[%s\][^\n]*(\n|\Z)" % re.escape(header.encode()), content, re.M):
            head = content[: found.end()] + (b"" if found[1] else end)
            return line, head + line.encode() + end + content[found.end() :]
    gap = b"" if not content else end if content.endswith(b"\n") else end + end
    return line, b"".join([content, gap, f"[{headers[0]}]".encode(), end, line.encode(), end])


def _hook(project: Project, tests: FoundTests) -> Iterator[Wanted]:
    """A conftest where tests are gated as they are, in the first folder above them that has none."""
    if not tests.others:
        return
    text = CONFTEST.format(gated="\n".join(f"    {_quoted(name)}," for name in tests.folded(tests.others)))
    below = Path(os.path.commonpath([path.parent for path in tests.others]))
    places = [p / "conftest.py" for p in reversed((below / "x").parents) if p.is_relative_to(project.root)]
    for path in places:
        if _is_ours(path):
            yield Wanted(path)
            return
    free = [path for path in places if not path.exists()]
    if not free:
        names = ", ".join(str(p.relative_to(project.root)) for p in places)
        raise _RefusedError(f"{names}: is there already, and isn't edited; add to it:\n{text}")
    yield Wanted(free[0], text.encode(), text)


def _quoted(text: str) -> str:
    return f'"{text}"' if re.fullmatch(r"[\w./-]+", text) else repr(text)


def _workflow(project: Project, tests: FoundTests) -> Iterator[Wanted]:
    path = project.root / ".github" / "workflows" / "kerntune.yml"
    if _is_ours(path):
        yield Wanted(path)
        return
    text = WORKFLOW.format(
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        torch=_pinned("torch", torch_version()),
        triton=_pinned("triton", triton_version()),
        project=" -e ." if _is_installable(project.root) else "",
        tests="\n          ".join(tests.words),
    )
    if path.exists():
        raise _RefusedError(f"{path}: is there already, and isn't edited; its steps would be:\n{text}")
    yield Wanted(path, text.encode(), text)


def _pinned(name: str, version: str) -> str:
    """The version that is installed here, and so in the baselines that are recorded next."""
    return f"{name}=={version.partition('+')[0]}" if version else name


def _is_ours(path: Path) -> bool:
    return path.is_file() and MARK.encode() in path.read_bytes()


def _is_installable(root: Path) -> bool:
    metadata = root / "pyproject.toml"
    return (root / "setup.py").is_file() or (
        metadata.is_file() and re.search(rb"^\[(project|build-system)\]", metadata.read_bytes(), re.M) is not None
    )
