"""Files of a store that were refused, and damage of the cache: each is told once."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from kerntune.tuning.cache import entries
from kerntune.tuning.cache.entries import RefusedFiles, report_damage


def test_a_file_is_told_once_with_its_store(tmp_path: Path) -> None:
    found = RefusedFiles(tmp_path / "new", "s3://a/b")
    assert not found.has("x", b"1")
    found.add("x", b"1", "s3://a/b/x: is damaged")
    found.add("x", b"1", "s3://a/b/x: is damaged")
    found.add("y", b"1", "is damaged")
    assert found.lines == ["s3://a/b/x: is damaged", "s3://a/b: is damaged"]
    assert found.has("x", b"1")
    assert not found.has("x", b"2"), "it was mended"
    assert not found.has("z", b"1")
    again = RefusedFiles(tmp_path / "new", "s3://a/b")
    assert again.has("x", b"1")
    assert again.has("y", b"1")
    again.add("x", b"1", "again")
    assert again.lines == []


def test_a_command_is_told_again_once(tmp_path: Path) -> None:
    RefusedFiles(tmp_path, "s3://a/b").add("x", b"1", "s3://a/b/x: is damaged")
    found = RefusedFiles(tmp_path, "s3://a/b", names_again=True)
    assert not found.has("x", b"1")
    found.add("x", b"1", "s3://a/b/x: is damaged")
    found.add("x", b"1", "s3://a/b/x: is damaged")
    assert found.lines == ["s3://a/b/x: is damaged"]
    assert len((tmp_path / "refused").read_text().split()) == 1


def test_a_list_that_is_too_long_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RefusedFiles(tmp_path, "s3://a").add("x", b"1", "why")
    size = (tmp_path / "refused").stat().st_size
    monkeypatch.setattr(entries, "MAX_REFUSED_BYTES", size)
    assert RefusedFiles(tmp_path, "s3://a").has("x", b"1")
    monkeypatch.setattr(entries, "MAX_REFUSED_BYTES", size - 1)
    assert not RefusedFiles(tmp_path, "s3://a").has("x", b"1")
    assert not (tmp_path / "refused").exists()


def test_a_folder_that_can_not_be_written_remembers_as_long_as_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = RefusedFiles(tmp_path / "file", "s3://a")
    found.add("x", b"1", "why")
    assert found.has("x", b"1")
    assert found.lines == ["s3://a: why"]


def test_a_list_has_a_mebibyte(tmp_path: Path) -> None:
    (tmp_path / "refused").write_bytes(b"x" * (1 << 20))
    assert not RefusedFiles(tmp_path, "s3://a").has("x", b"1")
    assert (tmp_path / "refused").exists()
    (tmp_path / "refused").write_bytes(b"x" * ((1 << 20) + 1))
    assert not RefusedFiles(tmp_path, "s3://a").has("x", b"1")
    assert not (tmp_path / "refused").exists()


# damage is told once a process


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
