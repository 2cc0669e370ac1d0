"""Whose a warning is."""

from __future__ import annotations

import linecache

import pytest

from kerntune.base.warn import warn


def says(text: str) -> None:
    warn(text)


def test_a_warning_names_the_line_that_has_called_who_warns() -> None:
    with pytest.warns(RuntimeWarning, match="^slow$") as seen:
        says("slow")
    (one,) = seen
    assert linecache.getline(one.filename, one.lineno).strip() == 'says("slow")'
