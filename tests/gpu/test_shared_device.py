"""Devices whose processes aren't protected from each other are told apart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kerntune.errors import BackendError
from kerntune.gpu import host_gpus
from kerntune.gpu.cuda import CudaGpu
from kerntune.gpu.host_gpus import compute_mode, mps_folder, unprotected

EXCLUSIVE_PROCESS = 3


@pytest.fixture(autouse=True)
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr(host_gpus, "MPS_FOLDER", tmp_path / "usual")
    monkeypatch.setattr(host_gpus, "compute_mode", lambda uuid: 0)


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
    monkeypatch.setattr(host_gpus, "compute_mode", lambda uuid: EXCLUSIVE_PROCESS)
    (line,) = unprotected("0123")
    assert "exclusive-process mode: no second process can use it" in line


@pytest.mark.parametrize(
    ("mode", "enabled", "folder", "said"),
    [
        (0, 0, True, []),  # the driver knows better than a folder that a daemon has left
        (0, 1, False, ["MPS is on: a fault"]),
        (0, None, True, ["MPS is on ("]),
        (0, None, False, []),
        (EXCLUSIVE_PROCESS, 0, False, ["the device is in exclusive-process mode"]),
        (EXCLUSIVE_PROCESS, 1, False, ["MPS is on: a fault", "the device is in exclusive-process mode"]),
    ],
)
def test_the_device_s_own_words_decide_where_first_launches_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, enabled: int | None, folder: bool, said: list[str]
) -> None:
    """``enabled`` is None for a driver that doesn't know of MPS."""
    if folder:
        (tmp_path / "usual").mkdir()
        (tmp_path / "usual" / "control").touch()
    gpu = object.__new__(CudaGpu)
    gpu.ordinal = 3
    monkeypatch.setattr(CudaGpu, "_attribute", lambda self, number: mode)
    monkeypatch.setattr(CudaGpu, "_attribute_or", lambda self, number, other: other if enabled is None else enabled)
    found = gpu.unprotected()
    assert len(found) == len(said)
    assert all(text.startswith(words) for text, words in zip(found, said, strict=True))
    if said:
        with pytest.raises(BackendError, match=re.escape(said[0])):
            gpu.first_launch_arguments()
    else:
        assert gpu.first_launch_arguments() == ("3",)


def test_a_device_that_nvml_does_not_know_has_no_mode() -> None:
    assert compute_mode("0123") is None
