"""Which files of a checkout a run reads."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

OPAQUE = "\0program"
"""Stands among the paths for a program that the project's code starts: what it reads is unknown."""

STARTS = frozenset({"subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system"})
"""Audit events of programs that are started (https://docs.python.org/3/library/audit_events.html)."""

LIBRARIES = frozenset({"_pytest", "kerntune", "pytest_benchmark", "pytest_kerntune", "torch", "triton"})
"""Callers whose programs, compilers and workers, read no file of a project."""


def record(log: str) -> None:
    """From now on, write to a file which files this process and its forks open, and whether they start programs."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(path: str) -> None:
        os.write(out, f"{path}\0\n".encode(errors="surrogateescape"))

    def heard(event: str, args: tuple[Any, ...]) -> None:
        if event in STARTS and _by_project():
            note(OPAQUE)
        elif (path := _read_path(event, args)) is not None:
            note(os.path.abspath(os.fsdecode(path)))

    sys.addaudithook(heard)


def _read_path(event: str, args: tuple[Any, ...]) -> str | bytes | None:
    """What is opened to be read, or loaded."""
    if event == "open":
        path: object = None if isinstance(args[2], int) and args[2] & os.O_ACCMODE == os.O_WRONLY else args[0]
    else:
        path = args[1] if event == "import" else args[0] if event == "ctypes.dlopen" else None
    return path if isinstance(path, (str, bytes)) else None


def _by_project() -> bool:
    """Whether the program that is being started is the project's, or that of a plugin of which nothing is known."""
    frame = sys._getframe(2).f_back
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module not in sys.stdlib_module_names:
            return module not in LIBRARIES
        frame = frame.f_back
    return True


def read_in(log: Path, root: Path) -> frozenset[str] | None:
    """The files below ``root`` that were read, relative to it; None if what was read isn't known."""
    if not log.exists():
        return None
    paths = {os.fsdecode(line) for line in log.read_bytes().split(b"\0\n")}
    if OPAQUE in paths:
        return None
    paths |= {os.path.realpath(p) for p in paths if p}
    inside = {Path(os.path.relpath(p, root)) for p in paths if p.startswith(f"{root}{os.sep}")}
    return None if any(p.parts[0] == ".git" for p in inside) else frozenset(p.as_posix() for p in inside)
