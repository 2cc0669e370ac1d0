"""Comparisons of stand-ins pass, except where their metadata (shape, dtype, device) differ."""

from __future__ import annotations

import functools
import linecache
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from kerntune.base.users_line import UsersLine, calling_line
from kerntune.gpu.fake_cuda.known_values import KnownValues
from kerntune.gpu.fake_cuda.modes import Handler

TRUTH = "_kerntune_truth"
"""The attribute of a reduced comparison that holds the result of ``bool()``."""

_ASSERT = re.compile(r"\s*assert\b|.*\bassert(True|False)\(")
_NEGATED = re.compile(r"\s*assert\s+not\b|.*\bassertFalse\(")
_SEVERAL = re.compile(r"\sand\s|\sor\s|;")
_QUIET_FOLDERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


class Comparisons:
    """Handlers that give the results of comparisons; for known values torch's own results are used.

    ``torch.testing.assert_close`` needs no entry: it compares shapes, dtypes, devices and strides first, for real,
    and values last, by ``torch.all``.
    """

    def __init__(self, known: KnownValues) -> None:
        self._known = known
        self._unchecked: dict[UsersLine, bool] = {}
        self._lock = threading.Lock()

    def take_unchecked(self) -> dict[UsersLine, bool]:
        """The users' lines whose comparisons passed although values weren't known, since the last call of this; and
        whether each is an assertion."""
        with self._lock:
            taken, self._unchecked = self._unchecked, {}
            return taken

    def handlers(self) -> dict[Any, Handler]:
        """The handlers by torch function, for :class:`~kerntune.gpu.fake_cuda.modes.TorchFunctionHandlers`."""
        tensor = torch.Tensor
        handlers: dict[Any, Handler] = dict.fromkeys((torch.allclose, tensor.allclose), self._allclose)
        handlers |= dict.fromkeys((torch.equal, tensor.equal), self._equal)
        # all is usually asserted, any usually denied: assert not x.isnan().any()
        handlers |= dict.fromkeys((torch.all, tensor.all), functools.partial(self._reduction, True))
        handlers |= dict.fromkeys((torch.any, tensor.any), functools.partial(self._reduction, False))
        return handlers | dict.fromkeys((tensor.__bool__, tensor.item), self._truth)

    def _allclose(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._all_known(args, kwargs):
            return func(*args, **kwargs)
        torch.isclose(*args, **kwargs)  # tensors that can't be compared (dtypes, shapes) raise here, as on a GPU
        return self._passed(default=True)

    def _equal(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        left, right = (*args, *kwargs.values())[:2]
        if self._all_known(args, kwargs):
            return func(*args, **kwargs)
        if left.shape != right.shape:
            return False
        torch.eq(left, right)
        return self._passed(default=True)

    def _reduction(self, usual: bool, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if isinstance(result, FakeTensor) and result.numel() == 1 and not self._known.knows(result):
            setattr(result, TRUTH, usual)
        return result

    def _truth(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``bool(t)`` and ``t.item()`` of a reduced comparison, and of any comparison inside of an ``assert``."""
        asked = args[0]
        if self._known.knows(asked):
            return func(*args, **kwargs)
        usual = getattr(asked, TRUTH, None)
        if usual is not None:
            return self._passed(default=usual)
        if asked.dtype == torch.bool and asked.numel() == 1 and _assertion(_calling_line()):
            return self._passed(default=True)
        return func(*args, **kwargs)

    def _passed(self, default: bool) -> bool:
        """The value with which the calling line passes; the users' line is noted."""
        text, users = _calling_line(), calling_line()
        if users is not None:
            with self._lock:
                self._unchecked[users] = "assert" in text or "assert" in users.text
        return _passing_value(text, default)

    def _all_known(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        return all(map(self._known.knows, tensors))


def _passing_value(line: str, default: bool) -> bool:
    """The value with which a line passes: False in ``assert not torch.equal(a, b)``."""
    if not _assertion(line):
        return default
    return not _NEGATED.match(line)


def _assertion(line: str) -> bool:
    """Whether a line asserts a single condition: with several, one value can't fit all of them."""
    return _ASSERT.match(line) is not None and not _SEVERAL.search(line)


def _calling_line() -> str:
    """The source line, outside torch and this package, that calls; empty if unknown."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_QUIET_FOLDERS):
        frame = frame.f_back
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno) if frame is not None else ""
