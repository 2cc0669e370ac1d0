"""Attributes that are replaced temporarily and restored exactly; how far a test body runs on stand-ins.

A level says up to where a body runs. Where it can't go on, an exception has the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from kerntune.base.users_line import chain
from kerntune.errors import CaptureError

_ABSENT = object()


class Replacements(ExitStack):
    """An exit stack that knows which attributes were replaced on it, so that they can be put back for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[Any, str, Any]] = []
        """Owner, name and what was there before, in the order in which they were replaced."""

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Every attribute as it was before: for an import of code that keeps what it finds."""
        values = [vars(owner).get(name, _ABSENT) for owner, name, _ in self.made]
        for owner, name, before in reversed(self.made):
            _put_back(owner, name, before)
        try:
            yield
        finally:
            for (owner, name, _), value in zip(self.made, values, strict=True):
                _put_back(owner, name, value)


def replace(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set ``owner.name`` to ``value`` until ``stack`` closes.

    The attribute is restored as it was: a static method as a static method, an inherited attribute as inherited.
    """
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    stack.callback(_put_back, owner, name, before)
    if isinstance(stack, Replacements):
        stack.made.append((owner, name, before))


def replace_known(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """:func:`replace`, but only what this version of ``owner`` has: a stub never adds a name that torch lacks."""
    if hasattr(owner, name):
        replace(stack, owner, name, value)


def always(answer: Any) -> Callable[..., Any]:
    """A function that takes any arguments and returns one value."""

    def stub(*args: Any, **kwargs: Any) -> Any:
        return answer

    return stub


def _put_back(owner: Any, name: str, before: Any) -> None:
    if before is _ABSENT:
        if name in vars(owner):
            delattr(owner, name)
    else:
        setattr(owner, name, before)


class StandInEnd(CaptureError):
    """A test body needs something that a stand-in doesn't have, such as a result. It is no failure of the test."""


_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (StandInEnd, "{}"),
    (DataDependentOutputException, "needs the value of a stand-in ({})"),
    (DynamicOutputShapeException, "needs a shape that depends on the values of a stand-in ({})"),
    (UnsupportedOperatorException, "torch can't tell the output shape of {} without running it"),
    (UnsupportedFakeTensorException, "torch has no stand-in for this kind of tensor ({})"),
)

_MESSAGES = (
    "Cannot copy out of meta tensor",
    "Torch not compiled with CUDA enabled",
    "not linked with support for cuda",
    "Cannot access data pointer of Tensor that doesn't have storage",
    "is not supported for tensor subclasses",
    "Cannot access accelerator device when none is available",
    "Found no NVIDIA driver on your system",
    "No CUDA GPUs are available",
)
"""Messages of torch's plain errors when an operation needs memory or a driver that doesn't exist."""


def static_reason(exc: BaseException | None) -> str | None:
    """Why a test body could not go on with stand-ins; ``None`` for a genuine failure.

    Follows ``__cause__`` and ``__context__``: ``assert_close`` wraps the original exception.
    """
    for link in chain(exc):
        for kind, text in _REASONS:
            if isinstance(link, kind):
                return text.format(link)
        if isinstance(link, (RuntimeError, AssertionError)) and any(known in str(link) for known in _MESSAGES):
            return f"needs a GPU: {str(link).splitlines()[0]}"
    return None
