"""Static figures that are gated on a GPU."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import pytest
import torch
from fake_runs import N, block, by_block, scale_kernel
from hypothesis import given
from hypothesis import strategies as st

from gate.project import Project
from kerntune.base.codec import to_json
from kerntune.base.policy import METRIC_TOLERANCES, Metrics, Outcome, Policy, Verdict
from kerntune.gate.launch_changes import FIGURES, exceeded
from kerntune.gate.static_figures import LaunchStatic
from kerntune.static.metrics import StaticMetrics


def figures(
    registers: int = 32, spilled: int = 0, shared: int = 2048, size: int = 1024, total: int | None = None
) -> StaticMetrics:
    """Those of a compilation whose instructions were not counted, without a ``total``."""
    counted = {} if total is None else {"total": total}
    return StaticMetrics(registers, spilled, spilled, spilled, shared, size, 128, counted, 1.0, "registers")


def launch(code: str = "a", kernel: str = "softmax", **changes: int) -> LaunchStatic:
    return LaunchStatic(kernel, "s", code, "t", (1, 1, 1), figures(**changes))


def test_every_metric_of_the_policy_has_a_figure() -> None:
    assert set(FIGURES) == set(METRIC_TOLERANCES)


@pytest.mark.parametrize(
    ("limits", "changes", "says"),
    [
        ({"registers": 0.1}, {"registers": 35}, None),
        (
            {"registers": 0.1},
            {"registers": 40},
            "registers 32 -> 40 a thread (+25.0 %, 10.0 % allowed)",
        ),
        ({"spills": 0.0}, {"spilled": 2}, "spills 0 -> 4 bytes a thread (0.0 % allowed)"),
        ({"spills": 5.0}, {"spilled": 2}, "spills 0 -> 4 bytes a thread (500.0 % allowed)"),
        (
            {"shared_memory": 0.0},
            {"shared": 4096},
            "shared_memory 2,048 -> 4,096 bytes a block (+100.0 %, 0.0 % allowed)",
        ),
        (
            {"binary_size": 0.5},
            {"size": 2048},
            "binary_size 1,024 -> 2,048 bytes (+100.0 %, 50.0 % allowed)",
        ),
        ({"instructions": 0.5}, {"registers": 64}, None),
        (
            {"instructions": 0.5},
            {"total": 120},
            "instructions 0 -> 120 in the code (50.0 % allowed)",
        ),
        ({"registers": 0.1}, {"registers": 16, "spilled": 8, "shared": 4096}, None),
        ({}, {"registers": 255, "spilled": 99}, None),
    ],
)
def test_growth(limits: dict[str, float], changes: dict[str, int], says: str | None) -> None:
    expected = (f"launch 0 (softmax): {says}",) if says else ()
    assert exceeded([launch()], [launch("b", **changes)], limits) == expected


def test_equal_code_is_not_looked_at() -> None:
    assert exceeded([launch()], [launch(registers=64)], {"registers": 0.0}) == ()


def test_launches_are_paired_by_kernel_and_named_by_their_place() -> None:
    before = [launch(kernel="a"), launch(kernel="b", registers=64)]
    after = [launch("x", "b", registers=64), launch("y", "a", registers=64), launch("z", "c", registers=255)]
    (found,) = exceeded(before, after, {"registers": 0.0})
    assert found.startswith("launch 1 (a): registers 32 -> 64")


@given(st.integers(0, 255), st.integers(0, 255), st.floats(0, 2))
def test_no_more_than_the_share_passes(before: int, after: int, limit: float) -> None:
    found = exceeded([launch(registers=before)], [launch("b", registers=after)], {"registers": limit})
    assert bool(found) == (after > before * (1 + limit))


# on the scripted GPU

RULES = (block(64, 10_000.0), block(512, 10_000.0), block(128, 11_000.0))


def scaled(x: torch.Tensor, size: int) -> None:
    scale_kernel[by_block](x, torch.empty_like(x), N, 2.0, BLOCK=size)


def judged(project: Project, size: int, metrics: Metrics | None = None, **policy: Any) -> Any:
    with project.run(*RULES) as run:
        rules = Policy(metrics=metrics or Metrics(), **policy)
        return run.judge(functools.partial(scaled, size=size), torch.randn(N, device="cuda"), policy=rules)


def fewer_registers(project: Project) -> int:
    """As if the baseline had needed one register less than today's code with ``BLOCK=512`` does."""
    judged(project, 512)
    (path,) = project.files()
    made = msgspec.json.decode(path.read_bytes())
    needs = int(made["static"][0]["metrics"]["registers"])
    path.unlink()
    judged(project, 64)
    made = msgspec.json.decode(path.read_bytes())
    made["static"][0]["metrics"]["registers"] = needs - 1
    path.write_bytes(to_json(made))
    return needs


def test_a_metric_that_grew_fails_a_case_that_is_as_fast(project: Project) -> None:
    needs = fewer_registers(project)
    assert judged(project, 512).verdict is Verdict.PASS, "time alone is gated by default"
    result = judged(project, 512, Metrics(static={"registers": 0.0}))
    assert (result.verdict, result.outcome) == (Verdict.REGRESSED, Outcome.FAIL)
    (found,) = result.findings
    assert found.startswith(f"launch 0 (scale_kernel): registers {needs - 1} -> {needs} a thread")
    assert found in result.message
    assert result.attribution is None, "nothing took longer"
    assert judged(project, 512, Metrics(static={"registers": 1.0})).verdict is Verdict.PASS


def test_ungated_time_is_only_reported(project: Project) -> None:
    judged(project, 64)
    result = judged(project, 128, Metrics(time=False, static={"spills": 0.0}))
    assert (result.verdict, result.outcome) == (Verdict.PASS, Outcome.PASS)
    assert result.change is not None
    assert result.change.point == pytest.approx(0.1, abs=0.01)
    assert "its time is not gated, by which it would be REGRESSED" in result.warnings
    assert result.warnings[0] in result.message


def test_a_mapped_verdict_is_what_the_test_gets(project: Project) -> None:
    judged(project, 64)
    result = judged(project, 128, outcomes={Verdict.REGRESSED: Outcome.WARN})
    assert (result.verdict, result.outcome) == (Verdict.REGRESSED, Outcome.WARN)
