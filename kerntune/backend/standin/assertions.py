"""Comparisons of stand-ins pass; what their metadata can tell stays true."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from kerntune.backend.standin.modes import Handler

TRUTH = "_kerntune_truth"
"""Where a reduced comparison carries the answer it will give to ``bool()``."""

_ASSERT = re.compile(r"\s*assert\b|.*\bassert(True|False)\(")
_NEGATED = re.compile(r"\s*assert\s+not\b|.*\bassertFalse\(")
_SEVERAL = re.compile(r"\sand\s|\sor\s|;")
_QUIET_FOLDERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


def comparison_handlers() -> dict[Any, Handler]:
    """What :class:`~kerntune.backend.standin.modes.Answers` needs to let comparisons pass.

    ``torch.testing.assert_close`` needs no entry: it compares shapes, dtypes, devices and strides first, for real,
    and values last, by ``torch.all``.
    """
    tensor = torch.Tensor
    return {
        torch.allclose: _allclose,
        tensor.allclose: _allclose,
        torch.equal: _equal,
        tensor.equal: _equal,
        torch.all: _reduction(True),
        tensor.all: _reduction(True),
        torch.any: _reduction(False),
        tensor.any: _reduction(False),
        tensor.__bool__: _truth,
        tensor.item: _truth,
    }


def _allclose(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    torch.isclose(*args, **kwargs)  # what can't be compared (dtypes, shapes) raises here, as on a GPU
    return _asked(default=True)


def _equal(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    left, right = (*args, *kwargs.values())[:2]
    if left.shape != right.shape:
        return False
    torch.eq(left, right)
    return _asked(default=True)


def _reduction(usual: bool) -> Handler:
    """``all`` is usually asserted, ``any`` usually denied (``assert not x.isnan().any()``)."""

    def handler(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if isinstance(result, FakeTensor) and result.numel() == 1:
            setattr(result, TRUTH, usual)
        return result

    return handler


def _truth(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``bool(t)`` and ``t.item()``: known of a reduced comparison, and of any comparison right in an ``assert``."""
    usual = getattr(args[0], TRUTH, None)
    if usual is not None:
        return _asked(default=usual)
    if args[0].dtype == torch.bool and args[0].numel() == 1 and _assertion(_asking_line()):
        return _asked(default=True)
    return func(*args, **kwargs)


def _asked(default: bool) -> bool:
    """The answer that lets the asking line pass: ``assert not torch.equal(a, b)`` hears False."""
    line = _asking_line()
    if not _assertion(line):
        return default
    return not _NEGATED.match(line)


def _assertion(line: str) -> bool:
    """Whether a line asserts one thing: if it asserts more, one answer can't fit all parts."""
    return _ASSERT.match(line) is not None and not _SEVERAL.search(line)


def _asking_line() -> str:
    """The source line, outside torch and this package, that asks; empty if unknown."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_QUIET_FOLDERS):
        frame = frame.f_back
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno) if frame is not None else ""
