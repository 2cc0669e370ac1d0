"""The innermost line of users' code that an error or a call comes from."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import NamedTuple

NOT_USERS = frozenset({"torch", "triton", "numpy", "kerntune", "pytest_kerntune", "pytest", "_pytest", "pluggy"})
"""Packages that do what users' code has asked for; the standard library is none of theirs either."""

INSTALLED = ("site-packages", "dist-packages")
MAX_LINE = 200
"""Characters of a line's text that are kept."""


class UsersLine(NamedTuple):
    """A line of code: ``file`` is its path, ``module`` the name of the module (``fla.ops.utils.index``), ``function``
    that of the innermost function (``<module>`` outside of any), ``text`` the line without its indentation."""

    file: str
    module: str
    function: str
    number: int
    text: str

    def place(self, root: Path) -> str:
        """The file's path in ``root``, or the module's name for what lies elsewhere: the same on every machine."""
        path = Path(self.file)
        if path.is_relative_to(root) and not set(INSTALLED) & set(path.relative_to(root).parts):
            return path.relative_to(root).as_posix()
        return self.module or path.name


def line_of_error(error: BaseException) -> UsersLine | None:
    """The users' line in which ``error`` itself was raised (not those that it is chained to); None if there is none."""
    found = [(frame, n) for frame, n in walk_tb(error.__traceback__) if users_frame(frame)]
    return _line(*found[-1]) if found else None


def calling_line() -> UsersLine | None:
    """The users' line that the current call comes from; None if there is none."""
    frames = walk_stack(sys._getframe(1))
    return next((_line(frame, number) for frame, number in frames if users_frame(frame)), None)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it was raised from or while handling, the first one last."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def users_frame(frame: FrameType) -> bool:
    """Whether a frame is of users' code."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    file = frame.f_code.co_filename
    if package in NOT_USERS or file.startswith("<"):  # the latter is no file: <string>, <frozen importlib>
        return False
    return not file.startswith(_library()) or any(f"/{folder}/" in file for folder in INSTALLED)


@cache
def _library() -> tuple[str, ...]:
    import sysconfig  # reads how Python was built: more work than this module's own

    return tuple(dict.fromkeys(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")))


def _line(frame: FrameType, number: int) -> UsersLine:
    code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
    text = linecache.getline(code.co_filename, number, frame.f_globals).strip()[:MAX_LINE]
    return UsersLine(code.co_filename, module, code.co_name, number, text)
