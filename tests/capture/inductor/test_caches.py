"""The folders of a capture on a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kerntune.capture.inductor.compiled_calls import INDUCTOR, TRITON, gates_own_caches


def test_folders_are_the_gates_for_a_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INDUCTOR, "the user's")
    monkeypatch.delenv(TRITON, raising=False)
    with gates_own_caches(tmp_path, "triton's"):
        assert (os.environ[INDUCTOR], os.environ[TRITON]) == (str(tmp_path), "triton's")
    assert os.environ[INDUCTOR] == "the user's"
    assert TRITON not in os.environ


def test_what_inductor_sets_meanwhile_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INDUCTOR, raising=False)
    monkeypatch.setenv(TRITON, "mine")
    with gates_own_caches(tmp_path, "triton's"):
        os.environ[TRITON] = "its own"
    assert INDUCTOR not in os.environ
    assert os.environ[TRITON] == "mine"


def test_a_folder_that_can_not_be_written_is_not_inductors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor would raise where it makes its first file."""
    monkeypatch.setenv(INDUCTOR, "the user's")
    (tmp_path / "file").touch()
    with gates_own_caches(tmp_path / "file" / "inductor", "triton's"):
        assert (os.environ[INDUCTOR], os.environ[TRITON]) == ("the user's", "triton's")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # a read-only file system, for root as well
    with gates_own_caches(tmp_path / "inductor", "triton's"):
        assert os.environ[INDUCTOR] == "the user's"
    assert not (tmp_path / "inductor").exists()
