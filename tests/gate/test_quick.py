"""The same work costs little: few slots, nothing disassembled again; and what a result derives from its time."""

from __future__ import annotations

import functools

import pytest
import torch
from fake_runs import N, block, by_block, increment_kernel, scale_kernel

from gate.project import Project
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Policy, Update, Verdict
from kerntune.gate import static_figures
from kerntune.gate.gpu_check import SHORT_RESTS_S
from kerntune.gpu.scripted import FakeGpu
from kerntune.timing.sampling import MIN_SLOTS, QUICK_SLOTS
from kerntune.timing.timers import PROTOCOL_VERSION
from kerntune.timing.worker.requests import PairReply, PairRequest


def scaled(x: torch.Tensor, size: int = 64) -> torch.Tensor:
    y = torch.empty_like(x)
    scale_kernel[by_block](x, y, N, 2.0, BLOCK=size)
    return y


def two_launches(x: torch.Tensor) -> torch.Tensor:
    y = scaled(x)
    increment_kernel[by_block](y, N, BLOCK=64)
    return y


def slots(project: Project, call: object = scaled, **options: object) -> int:
    """Slots of a run's sample."""
    with project.run(block(64, 10_000.0), block(128, 10_000.0), **options) as run:
        return len(run.judge(call, torch.randn(N, device="cuda")).times_ns)  # type: ignore[arg-type]


def test_the_same_work_is_sampled_quickly(project: Project) -> None:
    assert slots(project) == MIN_SLOTS, "a first baseline"
    assert slots(project) == QUICK_SLOTS
    assert slots(project, functools.partial(scaled, size=128)) == MIN_SLOTS, "other code"
    assert slots(project, update=Update.ALL) == MIN_SLOTS, "what will be stored is measured in full"


def test_times_of_another_protocol_are_no_reason_for_second_looks(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots(project)
    (path,) = project.files()
    rested: list[float] = []
    monkeypatch.setattr(FakeGpu, "rest", lambda gpu, seconds=0.5: rested.append(seconds))

    def twice_as_slow() -> CaseResult:
        rested.clear()
        with project.run(block(64, 20_000.0)) as run:
            return run.judge(scaled, torch.randn(N, device="cuda"))

    drifted = twice_as_slow()
    assert drifted.verdict is Verdict.DRIFTED
    assert rested == list(SHORT_RESTS_S)
    assert "not held against" not in drifted.message
    path.write_text(path.read_text().replace(f'"version": {PROTOCOL_VERSION}', '"version": 1'))
    passed = twice_as_slow()
    assert passed.verdict is Verdict.PASS
    assert not rested
    assert f"stored time, which was taken otherwise: timing protocol 1 -> {PROTOCOL_VERSION}" in passed.message


def test_known_code_is_not_disassembled_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    slots(project)
    (path,) = project.files()
    looked: list[int] = []
    real = static_figures.metrics_of

    def counting(binaries: list[object], spec: object) -> list[object]:
        looked.append(len(binaries))
        return real(binaries, spec)  # type: ignore[arg-type,return-value]

    monkeypatch.setattr(static_figures, "metrics_of", counting)
    result = project.once(block(64, 10_000.0)).judge(scaled, torch.randn(N, device="cuda"))
    assert result.launches[0].registers
    assert looked == [0]
    slots(project, update=Update.ALL)
    assert looked == [0, 1]
    assert path.exists()


def test_a_result_knows_its_rates_and_shares(project: Project) -> None:
    with project.run(block(64, 10_000.0)) as run:
        result = run.judge(two_launches, torch.randn(N, device="cuda"))
        said = run.judge(two_launches, torch.randn(N, device="cuda"), name="1", bytes=10.0, flops=1e6)
    assert result.bytes_moved == 16 * N
    assert result.bytes_per_second == pytest.approx(16 * N / 20e-6, rel=0.01)
    assert [s.share for s in result.shares] == pytest.approx([0.5, 0.5], abs=0.01)
    assert said.bytes_moved == 10.0
    assert said.flops_per_second == pytest.approx(1e6 / 20e-6, rel=0.01)
    assert result.outliers == ()
    assert result.modes is None


def test_calibration_is_told_the_samples_time(project: Project) -> None:
    """A device that slows down between sample and calibration shows two states."""
    with project.run(block(64, 10_000.0), noise=0.0) as run:
        pairs = run.session._pairs
        real = pairs.run

        def slower(request: object) -> object:
            run.gpu.script.shift = 1.1
            return real(request)  # type: ignore[arg-type]

        pairs.run = slower  # type: ignore[method-assign,assignment]
        assert run.judge(scaled, torch.randn(N, device="cuda")).recorded
    result = project.once(block(64, 11_200.0)).judge(scaled, torch.randn(N, device="cuda"))
    assert result.verdict is Verdict.PASS, "12 % more than the fastest state, 2 % more than the other: no drift"


@pytest.mark.parametrize(("timer", "used"), [("auto", "graph"), ("events", "events")])
def test_the_timer_is_the_policys(project: Project, timer: str, used: str) -> None:
    with project.run(block(64, 10_000.0), block(128, 10_000.0)) as run:
        asked: list[str] = []
        pairs = run.session._pairs
        real = pairs.run

        def noting(request: PairRequest) -> PairReply:
            asked.append(request.timer)
            return real(request)

        pairs.run = noting  # type: ignore[method-assign]
        result = run.judge(scaled, torch.randn(N, device="cuda"), policy=Policy(timer=timer))
    assert result.timer == used
    assert set(asked) == {timer}, "the calibration's too"
