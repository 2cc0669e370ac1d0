"""Temporary folders: held while their process lives, removed by the next one after that."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from doubles import raising
from source_path import source_path

from kerntune.base import folders
from kerntune.base.folders import LOCK, PREFIX, TemporaryFolder, scratch_folder, sweep

SOURCE = Path(__file__).parents[2]

MAKE = """
from kerntune.base.folders import TemporaryFolder
one = TemporaryFolder("test")
print(one.folder, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(folders, "_swept", set())
    return tmp_path


def another(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has made a folder, and waits."""
    env = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": source_path(SOURCE)}
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
    folders._swept.clear()
    second = TemporaryFolder("test")
    assert not folder.exists()
    assert first.folder.is_dir()
    first.remove()
    second.remove()


KILLED = """
import os, signal
from kerntune.base import folders
class Os:
    def __getattr__(self, name):
        return getattr(os, name)
    def {call}(self, *args, **words):
        os.kill(os.getpid(), signal.SIGKILL)
def killed(*args):
    os.kill(os.getpid(), signal.SIGKILL)
if "{call}" == "open":
    folders.os = Os()
else:
    folders.fcntl.flock = killed
folders.TemporaryFolder("test")
"""


@pytest.mark.parametrize("call", ["open", "flock"])
def test_what_was_killed_before_it_had_its_lock_goes_after_a_day(place: Path, call: str) -> None:
    env = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": source_path(SOURCE)}
    done = subprocess.run([sys.executable, "-c", KILLED.format(call=call)], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = place.iterdir()
    sweep(place)
    assert left.is_dir(), "its process may go on"
    os.utime(left, (0, 0))
    sweep(place)
    assert not left.exists()


def test_a_folder_is_not_swept_before_it_is_locked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = folders._lock

    def swept_around(folder: Path) -> int | None:
        swept = sweep(place)
        handle = lock(folder)
        assert swept == sweep(place) == []
        return handle

    monkeypatch.setattr(folders, "_lock", swept_around)
    one = TemporaryFolder("test")
    assert sweep(place) == []
    assert one.folder.is_dir()
    one.remove()


def test_the_lock_is_removed_last(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is killed while it removes a folder leaves one that is swept."""
    one = TemporaryFolder("test")
    for name in ("a", "z"):
        (one.folder / name).mkdir()
        (one.folder / f"{name}.txt").touch()

    class Killed(BaseException):
        pass

    def killed(path: Path, ignore_errors: bool) -> None:
        if path == one.folder:
            raise Killed

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(Killed):
        one.remove()
    assert (one.folder / LOCK).exists()
    assert not (one.folder / "a.txt").exists()


def test_a_folder_of_another_name_stays_though_it_is_empty(place: Path) -> None:
    for name in ("kerntune-users", "kerntune-2026", "kerntune-my-Results01"):
        (place / name).mkdir()
    assert sweep(place) == []
    assert len(list(place.iterdir())) == 3


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
    monkeypatch.setattr("fcntl.flock", raising(OSError("no locks here")))
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


def test_folders_that_are_deeper_than_recursion_goes_are_removed(place: Path) -> None:
    """And links in them aren't followed."""
    (place / "kept").mkdir()
    (place / "kept" / "file").touch()
    one = TemporaryFolder("test")
    here = os.getcwd()
    try:
        os.chdir(one.folder)
        for _ in range(1500):
            os.mkdir("d")
            os.symlink(place / "kept", "link")
            os.chdir("d")
    finally:
        os.chdir(here)
    one.remove()
    assert list(place.iterdir()) == [place / "kept"]
    assert (place / "kept" / "file").exists()
