"""A user's pruning of configs: the configs that it leaves, and errors that name the function that failed."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kerntune.errors import ConfigError

ROLES = ("early_config_prune", "perf_model")
"""The functions that ``prune_configs_by`` takes."""


def autotuner_errors() -> tuple[type[Exception], ...]:
    """The exceptions that Triton's autotuner raises when a user's pruning leaves no config; some versions have no
    separate class."""
    from triton.runtime import errors

    found = getattr(errors, "AutotunerError", None)
    return (found,) if found is not None else ()


def prune_configs(tuner: Any, kwargs: Mapping[str, Any]) -> list[Any]:
    """The configs that the user's pruning leaves of a tuner's; requires ``tuner.nargs`` to be set.

    :class:`ConfigError`, which is Triton's ``AutotunerError`` too, if none is left. Exceptions of a user's function are
    raised unchanged, with a note (PEP 678) that names the kernel and the function.
    """
    where = f"kernel {tuner.base_fn.__name__} ({tuner.base_fn.__code__.co_filename})"
    try:
        configs = list(tuner.prune_configs(kwargs))
    except autotuner_errors() as exc:
        add_note(exc, f"while pruning the configs of {where}")
        raise _nothing_left()(f"{where}: {exc}") from exc
    except Exception as exc:
        add_note(exc, f"raised by {_raised_by(tuner, exc)}, which prunes the configs of {where}")
        raise
    if not configs:
        raise ConfigError(f"{where}: no configs are left to try; give at least one, or prune fewer")
    return configs


def add_note(error: BaseException, note: str) -> None:
    """``error.add_note``, which Python 3.10 lacks: pytest, and Python from 3.11 on, print it below the error."""
    notes = getattr(error, "__notes__", [])
    if note not in notes:
        error.__notes__ = [*notes, note]  # type: ignore[attr-defined,unused-ignore]


@functools.cache
def _nothing_left() -> type[ConfigError]:
    """A subclass of both errors, so that code that catches Triton's error catches this one."""

    class NothingLeftError(ConfigError, *autotuner_errors()):  # type: ignore[misc]  # Triton has no types here
        """A user's pruning leaves no config."""

        def __init__(self, message: str) -> None:
            super().__init__(message)
            self.message = message

        def __str__(self) -> str:
            return self.message

    return NothingLeftError


def _raised_by(tuner: Any, error: Exception) -> str:
    """The user's functions that were running, by role, name and place; all of them if none was."""
    running = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    given = {role: fn for role in ROLES if (fn := getattr(tuner, role, None)) is not None}
    found = [_described(role, fn) for role, fn in given.items() if running & set(_codes(fn))]
    return " or ".join(found or [_described(role, fn) for role, fn in given.items()]) or "prune_configs"


def _described(role: str, fn: Any) -> str:
    code = next(_codes(fn), None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return f"{role} {getattr(fn, '__name__', None) or type(fn).__name__}{place}"


def _codes(fn: Callable[..., Any]) -> Iterator[Any]:
    """The code of a function, of what it wraps, of a ``partial``'s function, of an object's ``__call__``."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    inner = inspect.unwrap(fn)
    inner = inner if inspect.isroutine(inner) or not callable(inner) else type(inner).__call__
    for each in (inner, fn):
        code = getattr(each, "__code__", None)
        if code is not None:
            yield code
