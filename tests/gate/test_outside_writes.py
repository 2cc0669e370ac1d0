"""Launches of a case that write outside of their tensors: named, judged REGRESSED, and never found in equal code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
from fake_runs import N, block, by_block, configs, increment_kernel, scale, scale_kernel, sum_kernel, tuned

from gate.project import NODE, Project, noted_first_launches
from kerntune.base.case_result import OutsideWrite
from kerntune.base.codec import to_json
from kerntune.base.policy import Outcome, Policy, Update, Verdict
from kerntune.gpu.script import ILLEGAL_ADDRESS, Rule

pytestmark = pytest.mark.slow

BESIDE = Rule(kernel="scale_kernel", beside=(0, 4))


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many launches each look in another process had."""
    return noted_first_launches(monkeypatch, lambda recording: len(recording.working))


def fixed(size: int = 64) -> Any:
    """A call without candidates."""
    return lambda: scale(scale_kernel, BLOCK=size)


def two(dtype: torch.dtype) -> Any:
    """One launch writes what the next one reads, which adds into another tensor."""

    def call() -> torch.Tensor:
        x, total = torch.ones(N, device="cuda", dtype=dtype), torch.zeros(1, device="cuda")
        increment_kernel[by_block](x, N, BLOCK=64)
        sum_kernel[by_block](x, total, N, BLOCK=64)
        return total

    return call


def test_a_write_outside_of_tensors_is_regressed_with_launch_offset_and_bytes(project: Project) -> None:
    result = project.once(BESIDE, isolated=True).judge(fixed())
    said = (
        "launch 0 (kernel scale_kernel) wrote outside of its tensors: 4 bytes from byte 0 behind the end of y_ptr "
        "(16,384 bytes)"
    )
    assert (result.verdict, result.outcome) == (Verdict.REGRESSED, Outcome.FAIL)
    assert said in result.message
    assert result.findings == (said,)
    assert result.outside_writes == (OutsideWrite("scale_kernel", 0, "y_ptr", 4 * N, 4 * N + 3, 4, 4 * N),)
    assert b'"outside_writes"' in to_json(result)
    assert project.files() == [], "it is no baseline"


@pytest.mark.parametrize("beside", [(0, 4), (-16, 8), (1000, 65536)])
def test_replays_of_it_harm_nothing(project: Project, beside: tuple[int, int]) -> None:
    """A copy may lie at the end of what is mapped, and the caller's tensor need not: the write would end the run."""
    assert project.once(isolated=True).judge(fixed()).verdict is Verdict.NEW
    with project.run(Rule(kernel="scale_kernel", beside=beside), isolated=True, unmapped=True) as run:
        for call, node in ((fixed(128), NODE), (fixed(), "later"), (then_tuned, "tuned")):
            result = run.judge(call, node=node)
            assert (result.verdict, len(result.outside_writes)) == (Verdict.REGRESSED, 1)
            assert result.current_ns, "it is timed all the same"
        assert not run.session.lost()


def then_tuned() -> torch.Tensor:
    """A launch without candidates before one with some."""
    y = scale(scale_kernel, BLOCK=64)
    triton.autotune(configs(32, 64), key=["n"])(increment_kernel)[by_block](y, N)
    return y


def test_before_the_begin_and_on_both_sides(project: Project) -> None:
    for beside, where in (((-16, 8), "8 bytes from 16 bytes before the begin of y_ptr"), ((-4, N * 4 + 8), "on both")):
        with project.run(Rule(beside=beside), isolated=True) as run:
            (finding,) = run.judge(fixed(), node=f"tests/test_it.py::test[{beside[0]}]").findings
        assert where in finding


@pytest.mark.parametrize("update", [Update.ALL, Update.NEW, Update.REGRESSED])
def test_no_update_accepts_it(project: Project, update: Update) -> None:
    project.once(isolated=True).judge(fixed(64))
    before = project.files()[0].read_bytes()
    result = project.once(BESIDE, isolated=True, update=update).judge(fixed(128))
    assert (result.verdict, result.outcome) == (Verdict.REGRESSED, Outcome.FAIL)
    assert project.files()[0].read_bytes() == before


def test_equal_code_was_looked_at_when_its_baseline_was_recorded(project: Project, looked: list[int]) -> None:
    assert project.once(isolated=True).judge(fixed()).verdict is Verdict.NEW
    assert looked == [1]
    with project.run(BESIDE, isolated=True) as run:
        assert run.judge(fixed()).verdict is Verdict.PASS
        assert looked == [1]
        assert run.judge(fixed(128)).verdict is Verdict.REGRESSED, "new code"
    with project.run(BESIDE, isolated=True, update=Update.ALL) as run:
        assert run.judge(fixed()).verdict is Verdict.REGRESSED, "a new baseline"
    assert looked == [1, 1, 1]


def test_a_policy_may_let_it_pass(project: Project) -> None:
    with project.run(BESIDE, isolated=True) as run:
        policy = Policy(outcomes={Verdict.REGRESSED: Outcome.WARN})
        assert run.judge(fixed(), policy=policy).outcome is Outcome.WARN


def test_what_is_only_tuned_needs_no_second_look(project: Project, looked: list[int]) -> None:
    with project.run(block(64, 100.0), isolated=True) as run:
        assert run.judge(lambda: scale(tuned(32, 64))).verdict is Verdict.NEW
    assert looked == [1, 1]


@pytest.mark.parametrize("how", ["device", "environment", "memory"])
def test_where_nothing_runs_elsewhere_nothing_is_looked_for(
    project: Project, monkeypatch: pytest.MonkeyPatch, looked: list[int], how: str
) -> None:
    if how == "environment":
        monkeypatch.setenv("KERNTUNE_ISOLATE", "off")
    words = {"memory_bytes": 300 << 20} if how == "memory" else {}
    result = project.once(BESIDE, isolated=how != "device", **words).judge(fixed())
    assert (result.verdict, result.warnings, looked) == (Verdict.NEW, (), [])


def test_a_fault_there_is_told_and_decides_nothing(project: Project) -> None:
    """What reads far outside of its tensors finds memory here, and none there."""
    with project.run(isolated=True) as run:
        run.gpu.script.rules = ()  # the captured run's
        result = _with_faults_elsewhere(run)
        again = run.judge(fixed(128), node="tests/test_scale.py::test_later")
    assert result.verdict is Verdict.NEW
    assert [w for w in result.warnings if "not looked for writes outside of tensors" in w]
    assert again.verdict is Verdict.NEW


def _with_faults_elsewhere(run: Any) -> Any:
    words = run.gpu.first_launch_arguments
    bad = type(run.gpu.script)([Rule(constexprs={"BLOCK": 64}, fault=ILLEGAL_ADDRESS)])
    run.gpu.first_launch_arguments = lambda: ("--script", bad.to_json(), words()[2])
    return run.judge(fixed())


@pytest.mark.parametrize(("dtype", "sure"), [(torch.float32, True), (torch.int32, False)])
def test_integers_that_an_earlier_launch_wrote_leave_it_unsure(
    project: Project, dtype: torch.dtype, sure: bool
) -> None:
    """The call itself may have changed them in between, and addresses come of integers."""
    result = project.once(Rule(kernel="sum_kernel", beside=(8, 16)), isolated=True).judge(two(dtype))
    (write,) = result.outside_writes
    assert (write.kernel, write.launch, write.argument, write.certain) == ("sum_kernel", 1, "total_ptr", sure)
    assert result.verdict is (Verdict.REGRESSED if sure else Verdict.NEW)
    assert bool(result.findings) is sure
    assert any("launch 1 (kernel sum_kernel) wrote outside of its tensors" in w for w in result.warnings) is not sure


def test_an_unsure_write_becomes_a_baseline_only_where_that_is_asked_for(project: Project) -> None:
    """Of equal work nothing is looked for any more, so the warning would be lost with the second run."""
    beside = Rule(kernel="sum_kernel", beside=(8, 16))
    for update in (Update.NONE, Update.NEW, Update.IMPROVED):
        result = project.once(beside, isolated=True, update=update).judge(two(torch.int32))
        assert (result.verdict, project.files()) == (Verdict.NEW, [])
        (warning,) = (w for w in result.warnings if "wrote outside of its tensors" in w)
        assert "It becomes no baseline" in warning
    with project.run(beside, isolated=True, update=Update.ALL) as run:
        assert run.judge(two(torch.int32)).outcome is Outcome.PASS
    assert len(project.files()) > 0
