"""Baselines read from one folder and written to another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fake_runs import N, block, by_block, scale_kernel

from gate.project import Project
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Missing, Outcome, Policy, Update, Verdict

RULES = (block(64, 10_000.0), block(128, 11_000.0))


def call(size: int) -> Any:
    return lambda x: scale_kernel[by_block](x, torch.empty_like(x), N, 2.0, BLOCK=size)


def judged(project: Project, size: int, **options: Any) -> CaseResult:
    policy = options.pop("policy", None)
    with project.run(*RULES, **options) as run:
        return run.judge(call(size), torch.randn(N, device="cuda"), policy=policy)


@pytest.fixture
def base(project: Project) -> Any:
    """The folder of a revision in which the fast block was used; the project's own has the slow one."""
    judged(project, 64)
    there = project.root / "base"
    project.baselines.rename(there)
    judged(project, 128)
    return there


def test_a_change_cant_move_its_own_yardstick(project: Project, base: Any) -> None:
    assert judged(project, 128).verdict is Verdict.PASS, "its own baseline moved with it"
    result = judged(project, 128, yardstick=base, yardstick_name="main")
    assert (result.verdict, result.rung) == (Verdict.REGRESSED, "paired replay")
    assert result.attribution
    assert result.attribution.launch.change == pytest.approx(0.1, abs=0.01)
    assert result.warnings == ()


def test_baselines_are_still_written_to_the_folder(project: Project, base: Any) -> None:
    before = [p.read_bytes() for p in sorted(base.rglob("*.json"))]
    result = judged(project, 64, yardstick=base, update=Update.ALL)
    assert result.recorded
    assert result.baseline_path.startswith("baselines/")
    assert [p.read_bytes() for p in sorted(base.rglob("*.json"))] == before
    assert judged(project, 64).rung == "identity"


def test_a_case_that_only_this_tree_has_is_new(project: Project) -> None:
    """Its baseline is a change's own: it decides nothing, and stays as it is."""
    judged(project, 64)
    before = {p: p.read_bytes() for p in project.files("**/*") if p.is_file()}
    empty = project.root / "base"
    result = judged(project, 128, yardstick=empty, yardstick_name="v1")
    assert (result.verdict, result.outcome, result.recorded) == (Verdict.NEW, Outcome.PASS, False)
    said = "not in v1; the baseline that this tree has of it decides nothing"
    assert result.warnings == (said,)
    assert said in result.message
    failing = judged(project, 128, yardstick=empty, yardstick_name="v1", policy=Policy(missing=Missing.FAIL))
    assert failing.outcome is Outcome.WARN
    assert {p: p.read_bytes() for p in project.files("**/*") if p.is_file()} == before


def test_read_only_knows_its_yardstick_alone_and_writes_nothing(project: Project) -> None:
    judged(project, 64)
    before = {p: p.read_bytes() for p in project.files("**/*") if p.is_file()}
    result = judged(project, 128, yardstick=project.root / "base", read_only=True, update=Update.NONE)
    assert (result.verdict, result.outcome, result.recorded) == (Verdict.NEW, Outcome.PASS, False)
    missing = judged(project, 128, yardstick=project.root / "base", read_only=True, policy=Policy(missing=Missing.FAIL))
    assert missing.outcome is Outcome.FAIL
    assert {p: p.read_bytes() for p in project.files("**/*") if p.is_file()} == before


def test_read_only_has_no_stale_baselines(project: Project) -> None:
    judged(project, 64)
    with project.run(*RULES, yardstick=project.root / "base", read_only=True) as run:
        assert run.session.stale([], True) == []
    with project.run(*RULES) as run:
        assert len(run.session.stale([], True)) == 1


def test_without_a_gpu_a_yardstick_holds_too(project: Project) -> None:
    def wide(x: torch.Tensor) -> None:
        scale_kernel[by_block](x, torch.empty_like(x), N, 2.0, BLOCK=64)

    project.static_once("cuda:90").judge(wide, torch.empty(N, device="cuda"))
    there = project.root / "base"
    project.baselines.rename(there)
    with project.static_run("cuda:90", yardstick=there, read_only=True) as run:
        assert run.judge(wide, torch.empty(N, device="cuda")).verdict is Verdict.PASS
    with project.static_run("cuda:90", yardstick=project.root / "none", read_only=True) as run:
        result = run.judge(wide, torch.empty(N, device="cuda"))
    assert (result.verdict, result.recorded) == (Verdict.NEW, False)
    assert not project.baselines.exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "baselines"),
        ({"yardstick_name": "main"}, " as of main"),
        ({"yardstick_name": "main", "read_only": True}, "held against main, compiled and replayed today"),
    ],
)
def test_the_header_says_what_is_held_against(project: Project, options: dict[str, Any], text: str) -> None:
    with project.run(**options) as run:
        assert text in run.session.header()[1]
