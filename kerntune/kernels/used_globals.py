"""The names that a kernel's code uses from the scope around it, and texts of their values."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import FunctionType
from typing import Any, NamedTuple

from kerntune.kernels.compat.triton_compiler import parsed

FOREIGN = frozenset(sys.stdlib_module_names) | {"triton", "torch", "numpy"}
"""Packages whose functions are hashed by name only: their code isn't part of a kernel's source."""


class Syntax(NamedTuple):
    """The parts of code that a hash uses: its dump, the chains of names in it (``library.helper``), and its own
    names."""

    dump: str
    paths: tuple[str, ...]
    own: frozenset[str]
    """Parameters and variables."""


def scope_of(function: Any) -> dict[str, Any]:
    """The values around a Python function by name."""
    return {**function.__globals__, **inspect.getclosurevars(function).nonlocals}


def is_jit(value: Any) -> bool:
    """Whether a value is a ``@triton.jit`` function."""
    return hasattr(value, "src") and hasattr(value, "params")


def is_constant(value: Any) -> bool:
    """Whether a value is a constexpr, or a plain one that kernels take as such."""
    return type(value).__name__ == "constexpr" or isinstance(value, (bool, int, float, str))


def named(syntax: Syntax, scope: Mapping[str, Any]) -> dict[str, Any]:
    """The values that code names in its scope, through modules too (``library.helper``), without Triton's own."""
    found = {}
    for path in syntax.paths:
        first, *rest = path.split(".")
        value = _resolve(scope.get(first), rest, inspect.ismodule)
        if value is not None or (not rest and first in scope):
            found[path] = value
    return found


def unshadowed(syntax: Syntax, scope: Mapping[str, Any]) -> dict[str, Any]:
    """:func:`named` without what is a parameter or a variable of the code itself; with attributes of classes."""
    found = {**named(syntax, scope), **_of_classes(syntax, scope)}
    return {path: value for path, value in found.items() if path.partition(".")[0] not in syntax.own}


def syntax_of(tree: ast.AST) -> Syntax:
    """Collect all of it in one walk over the code."""
    nodes = list(ast.walk(tree))
    paths = {_path(node) for node in nodes if isinstance(node, (ast.Name, ast.Attribute))}
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return Syntax(dump(tree), tuple(sorted(paths - {""})), frozenset(assigned | parameters))


def dump(node: Any) -> str:
    """``ast.dump`` as Python 3.12 writes it, in every version: 3.11 has no type parameters, 3.13 leaves empty lists
    out, and a stored hash must be equal in all of them."""
    if isinstance(node, list):
        return f"[{', '.join(map(dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: getattr(node, name, None) for name in node._fields}
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        fields.setdefault("type_params", [])
    kind = type(node)
    said = [f"{n}={dump(v)}" for n, v in fields.items() if v is not None or getattr(kind, n, ...) is not None]
    return f"{kind.__name__}({', '.join(said)})"


def _path(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    before = _path(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{before}.{node.attr}" if isinstance(node, ast.Attribute) and before else ""


def described(name: str, value: Any, seen: set[int]) -> Iterator[Any]:
    """Texts of a value that a kernel names, as far as they affect the compiled code; kernels in it are yielded
    themselves.

    Nothing for values that are part of every hash anyway (plain numbers, constexprs, kernels), and for those that no
    kernel can use. Of a ``constexpr_function`` its code and everything that this names; dtypes and builtins by their
    own names, not by an alias; tuples item by item; of an aggregate its fields and methods; of a class the attributes
    that are named.
    """
    import triton.language as tl

    if isinstance(value, tl.dtype):
        yield f"{name}={value!r}"
    elif isinstance(value, ClassAttribute):
        yield from _item(name, value.value, seen)
    elif isinstance(value, (tuple, tl.tuple)):
        for index, item in enumerate(value):
            yield from _item(f"{name}[{index}]", item, seen)
    elif getattr(value, "__triton_aggregate__", False):
        yield from _aggregate(name, value, seen)
    elif hasattr(value, "src") and not is_jit(value) and isinstance(getattr(value, "fn", None), FunctionType):
        yield name  # a constexpr_function
        yield from _function(value.fn, seen)
    elif getattr(value, "__triton_builtin__", False) or _is_extra(value):
        yield from _alias(name, value)


class ClassAttribute(NamedTuple):
    """A value that is named through a class: ``Sizes.BLOCK``."""

    value: Any


def _of_classes(syntax: Syntax, scope: Mapping[str, Any]) -> dict[str, ClassAttribute]:
    found: dict[str, ClassAttribute] = {}
    for path in syntax.paths:
        first, *rest = path.split(".")
        holder = _resolve(scope.get(first), rest[:-1], _holds_names)
        if rest and inspect.isclass(holder) and (value := _resolve(holder, rest[-1:], _holds_names)) is not None:
            found[path] = ClassAttribute(value)
    return found


def _holds_names(value: Any) -> bool:
    return inspect.ismodule(value) or inspect.isclass(value)


def _resolve(value: Any, path: list[str], through: Callable[[Any], bool]) -> Any:
    """An attribute of an attribute; None if the path leads through anything else, or through Triton."""
    for name in path:
        if not through(value) or _package(value) == "triton":
            return None
        value = getattr(value, name, None)
    return value


def _package(value: Any) -> str:
    home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
    return str(home or "").partition(".")[0]


def _item(name: str, value: Any, seen: set[int]) -> Iterator[Any]:
    """A value inside of another: plain ones too, since only the outer one is part of every hash."""
    if is_jit(value):
        yield name
        yield value
    elif value is None or is_constant(value):
        yield f"{name}={value!r}"
    else:
        yield from described(name, value, seen)


def _aggregate(name: str, value: Any, seen: set[int]) -> Iterator[Any]:
    """The user's part of it: fields, methods, and the constructor if there is one in the source."""
    if id(value) in seen:
        return
    seen.add(id(value))
    yield f"{name}: {value.__annotations__!r}"
    members = dict(vars(value)) | {m.__name__: m for m in getattr(value, "hash_attrs", ()) if hasattr(m, "__name__")}
    for attribute, member in sorted(members.items()):
        if isinstance(member, FunctionType):
            yield from _function(member, seen) if _package(member) not in FOREIGN else ()
        elif not attribute.startswith("__") or attribute == "__init__":
            yield from _item(f"{name}.{attribute}", member, seen)


def _function(function: Any, seen: set[int]) -> Iterator[Any]:
    """The code of a Python function that runs while a kernel is compiled, and of all that it names."""
    if id(function) in seen:
        return
    seen.add(id(function))
    try:
        syntax = _syntax_of_text(inspect.getsource(function))
    except (OSError, TypeError, SyntaxError):
        yield f"{function.__module__}.{function.__qualname__}"
        return
    yield syntax.dump
    for name, value in sorted(unshadowed(syntax, scope_of(function)).items()):
        if isinstance(value, FunctionType) and _package(value) not in FOREIGN:
            yield from _function(value, seen)
        else:
            yield from _item(name, value, seen)


@lru_cache(maxsize=256)
def _syntax_of_text(text: str) -> Syntax:
    return syntax_of(parsed(textwrap.dedent(text)))


def _is_extra(value: Any) -> bool:
    """Whether it is a function of libdevice: these are builtins by their module and lack the mark of one."""
    return callable(value) and str(getattr(value, "__module__", "")).startswith("triton.language.extra")


def _alias(name: str, value: Any) -> Iterator[str]:
    """A builtin under another name. Under its own name it needs no text, as ``tl.exp`` needs none, except for
    libraries: several have functions of the same name."""
    own = str(getattr(value, "__name__", ""))
    if _is_extra(value) and name.rpartition(".")[2] == own:
        yield f"{name}={value.__module__}"
    elif name.rpartition(".")[2] != own:
        yield f"{name}={value.__module__ if _is_extra(value) else 'tl'}.{own}"
