"""Figures as text, formatted alike in every table, message and report."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from math import isfinite

NO_FIGURE = "–"


def visible(text: str) -> str:
    """A text as a terminal, a log or a warning may show it: what isn't printed is written as ``\\u001b``.

    Escape sequences, marks that turn the direction of writing and characters without width are so; line breaks and tabs
    stay. A CI system's commands (``::error`` first on a line, ``##[group]``, ``##vso[...]``) are broken by the same
    notation. It is JSON's, so JSON text stays JSON.
    """
    if text.isascii() and text.isprintable() and "##" not in text and not text.lstrip().startswith("::"):
        return text
    shown = "".join(x if x.isprintable() or x in "\n\t" else _notation(x) for x in text)
    return _COMMAND.sub(lambda match: f"{match[1]}{_notation(match[2])}" if match[2] else _notation("#"), shown)


_COMMAND = re.compile(r"^([^\S\n]*)(:)(?=:)|#(?=#\w*\[)", re.MULTILINE)


def _notation(char: str) -> str:
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code - 0x10000 & 0x3FF):04x}"


def ends_of(text: str, most: int) -> str:
    """A text of that many characters at most: of a longer one a third at its beginning, and the rest at its end, where
    compilers say what is wrong."""
    if len(text) <= most:
        return text
    last = 2 * (most - len(LEFT_OUT)) // 3
    return text[: most - len(LEFT_OUT) - last] + LEFT_OUT + text[-last:]


LEFT_OUT = " [...] "

MAX_TEXT = 2_000
"""Characters of a cell: a compiler's message can be pages long."""


def escaped(text: str) -> str:
    """Text of users as it stands in a cell of a table: no markup, no link, no mention, no line break."""
    shown = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
    lines = (_SPECIAL.sub(lambda match: f"&#{ord(match[0])};", line) for line in shown.splitlines())
    return "<br>".join("".join(x if x.isprintable() else " " * x.isspace() for x in line) for line in lines if line)


_SPECIAL = re.compile(r"[&<>|`*\[\]#~@\\!$]|:(?=\S)|(?<![^\W_])_|_(?![^\W_])")
"""Characters that Markdown, tables, formulas, mentions or HTML give a meaning, shown as references. A colon before
something begins an emoji or belongs to a link; an underscore within a word means nothing."""


def code_of(text: str) -> str:
    """A name as code, where a table can hold it so; else escaped."""
    plain = visible(text) == text and text.isprintable() and not set(text) & set("`|\\") and text.strip()
    return f"`{text}`" if plain else escaped(text)


_TIME_UNITS = ((1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"))

LIMIT = 999.5
"""From this value on, rounding to three digits gives a thousand, which belongs to the next unit."""


def format_time(ns: float | None) -> str:
    """Nanoseconds with three significant digits in the unit that fits: ``12.4 µs``, ``1.00 ms``."""
    if ns is None or not isfinite(ns):
        return NO_FIGURE
    return _in_unit(ns, _TIME_UNITS)


def format_bytes(count: int) -> str:
    """``12.6 MB``, ``832 B``: bytes in the unit of a thousand that fits."""
    amount, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < LIMIT or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.95 else f"{amount:.3g} {unit}"


_RATE_UNITS = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"))


def format_rate(per_second: float | None, of_what: str) -> str:
    """Bytes (``B``) or operations (``FLOP``) a second in the unit that fits: ``3.81 TB/s``."""
    if per_second is None or not isfinite(per_second):
        return NO_FIGURE
    return f"{_in_unit(per_second, _RATE_UNITS)}{of_what}/s"


def format_share(share: float) -> str:
    """A relative change as a signed percentage: 0.121 is ``+12.1 %``."""
    return f"{100 * share:+.1f} %" if bounded(share) else ("> any" if share > 0 else "< any")


def format_size(share: float) -> str:
    """A share that isn't a change: 0.02 is ``2.0 %``."""
    return format_share(share).removeprefix("+")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean frozen?`` for a word that is near one of those known; else empty."""
    near = nearest_word(word, known)
    return f"; did you mean {near}?" if near else ""


MEANT = 0.65
"""From this ratio of difflib on a word may have been meant. Its own 0.6 takes ``none`` for ``winner``, the opposite."""


def nearest_word(word: str, known: Iterable[str]) -> str:
    """Of those known the one that was meant, whatever its case; empty if none is near."""
    import difflib  # errors alone ask

    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, 1, MEANT)
    return by_lower[near[0]] if near else ""


def bounded(value: float) -> bool:
    """Whether a number is finite and not one of those that stand for infinity in JSON."""
    return abs(value) < sys.float_info.max


def _in_unit(value: float, units: Sequence[tuple[float, str]]) -> str:
    """Three digits in the first unit that fits."""
    scale, unit = next(((s, u) for s, u in units if abs(value) / s < LIMIT), units[-1])
    number = value / scale
    digits = 0 if abs(number) >= 99.95 else 1 if abs(number) >= 9.995 else 2
    return f"{number:.{digits}f} {unit}"
