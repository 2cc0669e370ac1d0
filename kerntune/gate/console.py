"""Output of commands and runs: results on stdout, errors on stderr, and a table that fits a terminal."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import zip_longest

OK, FINDINGS, USAGE = 0, 1, 2
"""Exit codes of every command but ``refresh``, which passes pytest's on."""

CONFIG_WIDTH = 40
"""Columns for a config before it wraps: ``BLOCK_M=128 BLOCK_N=256 num_warps=8`` fits on one line."""


def speak_anything() -> None:
    """Let standard output and error show what their encoding lacks as an escape: a table with ``µs`` must not end in a
    traceback where a log is ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # what it writes to was a file and is a pipe now
                stream.reconfigure(errors="backslashreplace")


@contextmanager
def live_line(command: str) -> Iterator[None]:
    """Within, standard error says what a command does while nothing is printed: what was said last by
    :func:`kerntune.base.live_line.tell`. In place on a terminal, but not beside a pager."""
    from kerntune.base.live_line import LiveLine  # a command's help loads nothing

    stream = sys.stderr
    if stream is None or stream.closed:
        yield
        return
    line = LiveLine(lambda text: (stream.write(text), stream.flush()), in_place=stream.isatty() and not _paged())
    line.tell(f"kerntune {command}")
    line.start()
    with closing(line):
        yield


def _paged() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return True


def hide_line() -> None:
    """Before output that is printed otherwise: take the line off the screen."""
    if (module := sys.modules.get("kerntune.base.live_line")) is not None:
        module.hide()


def say(text: str, end: str = "\n") -> None:
    """Print a result, whatever texts of files are in it."""
    hide_line()
    print(_visible(text), end=end)


def say_json(found: object) -> None:
    """Print a result as JSON."""
    from kerntune.base.codec import to_json  # not for the help of a command, which loads nothing

    say(to_json(found).decode(), end="")


def say_found(found: object, as_json: bool, text: Callable[[], str]) -> None:
    """Print a result as JSON, or as ``text`` has it."""
    say_json(found) if as_json else say(text())


def complain(text: str) -> None:
    """Print what is wrong, a message and never a traceback."""
    hide_line()
    print(_visible(f"kerntune: {text}"), file=sys.stderr)


def _visible(text: str) -> str:
    from kerntune.base.formatting import visible  # a command's help loads nothing

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


def some_of(texts: Sequence[str], most: int) -> str:
    """``a, b and 3 more``: the first ones, ``most`` of them, and how many are left."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def columns(
    rows: Sequence[Sequence[object]],
    headers: Sequence[str],
    widths: Sequence[int | None] = (),
    *,
    markdown: bool = False,
) -> str:
    """Rows below their headers, cells wrapped at the widths; or a table of Markdown, whose first column is code."""
    from tabulate import tabulate

    from kerntune.base.formatting import code_of, escaped

    if markdown:
        rows = [[code_of(str(first)), *(escaped(str(cell)) for cell in rest)] for first, *rest in rows]
    form, most = ("github", ()) if markdown else ("simple", widths)
    return str(tabulate(rows, headers=headers, tablefmt=form, disable_numparse=True, maxcolwidths=list(most)))


GAP = "  "
"""Between two columns, and before the cells below a row's first one."""

NARROWEST = 8
"""Columns of a cell that is not narrowed further: a time, and most words, fit."""


def text_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    most: Mapping[str, int],
    width: int,
    above: Sequence[str],
) -> list[list[str]]:
    """The lines of a table's header and rule, then those of each row. ``most`` has by header how wide a column may be.

    Where ``width`` has no room for a row, its first cell stands alone, then the lines of its cells of the columns
    ``above``, and the others below in narrower columns.
    """
    widths = []
    for column in zip(headers, *rows, strict=True):
        widest = max(len(line) for cell in column for line in cell.splitlines() or [""])
        widths.append(min(widest, most.get(column[0], sys.maxsize)))
    if _across(widths) <= width:
        return [
            [*_side_by_side(headers, widths), GAP.join("-" * x for x in widths)],
            *(_side_by_side(row, widths) for row in rows),
        ]
    kept = [i for i, name in enumerate(headers) if i and name not in above]
    moved = [i for i, name in enumerate(headers) if i and name in above]
    headers, *cells = ([row[i] for i in kept] for row in (headers, *rows))
    words = [_longest_word(column) for column in zip(headers, *cells, strict=True)]
    widths = _narrowed([widths[i] for i in kept], words, width - len(GAP))
    head = [*_side_by_side(headers, widths), GAP.join("-" * x for x in widths)]
    found = [[GAP + line for line in head]]
    for row, own in zip(rows, cells, strict=True):
        told = [line for i in moved for line in _wrapped(row[i], width - len(GAP))]
        below = [*told, *_side_by_side(own, widths)]
        found.append([*row[0].splitlines(), *(GAP + line for line in below)])
    return found


def _longest_word(cells: Iterable[str]) -> int:
    return max(NARROWEST, *(len(word) for cell in cells for word in cell.split()))


def _across(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrowed(widths: Sequence[int], words: Sequence[int], room: int) -> list[int]:
    """The widest columns narrowed, one column at a time, until all fit: to their longest words, so that names stay
    whole, and where that is not enough within words."""
    found = list(widths)
    for floors in (words, [NARROWEST] * len(found)):
        while _across(found) > room:
            wide = [i for i, floor in enumerate(floors) if found[i] > floor]
            if not wide:
                break
            found[max(wide, key=found.__getitem__)] -= 1
    return found


def _side_by_side(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """A row's lines; a cell that is wider than its column goes on below."""
    lines = zip_longest(*map(_wrapped, cells, widths), fillvalue="")
    return [GAP.join(map(str.ljust, parts, widths)).rstrip() for parts in lines]


def _wrapped(cell: str, width: int) -> list[str]:
    import textwrap  # every command and the plugin load this module, and few have a table

    return [part for line in cell.splitlines() for part in textwrap.wrap(line, width, break_on_hyphens=False) or [""]]
