"""A device's rates: measured once, kept by its UUID."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from fake_runs import script

from kerntune.errors import MeasurementError
from kerntune.gpu import cuda
from kerntune.gpu.probe import has_cuda
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.tuning import device_figures
from kerntune.tuning.device_figures import device_bandwidth, device_matmul, stored_figures


@pytest.fixture
def gpu(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    monkeypatch.setattr(device_figures, "measured_bandwidth", lambda gpu: 2e12)
    found = script(backend)
    found.spec = msgspec.structs.replace(found.spec, uuid="GPU-1")
    return found


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The dtypes that were measured."""
    asked: list[str] = []

    def measure(gpu: Any, dtype: str) -> float | None:
        asked.append(dtype)
        if dtype == "int8":
            raise RuntimeError("not on this device")
        if dtype == "float64":
            raise MeasurementError("no room")
        return None if dtype == "bool" else 100e12

    monkeypatch.setattr(device_figures, "measured_matmul", measure)
    return asked


def test_a_rate_is_measured_once(gpu: FakeGpu, tmp_path: Path, measured: list[str]) -> None:
    for _ in range(2):
        assert device_matmul(gpu, tmp_path, "float16") == 100e12
        assert device_matmul(gpu, tmp_path, "bfloat16") == 100e12
    assert measured == ["float16", "bfloat16"]
    (stored,) = stored_figures(tmp_path)
    assert stored.matmul == {"float16": 100e12, "bfloat16": 100e12}
    assert stored.bandwidth == device_bandwidth(gpu, tmp_path) == 2e12


def test_what_an_earlier_version_kept_is_completed(gpu: FakeGpu, tmp_path: Path, measured: list[str]) -> None:
    device_bandwidth(gpu, tmp_path)
    (path,) = (tmp_path / "devices").glob("*.json")
    assert b"matmul" not in path.read_bytes(), "as earlier versions wrote it"
    device_matmul(gpu, tmp_path, "float16")
    assert stored_figures(tmp_path)[0].matmul == {"float16": 100e12}


def test_what_can_not_be_measured_is_no_rate(gpu: FakeGpu, tmp_path: Path, measured: list[str]) -> None:
    assert [device_matmul(gpu, tmp_path, d) for d in ("", "bool", "int8", "float64")] == [None] * 4
    assert measured == ["bool", "int8", "float64"]


def test_without_an_identity_nothing_is_kept(gpu: FakeGpu, tmp_path: Path, measured: list[str]) -> None:
    gpu.spec = msgspec.structs.replace(gpu.spec, uuid="")
    assert [device_matmul(gpu, tmp_path, "float16") for _ in range(2)] == [100e12] * 2
    assert stored_figures(tmp_path) == []


def test_a_scripted_device_multiplies_nothing(gpu: FakeGpu) -> None:
    assert cuda.measured_matmul(gpu, "float16") is None


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "float8_e4m3fn"])
def test_a_products_numbers_leave_a_tests_own_as_they_are(dtype: str) -> None:
    before = torch.get_rng_state()
    assert cuda._product(dtype, 16, "cpu") is not None
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
@pytest.mark.skipif(not has_cuda(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "float8_e4m3fn", "float64"])
def test_products_reach_a_sensible_rate(dtype: str) -> None:
    from kerntune.gpu.cuda import CudaGpu

    found = cuda.measured_matmul(CudaGpu(), dtype)
    assert found is None or 1e11 < found < 1e16
