"""A tuner's messages where Triton finds no GPU."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from doubles import raising
from fake_runs import N, by_block, configs, scale_kernel

import kerntune
from kerntune.errors import NoGpuError, UsageError
from kerntune.kernels.compat import launcher
from kerntune.tuning.tuning_result import naming_missing_gpu


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, also if this machine has one: Triton makes its driver anew, and no backend is active."""
    module = importlib.import_module("triton.runtime.driver")
    monkeypatch.setattr(module, "backends", {})
    for name in ("_active", "_default"):
        monkeypatch.setattr(module.driver, name, None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def launch(kernel: Any) -> None:
    x, y = torch.empty(N), torch.empty(N)
    kernel[by_block](x, y, N, 2.0)


@pytest.mark.parametrize("blocks", [(64, 128), (64,)], ids=["several", "one"])
def test_a_launch_without_a_gpu_names_the_kernel_and_what_to_do(blocks: tuple[int, ...]) -> None:
    with pytest.raises(NoGpuError, match="active drivers") as caught:
        launch(kerntune.autotune(configs(*blocks), key=["n"])(scale_kernel))
    said = str(caught.value)
    fn = scale_kernel.fn
    assert f"scale_kernel ({fn.__code__.co_filename}:{fn.__code__.co_firstlineno})" in said
    assert "`pytest --kerntune --kerntune-target=cuda:90`" in said
    assert "TRITON_INTERPRET=1" in said
    assert isinstance(caught.value, UsageError)


def test_who_falls_back_on_tritons_error_still_does() -> None:
    with pytest.raises(RuntimeError) as tritons:
        launch(scale_kernel)
    with pytest.raises(RuntimeError) as ours, kerntune.install():
        launch(triton.autotune(configs(64, 128), key=["n"])(scale_kernel))
    assert str(tritons.value) in str(ours.value)
    assert type(tritons.value) is RuntimeError
    assert type(ours.value) is NoGpuError


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match=r"^no room left$") as caught:
        naming_missing_gpu(raising(RuntimeError("no room left")))(None)
    assert type(caught.value) is RuntimeError


def test_an_error_without_words_is_not_taken_for_a_missing_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a driver there is no message about it, and some errors have none either."""
    monkeypatch.setattr(launcher, "missing_driver", lambda: "")

    kernel = kerntune.autotune(configs(64), key=["n"])(scale_kernel)
    with pytest.raises(NotImplementedError):
        naming_missing_gpu(raising(NotImplementedError))(kernel)


@pytest.mark.parametrize("error", [RuntimeError("Failed to find C compiler"), OSError("no room")], ids=str)
def test_a_driver_that_can_not_be_made_is_no_missing_gpu(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    class Driver:
        def __init__(self) -> None:
            raise error

        @staticmethod
        def is_active() -> bool:
            return True

    module = importlib.import_module("triton.runtime.driver")
    monkeypatch.setattr(module, "backends", {"nvidia": SimpleNamespace(driver=Driver)})
    with pytest.raises(type(error), match=str(error)) as caught:
        launch(kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel))
    assert type(caught.value) is type(error)
