"""Without a GPU: launches are captured and compiled for a target, nothing runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from fake_runs import COMPILER, N, captured, scale, scale_kernel, tuned

from kerntune.base.device import Target, typical_device
from kerntune.capture.recorder import record
from kerntune.errors import GridError, TargetError
from kerntune.gpu.fake_cuda.static_backend import StaticBackend

TARGET = Target.parse("cuda:80")


@pytest.fixture(scope="module")
def backend() -> Iterator[StaticBackend]:
    backend = StaticBackend(TARGET)
    with backend.activate():
        yield backend


def test_device_questions_are_answered_for_the_target(backend: StaticBackend) -> None:
    assert backend.spec == typical_device(TARGET)
    assert torch.cuda.is_available()
    assert torch.cuda.get_device_capability() == (8, 0)
    assert torch.cuda.get_device_properties(0).multi_processor_count == backend.spec.sm_count


def test_the_binary_is_for_the_target(backend: StaticBackend) -> None:
    found = record(captured(backend, lambda: scale(scale_kernel, BLOCK=64)))
    assert (found.recording.target, found.recording.binaries[0].arch) == (TARGET, "sm_80")
    assert (found.recording.launches[0].grid, found.sources) == ((64, 1, 1), [])


def test_only_open_candidates_are_compiled_while_capturing(
    backend: StaticBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the device would refuse gives way to the next candidate; bare kernels wait and are compiled together."""
    compile_one, seen = COMPILER.compile, []
    monkeypatch.setattr(COMPILER, "compile", lambda launch: (seen.append(launch.name), compile_one(launch))[1])
    assert len(captured(backend, lambda: scale(scale_kernel, BLOCK=64)).launches) == 1
    assert seen == []
    assert len(captured(backend, lambda: scale(tuned(64, 128))).launches) == 1
    assert seen == ["scale_kernel"]


def test_a_kernel_that_does_not_compile_is_a_failure(backend: StaticBackend) -> None:
    capture = captured(backend, lambda: scale(scale_kernel, BLOCK=100))
    failure = record(capture).failures[0]
    assert "scale_kernel" in str(failure)
    assert str(TARGET) in str(failure)


def test_grids_are_checked_against_the_target(backend: StaticBackend) -> None:
    x = torch.randn(N, device="cuda")
    with pytest.raises(GridError, match="axis z is 65536, over the limit of 65535"):
        captured(backend, lambda: scale_kernel[(1, 1, 65536)](x, x, N, 2.0, BLOCK=64))


def test_tensors_of_any_size_take_no_memory(backend: StaticBackend) -> None:
    x = torch.empty(1 << 44, device="cuda")
    capture = captured(backend, lambda: scale_kernel[(1,)](x, x, 64, 2.0, BLOCK=64))
    assert record(capture).recording.storages[0].nbytes == 1 << 46


def test_a_target_without_a_known_device() -> None:
    with pytest.raises(TargetError, match="no device is known for target cuda:70"):
        StaticBackend(Target.parse("cuda:70"))


def test_hidden_pointers_are_found_without_reading_memory(backend: StaticBackend) -> None:
    x = torch.randn(N, device="cuda")
    capture = captured(backend, lambda: scale_kernel[(1,)](x, x, x.data_ptr(), 2.0, BLOCK=64))
    assert record(capture).recording.hidden_pointers
