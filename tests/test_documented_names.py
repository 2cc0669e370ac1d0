"""Every `package/module.name` that the documents name exists: the function, the class, its method or field."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
DEVELOPERS = ("CONTRIBUTING.md", "docs/architecture.md", "docs/one-case.md")
PACKAGES = sorted(p.parent.name for p in (ROOT / "kerntune").glob("*/__init__.py"))

NAMED = re.compile(
    r"(?<![\w/.-])(?<![0-9a-f]{8}:)"
    rf"((?:kerntune/)?(?:{'|'.join(PACKAGES)})/[\w/]+|pytest_kerntune/\w+)((?:\.\w+)*)"
)
"""``gate/session.Session.check`` in two groups; a folder, a file and a module stand alone. A path after a commit
(``9ed8fc62:kerntune/gate/session.py``) is git's."""

SUFFIXES = (".py", ".c", ".h", ".json", ".md")


def module_of(path: str) -> Path:
    return ROOT / (path if path.startswith(("kerntune/", "pytest_kerntune/")) else f"kerntune/{path}")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def members(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a module or a class defines, with attributes that a class's methods set on ``self``."""
    for child in getattr(node, "body", []):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield child.name, child
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            yield child.target.id, child
        elif isinstance(child, ast.Assign):
            for target in child.targets:
                yield from ((n.id, child) for n in ast.walk(target) if isinstance(n, ast.Name))
        elif isinstance(child, ast.ImportFrom) and isinstance(node, ast.Module):
            yield from ((a.asname or a.name, child) for a in child.names)


def is_there(path: str, name: str) -> bool:
    """Whether a path of the document is a folder, a file, a module, or a module with that dotted name in it."""
    place = module_of(path)
    if place.name.startswith("test_"):
        return name == ".py" and (ROOT / "tests" / f"{path}.py").is_file()
    if not name:
        return place.is_dir() or place.with_suffix(".py").is_file()
    if name in SUFFIXES:
        return place.with_suffix(name).is_file()
    if not place.with_suffix(".py").is_file():
        return False
    node: ast.AST = tree_of(place.with_suffix(".py"))
    for part in name.strip(".").split("."):
        known = dict(members(node))
        if part not in known:
            return False
        node = known[part]
    return True


def named_in(document: Path) -> list[tuple[str, str]]:
    return [(path.rstrip("/"), name) for path, name in NAMED.findall(document.read_text())]


def test_what_a_document_names_exists() -> None:
    named = [(document.name, path, name) for document in DOCUMENTS for path, name in named_in(document)]
    assert [f"{document}: {path}{name}" for document, path, name in named if not is_there(path, name)] == []


def test_the_page_of_one_case_names_its_functions() -> None:
    """A pattern that finds nothing would make the test above pass."""
    named = {path + name for path, name in named_in(ROOT / "docs/one-case.md") if name}
    assert len(named) >= 80
    assert "gate/decision.decide" in named


@pytest.mark.parametrize(
    "named",
    [
        ("gate/session", ".Session.chek"),
        ("gate/session", ".Sesion"),
        ("gate/sesion", ""),
        ("gate/sesion", ".Session"),
        ("kernels/dispatch/frond", ".c"),
    ],
)
def test_a_name_that_is_wrong_is_found(named: tuple[str, str]) -> None:
    assert not is_there(*named)


LINK = re.compile(r"(?<![\w`])\[[^\]\n]+\]\((?!https?:)([\w./#-]+)\)")


METAPHORS = re.compile(
    r"\b(jury|jurors?|entrants?|prospects?|outlook|nursery|whom|whoever|nobody|somebody|hears?|crying wolf|bites?)\b",
    re.IGNORECASE,
)
"""Words for persons and animals where kernels, configs and processes are meant; names in backticks may have them."""


def test_documents_are_in_technical_english() -> None:
    wrong = []
    for document in (d for d in DOCUMENTS if d.name != "packages.md"):
        prose = re.sub(r"```.*?```|`[^`\n]*`", " ", document.read_text(), flags=re.DOTALL)
        wrong += [f"{document.name}: {word}" for word in METAPHORS.findall(prose)]
    assert wrong == []


def headings(document: Path) -> set[str]:
    """The anchors that GitHub makes of a document's headings."""
    found = re.findall(r"^#+ (.*)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def test_links_lead_somewhere() -> None:
    wrong = []
    for document, link in ((d, found) for d in DOCUMENTS for found in LINK.findall(d.read_text())):
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if not target.exists() or (anchor and anchor not in headings(target)):
            wrong.append(f"{document.name}: {link}")
    assert wrong == []


def test_each_document_is_in_the_sites_navigation() -> None:
    named = set(re.findall(r": ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert named == pages | {"index.md"}, "index.md is the README"


def test_named_tests_exist() -> None:
    """`test_...` in the documents: a file or a function."""
    known = {p.stem for p in (ROOT / "tests").rglob("test_*.py")}
    for folder in ("tests", "examples"):
        for path in filter(Path.is_file, (ROOT / folder).rglob("*.py")):
            known |= set(re.findall(r"def (test_\w+)", path.read_text()))
    named = {n for d in DEVELOPERS for n in re.findall(r"\b(test_\w+)", (ROOT / d).read_text())}
    assert len(named) > 20
    assert named - known == set()


@pytest.mark.slow
def test_the_page_of_modules_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs/module_index.py"), "--check"], check=False)
    assert done.returncode == 0, "run `make fix` (docs/module_index.py), and commit docs/packages.md"
    told = set(re.findall("^## (.*)", (ROOT / "docs" / "packages.md").read_text(), re.M))
    assert {p.parent.name for p in (ROOT / "kerntune").glob("*/__init__.py")} <= told
