"""What a choice is declared with: the parameters of its signature, and the names of them that it is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from kerntune.errors import UsageError

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
        raise UsageError(f"{choice}: its signature isn't known; decorate a Python function that has it") from None
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
            f"sizes or values decide which implementation is the fastest, such as key={_all(names)}"
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


def _all(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{n}"' for n in names) + "]"
