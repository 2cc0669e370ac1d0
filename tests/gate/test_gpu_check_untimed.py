"""Cases whose kernels follow addresses, that can't be run again, or that launch nothing; and replays that fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
from fake_runs import N, block, configs, increment_kernel, scale_kernel
from test_beyond import ADDED, FIRST, add_by_table, by_group, contents, holding, writing

from gate.project import Project, Run
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Outcome, Policy, TuneMode, Update, Verdict
from kerntune.errors import CacheMissError, MeasurementError
from kerntune.timing.worker.pool import LocalPairs

MAX_DISCARDED = 2


RULES = (block(64, 10_000.0), block(128, 10_000.0), block(256, 12_000.0))


def launching(size: int) -> Callable[[torch.Tensor], None]:
    return lambda table: add_by_table[by_group({"BLOCK": size})](table, N, BLOCK=size)


def judged(run: Run, fn: Callable[[torch.Tensor], Any], lost: bool = False) -> CaseResult:
    """A call on a table of three tensors that hold other values after the call than before: these stay."""
    backend, gpu = run.session.backend, run.gpu
    targets = [torch.empty(N, device="cuda") for _ in range(3)]
    table = torch.empty(3, device="cuda", dtype=torch.int64)
    holding(gpu, table, [] if lost else [backend.tensors.address(t) for t in targets])
    writing(gpu, targets)

    def call(table: torch.Tensor) -> None:
        for target in targets:
            gpu.fill(gpu.borrow(target), FIRST)
        fn(table)
        for target in targets:
            gpu.fill(gpu.borrow(target), FIRST + ADDED)

    result = run.judge(call, table)
    assert contents(gpu, targets) == {FIRST + ADDED}, "what the call has left"
    return result


@pytest.fixture(autouse=True)
def no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses are this process's own."""
    answer = LocalPairs.run

    def run(pairs: LocalPairs, request: Any) -> Any:
        assert not any(side.hidden_pointers for side in (request.a, request.b))
        return answer(pairs, request)

    monkeypatch.setattr(LocalPairs, "run", run)


@pytest.mark.slow
def test_a_kernel_that_follows_addresses_is_gated_in_this_process(project: Project) -> None:
    with project.run(*RULES) as run:
        assert judged(run, launching(64)).recorded
        same = judged(run, launching(64))
        other = judged(run, launching(128))
        slower = judged(run, launching(256))
    assert (same.verdict, same.rung) == (Verdict.PASS, "identity")
    assert (other.verdict, other.rung) == (Verdict.PASS, "paired replay")
    assert (slower.verdict, slower.rung) == (Verdict.REGRESSED, "paired replay")


@pytest.mark.slow
def test_a_binary_that_took_other_arguments_is_not_let_loose_on_todays_memory(project: Project) -> None:
    def shorter(table: torch.Tensor) -> None:
        add_by_table[by_group({"BLOCK": 128})](table, N // 2, BLOCK=128)

    with project.run(*RULES) as run:
        assert judged(run, launching(64)).recorded
        result = judged(run, shorter)
    assert (result.verdict, result.rung) == (Verdict.INCONCLUSIVE, "stored sample")
    assert "it follows addresses, and took other arguments" in result.message


def test_candidates_are_raced_and_the_calls_result_stays(project: Project) -> None:
    kernel = triton.autotune(configs(64, 256), key=["n"])(add_by_table)
    with project.run(*RULES) as run:
        result = judged(run, lambda table: kernel[by_group](table, N))
    assert len(result.trials) == 2
    assert result.recorded


def test_what_cant_be_put_back_is_not_timed(project: Project) -> None:
    kernel = triton.autotune(configs(64, 128), key=["n"])(add_by_table)
    with project.run(*RULES) as run:
        result = judged(run, lambda table: kernel[by_group](table, N), lost=True)
        assert run.gpu.launches == 0
    assert (result.verdict, result.outcome, result.recorded) == (Verdict.INCONCLUSIVE, Outcome.WARN, False)
    assert "it can't be timed: kernel add_by_table writes where no argument points" in result.message
    assert [c.kwargs for c in kernel.cache.values()] == [{"BLOCK": 64}], "later calls don't tune it either"


# empty grids


def nothing(x: torch.Tensor) -> None:
    increment_kernel[(0,)](x, N, BLOCK=64)


def some(x: torch.Tensor) -> None:
    increment_kernel[(64,)](x, N, BLOCK=64)


def x_of() -> torch.Tensor:
    return torch.empty(N, device="cuda")


@pytest.mark.parametrize("scope", ["kernels", "op"])
@pytest.mark.parametrize("update", [Update.NONE, Update.ALL])
def test_a_case_that_launches_nothing_passes_without_a_baseline(project: Project, scope: str, update: Update) -> None:
    with project.run(update=update) as run:
        for call in (nothing, lambda x: scale_kernel[(0,)](x, x, N, 2.0, BLOCK=64)):
            result = run.judge(call, x_of(), scope=scope, policy=Policy(ci=True))
            assert (result.verdict, result.outcome) == (Verdict.PASS, Outcome.PASS)
            assert "launches nothing" in result.message
        assert run.gpu.launches == 0
    assert project.files() == []


def test_a_case_that_launches_nothing_any_more_is_incomplete(project: Project) -> None:
    with project.run() as run:
        assert run.judge(some, x_of()).recorded
        result = run.judge(nothing, x_of())
    assert result.verdict is Verdict.INCOMPLETE
    assert "launches nothing" in result.message


def test_an_update_of_all_accepts_that_a_case_launches_nothing_any_more(project: Project) -> None:
    assert project.once().judge(some, x_of()).recorded
    with project.run(update=Update.ALL) as run:
        checked = run.check(nothing, x_of(), policy=Policy(ci=True))
        (path,) = project.files()
        result = checked.commit()
    assert (result.verdict, result.outcome) == (Verdict.INCOMPLETE, Outcome.PASS)
    assert result.warnings == (f"launches nothing: every grid is empty, so {run.session.store.shown(path)} is removed",)
    assert project.files() == [], "but only once the test has passed"
    assert project.once().judge(nothing, x_of()).verdict is Verdict.PASS


def test_an_update_of_all_removes_a_damaged_baseline_of_a_case_without_work(project: Project) -> None:
    assert project.once().judge(some, x_of()).recorded
    project.files()[0].write_text("{")
    assert project.once(update=Update.ALL).judge(nothing, x_of()).outcome is Outcome.PASS
    assert project.files() == []


@pytest.mark.parametrize("options", [{"update": Update.NEW}, {"update": Update.ALL, "read_only": True}], ids=str)
def test_other_runs_leave_the_baseline_of_a_case_without_work(project: Project, options: dict[str, Any]) -> None:
    assert project.once().judge(some, x_of()).recorded
    result = project.once(**options).judge(nothing, x_of(), policy=Policy(ci=True))
    assert (result.verdict, result.outcome) == (Verdict.INCOMPLETE, Outcome.FAIL)
    assert ("--kerntune-update=all removes that" in result.message) is not options.get("read_only", False)
    assert len(project.files()) == 1


@pytest.mark.slow
def test_an_empty_grid_beside_others_is_no_launch(project: Project) -> None:
    def both(x: torch.Tensor) -> None:
        nothing(x)
        some(x)

    with project.run() as run:
        assert run.judge(some, x_of()).recorded
        assert run.judge(both, x_of()).verdict is Verdict.PASS


def test_candidates_of_an_empty_grid_are_not_raced(project: Project) -> None:
    kernel = triton.autotune(configs(64, 128), key=["n"])(increment_kernel)

    def call(x: torch.Tensor) -> None:
        some(x)
        kernel[(0,)](x, 0)

    assert project.once().judge(call, x_of()).trials == ()
    assert kernel.cache == {}


def test_an_empty_grid_needs_no_winner_under_frozen(project: Project) -> None:
    kernel = triton.autotune(configs(64, 128), key=["n"])(increment_kernel)
    with project.run(tune=TuneMode.FROZEN) as run:
        assert run.judge(lambda x: kernel[(0,)](x, 0), x_of()).verdict is Verdict.PASS
        with pytest.raises(CacheMissError):
            run.judge(lambda x: kernel[(64,)](x, N), x_of())


# replays that fail


@pytest.mark.parametrize("reason", ["a measuring process has not answered for 300 s", "no room"])
def test_a_replay_whose_processes_fail_is_inconclusive(
    project: Project, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    asked = []

    def fail(pairs: LocalPairs, request: Any) -> Any:
        asked.append(request)
        raise MeasurementError(reason)

    with project.run(*RULES) as run:
        assert run.judge(lambda x: scale_kernel[(64,)](x, x, N, 2.0, BLOCK=64), x_of()).recorded
        monkeypatch.setattr(LocalPairs, "run", fail)
        result = run.judge(lambda x: scale_kernel[(32,)](x, x, N, 2.0, BLOCK=128), x_of())
    assert (result.verdict, result.rung) == (Verdict.INCONCLUSIVE, "paired replay")
    assert len(asked) == MAX_DISCARDED + 1, "and not the next rung's processes"
    assert "the replay could not be measured" in result.message
    assert reason in result.message
