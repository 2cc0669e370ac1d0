"""Reads what a choice is declared with: its implementations, and the parameters that make a key.

An implementation is a callable with a name and a hash of the code that it is. A config stands for it in the store of
winners. A decision also depends on settings beside the values in its key.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, MethodType
from typing import Any

import torch

from kerntune.base.config import Config
from kerntune.errors import UsageError
from kerntune.kernels.compat import versions
from kerntune.kernels.dispatch.choice_function import part_of
from kerntune.kernels.source import is_kernel, jit_of, source_hash, text_of
from kerntune.tuning.choices.call_copies import tensor_places


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


NAME, CODE = "implementation", "code"
"""Its words: the implementation's name, and the begin of a hash of its code."""


def config_for(name: str, code: str) -> Config:
    """Another config as soon as the code is another."""
    return Config({NAME: name, CODE: code})


def implementation_in(config: Config) -> str | None:
    """The name of the implementation that a config stands for; None for a kernel's config."""
    return str(config.kwargs[NAME]) if set(config.kwargs) == {NAME, CODE} else None


RESULT = "result"
"""In ``verify_ignore``: what is returned."""


def declared_at(fn: Any) -> str:
    """The file and line of a function, in parentheses after its name; nothing for what has none."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"


def parameters_of(fn: Callable[..., Any], choice: str) -> tuple[inspect.Parameter, ...]:
    """The parameters of a signature; :class:`UsageError` for one that can't be a choice's."""
    try:
        found = tuple(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        how = "decorate a Python function that has it"
        raise UsageError(f"{choice}: its signature isn't known; {how}") from None
    for p in found:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise UsageError(f"{choice}: {p} can't be in a key; name all parameters in the signature")
        if p.name.startswith("kt_"):
            raise UsageError(f"{choice}: parameter {p.name} begins with kt_, as names of kerntune's own do")
    return found


def checked_key(key: Sequence[str], parameters: Sequence[inspect.Parameter], choice: str) -> frozenset[str]:
    """The names in a key; :class:`UsageError` for none, and for one that is no parameter."""
    names = [p.name for p in parameters]
    if isinstance(key, str):
        raise UsageError(f"{choice}: key is {key!r}; it is a list of names: key=[{key!r}]")
    if not key:
        raise UsageError(
            f"{choice}: key is empty, so that one decision would serve calls of all sizes; name the parameters whose "
            f"sizes or values decide which implementation is the fastest, such as key={json.dumps([*names])}"
        )
    for one in key:
        if one not in names:
            raise UsageError(f"{choice}: key has {one!r}, which is no parameter; there are {', '.join(names)}")
    return frozenset(key)


def checked_ignored(
    ignored: Sequence[str] | None, parameters: Sequence[inspect.Parameter], name: str, choice: str
) -> tuple[str, ...] | None:
    """Names in ``verify_ignore``; :class:`UsageError` for one that names nothing that could be compared."""
    names = [p.name for p in parameters]
    comparable = {RESULT, *names, *(f"gradient of {n}" for n in names)}
    for one in ignored or ():
        if one.removeprefix(f"{name}.") not in comparable:
            raise UsageError(
                f"{choice}: verify_ignore has {one!r}, which is nothing that is compared; there are {RESULT} (what is "
                f"returned) and the parameters {', '.join(names)}"
            )
    return None if ignored is None else tuple(ignored)


def require_hashable(values: Mapping[str, Any], key: Container[str], choice: str) -> None:
    """:class:`UsageError` for a value in the key that can't be looked up. Tensors are, by their shapes."""
    for name in (n for n in values if n in key and next(tensor_places(values[n]), None) is None):
        try:
            hash(part_of(values[name], keyed=True))
        except TypeError:
            raise UsageError(
                f"choice {choice}: {name} is in the key, and a {type(values[name]).__name__} can't be looked up: pass "
                f"numbers, texts, tuples or lists of them, or take {name} out of the key"
            ) from None


def settings_texts() -> list[str]:
    """The settings of torch by which its own implementations choose what they launch, and its version."""
    flags = {
        "autocast": str(torch.get_autocast_dtype("cuda")) if torch.is_autocast_enabled() else "off",
        "float32_matmul": torch.get_float32_matmul_precision(),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "torch": versions.torch_version(),
    }
    return [f"{name}={text}" for name, text in flags.items()]
