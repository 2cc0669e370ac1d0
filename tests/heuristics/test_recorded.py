"""What torch 2.13 answers, by digests that it was asked for: they are compared whatever torch is installed."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

import pytest

from .inductor_cases import CASES
from .inductor_free import (
    DIGITS,
    MEANT,
    OTHER_PRESETS,
    RANDOM,
    RECORDED,
    answer_of,
    digest,
    other_digests,
    sample,
    split_digests,
    step_digests,
)

DIGESTS = json.loads(RECORDED.read_text())


LONG = ("mix_order", "reduction")
"""A second each."""


@pytest.mark.parametrize("family", [pytest.param(x, marks=[pytest.mark.slow] * (x in LONG)) for x in (*CASES, RANDOM)])
def test_same_ordered_configs_as_torch_2_13(family: str) -> None:
    told, cases = DIGESTS[family], sample(family)
    assert len(told) == DIGITS * len(cases)
    for i, case in enumerate(cases):
        wanted = told[DIGITS * i : DIGITS * (i + 1)]
        mine = answer_of(case)
        assert wanted in (MEANT, digest(mine)), f"{case[0]} {case[1]} on {case[2]}: {mine} isn't torch 2.13's answer"


def test_few_answers_are_meant_to_differ() -> None:
    assert sum(told.count(MEANT) for told in DIGESTS.values()) < 50


@pytest.mark.parametrize(
    ("name", "digests"),
    [*((preset.name, functools.partial(other_digests, preset)) for preset in OTHER_PRESETS), ("splits", split_digests),
     ("steps", step_digests)],
)  # fmt: skip
def test_other_answers_stay_as_they_are(name: str, digests: Callable[[], str]) -> None:
    told, found = DIGESTS[name], digests()
    assert len(told) > 1_000
    other = [i // DIGITS for i in range(0, len(told), DIGITS) if told[i : i + DIGITS] != found[i : i + DIGITS]]
    assert (other, len(found)) == ([], len(told)), "the numbers of cases"
