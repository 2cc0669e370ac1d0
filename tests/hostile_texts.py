"""Texts that make patterns slow and outputs misleading, and the patterns of the project to try them on."""

from __future__ import annotations

import ast
import contextlib
import re
import resource
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doubles import raising

if sys.version_info >= (3, 11):
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_parse as parser

PROJECT = Path(__file__).parents[1]
PACKAGES = ("kerntune", "pytest_kerntune")

LENGTH = 32_000
"""Characters of a text: a linear pattern takes a few milliseconds, a quadratic one a second."""

CPU_SECONDS = 0.1
"""Processor time after which a pattern counts as none that is linear: twenty times what the slowest of them takes."""


class TooSlow(Exception):
    """A pattern didn't end within :data:`CPU_SECONDS`."""


def within_time(action: Callable[[], object], seconds: float = CPU_SECONDS) -> None:
    """Run ``action``; :class:`TooSlow` if it takes more processor time than it may. The load of the machine doesn't
    count."""

    before = signal.signal(signal.SIGVTALRM, raising(TooSlow))
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        action()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def is_linear(scan: Callable[[str], object], text: str, seconds: float) -> bool:
    """Whether it ends within so much processor time, or, where coverage is measured or the machine is slow, takes less
    than eight times what a quarter of the text takes: four times if it is linear, sixteen times if it is quadratic."""
    with contextlib.suppress(TooSlow):
        within_time(lambda: scan(text), seconds)
        return True
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    scan(text[: len(text) // 4])
    quarter = resource.getrusage(resource.RUSAGE_SELF).ru_utime - begin
    with contextlib.suppress(TooSlow):
        within_time(lambda: scan(text), 8 * quarter)
        return True
    return False


@dataclass(frozen=True)
class Pattern:
    """A pattern that is written out in the project: where, its text and flags, and the methods that it is used by."""

    place: str
    text: str | bytes
    flags: int
    methods: tuple[str, ...]

    def use(self, text: str) -> None:
        """Apply it to a text, by each method."""
        given: Any = text.encode("latin-1", "replace") if isinstance(self.text, bytes) else text
        compiled = re.compile(self.text, self.flags)
        for method in self.methods:
            arguments = (given[:0], given) if method in ("sub", "subn") else (given,)
            found = getattr(compiled, method)(*arguments)
            if method == "finditer":
                deque(found, maxlen=0)


def patterns() -> list[Pattern]:
    """Every pattern of the project that is written out; what isn't known of an f-string is a word."""
    trees = {p: ast.parse(p.read_bytes()) for package in PACKAGES for p in sorted((PROJECT / package).rglob("*.py"))}
    everywhere = [_methods(tree) for tree in trees.values()]
    found = []
    for path, tree in trees.items():
        constants, names, here = _constants(tree), _names(tree), _methods(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _is_re(node.func) and node.args:
                text = _value(node.args[0], constants)
                if isinstance(text, (str, bytes)):
                    method = node.func.attr  # type: ignore[attr-defined]
                    name = names.get(id(node), "")
                    users = [here] if name.startswith("_") else everywhere
                    known = set().union(*(x.get(name, ()) for x in users)) if method == "compile" else {method}
                    place = f"{path.relative_to(PROJECT)}:{node.lineno}"
                    found.append(Pattern(place, text, _flags(node), tuple(sorted(known or UNKNOWN))))
    return found


def _methods(tree: ast.Module) -> dict[str, set[str]]:
    """By a name, the methods of patterns that are called of it."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in USES and isinstance(node.value, ast.Name):
            found.setdefault(node.value.id, set()).add(node.attr)
    return found


UNKNOWN = ("sub", "fullmatch")
"""How a pattern is used that has no name of its own: in any way."""


def _names(tree: ast.Module) -> dict[int, str]:
    """By a call, the name that it is assigned to."""
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    return {id(x.value): x.targets[0].id for x in assigned if isinstance(x.targets[0], ast.Name)}


USES = ("compile", "sub", "subn", "search", "match", "fullmatch", "findall", "finditer", "split")


def _is_re(func: ast.expr) -> bool:
    return isinstance(func, ast.Attribute) and func.attr in USES and getattr(func.value, "id", "") == "re"


def _constants(tree: ast.Module) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = _value(node.value, found)
    return found


def _value(node: ast.expr, constants: dict[str, Any]) -> Any:
    """A text that is written out, of names that are too; what isn't known of an f-string is a word."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.JoinedStr):
        parts = [_value(x.value if isinstance(x, ast.FormattedValue) else x, constants) for x in node.values]
        return "".join(part if isinstance(part, str) else "word" for part in parts)
    return None


def _flags(node: ast.Call) -> int:
    names = {x.attr for x in ast.walk(node) if isinstance(x, ast.Attribute) and x.attr.isupper()}
    return int(sum(getattr(re, name) for name in names))


FILLERS = (" ", "\n", "\t", "a", "_", "0", "1", ".", ",", "-", "(", ")", "[", "]", "{", "<", '"', "\\", "/", "*", "%",
           "=", ":", ";", "$", "@", "!", "#", "e", "x", "é", "\0")  # fmt: skip


def texts_for(pattern: str | bytes, length: int = LENGTH) -> Iterator[str]:
    """Texts made of what a pattern looks for: its words, once and again and again, among every filler."""
    source = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    words = list(dict.fromkeys(["", *_words(parser.parse(source, 0))]))[:9]
    for filler in FILLERS:
        yield filler * length
    for word in filter(None, words):
        for filler in ("", " ", "\n", "a", "0", "("):
            yield word + filler * length if filler else word * (length // len(word))
            unit = word + filler * 7
            yield unit * (length // len(unit))
    for first in words[1:4]:
        for second in words[1:4]:
            if first != second and first and second:
                unit = f"{first} {second}"
                yield unit * (length // len(unit))
                yield f"{first}a {second}".ljust(length // 2).rjust(length)


def _words(parsed: Any) -> list[str]:
    """The literal texts in a pattern."""
    found, text = [], ""
    for operator, value in parsed:
        name = str(operator)
        if name == "LITERAL":
            text += chr(value)
            continue
        found.append(text)
        text = ""
        if name in ("SUBPATTERN", "ATOMIC_GROUP"):
            found += _words(value[-1] if name == "SUBPATTERN" else value)
        elif name == "BRANCH":
            found += [word for branch in value[1] for word in _words(branch)]
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            found += _words(value[2])
        elif name == "IN":
            found += [chr(x) for kind, x in value if str(kind) == "LITERAL"][:2]
    return [word for word in (*found, text) if word]
