"""Rules about changed results, and the sentences that tell of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kerntune.base.numerics import (
    MADE_UP,
    OWN,
    VARYING_RESULTS,
    ChangedOutput,
    ComparedResults,
    NumericsReport,
    NumericsRule,
    changed_text,
    report_of,
    without_ignored,
)
from kerntune.errors import UsageError

PLAIN = ChangedOutput(
    "y_ptr", "float32", 4096, 17, 5, 12, "0.5", "0.500000179", (1, 4), ulp=3, relative=3.6e-7
)  # fmt: skip


def changed(**fields: Any) -> ChangedOutput:
    return msgspec.structs.replace(PLAIN, **fields)


def rule(text: str) -> NumericsRule:
    return NumericsRule.parse(text, "here")


@pytest.mark.parametrize(
    "text",
    [
        "report",
        "bitwise",
        "off",
        "ulp:0",
        "ulp:2",
        "ulp:12345678",
        "rtol:1e-05",
        "rtol:1.2345678e-05",
        "rtol:0.5",
        "rtol:1.99",
        "ulp:9007199254740991",
    ],
)
def test_a_rule_is_read_and_written(text: str) -> None:
    assert str(rule(text)) == text
    assert NumericsRule.parse(rule(text), "here") == rule(text)
    assert rule(text).gates is (text.partition(":")[0] in ("bitwise", "ulp", "rtol"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ulp",
        "ulp:",
        "ulp:1.5",
        "ulp:-1",
        "ulp:nan",
        "ulp:inf",
        "rtol:0",
        "rtol:2",
        "rtol:-1e-5",
        "ulp:9007199254740992",
        "off:1",
        "report:",
        "rtol:nan",
        "bitwise:1",
        "x",
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"^here: .* is none of report, bitwise, ulp:2 .*, rtol:1e-5 .*, off$"):
        rule(text)


@pytest.mark.parametrize(
    ("text", "fields", "fails"),
    [
        ("report", {}, False),
        ("bitwise", {}, True),
        ("bitwise", {"ulp": 0, "relative": 0.0}, True),
        ("bitwise", {"count": 0, "varying": 9}, False),
        ("ulp:3", {}, False),
        ("ulp:2", {}, True),
        ("ulp:0", {"ulp": 0}, False),
        ("rtol:4e-7", {}, False),
        ("rtol:3e-7", {}, True),
        ("rtol:1", {"nonfinite": 1}, True),
        ("ulp:9", {"unwritten": 1}, True),
        ("ulp:9", {"newly_written": 1}, True),
        ("ulp:9", {"dtype": "int32", "ulp": None, "relative": None}, True),
        ("bitwise", {"varying": 1}, False),
        ("bitwise", {"intermediate": True}, False),
    ],
)
def test_what_a_rule_fails(text: str, fields: dict[str, Any], fails: bool) -> None:
    assert rule(text).fails(changed(**fields)) is fails


SAID = "results changed: y_ptr: 17 of 4,096 elements differ, "


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "at most 3 ulp and 3.6e-07 relative, at [1, 4]: 0.5 -> 0.500000179, first at 5"),
        ({"place": (), "first": 12}, "at most 3 ulp and 3.6e-07 relative, at 12: 0.5 -> 0.500000179"),
        (
            {"nonfinite": 2, "unwritten": 15, "place": (), "first": 12, "baseline": "1", "today": "nan"},
            "2 of them infinite or NaN on one side, 15 no longer written, at 12: 1 -> nan",
        ),
        (
            {
                "newly_written": 17, "ulp": None, "relative": None, "content": MADE_UP, "intermediate": True,
                "varying": 3,
            },
            "17 not written before, at [1, 4]: 0.5 -> 0.500000179, first at 5 (on made-up content; a later launch "
            "reads it, so it decides nothing; 3 more vary from run to run of the same code, so it decides nothing)",
        ),
    ],
)  # fmt: skip
def test_a_sentence_says_which_how_many_how_far_and_where(fields: dict[str, Any], text: str) -> None:
    assert changed_text(changed(**fields)) == SAID + text


def test_a_report_shows_each_output_once_by_the_call_s_own_content() -> None:
    made_up = ComparedResults(MADE_UP, (changed(content=MADE_UP, ulp=9), changed(argument="z", content=MADE_UP)))
    own = ComparedResults(OWN, (changed(), changed(argument="w", count=0, varying=2)))
    report = report_of(rule("ulp:5"), [made_up, own])
    assert report.contents == (MADE_UP, OWN)
    assert [(o.argument, o.content) for o in report.changed] == [("y_ptr", OWN), ("z", MADE_UP)]
    failing = rule("ulp:5").failing(report)
    assert {name: o.content for name, o in failing.items()} == {"y_ptr": MADE_UP}, "what fails is what is shown"
    texts = report.texts(rule("ulp:5"))
    assert [("ulp:5 is gated" in t, "at most 9 ulp" in t) for t in texts[:2]] == [(True, True), (False, False)]
    assert texts[2:] == (f"{VARYING_RESULTS}w (2 of {own.outputs[1].total:,} elements)",)


def test_why_nothing_was_compared() -> None:
    failed, fine = ComparedResults(OWN, why_not="no room"), ComparedResults(MADE_UP, not_compared=("z not compared",))
    both = report_of(rule("bitwise"), [fine, failed])
    assert (both.contents, both.not_compared) == ((MADE_UP,), ("z not compared",))
    assert both.unsure == ("results not compared on the call's own content: no room",)
    alone = report_of(rule("bitwise"), [failed])
    assert (alone.contents, alone.not_compared) == ((), both.unsure)
    assert rule("bitwise").unknown(alone)
    assert not rule("report").unknown(alone)
    assert not rule("bitwise").unknown(NumericsReport("bitwise"))


@pytest.mark.parametrize("text", ["report", "bitwise"])
def test_an_output_that_varies_wholly_is_named_and_decides_nothing(text: str) -> None:
    """Float atomics: no two runs agree, so that no element can be said to have changed."""
    every = [changed(argument="total", count=0, varying=64, total=64, content=content) for content in (MADE_UP, OWN)]
    found = report_of(rule(text), [ComparedResults(MADE_UP, (every[0],)), ComparedResults(OWN, (every[1],))])
    assert found.texts(rule(text)) == (
        "results vary from run to run of the same code, so they decide nothing: total (64 of 64 elements)",
    )
    assert rule(text).failures(found) == ()


def test_arguments_that_are_not_compared_are_left_out() -> None:
    found = ComparedResults(OWN, (changed(argument="a, b"), changed(argument="b"), changed(argument="c")))
    writers = {"a": {"kernel"}, "b": {"kernel"}, "c": {"kernel", "other"}}

    def left(*ignored: str) -> list[str]:
        return [o.argument for o in without_ignored(found, ignored, writers).outputs]

    assert left("kernel.b", "c") == ["a, b"]
    assert left("other.b", "kernel.c") == ["a, b", "b", "c"], "other kernels write there"
    assert left("kernel.c", "other.c", "a", "b") == []


@pytest.mark.parametrize("text", ["bitwise", "ulp:2", "rtol:1e-05"])
def test_infinities_from_made_up_content_alone_decide_nothing(text: str) -> None:
    """The description of a variance, say, has no bounds: what is made by it may be below zero."""
    odd = changed(nonfinite=17, ulp=0, relative=0.0, content=MADE_UP)
    assert not rule(text).fails(odd)
    assert "the call may never have such numbers, so it decides nothing" in changed_text(odd)
    assert rule(text).fails(msgspec.structs.replace(odd, content=OWN))
    assert rule(text).fails(msgspec.structs.replace(odd, nonfinite=3, ulp=9, relative=0.1))


def test_infinities_of_made_up_content_do_not_hide_that_the_numbers_are_near() -> None:
    odd = changed(nonfinite=3, content=MADE_UP)
    assert not rule("ulp:3").fails(odd)
    assert rule("ulp:3").fails(msgspec.structs.replace(odd, content=OWN))


def test_where_larger_numbers_cancelled_their_size_is_said() -> None:
    """Far apart in ulp, and by a thousandth of what the others are."""
    near_zero = changed(baseline="-5.68e-11", today="-5.76e-11", ulp=219_618, relative=0.013, typical=2e-4)
    assert ": -5.68e-11 -> -5.76e-11 (half of the numbers are above 0.0002), first" in changed_text(near_zero)
    assert "half of" not in changed_text(msgspec.structs.replace(near_zero, typical=5e-8))
    assert "half of" not in changed_text(msgspec.structs.replace(near_zero, typical=None))


@pytest.mark.parametrize(
    ("fields", "decides", "out_of_domain", "cancelled"),
    [
        ({"count": 1}, True, False, False),
        ({"count": 0}, False, False, False),
        ({"intermediate": True}, False, False, False),
        ({"varying": 1}, False, False, False),
        ({"count": 5, "nonfinite": 5, "content": MADE_UP}, False, True, False),
        ({"count": 5, "nonfinite": 4, "content": MADE_UP}, True, False, False),
        ({"count": 5, "nonfinite": 5}, True, False, False),
        ({"count": 0, "nonfinite": 0, "content": MADE_UP}, False, False, False),
        ({"count": 1, "typical": 1000.0, "baseline": "-0.5", "today": "0.75"}, True, False, True),
        ({"count": 1, "typical": 1000.0, "baseline": "-1.0", "today": "0.75"}, True, False, False),
        ({"count": 1, "typical": 1000.0, "baseline": "0.75", "today": "-1.0"}, True, False, False),
        ({"count": 1, "typical": 1000.0, "baseline": ""}, True, False, False),
    ],
)
def test_what_a_difference_is(fields: dict[str, Any], decides: bool, out_of_domain: bool, cancelled: bool) -> None:
    found = changed(**fields)
    assert (found.decides, found.out_of_domain, found.cancelled) == (decides, out_of_domain, cancelled)


def test_of_what_varies_the_call_s_own_content_counts_and_the_most_elements() -> None:
    def varying(content: str, *counts: int) -> ComparedResults:
        return ComparedResults(content, tuple(changed(count=0, varying=n, content=content, total=64) for n in counts))

    for sides, said in (([varying(MADE_UP, 9), varying(OWN, 3, 5, 4)], 5), ([varying(MADE_UP, 2, 7)], 7)):
        (text,) = report_of(rule("report"), sides).texts(rule("report"))
        assert f" ({said} of 64 elements)" in text
