"""Sessions on a scripted host with several GPUs: each call is tuned and timed where it launches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_runs import N, block, by_block, scale_kernel, tuned

from gate.project import Project, Run
from kerntune.base.case_result import CaseResult
from kerntune.base.locks import LockBusy, TwoSidedLock, open_lock_file
from kerntune.base.policy import Verdict
from kerntune.errors import CaptureError, MeasurementError
from kerntune.gate import session as gate_session
from kerntune.gate.reporting.failure import table_lines
from kerntune.gpu import device_lock
from kerntune.gpu.device_lock import lock_file
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeBackend, FakeGpu, scripted_host

FAST, SLOW = block(64, 10_000.0), block(128, 11_000.0)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for locks of its own: no other test has these GPUs."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(device_lock, "device_node", lambda uuid: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # of the machine, where one has GPUs
    return tmp_path


@dataclass
class HostRun:
    """A run, and the backend of the host's first GPU."""

    run: Run
    host: FakeBackend

    def gpu(self, number: int) -> FakeGpu:
        return self.host.on(number).gpu

    def judge(self, *args: Any, **words: Any) -> CaseResult:
        return self.run.judge(*args, **words)


@contextlib.contextmanager
def on_host(project: Project, devices: Any, *rules: Rule, **script: Any) -> Iterator[HostRun]:
    host = scripted_host(devices, Script(rules or (FAST, SLOW), **script))
    with project._open(host, {}) as run:
        yield HostRun(run, host)


def scaled(x: torch.Tensor) -> torch.Tensor:
    """As users write it for several GPUs: Triton launches on the current device."""
    y = torch.empty_like(x)
    with torch.cuda.device(x.device):
        tuned(64, 128)[by_block](x, y, N, 2.0)
    return y


def x_on(number: int) -> torch.Tensor:
    return torch.randn(N, device=f"cuda:{number}")


def test_a_call_is_tuned_and_gated_on_the_gpu_of_its_tensors(project: Project) -> None:
    with on_host(project, 4) as host:
        result = host.judge(scaled, x_on(2))
        assert (result.verdict, result.recorded) == (Verdict.NEW, True)
        assert result.trials
        assert [bool(host.gpu(n).launches) for n in range(4)] == [False, False, True, False]
        assert torch.cuda.current_device() == 0
        assert result.gpu == f"GPU-{host.gpu(2).spec.uuid}"


def test_a_call_that_takes_no_tensors_too(project: Project) -> None:
    """Where it launches is known once it does."""
    with on_host(project, 2) as host:
        x = x_on(1)
        assert host.judge(lambda: scaled(x)).recorded
        assert (host.gpu(0).launches, host.gpu(1).launches > 0) == (0, True)


@pytest.mark.slow
def test_a_dump_is_made_on_the_gpu_of_its_case(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNTUNE_DUMP", str(tmp_path / "dump"))
    monkeypatch.setenv("KERNTUNE_DUMP_CONTENT", "recorded")
    with on_host(project, 2) as host:
        assert host.judge(scaled, x_on(1)).warnings == ()
        assert host.gpu(0).launches == 0
    assert len(list((tmp_path / "dump").glob("*/*/expected-*.bin"))) == 1


def test_the_current_device_decides_for_tensors_without_a_number(project: Project) -> None:
    with on_host(project, 2) as host:
        torch.cuda.set_device(1)
        try:
            assert host.judge(scaled, torch.randn(N, device="cuda")).recorded
        finally:
            torch.cuda.set_device(0)
        assert (host.gpu(0).launches, host.gpu(1).launches > 0) == (0, True)


def test_equal_gpus_share_winners_and_baselines(project: Project) -> None:
    with on_host(project, 2) as host:
        first = host.judge(scaled, x_on(0))
        second = host.judge(scaled, x_on(1))
        assert first.trials
        assert (second.verdict, second.trials) == (Verdict.PASS, ())
        assert second.gpu != first.gpu
    assert len(project.files()) == 1


def test_a_slower_gpu_regresses_by_its_own_clock(project: Project) -> None:
    """The clocks of a host's GPUs are their own: one that got slower fails, the other passes."""
    with on_host(project, 2) as host:
        assert host.judge(scaled, x_on(0)).recorded
    with on_host(project, 2) as host:
        host.gpu(1).script = Script((FAST, SLOW), shift=1.5)
        assert host.judge(scaled, x_on(0)).verdict is Verdict.PASS
        before = host.gpu(0)._clock
        assert host.judge(scaled, x_on(1)).verdict is Verdict.DRIFTED
        assert host.gpu(0)._clock == before


@pytest.mark.slow
def test_different_models_have_baselines_of_their_own(project: Project) -> None:
    with on_host(project, ["cuda:90", "cuda:80", "cuda:90"]) as host:
        results = [host.judge(scaled, x_on(n)) for n in range(3)]
        assert [r.verdict for r in results] == [Verdict.NEW, Verdict.NEW, Verdict.PASS]
        assert [r.target for r in results] == ["cuda:90", "cuda:80", "cuda:90"]
        assert len({r.device for r in results}) == 2
    assert len(project.files()) == 2


def test_memory_is_each_gpu_s_own(project: Project) -> None:
    with on_host(project, 2, memory_bytes=1 << 20) as host:
        kept = host.gpu(0).allocate(1 << 20)
        assert (host.gpu(0).free_bytes(), host.gpu(1).free_bytes()) == (0, 1 << 20)
        with pytest.raises(MeasurementError, match="no room"):
            host.gpu(0).allocate(1)
        assert host.judge(scaled, x_on(1)).recorded
        del kept


def test_a_launch_whose_tensors_are_on_two_gpus_is_named(project: Project) -> None:
    def mixed(x: torch.Tensor, y: torch.Tensor) -> None:
        scale_kernel[by_block](x, y, N, 2.0, BLOCK=64)

    with (
        on_host(project, 2) as host,
        pytest.raises(CaptureError, match=r"kernel scale_kernel is launched on cuda:0.*y_ptr on cuda:1: Triton"),
    ):
        host.judge(mixed, x_on(0), x_on(1))


def test_a_call_that_launches_on_two_gpus_is_named(project: Project) -> None:
    with (
        on_host(project, 2) as host,
        pytest.raises(CaptureError, match=r"a call mixes devices: kernel scale_kernel was launched on cuda:0.*cuda:1"),
    ):
        host.judge(lambda x, y: (scaled(x), scaled(y)), x_on(0), x_on(1))


def test_the_table_and_the_progress_name_gpus_where_there_are_several(project: Project) -> None:
    with on_host(project, 2) as host:
        results = [host.judge(scaled, x_on(n), name=str(n)) for n in range(2)]
        assert any(line.endswith(f"on {results[1].gpu_name}") for line in host.run.lines)
    head, *rows = [line for line, _ in table_lines(results, whole=True, width=500)]
    assert head.split()[:2] == ["case", "GPU"]
    assert all(r.gpu_name in "\n".join(rows) for r in results)
    head, *_ = table_lines(results[:1], whole=True, width=500)
    assert "GPU" not in head[0]


# what runs when


class Other:
    """Another process's place at a GPU's lock."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu

    def can(self, *, alone: bool) -> bool:
        lock = TwoSidedLock(open_lock_file(lock_file(self._gpu.spec.uuid)))
        try:
            lock.acquire(alone, 0.0, lambda seconds: None)
        except LockBusy:
            return False
        lock.release()
        return True


def test_a_capture_shares_its_gpu_and_measuring_has_it_alone(project: Project) -> None:
    seen = list[tuple[str, bool, bool]]()
    with on_host(project, 2) as host:
        other, free = Other(host.gpu(1)), Other(host.gpu(0))

        def call(x: torch.Tensor) -> torch.Tensor:
            y = scaled(x)
            seen.append(("capture", other.can(alone=False), other.can(alone=True)))
            return y

        def progress(text: str) -> None:
            if not text.startswith(("running", "compiling ")):  # what is told within the capture
                seen.append(("timing", other.can(alone=False), free.can(alone=True)))

        host.run.lines = Lines(progress)
        assert host.judge(call, x_on(1)).recorded
    assert seen[0] == ("capture", True, False)
    assert set(seen[1:]) == {("timing", False, True)}


class Lines(list[str]):
    def __init__(self, told: Any) -> None:
        super().__init__()
        self._told = told

    def append(self, text: str) -> None:
        self._told(text)


def test_a_capture_that_memory_is_short_for_has_its_gpu_alone(project: Project) -> None:
    """Others that capture at the same time would take what is left."""
    seen = list[bool]()
    with on_host(project, 1, memory_bytes=6 * N) as host:
        other = Other(host.gpu(0))

        def call(x: torch.Tensor) -> None:
            seen.append(other.can(alone=False))

        host.judge(call, x_on(0))
        host.gpu(0).script.memory_bytes = 8 * N
        host.judge(call, x_on(0))
    assert seen == [False, True]


def test_a_test_s_turn_gives_way_to_what_it_measures_itself(project: Project) -> None:
    with on_host(project, 1) as host:
        other = Other(host.gpu(0))
        with host.run.session.in_turn():
            assert not other.can(alone=True)
            assert host.judge(scaled, x_on(0)).recorded
            assert (other.can(alone=False), other.can(alone=True)) == (True, False)
        assert other.can(alone=True)


@pytest.mark.parametrize(
    ("crowded", "used", "shared"),
    [
        (True, [], [True, False, False]),
        (True, [0, 2], [True, False, True]),
        (False, [0, 2], [False, False, True]),
        (False, [], [False, False, False]),
    ],
)
def test_a_test_shares_the_gpus_that_its_process_has_used(
    project: Project, monkeypatch: pytest.MonkeyPatch, crowded: bool, used: list[int], shared: list[bool]
) -> None:
    """Its first one is its own unless workers are crowded. What it measures itself gives way everywhere."""
    monkeypatch.setattr(gate_session, "devices_used", lambda: used)
    with on_host(project, 3) as host:
        others = [Other(host.gpu(number)) for number in range(3)]
        with host.run.session.in_turn(crowded):
            assert [not other.can(alone=True) for other in others] == shared
            assert host.judge(scaled, x_on(1)).recorded
            assert [not other.can(alone=True) for other in others] == shared
        assert all(other.can(alone=True) for other in others)


def test_no_process_of_ours_starts_on_a_gpu_that_another_worker_measures_on(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the GPU is given back, those that are starting are waited for; alone on it, nothing needs to be."""
    counts = []
    for crowded in (False, True):
        with on_host(project, 1) as host:
            pairs, waited = host.run.pairs, list[bool]()
            other = Other(host.gpu(0))
            monkeypatch.setattr(
                pairs, "settle", lambda other=other, waited=waited: waited.append(other.can(alone=False))
            )
            with host.run.session.in_turn() if crowded else contextlib.nullcontext():
                host.judge(scaled, x_on(0))
            assert not any(waited)
            counts.append(len(waited))
    assert counts[1] == counts[0] + 1
