"""Measuring processes number the GPUs as the process that starts them, whatever became of the environment since."""

from __future__ import annotations

import os

import pytest

from kerntune.base import child_process
from kerntune.gpu import cuda_driver
from kerntune.timing.worker import pool


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "_visible_env", {})
    for name in cuda_driver.VISIBLE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("begun", ["2,3", "GPU-5f3a1c2e", "MIG-5f3a1c2e-0000-1111-2222-333344445555"])
def test_a_variable_that_was_changed_is_as_it_was(monkeypatch: pytest.MonkeyPatch, begun: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", begun)
    cuda_driver.remember_visible()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    cuda_driver.remember_visible()
    assert cuda_driver.visible_env({**os.environ, "OTHER": "1"}).items() >= {
        ("CUDA_VISIBLE_DEVICES", begun),
        ("OTHER", "1"),
    }
    assert "CUDA_DEVICE_ORDER" not in cuda_driver.visible_env(os.environ)


def test_before_the_driver_was_started_they_are_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert cuda_driver.visible_env(os.environ)["CUDA_VISIBLE_DEVICES"] == "1"


def test_a_measuring_process_is_given_them(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}

    class Stop(Exception):
        pass

    def popen(*args: object, env: dict[str, str], **options: object) -> None:
        given.update(env)
        raise Stop

    cuda_driver.remember_visible()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setattr(child_process.subprocess, "Popen", popen)
    with pytest.raises(Stop):
        pool.Worker(0)
    assert "CUDA_VISIBLE_DEVICES" not in given
