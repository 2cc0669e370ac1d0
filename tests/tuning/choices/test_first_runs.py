"""Kernels that nothing tunes, in the implementations of a choice: launched in another process before they are here.

The processes are real; the GPUs are scripted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, block, by_block, configs, increment_kernel, scale_kernel, script

import kerntune
from kerntune.errors import LaunchFault, MeasurementError
from kerntune.gpu.script import HANG, ILLEGAL_ADDRESS, Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import first_launches, isolation
from kerntune.tuning.choices import implementation_runs

Spend = Callable[[float], None]


@triton.jit
def bad_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs is given up soon, and nothing was launched elsewhere before."""
    monkeypatch.setattr(first_launches, "LEAST_LIMIT_S", 0.5)
    monkeypatch.setattr(first_launches, "LIMIT_FIRST_S", 0.5)
    monkeypatch.setattr(implementation_runs, "_launched", set())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were launched elsewhere, in order."""
    found: list[str] = []
    real = first_launches.FirstLaunches.run

    def run(self: Any, recording: Any, *rest: Any) -> Any:
        found.append(recording.launches[0].kernel)
        return real(self, recording, *rest)

    monkeypatch.setattr(first_launches.FirstLaunches, "run", run)
    return found


class Pair:
    """Doubling: ``bad`` by a kernel that the script has fail, and ``good``, which is slower; both count their runs."""

    def __init__(self, gpu: FakeBackend, kernel: Any = bad_kernel) -> None:
        self.calls: list[str] = []
        backend = gpu

        def bad(x: torch.Tensor) -> torch.Tensor:
            self.calls.append("bad")
            y = torch.empty_like(x)
            backend.gpu._clock += 1e6
            kernel[by_block](x, y, x.numel(), 2.0, BLOCK=64)
            return y

        def good(x: torch.Tensor) -> torch.Tensor:
            self.calls.append("good")
            y = torch.empty_like(x)
            backend.gpu._clock += 2e6
            scale_kernel[by_block](x, y, x.numel(), 2.0, BLOCK=64)
            return y

        def third(x: torch.Tensor) -> torch.Tensor:
            backend.gpu._clock += 3e6
            return x + x

        self.bad, self.good, self.third = bad, good, third

    def choice(self, *others: Any, **options: Any) -> Any:
        return kerntune.choice([self.bad, self.good, *others], key=["x"], **options)(lambda x: None)


def decided(choice: Any) -> Any:
    return choice.operation.decisions[-1]


def with_fault(this_gpu: FakeBackend, **more: Any) -> None:
    script(this_gpu, Rule(kernel="bad_kernel", fault=ILLEGAL_ADDRESS, **more), isolated=True)


def tuned_on(gpu: FakeBackend) -> Any:
    """An implementation by a tuned kernel."""
    script(gpu, block(64, 3000.0), block(128, 1000.0), isolated=True)
    kernel = kerntune.autotune(configs(64, 128), key=["n"])(increment_kernel)

    def tuned(x: torch.Tensor) -> torch.Tensor:
        kernel[by_block](x, x.numel())
        gpu.gpu._clock += 1e6
        return x

    return tuned


def decide(*functions: Any) -> None:
    """Have these raced, whatever they return."""
    kerntune.choice(list(functions), key=["x"], verify="off")(lambda x: None)(torch.empty(N, device="cuda"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"fault": ILLEGAL_ADDRESS}, "its first launch failed: .*CUDA_ERROR_ILLEGAL_ADDRESS"),
        ({"fault": HANG}, "its first launch did not end within"),
        (
            {"beside": (0, 4)},
            "its first launch wrote outside of its tensors: 4 bytes from byte 0 behind the end of y_ptr",
        ),
    ],
)
def test_one_that_fails_is_left_out_by_name(this_gpu: FakeBackend, rule: Any, said: str) -> None:
    script(this_gpu, Rule(kernel="bad_kernel", **rule), isolated=True)
    pair = Pair(this_gpu)
    double = pair.choice()
    with pytest.warns(
        RuntimeWarning, match=rf"bad is left out for such arguments: LaunchFault: kernel bad_kernel: {said}"
    ):
        double(torch.empty(N, device="cuda"))
    assert decided(double).winner.endswith("good")
    assert [name.rpartition(".")[2] for name in decided(double).left_out] == ["bad"]
    assert pair.calls.count("bad") == 1
    assert not this_gpu.gpu.lost


@pytest.mark.slow
def test_good_ones_are_launched_elsewhere_once_and_may_win(this_gpu: FakeBackend, asked: list[str]) -> None:
    script(this_gpu, isolated=True)
    pair = Pair(this_gpu)
    double = pair.choice()
    x = torch.empty(N, device="cuda")
    double(x)
    assert decided(double).winner.endswith("bad")
    assert asked == ["bad_kernel", "scale_kernel"]
    pair.choice(tune="force")(x)
    assert asked == ["bad_kernel", "scale_kernel"]
    double(torch.empty(2 * N, device="cuda"))
    assert asked == ["bad_kernel", "scale_kernel"] * 2


@pytest.mark.slow
def test_a_fault_is_remembered(this_gpu: FakeBackend, asked: list[str]) -> None:
    """Other code beside it makes the decision a new one."""
    with_fault(this_gpu)
    x, pair = torch.empty(N, device="cuda"), Pair(this_gpu)
    with pytest.warns(RuntimeWarning, match="bad is left out"):
        pair.choice()(x)
    assert asked.count("bad_kernel") == 1
    double = pair.choice(pair.third)
    with pytest.warns(RuntimeWarning, match="kernel bad_kernel: an earlier run found that its first launch failed"):
        double(x)
    assert asked.count("bad_kernel") == 1
    forced = pair.choice(pair.third, tune="force")
    forced(x)
    assert "kernel bad_kernel: its first launch failed" in str(decided(forced))
    assert asked.count("bad_kernel") == 2


@pytest.mark.slow
def test_nothing_is_remembered_where_all_fail(this_gpu: FakeBackend, asked: list[str]) -> None:
    """Then the call is to blame."""
    with_fault(this_gpu)
    pair = Pair(this_gpu)
    double = kerntune.choice([pair.bad, lambda x: pair.bad(x)], key=["x"])(lambda x: None)
    for count in (1, 2):
        with pytest.raises(LaunchFault, match="kernel bad_kernel: its first launch failed"):
            double(torch.empty(N, device="cuda"))
        assert asked.count("bad_kernel") == count


@pytest.mark.slow
def test_tuned_kernels_are_not_launched_elsewhere_again(this_gpu: FakeBackend, asked: list[str]) -> None:
    tuned = tuned_on(this_gpu)
    decide(tuned, Pair(this_gpu).bad)
    assert asked.count("bad_kernel") == 1
    first = asked.count("increment_kernel")
    decide(tuned, Pair(this_gpu).good)
    assert asked.count("increment_kernel") == first


@pytest.mark.slow
def test_one_process_serves_the_whole_decision_and_ends_with_it(
    this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, started = isolation.FirstLaunchProcess, list[Any]()
    monkeypatch.setattr(isolation, "FirstLaunchProcess", lambda *args: (started.append(real(*args)), started[-1])[1])
    pair = Pair(this_gpu)
    decide(pair.bad, tuned_on(this_gpu), pair.good)
    (process,) = started
    assert not process.alive


@pytest.mark.slow
def test_a_choice_of_choices(this_gpu: FakeBackend, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner one is timed without anything of the outer one between its launches."""
    with_fault(this_gpu)
    run, real, seen = triton.runtime.jit.JITFunction.run, implementation_runs.unwatched, list[bool]()

    class Watched:
        def __enter__(self) -> None:
            self.inside = real()
            self.inside.__enter__()
            seen.append(triton.runtime.jit.JITFunction.run is run)

        def __exit__(self, *error: object) -> None:
            self.inside.__exit__(*error)

    monkeypatch.setattr("kerntune.tuning.choices.deciding.unwatched", Watched)
    pair = Pair(this_gpu)
    inner = pair.choice(lambda x: pair.good(x))
    outer = kerntune.choice([inner, pair.good], key=["x"])(lambda x: None)
    with pytest.warns(RuntimeWarning, match="bad is left out"):
        outer(torch.empty(N, device="cuda"))
    assert not decided(outer).left_out
    assert len(decided(inner).left_out) == 1
    assert asked == ["bad_kernel", "scale_kernel"]
    assert seen == [True, True]
    assert triton.runtime.jit.JITFunction.run is run


def test_an_interrupt_just_when_it_begins_leaves_tritons_functions(
    this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(this_gpu, isolated=True)
    run, real = triton.runtime.jit.JITFunction.run, implementation_runs.BareLaunches.begin

    def interrupted(launches: Any) -> None:
        real(launches)
        assert triton.runtime.jit.JITFunction.run is not run
        raise KeyboardInterrupt

    monkeypatch.setattr(implementation_runs.BareLaunches, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Pair(this_gpu).choice()(torch.empty(N, device="cuda"))
    assert triton.runtime.jit.JITFunction.run is run


# where it can't be


def test_too_little_memory_is_said_and_always_refuses_it(this_gpu: FakeBackend) -> None:
    script(this_gpu, isolated=True, memory_bytes=1 << 30)
    x = torch.empty(N, device="cuda")
    with pytest.warns(RuntimeWarning) as said:
        Pair(this_gpu).choice()(x)
    kernels = re.findall(r"kernel (\w+) ran first in this process: it needs", "\n".join(str(w.message) for w in said))
    assert kernels == ["bad_kernel", "scale_kernel"]
    with pytest.raises(MeasurementError, match=r"kernel bad_kernel.*\(isolate=always\)"):
        Pair(this_gpu).choice(isolate="always", tune="force")(x)


@pytest.mark.parametrize("given", ["option", "environment"])
def test_off_launches_nothing_elsewhere(
    this_gpu: FakeBackend, asked: list[str], monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    script(this_gpu, isolated=True)
    if given == "environment":
        monkeypatch.setenv("KERNTUNE_ISOLATE", "off")
    double = Pair(this_gpu).choice(**({"isolate": "off"} if given == "option" else {}))
    double(torch.empty(N, device="cuda"))
    assert asked == []


ONE, EQUAL = (1.5,), (float("1.5"),)


@pytest.mark.parametrize(
    ("now", "same"),
    [
        ((bad_kernel, [ONE], {"n": ONE}), True),
        ((scale_kernel, [ONE], {"n": ONE}), False),
        ((bad_kernel, [EQUAL], {"n": ONE}), False),
        ((bad_kernel, [ONE, ONE], {"n": ONE}), False),
        ((bad_kernel, [ONE], {"n": EQUAL}), False),
        ((bad_kernel, [ONE], {"m": ONE}), False),
        ((bad_kernel, [ONE], {}), False),
    ],
    ids=["same", "kernel", "argument", "more arguments", "keyword", "name", "fewer keywords"],
)
def test_a_launch_of_the_very_same_objects_is_made_again(now: tuple[Any, Any, Any], same: bool) -> None:
    """Equal objects may change apart from each other."""
    assert implementation_runs._same((bad_kernel, [ONE], {"n": ONE}), now) is same
    assert not implementation_runs._same(None, now)
