"""Temporary folders: held while their process lives, removed by the next one after that."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kerntune.base import temporary_folders
from kerntune.base.temporary_folders import LOCK, PREFIX, TemporaryFolder, scratch_folder, sweep

SOURCE = Path(__file__).parents[2]

MAKE = """
from kerntune.base.temporary_folders import TemporaryFolder
one = TemporaryFolder("test")
print(one.folder, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(temporary_folders, "_swept", set())
    return tmp_path


def another(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has made a folder, and waits."""
    env = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(SOURCE)}
    one = subprocess.Popen([sys.executable, "-c", MAKE], stdin=-1, stdout=-1, text=True, env=env)
    assert one.stdout is not None
    return one, Path(one.stdout.readline().strip())


def end(one: subprocess.Popen[str], number: int) -> None:
    one.send_signal(number)
    one.communicate()


def test_it_is_there_until_it_is_removed(place: Path) -> None:
    one = TemporaryFolder("test")
    assert one.folder.parent == place
    assert one.folder.name.startswith("kerntune-test-")
    (one.folder / "inner").mkdir()
    assert sweep(place) == []
    one.remove()
    one.remove()
    assert list(place.iterdir()) == []


def test_it_is_there_for_as_long_as_a_context_is_open(place: Path) -> None:
    with scratch_folder("test") as folder:
        assert (folder.parent, folder.name.startswith("kerntune-test-")) == (place, True)
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_goes_when_the_next_folder_is_made(place: Path) -> None:
    one, folder = another(place)
    (folder / "inner").mkdir()
    first = TemporaryFolder("test")
    assert folder.is_dir()
    end(one, signal.SIGKILL)
    assert folder.is_dir()
    temporary_folders._swept.clear()
    second = TemporaryFolder("test")
    assert not folder.exists()
    assert first.folder.is_dir()
    first.remove()
    second.remove()


def test_what_is_not_ours_stays(place: Path) -> None:
    (place / "kerntune-users").mkdir()
    (place / "kerntune-users" / "file").touch()
    (place / "kerntune-file").touch()
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / LOCK).touch()
    (place / "kerntune-link").symlink_to(place / "elsewhere")
    before = sorted(place.rglob("*"))
    assert sweep(place) == []
    assert sorted(place.rglob("*")) == before


def test_a_disk_without_locks_will_do(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    one = TemporaryFolder("test")
    assert sweep(place) == []
    one.remove()
    assert list(place.iterdir()) == []


def test_a_file_that_is_made_meanwhile_does_not_keep_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An orphaned compiling process goes on for some milliseconds; the folder's lock is gone by then."""
    folder = tmp_path / f"{PREFIX}compile-x"
    folder.mkdir()
    (folder / LOCK).touch()
    rmtree, made = shutil.rmtree, []

    def slow(path: Path, ignore_errors: bool) -> None:
        (folder / LOCK).unlink(missing_ok=True)
        if len(made) < 3:
            made.append(folder / f"{len(made)}.ptx")
            made[-1].touch()
        else:
            rmtree(path, ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", slow)
    assert sweep(tmp_path) == [folder]
    assert not folder.exists()
