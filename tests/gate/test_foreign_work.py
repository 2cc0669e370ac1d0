"""Other processes' work during a measurement: no case is REGRESSED or IMPROVED by it, and it is said."""

from __future__ import annotations

import pytest
from fake_runs import block, scale, scale_kernel

from gate.project import Project, Run
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Outcome, Verdict
from kerntune.gpu import foreign_work

RULES = (block(64, 100_000.0), block(128, 110_000.0), block(256, 90_000.0), block(512, 100_100.0))
SAID = "other work ran on the GPU meanwhile: for 30.0 % of the "


def judge(run: Run, size: int) -> CaseResult:
    return run.judge(lambda: scale(scale_kernel, BLOCK=size))


@pytest.fixture
def recorded(project: Project) -> Project:
    with project.run(*RULES) as run:
        assert judge(run, 64).warnings == ()
    return project


@pytest.mark.parametrize(("size", "alone"), [(128, Verdict.REGRESSED), (256, Verdict.IMPROVED)])
def test_slower_and_faster_are_inconclusive(recorded: Project, size: int, alone: Verdict) -> None:
    with recorded.run(*RULES) as run:
        assert judge(run, size).verdict is alone
    with recorded.run(*RULES, foreign=0.3) as run:
        result = judge(run, size)
    assert (result.verdict, result.outcome) == (Verdict.INCONCLUSIVE, Outcome.WARN)
    assert f"{SAID}27.0 ms that were watched" in result.message, "three processes, three watches each"
    assert "measure again when it has ended" in result.message
    assert result.message.count("other work ran") == 1
    assert result.change is not None


@pytest.mark.parametrize(
    ("share", "size", "verdict", "said"),
    [
        pytest.param(0.01, 128, Verdict.REGRESSED, False, id="a little changes nothing"),
        pytest.param(0.3, 512, Verdict.PASS, True, id="what passes passes and says so"),
    ],
)
def test_other_verdicts_stand(recorded: Project, share: float, size: int, verdict: Verdict, said: bool) -> None:
    with recorded.run(*RULES, foreign=share) as run:
        result = judge(run, size)
    assert result.verdict is verdict
    assert any(SAID in w for w in result.warnings) == said
    assert said or "other work" not in result.message


def test_a_new_baseline_says_so(project: Project) -> None:
    with project.run(*RULES, foreign=0.3) as run:
        result = judge(run, 64)
    assert result.verdict is Verdict.NEW
    assert any(f"{SAID}3.00 ms" in w for w in result.warnings)


def test_the_same_work_is_watched_only_where_its_time_is_off(
    recorded: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, real = [], foreign_work.ClockWatch.watch
    monkeypatch.setattr(foreign_work.ClockWatch, "watch", lambda self: watched.append(self) or real(self))
    with recorded.run(*RULES, foreign=0.3) as run:
        assert judge(run, 64).verdict is Verdict.PASS
    assert watched == []
    with recorded.run(*RULES, foreign=0.3, shift=1.2) as run:
        result = judge(run, 64)
    assert len(watched) == 1
    assert result.verdict is Verdict.DRIFTED
    assert any(SAID in w for w in result.warnings)
