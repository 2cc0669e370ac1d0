"""Makes mutants with Cosmic Ray: which of its operators count, one operator of our own, and what is left out."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cosmic_ray.plugins
from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.work_item import MutationSpec

from benchmarks.harness import ROOT

ONE_EACH = {
    "ReplaceBinaryOperator": {
        "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "Pow_Mul", "RShift_LShift",
        "LShift_RShift", "BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitAnd",
    },
    "ReplaceComparisonOperator": {
        "Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_Gt", "LtE_GtE", "Gt_Lt", "GtE_LtE",
        "Is_IsNot", "IsNot_Is",
    },
    "ReplaceUnaryOperator": {"USub_Nothing", "Delete_USub", "Delete_Not"},
}  # fmt: skip
"""Of the operators that replace one sign by each other one, these: a test that detects ``+`` for ``-`` detects ``**``,
too."""

LARGE = 100
"""One more or one less of a number from here on is a change of a hundredth at most: for figures in bytes, nanoseconds
or characters no test should depend on that."""


class DropCall(Operator):
    """Leaves out a statement that is a call."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "simple_stmt" and node.children[0].type == "atom_expr" and node.get_code().strip()[-1:] == ")":
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        import parso

        statement = parso.parse("pass").children[0]
        statement.prefix = node.children[0].get_first_leaf().prefix
        node.children[0] = statement
        return node

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (Example("f(x)\n", "pass\n"),)


cosmic_ray.plugins.OPERATOR_PROVIDERS["kerntune"] = {"DropCall": DropCall}


@dataclass(frozen=True)
class Mutant:
    """A module in which ``old``, at the character ``at``, becomes ``new``."""

    name: str
    module: str
    digest: str
    """Of the module's text."""

    line: int
    at: int
    old: str
    new: str
    change: str
    """The changed lines, as docs/measured/mutants.md shows them. Explanations go by it: it stays when lines move."""


def specs_of(module: str) -> dict[str, MutationSpec]:
    """All changes of a module, by names that stay while the module does."""
    path = Path(module)
    text = (ROOT / path).read_text()
    lines = text.splitlines()
    skipped = [tuple(_in_characters(lines, *at) for at in place) for place in skipped_places(ast.parse(text))]
    found = {}
    for item in _all_work_items([path], {}):
        (spec,) = item.mutations
        here = any(a <= tuple(spec.start_pos) < b for a, b in skipped) or bare_star(lines, *spec.start_pos)
        if _wanted(spec.operator_name) and not here:
            found[f"{module}:{spec.operator_name}:{spec.occurrence}"] = spec
    return found


def _in_characters(lines: Sequence[str], line: int, column: int) -> tuple[int, int]:
    """A place of ``ast``'s, whose columns are bytes of UTF-8, as Cosmic Ray counts."""
    return line, len(lines[line - 1].encode()[:column].decode())


def _wanted(operator: str) -> bool:
    kind, _, how = operator.partition("/")[2].partition("_")
    return how in ONE_EACH[kind] if kind in ONE_EACH else True


def bare_star(lines: Sequence[str], line: int, column: int) -> bool:
    """Whether the ``*`` here stands by itself among parameters, where Cosmic Ray takes it for a multiplication."""
    return lines[line - 1][column : column + 2] == "*,"


def skipped_places(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The places of annotations, which are never evaluated, and of large numbers."""
    for node in ast.walk(tree):
        parts = [getattr(node, name, None) for name in ("annotation", "returns")]
        large = isinstance(node, ast.Constant) and type(node.value) in (int, float) and abs(node.value) >= LARGE
        for part in [*parts, *([node] if large else [])]:
            if isinstance(part, ast.expr):
                yield (part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0)


def made(name: str, spec: MutationSpec) -> dict[str, Any] | None:
    """The mutant, as it is listed for the machine that tries it; None where Cosmic Ray can't make it (its replacement
    of exceptions fails where one of several has a dotted name) and where it is no Python (``**`` before a mapping)."""
    module = str(spec.module_path)
    text = (ROOT / module).read_text()
    operator = cosmic_ray.plugins.get_operator(spec.operator_name)(**spec.operator_args)
    try:
        changed = mutate_code(text, operator, spec.occurrence)
    except AttributeError:
        return None
    assert changed is not None
    if not _is_python(changed, module):
        return None
    begin = next(i for i, (a, b) in enumerate(zip(text, changed, strict=False)) if a != b)
    end = 0
    while end < min(len(text), len(changed)) - begin and text[-1 - end] == changed[-1 - end]:
        end += 1
    old, new = text[begin : len(text) - end], changed[begin : len(changed) - end]
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return asdict(Mutant(name, module, digest, spec.start_pos[0], begin, old, new, change(text, begin, old, new)))


def change(text: str, at: int, old: str, new: str) -> str:
    """The whole lines before and after."""
    first, last = text.rfind("\n", 0, at) + 1, text.find("\n", at + len(old))
    before, after = text[first:last], text[first:at] + new + text[at + len(old) : last]
    return f"`{_joined(before)}` → `{_joined(after)}`"


def found_again(row: dict[str, Any], modules: Sequence[str]) -> dict[str, Any] | None:
    """The mutant of an earlier result, by its lines: in its module where they stand there, else in the first module
    that has them; None if none does. Of several places in a module the one nearest to its line."""
    before, _, after = (part.strip(" `") for part in row["change"].partition(" → "))
    for module in sorted(modules, key=lambda m: (m != row["module"], Path(m).name != Path(row["module"]).name, m)):
        text = (ROOT / module).read_text()
        places = []
        for match in re.finditer(r"\s+".join(map(re.escape, before.split())), text):
            lines = text[text.rfind("\n", 0, match.start()) + 1 : (text + "\n").find("\n", match.end())]
            if lines.strip() == match[0] and _joined(lines) == before:
                places.append((match.start(), match[0]))
        changed = [(at, old) for at, old in places if _is_python(text[:at] + after + text[at + len(old) :], module)]
        if changed:
            number = {at: text.count("\n", 0, at) + 1 for at, _ in changed}
            at, old = min(changed, key=lambda place: abs(number[place[0]] - row["line"]))
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            return asdict(Mutant(row["name"], module, digest, number[at], at, old, after, row["change"]))
    return None


def _is_python(text: str, module: str) -> bool:
    try:
        compile(text, module, "exec")
    except SyntaxError:
        return False
    return True


def _joined(lines: str) -> str:
    return " ".join(line.strip() for line in lines.splitlines())
