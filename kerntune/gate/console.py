"""Output of commands: results on stdout, errors on stderr."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence

OK, FINDINGS, USAGE = 0, 1, 2
"""Exit codes of every command."""


CONFIG_WIDTH = 40
"""Columns for a config before it wraps: ``BLOCK_M=128 BLOCK_N=256 num_warps=8`` fits on one line."""


def speak_anything() -> None:
    """Let standard output and error show what their encoding lacks as an escape: a table with ``µs`` must not end in a
    traceback where a log is ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # what it writes to was a file and is a pipe now
                stream.reconfigure(errors="backslashreplace")


def say(text: str, end: str = "\n") -> None:
    """Print a result, whatever texts of files are in it."""
    print(_visible(text), end=end)


def complain(text: str) -> None:
    """Print what is wrong, a message and never a traceback."""
    print(_visible(f"kerntune: {text}"), file=sys.stderr)


def _visible(text: str) -> str:
    from kerntune.base.formatting import visible  # not for the help of a command, which loads nothing

    return visible(text)


def error_text(exc: Exception) -> str:
    """An error in one message; of the system's, the file and what is wrong with it."""
    if isinstance(exc, OSError) and exc.filename is not None:
        return f"{exc.filename}: {exc.strerror}"
    return str(exc)


def fail_with(findings: Sequence[str]) -> int:
    """Print each finding; the exit code that they come to."""
    for finding in findings:
        complain(finding)
    return FINDINGS if findings else OK


def counted(count: int, noun: str) -> str:
    """``1 baseline``, ``2 baselines``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
