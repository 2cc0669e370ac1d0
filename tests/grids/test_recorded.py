"""Every grid against digests of what torch 2.13's class of that name gives, whatever torch is installed."""

from __future__ import annotations

import json

import pytest

from .differential import DIGITS, RECORDED, SAMPLE, digest, load, sample

script = load()
DIGESTS = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("name", script.FAMILIES)
def test_same_triple_as_inductor_2_13(name: str) -> None:
    """Called directly, bound to its config first, and folded."""
    told, cases = DIGESTS[name], sample(name)
    assert len(told) == DIGITS * len(cases) == DIGITS * SAMPLE
    for i, case in enumerate(cases):
        wanted = told[DIGITS * i : DIGITS * (i + 1)]
        assert {digest(outcome) for outcome in script.our_outcomes(case)} == {wanted}, case
