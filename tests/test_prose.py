"""Docstrings and comments are plain technical English: none of the words that this project has given up."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

BANNED = {
    "a person, where a kernel, config, process or argument is meant": (
        r"he|him|his|whom|whoever|whomever|nobody|somebody|anybody|everybody|someone|everyone"
    ),
    "a metaphor of the tuner": r"jury|juries|jurors?|entrants?|prospects?|outlooks?|heats(?! up)|hopeless",
    "a metaphor of the processes": r"(?:a|the|its|each) nest|nursery|nurseries|rungs?|yardsticks?|hooked",
    "speech of things that are silent": r"told|telling|hears?|heard|speaks?|spoke|unheard",
    "a layer or package by another name": r"rooms|pure floors?|floors? (?:above|below)",
    "an idiom with a plain word": r"dear|dearer|dearest|at its word|as ever",
}
"""Words by what is wrong with them, as regular expressions. The floor of an effect or of a timer is statistics."""

ALLOWED = re.compile(r"``[^`]*``|:\w+:`[^`]*`|`[^`]+`|\"[^\"]*\"|\S+://\S+")
"""Code, references, quotations and addresses: names and messages have tests of their own."""

PACKAGES = sorted(
    [str(p.parent.relative_to(ROOT)) for p in (ROOT / "kerntune").glob("*/__init__.py")]
    + [str(p.parent.relative_to(ROOT)) for p in (ROOT / "kerntune" / "gpu").glob("*/__init__.py")]
    + ["kerntune", "pytest_kerntune", "benchmarks", "examples"]
)
"""Folders that are checked one by one, each with all below it that isn't listed itself."""


def files(folder: str) -> list[Path]:
    """Sources of a folder, without those of other folders in :data:`PACKAGES`."""
    inner = [ROOT / p for p in PACKAGES if p.startswith(f"{folder}/")]
    found = [p for p in sorted((ROOT / folder).rglob("*")) if p.suffix in (".py", ".c") and p.is_file()]
    return [p for p in found if not any(p.is_relative_to(other) for other in inner)]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring and comment; strings that stand as statements describe what is above them."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".c":
        for match in re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.DOTALL):
            yield text.count("\n", 0, match.start()) + 1, match[0]
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def given_up(text: str) -> list[str]:
    """The banned words of a text, each with what is wrong with it."""
    plain = ALLOWED.sub(" ", text)
    return [
        f"{match[0]!r} ({why})"
        for why, words in BANNED.items()
        for match in re.finditer(rf"\b(?:{words})\b", plain, re.IGNORECASE)
    ]


@pytest.mark.slow
def test_no_word_that_was_given_up() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for folder in PACKAGES
        for path in files(folder)
        for line, text in prose(path)
        for word in given_up(text)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "whoever comes back after the time is up looks at what is there by then",
        "The jury of results.",
        "# who asks is told",
        "Imports of the pure floors.",
        "Dear, and the way out.",
    ],
)
def test_banned_words_are_found(text: str) -> None:
    assert given_up(text)


@pytest.mark.parametrize(
    "text",
    [
        "The effect floor of a decision.",
        "``told`` is a field.",
        ":class:`Nursery` starts one.",
        "the, shelf, this, her",
    ],
)
def test_names_statistics_and_parts_of_words_are_not(text: str) -> None:
    assert given_up(text) == []


def test_every_kind_of_prose_is_read(tmp_path: Path) -> None:
    source = tmp_path / "one.py"
    source.write_text(
        '"""Module."""\n\nX = 1\n"""Constant."""\n\ndef f():\n    """Function."""\n    return 2  # comment\n'
    )
    assert sorted(text for _, text in prose(source)) == ["# comment", "Constant.", "Function.", "Module."]
    other = tmp_path / "one.c"
    other.write_text("int a; /* block\n comment */ // line\n")
    assert [line for line, _ in prose(other)] == [1, 2]


def test_all_sources_are_in_some_folder() -> None:
    named = {path for folder in PACKAGES for path in files(folder)}
    tops = ("kerntune", "pytest_kerntune")
    assert {p for top in tops for p in (ROOT / top).rglob("*.py")} <= named


# docstrings of what is exported


def exporting() -> list[str]:
    """Modules of ours that have ``__all__``."""
    found = []
    for top in ("kerntune", "pytest_kerntune"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if re.search(r"^__all__ = ", path.read_text(encoding="utf-8"), re.MULTILINE):
                parts = path.relative_to(ROOT).with_suffix("").parts
                found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def test_exported_functions_and_classes_have_a_sentence() -> None:
    pytest.importorskip("torch")
    missing = []
    exported = [(name, public) for name in exporting() for public in importlib.import_module(name).__all__]
    for name, public in exported:
        value = getattr(importlib.import_module(name), public)
        if inspect.isclass(value) or inspect.isfunction(value):
            text = (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""
            first = text.strip().partition("\n\n")[0]
            if len(first.split()) < 2 or not re.search(r"[.:]$|[.] ", first.strip()):
                missing.append(f"{name}.{public}")
    assert missing == []


def test_exporting_modules_are_found() -> None:
    assert {"kerntune", "kerntune.grids", "kerntune.search"} <= set(exporting())


# errors of public functions

NAMES_ERRORS = (
    "base", "grids", "heuristics", "kernels", "search", "static", "gpu/fake_cuda", "gpu/interpreter",
)  # fmt: skip
"""Packages whose public docstrings name every error that the function itself raises."""

NOT_NAMED = frozenset({"AttributeError", "NotImplementedError"})
"""Of ``__getattr__`` and of base classes: part of Python's protocol."""


def unnamed_errors(tree: ast.AST, above: str = "", private: bool = False) -> Iterator[str]:
    """``function: Error`` for each error that a public function raises and neither it nor its class names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            text = ast.get_docstring(node) or ""
            yield from unnamed_errors(node, f"{above} {text}", private or node.name.startswith("_"))
        elif isinstance(node, ast.FunctionDef) and not private:
            if node.name.startswith("_") and node.name not in ("__init__", "__post_init__", "__call__"):
                continue
            text = f"{above} {ast.get_docstring(node) or ''}"
            for one in ast.walk(node):
                if isinstance(one, ast.Raise) and one.exc is not None:
                    name = ast.unparse(one.exc.func if isinstance(one.exc, ast.Call) else one.exc)
                    if name[:1].isupper() and name not in NOT_NAMED and name not in text:
                        yield f"{node.name}: {name}"


def test_public_docstrings_name_the_errors() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {found}"
        for package in NAMES_ERRORS
        for path in sorted((ROOT / "kerntune" / package).rglob("*.py"))
        for found in unnamed_errors(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert wrong == []


def test_errors_that_are_not_named_are_found() -> None:
    source = (
        "class A:\n    '''One; ValueError for two.'''\n    def f(self):\n        raise ValueError\n"
        "    def g(self):\n        '''G.'''\n        raise KeyError(1)\n    def _h(self):\n        raise KeyError\n"
    )
    assert list(unnamed_errors(ast.parse(source))) == ["g: KeyError"]
