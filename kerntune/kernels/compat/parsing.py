"""Parsing in several threads, which Python 3.11.0 to 3.11.7 can't: ``ast.parse`` fails at random then (gh-106905)."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import sys
import threading
from typing import Any

IN_TURN = (3, 11) <= sys.version_info[:3] < (3, 11, 8)
"""Whether threads must not parse at the same time. A kernel is parsed for its hash here, and for its code by threads
that compile; there, "AST constructor recursion depth mismatch" would make a candidate fail."""

_TURN: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
if IN_TURN:
    _TURN = _LOCK = threading.RLock()
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def parsed(text: str) -> ast.Module:
    """``ast.parse(text)``, under a lock where this Python needs one."""
    with _TURN:
        return ast.parse(text)


def parse_in_turn() -> None:
    """Make Triton parse kernels under the same lock, if this Python needs one."""
    from triton.runtime.jit import JITFunction

    owner = next(kind for kind in JITFunction.__mro__ if "parse" in vars(kind))
    parse = owner.parse
    if not IN_TURN or hasattr(parse, "__wrapped__"):
        return

    @functools.wraps(parse)
    def in_turn(kernel: Any) -> Any:
        with _TURN:
            return parse(kernel)

    owner.parse = in_turn
