"""Rows of the corpus' tables: candidates that lie in one file of ``exploits``."""

from __future__ import annotations

from collections.abc import Iterable

Known = tuple[str, str]
"""A reference by its function in ``references*.py``, or with its file, and the inputs' line."""

VECTOR, PAIR = "x: f32[1000]", "x: f32[1000]; y: f32[1000]"
ADD, SUM = ("add", PAIR), ("row_sum", "x: f32[20,300]")
RUNNING, TRIPLED = ("cumsum_down", VECTOR), ("tripled", VECTOR)
DROP = ("triton_references.py::dropout", "x: f32[800]; seed: i64[1] < 1000000; p = 0.25")
"""What many candidates are held against."""

Row = tuple[str, str, Known]
"""Name, family and what it is held against. The name is the function's, ``name:function`` where that has another."""

Attempt = tuple[str, str, str, Known]
"""The same with file and function after the family."""


def in_file(file: str, rows: Iterable[Row]) -> tuple[Attempt, ...]:
    """The candidates of a file of ``exploits``."""
    found = []
    for key, family, known in rows:
        name, _, function = key.partition(":")
        found.append((name, family, f"{file}.py::{function or name}", known))
    return tuple(found)
