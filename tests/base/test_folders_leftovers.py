"""Temporary files of killed writes: removed by a later writer, and nothing else is."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import pytest
from tuning.cache.made import LARGE, SMALL, won

from kerntune.base.codec import write_atomic
from kerntune.base.folders import sweep_once, temporary_name
from kerntune.gate.baseline_files import ArtifactFolder
from kerntune.tuning.cache import WinnerCache

OLD_S = 86_400.0


def aged(path: Path, seconds: float) -> Path:
    """A file, or what lies there, so many seconds old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def left_in(folder: Path, seconds: float = 2 * OLD_S) -> Path:
    """What a killed write has left there."""
    return aged(folder / temporary_name("entry.json"), seconds)


def test_what_is_old_goes_and_what_may_have_a_writer_stays(tmp_path: Path) -> None:
    old, new = left_in(tmp_path), left_in(tmp_path, OLD_S / 2)
    others = [
        aged(tmp_path / name, 2 * OLD_S)
        for name in (
            "entry.json",
            ".gitignore",
            ".entry.json",
            f".notes.{secrets.token_hex(6)}",
            "a.kerntune-unfinished",
            ".a.0123456789aX.kerntune-unfinished",
            ".a.0123456789ab.kerntune-unfinished.bak",
        )
    ]
    folder = tmp_path / temporary_name("folder")
    folder.mkdir()
    os.utime(folder, (0, 0))
    sweep_once(tmp_path)
    assert not old.exists()
    assert new.exists()
    assert all(path.exists() for path in others)
    assert folder.is_dir()


def test_the_names_are_those_of_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that a killed process has not finished."""
    monkeypatch.setattr(os, "replace", lambda old, new: os.link(old, f"{old}.kept"))
    write_atomic(tmp_path / "entry.json", b"x")
    (kept,) = tmp_path.iterdir()
    kept.rename(kept.with_suffix(""))
    os.utime(kept.with_suffix(""), (0, 0))
    sweep_once(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_file_of_a_user_s_has_such_a_name(tmp_path: Path) -> None:
    """A hidden file that ends in twelve digits may be anybody's, in a folder of baselines, too."""
    artifacts = ArtifactFolder(tmp_path)
    sweep_once.cache_clear()
    mine = aged(tmp_path / f".notes.{secrets.token_hex(6)}", 2 * OLD_S)
    artifacts.put("0" * 64, b"data")
    assert mine.exists()


@pytest.mark.parametrize("name", ["x" * 250, "測" * 75 + ".json", "ab" + "測" * 75])
def test_names_are_as_short_as_file_systems_need(tmp_path: Path, name: str) -> None:
    """They end at 255 bytes."""
    write_atomic(tmp_path / name, b"x")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_that_is_not_there_or_can_not_be_read_is_left(tmp_path: Path) -> None:
    sweep_once(tmp_path / "nowhere")
    sweep_once(aged(tmp_path / "file", 0.0))


def test_cache_and_baselines_are_swept_when_they_are_written(tmp_path: Path) -> None:
    cache = WinnerCache(tmp_path / "cache")
    cache.add(won(SMALL, time_ns=1000.0))
    (entry,) = (tmp_path / "cache").rglob("*.json")
    sweep_once.cache_clear()
    old = left_in(entry.parent)
    cache.add(won(LARGE, time_ns=1000.0))
    assert entry.exists()
    assert not old.exists()
    artifacts = ArtifactFolder(tmp_path / "artifacts")
    old = left_in(tmp_path / "artifacts")
    artifacts.put("0" * 64, b"data")
    assert not old.exists()
