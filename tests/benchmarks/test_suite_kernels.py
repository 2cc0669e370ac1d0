"""The benchmarks' kernels compute what they say, and their config lists are what users' are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suite.case import config_text  # after the skip
from benchmarks.suite.cases import CASES
from benchmarks.suite.proposed_cases import PROPOSED

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def checked() -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.suite.numerics"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter can't work with this numpy (triton#9171)")
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_every_kernel_agrees_with_torch(checked: list[dict[str, Any]]) -> None:
    assert [row for row in checked if not row["off"] <= 1] == []


@pytest.mark.slow
def test_every_kernel_was_tried_with_several_configs(checked: list[dict[str, Any]]) -> None:
    names = [row["kernel"] for row in checked]
    assert set(names) == {*CASES, *(f"proposed {name}" for name in PROPOSED)}
    assert min(names.count(name) for name in CASES) >= 3


def test_the_suite_is_as_large_as_it_must_be() -> None:
    assert len(CASES) >= 8
    assert {len(case.shapes) for case in CASES.values()} == {3}


@pytest.mark.parametrize("name", CASES)
def test_lists_have_10_to_48_different_configs(name: str) -> None:
    for shape in CASES[name].shapes:
        texts = [config_text(c) for c in CASES[name].configs(shape)]
        assert 10 <= len(texts) <= 48
        assert len(set(texts)) == len(texts)


def test_the_large_product_has_48_configs() -> None:
    case = CASES["matmul"]
    assert dict(case.shapes[0]) == {"M": 4096, "N": 4096, "K": 4096}
    assert len(case.configs(case.shapes[0])) == 48


@pytest.mark.parametrize("name", CASES)
def test_grids_follow_the_blocks(name: str) -> None:
    """At the small shape: a grid of positive numbers for every config."""
    case = CASES[name]
    call = case.call(case.small, "cpu")
    for config in case.configs(case.small):
        assert min(call.grid(config.all_kwargs())) >= 1


@pytest.mark.parametrize("name", PROPOSED)
def test_spaces_hold_all_proposals_and_200_others(name: str) -> None:
    case = PROPOSED[name]
    configs, sets = case.configs(case.call(case.small, "cpu"))
    proposed = {i for found in sets.values() for i in found}
    assert len(configs) - len(proposed) >= 190
    assert len(configs) >= 200
    assert len({c.key() for c in configs}) == len(configs)
    assert set(sets) == {"inductor-2.13", "max_autotune", "measured-2026"}
    assert all(max(found) < len(configs) for found in sets.values())


def test_proposals_stand_for_the_families_of_issue_4() -> None:
    families = {case.family for case in PROPOSED.values()}
    assert families == {"pointwise", "reduction", "persistent_reduction", "split_scan", "matmul"}
    assert {len(c.words["sizes"]) for c in PROPOSED.values() if c.family == "pointwise"} == {1, 2, 3}
    assert len(PROPOSED) >= 12
