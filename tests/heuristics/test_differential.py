"""A sample of the comparison with torch's heuristics; ``heuristics_differential.py`` runs all of it. Torch's recorded
answers to the same questions are compared in ``test_recorded.py``, which is quick."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch", minversion="2.13.0.dev0")

from kerntune.heuristics import INDUCTOR_2_13

from .inductor_cases import CASES, Case
from .inductor_free import (
    MEANT,
    OTHER_PRESETS,
    RANDOM,
    RECORDED,
    Flat,
    answer_of,
    digest,
    other_digests,
    sample,
    split_digests,
    step_digests,
)
from .inductor_oracle import ask, backend
from .inductor_random import difference
from .inductor_runtime import RUNTIME

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "heuristics.md"

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


def asked(cases: list[Case]) -> list[list[Flat] | None]:
    """Torch's answers; a backend is a set of patches, so cases are asked backend by backend."""
    found: dict[int, list[Flat] | None] = {}
    order = sorted(range(len(cases)), key=lambda i: cases[i][2].target.backend)
    for name, group in itertools.groupby(order, key=lambda i: cases[i][2].target.backend):
        with backend(name):
            found |= {i: ask(*cases[i]) for i in group}
    return [found[i] for i in range(len(cases))]


def digests(cases: list[Case], theirs: list[list[Flat] | None]) -> str:
    """As they are recorded."""
    answers = zip(cases, theirs, strict=True)
    return "".join(digest(answer) if answer_of(case) == answer else MEANT for case, answer in answers)


@pytest.mark.parametrize("family", CASES)
def test_same_ordered_configs_as_torch(family: str) -> None:
    cases = sample(family)
    theirs = asked(cases)
    for case, answer in zip(cases, theirs, strict=True):
        assert answer_of(case) == answer, f"{case[0]} {case[1]} on {case[2].target}"
    assert sum(answer is not None for answer in theirs) > 300
    assert digests(cases, theirs) == json.loads(RECORDED.read_text())[family]


def test_random_hints_differ_only_where_they_are_meant_to() -> None:
    """Each meant difference by its name in the document."""
    cases, answers = sample(RANDOM), asked(sample(RANDOM))
    agreed, named = 0, set()
    for case, theirs in zip(cases, answers, strict=True):
        mine = answer_of(case)
        why = "" if mine == theirs else difference(*case, mine, theirs)
        assert mine == theirs or why, f"{case[0]} {case[1]} on {case[2]}"
        agreed += mine is not None and mine == theirs
        named |= {why} - {""}
    assert agreed > 800
    assert named <= set(re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE))
    assert digests(cases, answers) == json.loads(RECORDED.read_text())[RANDOM]


@pytest.mark.parametrize("part", RUNTIME)
def test_same_decisions_as_torch_at_run_time(part: str) -> None:
    compared = 0
    for label, decide in itertools.islice(RUNTIME[part](INDUCTOR_2_13), 0, None, RUNTIME_STRIDES.get(part, 1)):
        mine, theirs = decide()
        assert mine == theirs, label
        compared += 1
    assert compared >= MIN_COMPARED[part]


if __name__ == "__main__":  # python -m tests.heuristics.test_differential, where torch is 2.13
    samples = {family: sample(family) for family in (*CASES, RANDOM)}
    found = {family: digests(cases, asked(cases)) for family, cases in samples.items()}
    found |= {preset.name: other_digests(preset) for preset in OTHER_PRESETS}
    found |= {"splits": split_digests(), "steps": step_digests()}
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")
