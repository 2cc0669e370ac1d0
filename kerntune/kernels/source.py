"""The kernel under decorators and wrappers, and a hash of its source."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from kerntune.errors import CaptureError

MAX_WRAPPERS = 32
"""Decorators on one kernel; more than this is a loop of ``.fn``."""


def wrappers(kernel: Any) -> Iterator[Any]:
    """The kernel and what it wraps through ``.fn``, outermost first, ending with the ``JITFunction``."""
    from triton.runtime.jit import JITFunction

    layer = kernel
    for _ in range(MAX_WRAPPERS):
        yield layer
        if isinstance(layer, JITFunction) or not hasattr(layer, "fn"):
            return
        layer = layer.fn
    raise CaptureError(f"{kernel!r} wraps itself: following .fn never ends at a @triton.jit function")


def jit_of(kernel: Any) -> Any:
    """The ``JITFunction`` under a kernel; :class:`CaptureError` if there is none."""
    from triton.runtime.jit import JITFunction

    last = list(wrappers(kernel))[-1]
    if not isinstance(last, JITFunction):
        raise CaptureError(f"{kernel!r} is not a Triton kernel: there is no @triton.jit function under it")
    return last


def kernel_name(jit: Any) -> str:
    """The kernel's Python name."""
    return str(jit.fn.__name__)


def kernel_file(jit: Any) -> str:
    """The file that defines the kernel; empty if Python does not know."""
    try:
        return inspect.getsourcefile(jit.fn) or ""
    except TypeError:
        return ""


def source_hash(jit: Any) -> str:
    """SHA-256 over the kernel's syntax and that of every ``@triton.jit`` function and constant it names.

    Comments, blank lines, docstrings and the place in the file don't change it (Triton's own ``cache_key`` holds the
    line number, and so retunes a kernel that only moved).
    """
    digest = hashlib.sha256()
    for part in _parts(jit, set()):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _parts(jit: Any, seen: set[int]) -> Iterator[str]:
    if id(jit) in seen:
        return
    seen.add(id(jit))
    tree = _syntax(jit)
    yield ast.dump(tree)
    yield repr((jit.noinline, [(p.do_not_specialize, p.do_not_specialize_on_alignment) for p in jit.params]))
    scope = {**jit.fn.__globals__, **inspect.getclosurevars(jit.fn).nonlocals}
    for name, value in sorted(_named(tree, scope).items()):
        if hasattr(value, "src") and hasattr(value, "params"):
            yield name
            yield from _parts(value, seen)
        elif type(value).__name__ == "constexpr" or isinstance(value, (bool, int, float, str)):
            yield f"{name}={value!r}"


def _named(tree: ast.AST, scope: Mapping[str, Any]) -> dict[str, Any]:
    """What a kernel's syntax names in its scope, through modules too (``library.helper``), but not Triton's own."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in scope:
            found[node.id] = scope[node.id]
        elif isinstance(node, ast.Attribute):
            path = ast.unparse(node)
            value = _resolve(path.split("."), scope)
            if value is not None:
                found[path] = value
    return found


def _resolve(path: list[str], scope: Mapping[str, Any]) -> Any:
    value = scope.get(path[0])
    for name in path[1:]:
        if not inspect.ismodule(value) or value.__name__.partition(".")[0] == "triton":
            return None
        value = getattr(value, name, None)
    return value


def _syntax(jit: Any) -> ast.AST:
    tree = ast.parse(textwrap.dedent(jit.src))
    function = tree.body[0]
    if isinstance(function, ast.FunctionDef):
        function.decorator_list = []
        if (
            function.body
            and isinstance(function.body[0], ast.Expr)
            and isinstance(function.body[0].value, ast.Constant)
        ):
            function.body = function.body[1:] or [ast.Pass()]
    return tree
