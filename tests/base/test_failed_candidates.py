"""Candidates that can't be used: equal reasons once, long ones shortened."""

from __future__ import annotations

import pytest

from kerntune.base.config import Config
from kerntune.base.failed_candidates import (
    ConfigProblem,
    ConfigReport,
    FailedTrial,
    config_problems,
    failures_line,
    is_fault,
    is_wrong,
    told_once,
)

A, B, C = (Config({"BLOCK": n}) for n in (1, 2, 3))
LONG = "x" * 201


@pytest.mark.parametrize(
    ("reason", "fault", "wrong"),
    [("its first launch faulted", True, False), ("it wrote other values to x", False, True),
     ("spills; its first launch", False, False), ("", False, False)],
)  # fmt: skip
def test_reasons_are_known_by_their_begin(reason: str, fault: bool, wrong: bool) -> None:
    assert (is_fault(reason), is_wrong(reason)) == (fault, wrong)
    assert FailedTrial("k", A, reason).wrong is wrong


@pytest.mark.parametrize(
    ("reasons", "line"),
    [
        (["a\n  b"], "kernel k: 1 of 9 configs failed: BLOCK=1 num_warps=4 num_stages=3: a b"),
        (["no", "it wrote other values"],
         "kernel k: 2 of 9 configs failed: BLOCK=2 num_warps=4 num_stages=3: it wrote other values; 1 more"),
        (["y" * 200, "no", "no"],
         f"kernel k: 3 of 9 configs failed: BLOCK=1 num_warps=4 num_stages=3: {'y' * 200}; 2 more"),
        ([LONG], f"kernel k: 1 of 9 configs failed: BLOCK=1 num_warps=4 num_stages=3: {'x' * 197}..."),
    ],
)  # fmt: skip
def test_a_kernels_failures_are_one_line(reasons: list[str], line: str) -> None:
    failures = [FailedTrial("k", config, reason) for config, reason in zip((A, B, C), reasons, strict=False)]
    assert failures_line(failures, 9) == line


@pytest.mark.parametrize(
    ("report", "problem"),
    [(ConfigReport("k", A), ""), (ConfigReport("k", A, spill_bytes=0), ""),
     (ConfigReport("k", A, spill_bytes=2048), "spills 2,048 bytes per thread"),
     (ConfigReport("k", A, spill_bytes=8, broken="too large"), "too large")],
)  # fmt: skip
def test_what_is_wrong_with_a_config(report: ConfigReport, problem: str) -> None:
    assert report.problem == problem


def test_equal_problems_of_a_kernel_are_one() -> None:
    reports = [
        ConfigReport("k", A, broken=LONG), ConfigReport("k", B, spill_bytes=8), ConfigReport("k", C, broken=LONG),
        ConfigReport("other", A, broken=LONG), ConfigReport("k", C, 9, 0, 0),
    ]  # fmt: skip
    problems = config_problems(told_once(reports))
    assert problems == [
        ConfigProblem("k", (A, C), LONG, True),
        ConfigProblem("k", (B,), "spills 8 bytes per thread", False),
        ConfigProblem("other", (A,), LONG, True),
    ]
    assert str(problems[1]) == "k with BLOCK=2 num_warps=4 num_stages=3: spills 8 bytes per thread"


@pytest.mark.parametrize(
    ("text", "again"),
    [(LONG, f"can't be used, as {A}"), ("x" * 200, "x" * 200), (f"it wrote other values {LONG}", None)],
)
def test_a_long_reason_stands_at_the_first_alone(text: str, again: str | None) -> None:
    """A wrong result at each; one of another kernel, too."""
    first, second, other = told_once(
        [FailedTrial("k", A, text), FailedTrial("k", B, text), FailedTrial("other", B, text)]
    )
    assert (first.reason, second.reason, other.reason) == (text, again or text, text)


def test_a_config_that_failed_for_two_reasons_stands_for_none() -> None:
    trials = [FailedTrial("k", A, "y" * 300), FailedTrial("k", A, LONG), FailedTrial("k", B, LONG)]
    assert told_once(trials) == tuple(trials)
