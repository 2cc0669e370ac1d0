"""What a session keeps for each GPU: replays and first launches, and their end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.gate import gpu_capture
from kerntune.gate.gpu_capture import MeasuredGpus, pairs_for
from kerntune.gpu.cuda import CudaGpu
from kerntune.timing.worker.pool import LocalPairs, WorkerPool
from kerntune.tuning.isolation import Isolate


class Closing:
    """Notes its end."""

    def __init__(self, name: Any) -> None:
        self.name, self.closed = name, 0

    def close(self) -> None:
        self.closed += 1


def backend(number: int) -> Any:
    return SimpleNamespace(ordinal=number, gpu=f"GPU {number}")


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every process that was asked for."""
    found: list[Any] = []

    def make(*what: Any) -> Closing:
        found.append(Closing(what))
        return found[-1]

    monkeypatch.setattr(gpu_capture, "pairs_for", lambda gpu: make("pairs", gpu))
    monkeypatch.setattr(gpu_capture, "Isolation", lambda gpu, mode: make(gpu, mode))
    return found


def test_each_gpu_has_replays_of_its_own_once_it_is_used(made: list[Any]) -> None:
    gpus = MeasuredGpus()
    assert made == []
    first, other = gpus.of(backend(1)), gpus.of(backend(0))
    assert (first.gpu, other.gpu) == ("GPU 1", "GPU 0")
    assert [one.name for one in made] == [("pairs", "GPU 1"), ("pairs", "GPU 0")]
    assert [first.pairs, other.pairs] == made
    assert gpus.of(backend(0)) is other
    assert gpus.of(backend(1)) is first
    assert len(made) == 2


def test_first_launches_have_a_process_for_each_mode(made: list[Any]) -> None:
    one = MeasuredGpus().of(backend(0))
    modes = list(Isolate)[:2]
    found = [one.isolation(mode) for mode in (*modes, *modes)]
    assert [f.name for f in made[1:]] == [("GPU 0", mode) for mode in modes]  # type: ignore[attr-defined]
    assert found[0] is found[2] is not found[1]


def test_all_end_with_the_session(made: list[Any]) -> None:
    gpus = MeasuredGpus()
    for number in (0, 1):
        gpus.of(backend(number)).isolation(next(iter(Isolate)))
    gpus.close()
    assert len(made) == 4
    assert all(one.closed for one in made)


def test_a_real_device_is_measured_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted one answers itself."""
    assert type(pairs_for("scripted")) is LocalPairs  # type: ignore[arg-type]
    real = CudaGpu.__new__(CudaGpu)
    monkeypatch.setattr(real, "ordinal", 3, raising=False)
    found = pairs_for(real)
    assert type(found) is WorkerPool
