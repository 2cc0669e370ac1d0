"""``scope="op"``: a whole call is timed; of a baseline, its kernels alone can be replayed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fake_runs import N, block, by_block, scale_kernel

from gate.project import Project
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Outcome, Policy, Verdict


def judged(project: Project, rest_ns: float, size: int = 64, **policy: Any) -> CaseResult:
    """A whole call in which all but its kernel takes ``rest_ns``. The scripted GPU runs no launch of a user's call, so
    that is what the call takes."""
    with project.run(block(64, 10_000.0), block(128, 11_000.0)) as run:

        def op(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            scale_kernel[by_block](x, y, N, 2.0, BLOCK=size)
            run.gpu._clock += rest_ns
            return y

        return run.judge(op, torch.randn(N, device="cuda"), scope="op", policy=Policy(**policy))


@pytest.mark.parametrize(("rest", "verdict"), [
    (10_000.0, Verdict.PASS),
    (10_300.0, Verdict.PASS),
    (20_000.0, Verdict.DRIFTED),
    (1_000.0, Verdict.DRIFTED),
])  # fmt: skip
def test_scope_op_with_the_same_kernels_drifts_beyond_five_percent(
    project: Project, rest: float, verdict: Verdict
) -> None:
    """Session by session, equal code moves by up to 4 %; nothing of a whole call can be replayed to tell."""
    judged(project, 10_000.0)
    result = judged(project, rest)
    assert (result.verdict, result.rung) == (verdict, "identity")
    if verdict is Verdict.DRIFTED:
        assert result.attribution
        assert result.attribution.environment.why == "all of the call but its kernels' code"
        assert judged(project, rest, outcomes={Verdict.DRIFTED: Outcome.FAIL}).outcome is Outcome.FAIL


def test_scope_op_with_slower_kernels_regresses_by_their_replay(project: Project) -> None:
    judged(project, 10_000.0)
    result = judged(project, 10_000.0, 128)
    assert (result.verdict, result.rung) == (Verdict.REGRESSED, "paired replay")
    assert (result.baseline_ns, result.current_ns) == (pytest.approx(10_000, rel=0.01), pytest.approx(11_000, rel=0.01))
    assert "these are its kernels; the whole call: 10.0 µs -> 10.0 µs" in result.message
    assert result.attribution
    assert result.attribution.environment.change is None, "the kernels alone were timed today"


def test_scope_op_whose_kernels_pass_does_not_hide_a_slower_call(project: Project) -> None:
    judged(project, 10_000.0)
    result = judged(project, 30_000.0, 128, tolerance=0.15)
    assert (result.verdict, result.outcome) == (Verdict.DRIFTED, Outcome.WARN)
    assert "the whole call: 10.0 µs -> 30.0 µs" in result.message


def test_scope_op_with_faster_kernels_is_improved_and_tells_the_whole_call(project: Project) -> None:
    """The kernels' times decide; the time of the rest can't be replayed, and is reported."""
    judged(project, 10_000.0, 128)
    result = judged(project, 30_000.0, 64)
    assert result.verdict is Verdict.IMPROVED
    assert "the whole call: 10.0 µs -> 30.0 µs" in result.message
