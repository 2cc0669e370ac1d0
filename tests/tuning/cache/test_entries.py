"""Entries of a folder: what may be written, what is read, and where it lies."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from kerntune.base import codec
from kerntune.errors import CacheError
from kerntune.tuning.cache import entries
from kerntune.tuning.cache.entries import MAX_ENTRY, Entries, report_damage
from kerntune.tuning.cache.winners import TRIAL_SCHEMA, StoredTrial
from tuning.cache.made import LARGE, SMALL, trial


@pytest.fixture
def stored(tmp_path: Path) -> Entries[StoredTrial]:
    return Entries(tmp_path, "trials", StoredTrial, TRIAL_SCHEMA)


def test_an_entry_lies_below_its_parts(stored: Entries[StoredTrial]) -> None:
    assert stored.path("a") == stored.folder / "trials" / "a.json"
    assert stored.path("a", "b", "c") == stored.folder / "trials" / "a" / "b" / "c.json"


def test_an_entry_may_have_so_many_bytes_and_values(
    stored: Entries[StoredTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = codec.to_json(trial())
    size, values = len(data), codec.values_at_most(data)
    path = stored.path("a")
    for module, name, most in ((entries, "MAX_ENTRY", size), (codec, "MAX_VALUES", values)):
        with monkeypatch.context() as only:
            only.setattr(module, name, most)
            stored.write(path, trial())
            assert stored.read(path) == trial()
            only.setattr(module, name, most - 1)
            with pytest.raises(CacheError, match=f"a.json: would have {size} bytes, and may have .*; tune fewer"):
                stored.write(path, trial())


def test_four_mebibytes_are_read_and_not_more(stored: Entries[StoredTrial]) -> None:
    path, data = stored.path("a"), codec.to_json(trial())
    path.parent.mkdir(parents=True)
    path.write_bytes(data + b" " * ((4 << 20) - len(data)))
    assert stored.read(path) == trial()
    assert MAX_ENTRY == 4 << 20
    path.write_bytes(data + b" " * ((4 << 20) + 1 - len(data)))
    assert stored.read(path) is None
    assert len(stored.damaged) == 1
    assert "a.json" in stored.damaged[0]
    assert not path.exists()
    assert path.with_suffix(".damaged").exists()


def test_a_new_entry_is_written_where_there_is_none(stored: Entries[StoredTrial]) -> None:
    path = stored.path("a")
    assert stored.write_new(path, trial(SMALL))
    assert not stored.write_new(path, trial(LARGE))
    assert stored.read(path) == trial(SMALL)


def test_temporary_files_of_processes_that_are_gone_are_swept_where_one_writes(
    stored: Entries[StoredTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[Path] = []
    monkeypatch.setattr(entries, "sweep_once", swept.append)
    stored.write(stored.path("a", "b"), trial())
    stored.write_new(stored.path("c", "d"), trial())
    assert swept == [stored.path("a", "b").parent, stored.path("c", "d").parent]


def test_what_lies_in_one_folder_is_read_in_a_stable_order(stored: Entries[StoredTrial]) -> None:
    for name, config in (("b", LARGE), ("a", SMALL)):
        stored.write(stored.path("q", name), trial(config))
    stored.write(stored.path("other", "c"), trial())
    (stored.folder / "trials" / "q" / ".x.json").write_text("{")
    (stored.folder / "trials" / "q" / "notes.txt").write_text("{")
    assert stored.within("q") == [trial(SMALL), trial(LARGE)]
    assert stored.within("none") == []
    assert stored.damaged == []
    in_q = [stored.path("q", name) for name in (".x", "a", "b")]
    assert stored.paths() == [stored.path("other", "c"), *in_q]


def test_all_are_counted_when_they_are_removed(stored: Entries[StoredTrial]) -> None:
    for name in "ab":
        stored.write(stored.path("q", name), trial())
    assert len(list(stored.all())) == 2
    assert stored.clear() == 2
    assert stored.paths() == []
    assert stored.clear() == 0


def test_an_entry_that_another_process_removes_meanwhile_is_removed(
    stored: Entries[StoredTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        stored.write(stored.path(name), trial())
    found = stored.paths()
    found[1].unlink()
    with monkeypatch.context() as before:
        before.setattr(stored, "paths", lambda: found)
        stored.clear()
    assert stored.paths() == []


def test_damage_is_told_once(stored: Entries[StoredTrial]) -> None:
    for line in ("a", "b", "a"):
        stored.tell(line)
    assert stored.damaged == ["a", "b"]


def test_an_entry_that_says_what_can_not_be_is_moved_away(stored: Entries[StoredTrial]) -> None:
    path = stored.path("a")
    stored.write(path, trial())
    before = path.read_bytes()
    stored.set_aside(path, "a.json: is of another key")
    assert stored.damaged == ["a.json: is of another key"]
    assert (path.exists(), path.with_suffix(".damaged").read_bytes()) == (False, before)
    assert sorted(p.name for p in path.parent.iterdir()) == ["a.damaged"]


def test_a_still_newer_one_stays(tmp_path: Path) -> None:
    taken, path = tmp_path / "taken", tmp_path / "path"
    taken.write_text("newer")
    entries._put_back(taken, path)
    assert (path.read_text(), taken.exists()) == ("newer", False)
    taken.write_text("older")
    entries._put_back(taken, path)
    assert (path.read_text(), taken.exists()) == ("newer", False)


def test_an_entry_of_a_later_kerntune_is_none_and_stays(tmp_path: Path, stored: Entries[StoredTrial]) -> None:
    """Two versions share a folder: neither throws out what the other has written."""
    path, made = stored.path("ab", "x"), trial(SMALL)
    later = codec.to_json(made).replace(TRIAL_SCHEMA.encode(), TRIAL_SCHEMA.encode()[:-1] + b"12")
    codec.write_atomic(path, later.replace(b'"schema"', b'"news": 1, "schema"'))
    before = path.read_bytes()
    assert stored.read(path) is None
    assert not stored.write_new(path, made)
    stored.write(path, made)
    assert path.read_bytes() == before
    assert stored.damaged == []
    codec.write_atomic(path, before.replace(b"trial/12", b"trial/0"))
    assert stored.read(path) is None
    assert len(stored.damaged) == 1, "an earlier one is set aside"
    assert not codec.is_newer(b'{"schema": "kerntune.winner/9"}', TRIAL_SCHEMA)
    assert not codec.is_newer(b'{"schema": "kerntune.trial/' + b"9" * 5000 + b'"}', TRIAL_SCHEMA)
    assert not codec.is_newer(b"{", TRIAL_SCHEMA)


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
