"""The ATen operators that a kernel of Inductor's was generated for, as its code generation has written them down.

Inductor writes a comment above each kernel in the Python module that launches it: ``Original ATen: [aten.add]``. The
module is a file, also where it comes from a cache, so nothing has to be recorded while code is generated.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

DEPTH = 12
"""Frames above a launch among which its module is looked for; multi-kernels and wrappers are between."""

_KERNEL = re.compile(r"^(\w+) = async_compile\.triton\(", re.M)
_ORIGINS = re.compile(r"Original ATen: \[([^\[\]]*)\]")


def origins_of_launch(tuner: Any, word: str) -> tuple[str, ...]:
    """The operators of the kernel ``word`` of the module that is launching it now, sorted; none if it isn't found."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(DEPTH):
        if frame is None:
            break
        if frame.f_globals.get(word) is tuner:
            return _origins_in(frame.f_code.co_filename).get(word, ())
        frame = frame.f_back
    return ()


@lru_cache(maxsize=64)
def _origins_in(path: str) -> dict[str, tuple[str, ...]]:
    """By kernel, what a generated module says of it."""
    try:
        return origins_in_text(Path(path).read_text(encoding="utf-8"))
    except OSError:
        return {}


def origins_in_text(text: str) -> dict[str, tuple[str, ...]]:
    """The same from a module's text. A kernel's comment ends where the kernel begins; the last one before it counts."""
    found, begin = {}, 0
    for kernel in _KERNEL.finditer(text):
        said = _ORIGINS.findall(text, begin, kernel.start())
        names = [name.strip() for name in said[-1].split(",")] if said else []
        found[kernel[1]] = tuple(sorted(name for name in names if name))
        begin = kernel.end()
    return found
