"""Devices whose processes aren't protected from each other are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerntune.gpu import shared_device
from kerntune.gpu.shared_device import EXCLUSIVE_PROCESS, compute_mode, mps_folder, unprotected


@pytest.fixture(autouse=True)
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr(shared_device, "MPS_FOLDER", tmp_path / "usual")
    monkeypatch.setattr(shared_device, "compute_mode", lambda uuid: 0)


def test_nothing_is_said_of_a_device_of_one_s_own() -> None:
    assert unprotected("0123") == []


@pytest.mark.parametrize("where", ["usual", "named"])
def test_mps_is_said(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / where
    folder.mkdir()
    if where == "named":
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(folder))
    assert mps_folder() is None, "nobody listens"
    (folder / "control").touch()
    (line,) = unprotected("0123")
    assert line.startswith(f"MPS is on ({folder}): a fault of one process ends the others")


def test_exclusive_process_mode_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_device, "compute_mode", lambda uuid: EXCLUSIVE_PROCESS)
    (line,) = unprotected("0123")
    assert "exclusive-process mode: no second process can use it" in line


def test_a_device_that_nvml_does_not_know_has_no_mode() -> None:
    assert compute_mode("0123") is None
