"""A callable that computes an operation: its name, and a hash of the code that it is."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, MethodType
from typing import Any

from kerntune.base.config import Config
from kerntune.errors import UsageError
from kerntune.kernels.source import is_kernel, jit_of, source_hash
from kerntune.kernels.value_text import text_of
from kerntune.tuning.choices.choice_config import config_for


@dataclass(frozen=True)
class ChoiceCandidate:
    """A candidate of a choice."""

    name: str
    fn: Callable[..., Any]

    @functools.cached_property
    def config(self) -> Config:
        """What stands for it in the store of winners: another one as soon as its code is. Not asked before the first
        call, when all that it uses is defined."""
        return config_for(self.name, code_hash(self)[:16])


def implementations(functions: Sequence[Any], choice: str) -> tuple[ChoiceCandidate, ...]:
    """Candidates of what is called ``choice``, by their qualified names. :class:`UsageError` if there are fewer than
    two, if one can't be called, or if two have one name."""
    if len(functions) < 2:
        raise UsageError(f"{choice}: give two implementations at least; there are {len(functions)}")
    for fn in functions:
        if not callable(fn) or _is_kernel(fn):
            raise UsageError(f"{choice}: {fn!r} can't be called; a kernel needs a function that gives its grid")
        if _runs_later(fn):
            raise UsageError(
                f"{choice}: {name_of(fn)} computes nothing when it is called (it is a coroutine's or a generator's "
                "function), so there is nothing to time; give functions that return the result"
            )
    names = [name_of(fn) for fn in functions]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{choice}: two implementations are called {name}; give each a name of its own")
    return tuple(ChoiceCandidate(n, f) for n, f in zip(names, functions, strict=True))


def _runs_later(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    kinds = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
    return any(is_one(fn) for is_one in kinds)


def name_of(fn: Any) -> str:
    """The module and qualified name of a callable; a function of torch's is ``torch.mm``, without the class that torch
    keeps it in, an operator ``torch.ops.aten.mm``, without the file that it was built from."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if type(fn).__module__ == "torch._ops":
        return f"torch.ops.{fn}"
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or type(fn).__qualname__
    module = getattr(fn, "__module__", None) or type(fn).__module__
    return f"{module}.{name.removeprefix('_VariableFunctionsClass.')}"


def code_hash(one: ChoiceCandidate) -> str:
    """SHA-256 over the source of an implementation, of the kernels that it names, and of the functions of the same top
    package that it calls. What has no source counts by its name."""
    return hashlib.sha256("\0".join(_texts(one.fn, set())).encode()).hexdigest()


def _texts(fn: Any, seen: set[int]) -> Iterator[str]:
    if id(fn) in seen:
        return
    seen.add(id(fn))
    operation = getattr(fn, "operation", None)
    for inner in getattr(operation, "implementations", ()):
        yield from _texts(inner.fn, seen)
    fn = inspect.unwrap(fn) if operation is None else operation.signature_of
    fn = fn.__func__ if isinstance(fn, MethodType) else fn
    if hasattr(fn, "fn") and is_kernel(fn):
        yield source_hash(jit_of(fn))
    elif isinstance(fn, functools.partial):
        yield text_of((*fn.args, *(f"{k}={text_of(v)}" for k, v in sorted(fn.keywords.items()))))
        yield from _texts(fn.func, seen)
    elif isinstance(fn, FunctionType):
        yield _source(fn)
        for value in _used(fn):
            yield from _texts(value, seen)
    else:
        yield name_of(fn)


def _source(fn: FunctionType) -> str:
    try:
        return textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):
        return fn.__code__.co_code.hex()


def _used(fn: FunctionType) -> list[Any]:
    """Kernels and functions of the same top package that a function names, in the order of their names."""
    scope = {**fn.__globals__, **dict(_cells(fn))}
    named = [scope[name] for name in sorted({*fn.__code__.co_names, *fn.__code__.co_freevars}) if name in scope]
    return [v for v in named if _is_kernel(v) or (isinstance(v, FunctionType) and _top(v) == _top(fn))]


def _cells(fn: FunctionType) -> Iterator[tuple[str, Any]]:
    cells: tuple[CellType, ...] = fn.__closure__ or ()
    for name, cell in zip(fn.__code__.co_freevars, cells, strict=True):
        with contextlib.suppress(ValueError):  # what isn't assigned yet
            yield name, cell.cell_contents


def _top(fn: FunctionType) -> str:
    return (fn.__module__ or "").partition(".")[0]


def _is_kernel(value: Any) -> bool:
    return hasattr(type(value), "run") and hasattr(value, "fn") and is_kernel(value)
