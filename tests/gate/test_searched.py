"""The gate on kernels whose configs are searched: what is stored for a case, and when nothing is searched again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_runs import N, block, by_block, scale_kernel

import kerntune
from gate.project import Project
from kerntune.base.policy import TuneMode, Verdict
from kerntune.errors import CacheMissError
from kerntune.search import Choice, Range, Search, Space
from kerntune.tuning.race import Estimates
from kerntune.tuning.tuning_result import LOG

SPACE = Space((Range("BLOCK", 16, 1024), Choice("num_warps", (1, 2, 4, 8))))
SIZES = [16 << i for i in range(7)]
SLOPE = [block(size, 10_000.0 + 4_000.0 * abs(i - 5)) for i, size in enumerate(SIZES)]
"""512 is the best block."""


def searched(search: Search) -> Callable[[torch.Tensor], None]:
    kernel = kerntune.autotune([], key=["n"], search=search)(scale_kernel)

    def call(x: torch.Tensor) -> None:
        kernel[by_block](x, torch.empty_like(x), N, 2.0)

    return call


def x_of() -> torch.Tensor:
    return torch.randn(N, device="cuda")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A word for each first look."""
    seen: list[Any] = []
    take = Estimates.take
    monkeypatch.setattr(Estimates, "take", lambda self, trial: (seen.append(trial), take(self, trial))[1])
    return seen


@pytest.mark.slow
def test_the_winner_is_recorded_and_the_next_run_searches_nothing(project: Project, looks: list[Any]) -> None:
    first = project.once(*SLOPE).judge(searched(Search(SPACE)), x_of())
    assert (first.verdict, first.current_ns) == (Verdict.NEW, pytest.approx(10_000.0, rel=0.01))
    assert len(first.trials) == len(looks) == 28
    looks.clear()
    assert project.once(*SLOPE).judge(searched(Search(SPACE)), x_of()).verdict is Verdict.PASS
    assert looks == []


@pytest.mark.slow
def test_a_stored_winner_is_in_the_log(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    log = project.root / "log.jsonl"
    project.once(*SLOPE).judge(searched(Search(SPACE)), x_of())
    monkeypatch.setenv(LOG, str(log))
    project.once(*SLOPE).judge(searched(Search(SPACE)), x_of())
    (line,) = map(json.loads, log.read_text().splitlines())
    assert (line["event"], line["config"]["kwargs"]["BLOCK"]) == ("stored winner", 512)
    assert line["time_ns"] == pytest.approx(10_000.0, rel=0.01)


@pytest.mark.slow
def test_without_the_cache_the_baselines_config_is_tried_whatever_the_search_comes_by(
    project: Project, looks: list[Any]
) -> None:
    project.once(*SLOPE).judge(searched(Search(SPACE)), x_of())
    for path in (project.root / "cache").rglob("*.json"):
        path.unlink()
    looks.clear()
    found = project.once(*SLOPE).judge(searched(Search(SPACE, trials=2, seed=3)), x_of())
    assert found.verdict is Verdict.PASS
    assert len(looks) == 3


def test_frozen_searches_nothing(project: Project) -> None:
    with project.run(*SLOPE, tune=TuneMode.FROZEN) as run, pytest.raises(CacheMissError, match="no stored winner"):
        run.judge(searched(Search(SPACE)), x_of())


def test_without_a_gpu_the_config_that_won_on_one_is_compiled(project: Project) -> None:
    project.once(*SLOPE).judge(searched(Search(SPACE)), x_of())
    found = project.static_once("cuda:90").judge(searched(Search(SPACE, trials=2, seed=3)), x_of())
    assert [launch.config.kwargs for launch in found.launches] == [{"BLOCK": 512}]


def test_without_anything_known_the_first_of_the_search_is_compiled(project: Project) -> None:
    search = Search(SPACE, trials=5)
    found = project.static_once("cuda:90").judge(searched(search), x_of())
    assert [launch.config for launch in found.launches] == search.begins_with(())[:1]
