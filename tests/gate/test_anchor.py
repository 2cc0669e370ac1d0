"""A case held against an older recording too, so that small steps can't add up unseen."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, by_block

from gate.project import Project, Run
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Metrics, Outcome, Policy, Update, Verdict
from kerntune.gate.messages import shares_text
from kerntune.gpu.script import Rule


@triton.jit
def step_kernel(x_ptr, y_ptr, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) + STEP, mask=i < n)


def step(number: int) -> Any:
    """The code after so many edits."""
    return functools.partial(stepped, number=number)


def stepped(x: torch.Tensor, number: int) -> torch.Tensor:
    y = torch.empty_like(x)
    step_kernel[by_block](x, y, N, STEP=number, BLOCK=64)
    return y


RULES = tuple(Rule(constexprs={"STEP": i}, time_ns=10_000.0 * 1.01**i) for i in range(21))
"""Each edit costs one percent."""


@pytest.fixture
def anchor(project: Project) -> Path:
    """What the code took before the first edit."""
    judged(project, 0)
    return moved(project)


def moved(project: Project) -> Path:
    """Today's baselines as the anchor."""
    there = project.root / "anchors"
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(project.baselines, there)
    return there


def judged(project: Project, number: int, **options: Any) -> CaseResult:
    policy = options.pop("policy", None)
    with project.run(*RULES, **options) as run:
        return run.judge(step(number), torch.randn(N, device="cuda"), policy=policy)


@pytest.mark.slow
def test_twenty_accepted_steps_of_one_percent_are_seen(project: Project, anchor: Path) -> None:
    """Without an anchor there is no report; with one, from the step on that exceeds its tolerance."""
    seen = {number: judged(project, number, anchor=anchor, update=Update.ALL) for number in range(1, 21)}
    assert all(r.recorded for r in seen.values()), "each step is accepted"
    assert all(r.change is not None and r.change.high < 0.02 for r in seen.values()), "each is within tolerance"
    assert [n for n, r in seen.items() if r.verdict is Verdict.PASS] == [1, 2, 3, 4]
    assert seen[5].verdict is Verdict.INCONCLUSIVE, "5.1 % can't be told from 5"
    assert [n for n, r in seen.items() if r.verdict is Verdict.REGRESSED] == list(range(6, 21))
    assert judged(project, 20, anchor=anchor).outcome is Outcome.FAIL, "and stays so"
    assert judged(project, 20).verdict is Verdict.PASS, "held against the step before alone"
    last = seen[20]
    assert last.change is not None
    assert last.change.point == pytest.approx(0.01, abs=0.002)
    assert last.since is not None
    assert last.since.change is not None
    assert last.since.change.point == pytest.approx(1.01**20 - 1, abs=0.003)
    assert (last.since.verdict, last.since.tolerance, last.since.rung) == (Verdict.REGRESSED, 0.05, "paired replay")
    assert f"+22.0 % since the anchor of {last.since.date} (99 % CI +21." in last.message
    assert "5.0 % allowed" in last.message


@pytest.mark.slow
def test_what_the_anchor_shows_is_taken_apart(project: Project, anchor: Path) -> None:
    """The shares are of the change since the anchor; the causes are since the baseline, and the message says so."""
    judged(project, 9, update=Update.ALL)
    result = judged(project, 10, anchor=anchor)
    assert result.attribution is not None
    assert result.attribution.launch.change == pytest.approx(1.01**10 - 1, abs=0.005)
    assert len(set(result.causes)) > 1
    told = f"allowed; {shares_text(result.attribution)}), since the baseline: {', '.join(result.causes)}"
    assert told in result.message
    assert result.message.count("attributed: ") == 1


@pytest.mark.slow
def test_the_anchors_tolerance_is_its_own(project: Project, anchor: Path) -> None:
    judged(project, 9, update=Update.ALL)
    assert judged(project, 10, anchor=anchor, policy=Policy(anchor_tolerance=0.15)).verdict is Verdict.PASS
    wide = judged(project, 10, anchor=anchor, policy=Policy(tolerance=0.15))
    assert wide.verdict is Verdict.PASS, "the anchor is never the stricter one"
    assert wide.since is not None
    assert wide.since.tolerance == 0.15


def replays(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with every replay."""
    asked: list[int] = []
    pairs = run.pairs
    below = pairs.run
    monkeypatch.setattr(pairs, "run", lambda request: (asked.append(1), below(request))[1])
    return asked


@pytest.mark.slow
def test_an_anchor_that_is_the_baseline_costs_no_second_replay(
    project: Project, anchor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for folder in (None, anchor):
        with project.run(*RULES, anchor=folder) as run:
            asked = replays(run, monkeypatch)
            result = run.judge(step(1), torch.randn(N, device="cuda"))
            counts.append(len(asked))
    assert counts[0] == counts[1] > 0
    assert result.since is not None
    assert result.since.change == result.change


def test_the_same_work_as_the_anchors_is_not_replayed(project: Project, anchor: Path) -> None:
    result = judged(project, 0, anchor=anchor)
    assert (result.verdict, result.rung) == (Verdict.PASS, "identity")
    assert result.since is not None
    assert (result.since.verdict, result.since.change) == (Verdict.PASS, None)
    assert "anchor" not in result.message


def count(project: Project, number: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[int, CaseResult]:
    """The number of replays of an unchanged case, and its result."""
    policy = options.pop("policy", None)
    with project.run(*RULES, **options) as run:
        asked = replays(run, monkeypatch)
        result = run.judge(step(number), torch.randn(N, device="cuda"), policy=policy)
        return len(asked), result


def test_what_was_compared_when_it_was_recorded_is_not_compared_again(
    project: Project, anchor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = judged(project, 4, anchor=anchor, update=Update.ALL)
    asked, result = count(project, 4, monkeypatch, anchor=anchor)
    assert (asked, result.verdict, result.rung) == (0, Verdict.PASS, "identity")
    assert result.since is not None
    assert recorded.since is not None
    assert (result.since.rung, result.since.change) == ("compared when recorded", recorded.since.change)
    judged(project, 4, anchor=anchor, update=Update.ALL)
    assert count(project, 4, monkeypatch, anchor=anchor)[0] == 0, "a refresh without a change keeps it"


@pytest.mark.slow
def test_it_is_compared_again_where_anything_is_new(
    project: Project, anchor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(project, 4, anchor=anchor, update=Update.ALL)
    strict = Policy(anchor_tolerance=0.03)
    asked, result = count(project, 4, monkeypatch, anchor=anchor, policy=strict)
    assert (asked > 0, result.verdict) == (True, Verdict.REGRESSED), "what fails a case is measured today"
    asked, result = count(project, 5, monkeypatch, anchor=anchor)
    assert (asked > 0, result.since and result.since.rung) == (True, "paired replay"), "other code"
    kept = project.root / "kept"
    project.baselines.rename(kept)
    judged(project, 2)
    moved(project)
    project.baselines.rename(project.root / "unused")
    kept.rename(project.baselines)
    asked, result = count(project, 4, monkeypatch, anchor=anchor)
    assert (asked > 0, result.since and result.since.rung) == (True, "paired replay"), "another anchor"


def test_what_is_allowed_in_nanoseconds_is_of_the_anchors_time(project: Project, anchor: Path) -> None:
    """1,100 ns are 11 % of the anchor's 10 us, more than was seen then, but only 10 % of the baseline's 11."""
    judged(project, 10, anchor=anchor, update=Update.ALL, policy=Policy(anchor_tolerance=0.2))
    policy = Policy(floor_ns=1_100.0)
    known = judged(project, 10, anchor=anchor, policy=policy)
    assert known.since is not None
    assert (known.since.verdict, known.since.rung) == (Verdict.PASS, "compared when recorded")


def test_a_slowdown_that_the_baseline_shows_needs_no_anchor(project: Project, anchor: Path) -> None:
    """Then the shares are of the change since the baseline, as the causes are."""
    result = judged(project, 3, anchor=anchor)
    assert result.verdict is Verdict.REGRESSED
    assert result.since is not None
    assert result.since.verdict is Verdict.PASS, "3 % are within the anchor's 5"
    assert result.attribution is not None
    shares = shares_text(result.attribution)
    assert result.message.count("attributed: ") == result.message.count(f"), {shares}, ") == 1
    assert "since the baseline" not in result.message


def test_deleting_the_baseline_hides_nothing_from_the_anchor(project: Project, anchor: Path) -> None:
    shutil.rmtree(project.baselines)
    result = judged(project, 10, anchor=anchor)
    assert (result.verdict, result.recorded) == (Verdict.REGRESSED, False)
    assert "since the anchor" in result.message


def test_an_anchor_that_cant_be_replayed_is_inconclusive(project: Project, anchor: Path) -> None:
    judged(project, 9, update=Update.ALL)
    shutil.rmtree(anchor / "cuda-90" / "artifacts")
    result = judged(project, 10, anchor=anchor)
    assert (result.verdict, result.outcome) == (Verdict.INCONCLUSIVE, Outcome.WARN)
    assert f"the anchor of {result.since.date if result.since else ''} can't be replayed" in result.message


def test_cases_that_the_anchor_doesnt_have_are_as_before(project: Project) -> None:
    judged(project, 0)
    assert judged(project, 1, anchor=project.root / "none").since is None


def test_more_launches_than_the_anchor_had_are_no_longer_incomplete(project: Project) -> None:
    """What was accepted in the baseline: a fusion."""

    def twice(x: torch.Tensor) -> torch.Tensor:
        return stepped(stepped(x, 0), 0)

    project.once(*RULES).judge(twice, torch.randn(N, device="cuda"))
    anchor = moved(project)
    judged(project, 0, update=Update.ALL)
    result = judged(project, 0, anchor=anchor)
    assert (result.verdict, result.since and result.since.verdict) == (Verdict.PASS, Verdict.IMPROVED)


def test_ungated_time_asks_no_anchor(project: Project, anchor: Path) -> None:
    judged(project, 9, update=Update.ALL)
    policy = Policy(metrics=Metrics(time=False, static={"spills": 0.0}))
    result = judged(project, 10, anchor=anchor, policy=policy)
    assert (result.verdict, result.since) == (Verdict.PASS, None)
