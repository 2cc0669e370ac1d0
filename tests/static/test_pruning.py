"""The candidates that are left out by static figures, and that one is always left."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.policy import StaticPrune
from kerntune.errors import UsageError
from kerntune.static.prediction import LOW_OCCUPANCY, MODEL_LIMIT, Figures, left_out

FIGURES = st.dictionaries(
    st.integers(0, 40),
    st.builds(
        Figures,
        cost=st.floats(0, 1e6) | st.just(math.inf),
        spill_bytes=st.sampled_from([0, 0, 8, 4096]),
        occupancy=st.floats(0.01, 1),
    ),
    max_size=15,
)
RULES = st.builds(
    StaticPrune, st.booleans(), st.booleans(), st.booleans(), st.none() | st.floats(0, 1, exclude_min=True)
)


@given(FIGURES, RULES, st.sets(st.integers(0, 40)))
def test_somebody_is_always_left_and_the_protected_are(
    figures: dict[int, Figures], rules: StaticPrune, protected: set[int]
) -> None:
    out = left_out(figures, rules, protected)
    assert out.keys() <= figures.keys() - protected
    assert all(out.values())
    launchable = {i for i, f in figures.items() if math.isfinite(f.cost)}
    assert out.keys() < launchable if launchable else not out


@given(FIGURES, RULES, st.floats(0, 1, exclude_min=True), st.floats(0, 1, exclude_min=True))
def test_a_larger_share_keeps_all_that_a_smaller_one_keeps(
    figures: dict[int, Figures], rules: StaticPrune, one: float, other: float
) -> None:
    small, large = (
        left_out(figures, msgspec.structs.replace(rules, share=share)) for share in (min(one, other), max(one, other))
    )
    assert large.keys() <= small.keys()


@given(FIGURES)
def test_no_rule_leaves_nobody_out(figures: dict[int, Figures]) -> None:
    assert left_out(figures, StaticPrune()) == {}
    assert left_out(figures, StaticPrune(share=1.0)) == {}


@given(FIGURES)
def test_the_cheapest_that_does_not_spill_stays(figures: dict[int, Figures]) -> None:
    clean = {i: f.cost for i, f in figures.items() if math.isfinite(f.cost) and not f.spill_bytes}
    if clean:
        assert min(clean, key=lambda i: clean[i]) not in left_out(figures, StaticPrune(spills=True, model=True))


def figures(*costs: float, spills: tuple[int, ...] = (), occupancy: tuple[float, ...] = ()) -> dict[int, Figures]:
    several = zip(costs, (*spills, *[0] * len(costs)), (*occupancy, *[1.0] * len(costs)), strict=False)
    return {i: Figures(*each) for i, each in enumerate(several)}


def test_each_rule_names_its_reason() -> None:
    assert left_out(figures(1, 1, spills=(0, 4096)), StaticPrune(spills=True)) == {
        1: "spills 4,096 bytes a thread, others none"
    }
    assert left_out(figures(1, 1, occupancy=(1.0, 0.0625)), StaticPrune(occupancy=True)) == {
        1: "occupancy 6%, others have up to 100%"
    }
    assert left_out(figures(1, 3.5, 2.9), StaticPrune(model=True)) == {
        1: "predicted to cost more than 3 times what the best does"
    }
    assert left_out(figures(3, 1, 2, 4), StaticPrune(share=0.5)) == {
        0: "predicted to be number 3 of 4, the first 2 are tried",
        3: "predicted to be number 4 of 4, the first 2 are tried",
    }


def test_the_limits_themselves_stay() -> None:
    assert left_out(figures(1, MODEL_LIMIT), StaticPrune(model=True)) == {}
    assert left_out(figures(1, 1, occupancy=(1.0, LOW_OCCUPANCY)), StaticPrune(occupancy=True)) == {}


def test_where_all_spill_none_is_left_out_for_it() -> None:
    assert left_out(figures(1, 2, spills=(8, 4096)), StaticPrune(spills=True)) == {}


def test_a_share_counts_all_that_can_be_launched() -> None:
    """A half of four: two of them spill, so the two others stay; what can't be launched counts for nothing."""
    given = figures(1, 2, 3, 4, math.inf, spills=(8, 8, 0, 0, 0))
    assert left_out(given, StaticPrune(spills=True, share=0.5)).keys() == {0, 1}


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("spills", StaticPrune(spills=True)),
        ("spills model", StaticPrune(spills=True, model=True)),
        ("occupancy, 33%", StaticPrune(occupancy=True, share=0.33)),
        (0.25, StaticPrune(share=0.25)),
        (1, StaticPrune(share=1.0)),
        (["spills", 0.5], StaticPrune(spills=True, share=0.5)),
        (("model",), StaticPrune(model=True)),
        ("off", StaticPrune()),
        ("", StaticPrune()),
        ([], StaticPrune()),
    ],
)
def test_what_people_write(text: object, rules: StaticPrune) -> None:
    assert StaticPrune.parse(text, "here") == rules
    assert bool(rules) == (rules != StaticPrune())


@pytest.mark.parametrize("text", ["spill", "0", 0, -0.5, 1.5, "150%", "nan", "%", True, ["off", "spills"], None, {}])
def test_what_people_write_wrongly(text: object) -> None:
    if text == {}:
        text = {"spills": True}
    with pytest.raises(UsageError, match=r"^here: .* is none of spills, occupancy, model, a share above 0"):
        StaticPrune.parse(text, "here")
