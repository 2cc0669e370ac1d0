"""A sample of the comparison with torch's heuristics; ``heuristics_differential.py`` runs all of it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

pytest.importorskip("torch", minversion="2.13.0.dev0")

from kerntune.heuristics import INDUCTOR_2_13

from .inductor_cases import CASES, ours
from .inductor_oracle import ask, backend, flat_all
from .inductor_random import difference, random_cases
from .inductor_runtime import RUNTIME

DOCUMENT = Path(__file__).parents[2] / "docs" / "heuristics.md"

STRIDES = {
    "pointwise": 61,
    "reduction": 127,
    "persistent_reduction": 109,
    "mix_order": 211,
    "cooperative_reduction": 101,
    "cooperative_persistent": 83,
    "split_scan": 101,
    "matmul": 29,
    "newer_hints": 31,
}
RUNTIME_STRIDES = {
    "combo": 3,
    "dynamic_rblock_scaling": 17,
    "coordinate_descent": 13,
    "reduction_splits": 7,
    "first_pass_hints": 11,
}
MIN_COMPARED = {
    "combo": 300,
    "dynamic_rblock_scaling": 1000,
    "coordinate_descent": 500,
    "given_configs": 40,
    "reduction_splits": 900,
    "second_stage_hints": 400,
    "first_pass_hints": 250,
    "lookup_keys": 9,
}
"""Primes, so that a sample runs through every value of every axis of the enumeration."""


@pytest.mark.parametrize("family", CASES)
def test_same_ordered_configs_as_torch(family: str) -> None:
    sample = itertools.islice(CASES[family](), 0, None, STRIDES[family])
    agreed = refused = 0
    for name, group in itertools.groupby(sorted(sample, key=_backend), key=_backend):
        with backend(name):
            for kind, hints, device in group:
                configs = ours(kind, hints, device)
                mine = None if configs is None else flat_all(configs)
                assert mine == ask(kind, hints, device), f"{kind} {hints} on {device.target}"
                agreed += mine is not None
                refused += mine is None
    assert agreed > 300, f"the sample of {family} is too small: {agreed} agreed, {refused} refused by both"


def test_random_hints_differ_only_where_they_are_meant_to() -> None:
    """Untypical devices, odd sizes, all hints at once; each meant difference by its name in the document."""
    cases = sorted(itertools.islice(random_cases(seed=1), 1500), key=_backend)
    agreed, named = 0, set()
    for name, group in itertools.groupby(cases, key=_backend):
        with backend(name):
            for kind, hints, device in group:
                configs = ours(kind, hints, device)
                mine = None if configs is None else flat_all(configs)
                theirs = ask(kind, hints, device)
                why = "" if mine == theirs else difference(kind, hints, device, mine, theirs)
                assert mine == theirs or why, f"{kind} {hints} on {device}"
                agreed += mine is not None and mine == theirs
                named |= {why} - {""}
    assert agreed > 800
    assert named <= set(re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("part", RUNTIME)
def test_same_decisions_as_torch_at_run_time(part: str) -> None:
    compared = 0
    for label, decide in itertools.islice(RUNTIME[part](INDUCTOR_2_13), 0, None, RUNTIME_STRIDES.get(part, 1)):
        mine, theirs = decide()
        assert mine == theirs, label
        compared += 1
    assert compared >= MIN_COMPARED[part]


def _backend(case: object) -> str:
    return case[2].target.backend  # type: ignore[index]
