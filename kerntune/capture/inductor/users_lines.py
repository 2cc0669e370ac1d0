"""The users' lines that generated code comes from, and where graphs break.

Inductor's graphs know the line of each node. While code is generated they are written as a comment beside those that
Inductor itself writes, above each kernel and each call of an operator, so that they are in a cache's file as well.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kerntune.base.users_line import INSTALLED
from kerntune.kernels.compat import inductor_parts

MARK = "kerntune lines:"
WRITERS = ("describe_kernel", "describe_template", "describe_operator")
"""Parts that say in a comment what a kernel, or an operator's call, was generated for."""

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_MARKED = re.compile(rf"{MARK} (\[.*\])$", re.M)


def write_lines(stack: contextlib.ExitStack) -> None:
    """Until ``stack`` closes, generated code says which lines it comes from, as far as this torch lets it."""
    if not inductor_parts.INDUCTOR["origins"].exists():
        return
    origins = inductor_parts.inductor_part("origins")
    for word in WRITERS:
        part = inductor_parts.INDUCTOR[word]
        if part.exists():
            inductor_parts.replace_part(stack, word, _with_lines(part.get(), origins))
    copies = inductor_parts.INDUCTOR["copy_between_devices"]
    if copies.exists():
        inductor_parts.replace_part(stack, "copy_between_devices", _commented(copies.get()))


def _commented(original: Callable[..., Any]) -> Callable[..., Any]:
    """Generation of an operator's call, below the comment that other operators have."""

    def codegen(node: Any, wrapper: Any) -> Any:
        node.codegen_comment(wrapper)
        return original(node, wrapper)

    return codegen


def _with_lines(original: Callable[..., Any], origins: Callable[[Any], Iterable[Any]]) -> Callable[..., Any]:
    def described(nodes: Any, wrapper: Any) -> Any:
        said, *rest = original(nodes, wrapper)
        traces = (node.meta.get("stack_trace") for node in origins(nodes))
        found = sorted({line for trace in traces if trace and (line := line_of_trace(trace))})
        marked = [f"{path}:{number}" for path, number in found]
        return (f"{said}\n{wrapper.comment} {MARK} {json.dumps(marked)}", *rest)

    return described


def line_of_trace(trace: str) -> tuple[str, int] | None:
    """The innermost line of a stack trace's text that no installed package has; None without any."""
    frames = [(path, int(number)) for path, number in _FRAME.findall(trace)]
    users = [frame for frame in frames if not set(INSTALLED) & set(Path(frame[0]).parts)]
    return users[-1] if users else None


def lines_before(text: str) -> tuple[str, ...]:
    """The lines of the last mark in a part of a generated module: ``/home/me/model.py:12``."""
    marks = _MARKED.findall(text)
    try:
        found = json.loads(marks[-1]) if marks else []
    except ValueError:
        return ()
    return tuple(x for x in found if isinstance(x, str)) if isinstance(found, list) else ()


@lru_cache(maxsize=1024)
def lines_of_call(path: str, number: int) -> tuple[str, ...]:
    """The lines of the comment above a line of a generated module; the nearest comment with a mark counts."""
    try:
        text = Path(path).read_text(encoding="utf-8").splitlines()[: number - 1]
    except OSError:
        return ()
    for place in range(len(text) - 1, -1, -1):
        line = text[place].strip()
        if MARK in line:
            return lines_before(line)
        if line.startswith("def "):
            break
    return ()


def shown(line: str, root: Path) -> str:
    """A line as messages have it: its file relative to ``root``, or only its name if it lies elsewhere."""
    name, _, number = line.rpartition(":")
    path = Path(name)
    return f"{path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name}:{number}"


def noted_breaks() -> Sequence[Any]:
    """Dynamo's list of the reasons for which graphs end, which grows; empty where this torch has none."""
    part = inductor_parts.INDUCTOR["graph_breaks"]
    found: Sequence[Any] = part.get() if part.exists() else ()
    return found


def break_text(found: Any, root: Path) -> str:
    """``model.py:31: Data-dependent branching`` of an entry of :func:`noted_breaks`."""
    reason = next((line.strip() for line in str(found.reason).splitlines() if line.strip()), "unknown")
    users = [x for x in found.user_stack or () if not set(INSTALLED) & set(Path(x.filename).parts)]
    return f"{shown(f'{users[-1].filename}:{users[-1].lineno}', root)}: {reason}" if users else reason
