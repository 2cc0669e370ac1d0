"""Damage of the cache is told once a process."""

from __future__ import annotations

import warnings

import pytest

from kerntune.tuning.cache import entries
from kerntune.tuning.cache.entries import report_damage


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_said", set())


def told(*lines: str) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        report_damage(lines)
    assert all(one.category is RuntimeWarning for one in found)
    return [str(one.message) for one in found]


def test_each_line_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert told("a", "b", "a") == [f"kerntune's cache: {line}; what it held is found anew" for line in "ab"]
    assert told("b", "c", "a") == ["kerntune's cache: c; what it held is found anew"]
    assert told() == []
    assert capsys.readouterr().err == ""


def test_where_warnings_are_errors_lines_go_to_the_standard_error_stream(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report_damage(["a", "b"])
    assert capsys.readouterr().err.splitlines() == [
        f"kerntune's cache: {line}; what it held is found anew" for line in "ab"
    ]  # fmt: skip
