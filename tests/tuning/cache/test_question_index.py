"""The index from questions to entries, by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kerntune.errors import CacheError
from kerntune.tuning.cache import keys
from kerntune.tuning.cache.keys import QuestionIndex

QUESTION, OTHER = "ab1" + "0" * 61, "ab1" + "1" * 61
ENTRIES = ["c" * 64, "d" * 64]


def test_entries_of_a_question_come_sorted_and_once(tmp_path: Path) -> None:
    index = QuestionIndex(tmp_path / "index")
    assert index.entries(QUESTION) == []
    for entry in (*ENTRIES[::-1], ENTRIES[0]):
        index.add(QUESTION, entry)
    index.add(OTHER, "e" * 64)
    assert index.entries(QUESTION) == ENTRIES
    assert index.entries(OTHER) == ["e" * 64]
    assert [p.name for p in (tmp_path / "index").iterdir()] == ["ab1.index"], "by three digits"
    lines = (tmp_path / "index" / "ab1.index").read_bytes().split(b"\n")
    assert [line for line in lines if line] == [
        f"{q} {e}".encode() for q, e in ((QUESTION, ENTRIES[1]), (QUESTION, ENTRIES[0]), (OTHER, "e" * 64))
    ]  # fmt: skip


def test_it_is_whole_once_it_says_so(tmp_path: Path) -> None:
    index = QuestionIndex(tmp_path / "index")
    index.add(QUESTION, ENTRIES[0])
    assert not index.is_whole
    assert index.build([(QUESTION, ENTRIES[1]), (OTHER, ENTRIES[0])])
    assert index.is_whole
    assert index.entries(QUESTION) == ENTRIES
    index.clear()
    index.clear()
    assert not index.is_whole
    assert not (tmp_path / "index").exists()


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    index = QuestionIndex(tmp_path / "file")
    with pytest.raises(CacheError, match=r"ab1\.index: can't be written \((File exists|Not a directory)\)"):
        index.add(QUESTION, ENTRIES[0])
    assert not index.build([(QUESTION, ENTRIES[0])])
    assert not index.build([])


def test_what_is_too_long_is_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = QuestionIndex(tmp_path)
    index.build([(QUESTION, ENTRIES[0])])
    size = (tmp_path / "ab1.index").stat().st_size
    monkeypatch.setattr(keys, "MAX_BUCKET", size)
    assert index.entries(QUESTION) == ENTRIES[:1]
    monkeypatch.setattr(keys, "MAX_BUCKET", size - 1)
    assert index.entries(QUESTION) == []
    assert not tmp_path.exists()


def test_a_bucket_has_a_mebibyte(tmp_path: Path) -> None:
    index = QuestionIndex(tmp_path)
    index.build([(QUESTION, ENTRIES[0])])
    data = (tmp_path / "ab1.index").read_bytes()
    (tmp_path / "ab1.index").write_bytes(data + b"\n" * ((1 << 20) - len(data)))
    assert index.entries(QUESTION) == ENTRIES[:1]
    (tmp_path / "ab1.index").write_bytes(data + b"\n" * ((1 << 20) + 1 - len(data)))
    assert index.entries(QUESTION) == []
    assert not index.is_whole


def test_no_descriptor_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = QuestionIndex(tmp_path)
    opened, closed = list[int](), list[int]()
    open_, close = os.open, os.close
    monkeypatch.setattr(os, "open", lambda *given: opened.append(open_(*given)) or opened[-1])
    monkeypatch.setattr(os, "close", lambda handle: close(handle) or closed.append(handle))
    index.add(QUESTION, ENTRIES[0])
    monkeypatch.undo()
    assert len(opened) == 1
    assert set(opened) <= set(closed)


def test_folders_above_it_are_made_too(tmp_path: Path) -> None:
    index = QuestionIndex(tmp_path / "cache" / "index")
    index.add(QUESTION, ENTRIES[0])
    assert index.entries(QUESTION) == ENTRIES[:1]
