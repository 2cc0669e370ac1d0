"""What is said of a GPU that runs nothing any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from doubles import raising
from fake_runs import N, by_block, captured, increment_kernel, scale, scale_kernel, script, tuned

from kerntune.capture import Capture
from kerntune.errors import DeviceFault, UsageError
from kerntune.gate import device_faults
from kerntune.gate.device_faults import Fault, beside_verdict, launched_text, lost
from kerntune.gpu.scripted import FakeBackend

NOTHING = "before a kernel was launched in this call: a kernel of an earlier one, or what else the process ran"


class Gpu:
    """Answers until it has an error, as a driver does."""

    def __init__(self, error: str = "") -> None:
        self.error, self.asked = error, 0

    def synchronize(self) -> None:
        self.asked += 1
        if self.error:
            raise RuntimeError(self.error)


def gpu(error: str = "") -> Any:
    return Gpu(error)


def test_a_device_that_answers_is_not_lost() -> None:
    assert lost(None) == lost(gpu()) == ""
    assert lost(gpu("illegal address")) == "illegal address"


def test_the_first_reason_stays_and_only_who_asks_waits() -> None:
    one = gpu("illegal address")
    fault = Fault(one)
    assert (fault.known(ask=False), one.asked) == ("", 0)
    assert fault.known(ask=True) == "illegal address"
    one.error = "another one"
    assert (fault.known(ask=True), fault.known(ask=False), one.asked) == ("illegal address", "illegal address", 1)


def test_a_process_without_a_gpu_loses_none() -> None:
    assert Fault(None).known(ask=True) == ""


def test_further_devices_are_asked_each_once() -> None:
    first, second = gpu(), gpu("its bus is gone")
    fault = Fault(first)
    for one in (first, second, second):
        fault.watch(one)
    assert fault.known(ask=True) == "its bus is gone"
    assert (first.asked, second.asked) == (1, 1)


def test_an_error_on_a_device_that_answers_stays_what_it_is() -> None:
    error = ValueError("wrong shape")
    with pytest.raises(ValueError, match="wrong shape") as caught, Fault(gpu()).named("a case"):
        raise error
    assert caught.value is error


def test_whatever_is_raised_on_a_lost_device_names_case_and_reason() -> None:
    fault = Fault(gpu("illegal address"))
    with pytest.raises(DeviceFault) as caught, fault.named("t.py::test_a"):
        raise ValueError("wrong shape")
    reason = f"{NOTHING} (illegal address)"
    assert str(caught.value) == f"t.py::test_a: the GPU runs nothing any more {reason}. {device_faults.ADVICE}"
    assert isinstance(caught.value.__cause__, ValueError)
    assert fault.known(ask=False) == reason
    with pytest.raises(DeviceFault, match=r"t\.py::test_b"), fault.named("t.py::test_b"):
        raise ValueError("again")
    assert fault.known(ask=False) == reason


@pytest.mark.parametrize("launched", ["in this call", "in an earlier call", "never"])
def test_only_a_capture_of_the_call_counts(monkeypatch: pytest.MonkeyPatch, launched: str) -> None:
    earlier, mine = (lambda: None), (lambda: SimpleNamespace(launches=[], latest=None))
    known: list[Any] = [None if launched == "never" else earlier]
    monkeypatch.setattr(device_faults, "last_capture", lambda: known[-1])
    told: list[object] = []
    monkeypatch.setattr(device_faults, "launched_text", lambda capture: told.append(capture) or "after it")

    def call() -> None:
        if launched == "in this call":
            known.append(mine)
        raise ValueError("x")

    with pytest.raises(DeviceFault, match=r"any more after it \(gone\)"), Fault(gpu("gone")).named("a case"):
        call()
    assert [capture is None for capture in told] == [launched != "in this call"]


# which launches are named


def launches(backend: FakeBackend, count: int) -> Capture:
    """So many of a plain kernel, on grids (1, 1, 1), (2, 1, 1) and so on."""
    script(backend)

    def call() -> None:
        x = torch.randn(N, device="cuda")
        for i in range(count):
            scale_kernel[(i + 1,)](x, x, N, 2.0, BLOCK=64)

    return captured(backend, call)


def test_a_call_without_launches_was_not_it(backend: FakeBackend) -> None:
    assert launched_text(None) == launched_text(captured(backend, lambda: None)) == NOTHING


def test_one_launch_is_named_with_its_config_and_grid(backend: FakeBackend) -> None:
    words = "BLOCK=64 num_warps=4 num_stages=3"
    assert launched_text(launches(backend, 1)) == f"after kernel scale_kernel with {words} on grid (1, 1, 1)"
    tuned_one = captured(backend, lambda: scale(tuned(64, 128)))
    tuned_one.launches[0].site.chosen = 1  # type: ignore[union-attr]
    assert launched_text(tuned_one).startswith("after kernel scale_kernel with BLOCK=128 num_warps=4 num_stages=3 on ")


def test_of_several_launches_each_may_be_it(backend: FakeBackend) -> None:
    found = launches(backend, 3)
    text = launched_text(found)
    assert text.startswith("after one of: kernel scale_kernel with ")
    assert [f"grid ({i}, 1, 1)" in text for i in range(5)] == [False, True, True, True, False]
    found.launches[1].ran = False
    text = launched_text(found)
    assert [f"grid ({i}, 1, 1)" in text for i in range(1, 4)] == [True, False, True]


@pytest.mark.parametrize("more", [0, 1, 2])
def test_of_many_launches_the_last_are_named(backend: FakeBackend, more: int) -> None:
    text = launched_text(launches(backend, 8 + more))
    assert text.startswith(f"after {more} others and one of: " if more else "after one of: ")
    named = [f"grid ({i}, 1, 1)" in text for i in range(1, 8 + more + 1)]
    assert named == [False] * more + [True] * 8


def test_a_launch_that_the_capture_has_not_kept_yet_is_named_once(backend: FakeBackend) -> None:
    """It is kept when it is over, which one that faults never is."""
    found = launches(backend, 1)
    other = captured(backend, lambda: increment_kernel[(7,)](torch.randn(N, device="cuda"), N, BLOCK=64)).launches[0]
    found.latest = found.launches[0]
    assert launched_text(found).count("on grid") == 1
    found.latest = other
    assert launched_text(found).count("on grid") == 2
    found.launches.clear()
    assert launched_text(found).startswith("after kernel increment_kernel")


def test_the_latest_of_one_kernel_is_told_from_its_earlier_ones(backend: FakeBackend) -> None:
    """By identity: tensors of a device that answers no more can't be compared."""
    found = launches(backend, 1)
    found.latest = launches(backend, 2).launches[1]
    assert launched_text(found).startswith("after one of: ")


# beside a verdict


def test_what_fails_beside_a_verdict_is_a_warning() -> None:
    def fails() -> None:
        raise OSError("no space")

    device = gpu()
    assert beside_verdict("no trace", lambda: None, device) == []
    assert beside_verdict("no trace", fails, None) == ["no trace: OSError: no space"]
    assert beside_verdict("no trace", fails, device) == ["no trace: OSError: no space"]
    assert device.asked == 1
    with pytest.raises(RuntimeError, match="gone"):
        beside_verdict("no trace", fails, gpu("gone"))


def test_what_the_user_asked_wrongly_is_an_error_beside_a_verdict_too() -> None:
    with pytest.raises(UsageError, match="no such option"):
        beside_verdict("no trace", raising(UsageError("no such option")), None)


def test_the_grid_is_the_one_that_was_launched(backend: FakeBackend) -> None:
    def call() -> None:
        x = torch.randn(N, device="cuda")
        scale_kernel[by_block](x, x, N, 2.0, BLOCK=128)

    assert launched_text(captured(backend, call)).endswith("on grid (32, 1, 1)")
