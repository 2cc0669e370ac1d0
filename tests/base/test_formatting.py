"""Figures as people read them."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.formatting import (
    NO_FIGURE,
    did_you_mean,
    ends_of,
    format_bytes,
    format_rate,
    format_share,
    format_size,
    format_time,
    nearest_word,
)

UNITS = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.0, "0.00 ns"),
        (1.0, "1.00 ns"),
        (12.34, "12.3 ns"),
        (999.0, "999 ns"),
        (1000.0, "1.00 µs"),
        (12_400.0, "12.4 µs"),
        (124_000.0, "124 µs"),
        (1_234_567.0, "1.23 ms"),
        (2.5e9, "2.50 s"),
        (1.234e12, "1234 s"),
    ],
)
def test_format_time(ns: float, text: str) -> None:
    assert format_time(ns) == text


@given(st.floats(1.0, 1e12))
def test_time_reads_back_to_three_digits(ns: float) -> None:
    number, unit = format_time(ns).split(" ")
    assert float(number) * UNITS[unit] == pytest.approx(ns, rel=0.006)


@pytest.mark.parametrize(("ns", "text"), [(999_999.0, "1.00 ms"), (9.999, "10.0 ns"), (99.99e6, "100 ms")])
def test_time_has_three_digits_at_the_borders(ns: float, text: str) -> None:
    assert format_time(ns) == text


@pytest.mark.parametrize(
    ("change", "text"), [(0.121, "+12.1 %"), (-0.0534, "-5.3 %"), (0.0, "+0.0 %"), (1.5, "+150.0 %")]
)
def test_format_share(change: float, text: str) -> None:
    assert format_share(change) == text


@given(st.floats(-0.9, 10))
def test_share_reads_back(change: float) -> None:
    assert float(format_share(change).removesuffix(" %")) / 100 == pytest.approx(change, abs=0.00051)


@pytest.mark.parametrize("ns", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_time_is_no_figure(ns: float | None) -> None:
    assert format_time(ns) == NO_FIGURE


@pytest.mark.parametrize("end", [math.inf, sys.float_info.max])
def test_an_unbounded_share_is_no_number(end: float) -> None:
    assert format_share(end) == "> any"
    assert format_share(-end) == "< any"


def test_a_size_has_no_sign_unless_it_is_negative() -> None:
    assert [format_size(x) for x in (0.02, 0.005, -0.01)] == ["2.0 %", "0.5 %", "-1.0 %"]


@pytest.mark.parametrize(
    ("rate", "of_what", "text"),
    [(3.81e12, "B", "3.81 TB/s"), (612e12, "FLOP", "612 TFLOP/s"), (999.7e9, "B", "1.00 TB/s"), (5.0, "B", "5.00 B/s")],
)
def test_rates_have_three_digits_in_the_unit_that_fits(rate: float, of_what: str, text: str) -> None:
    assert format_rate(rate, of_what) == text


@pytest.mark.parametrize("rate", [None, math.nan, math.inf])
def test_what_is_no_rate_is_no_figure(rate: float | None) -> None:
    assert format_rate(rate, "B") == NO_FIGURE


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (7, "7 B"), (832, "832 B"), (1000, "1 kB"), (12_340_000, "12.3 MB"), (124_400_000, "124 MB")],
)
def test_format_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [("frosen", ["frozen", "thawed"], "frozen"), ("FROZEN", ["Frozen"], "Frozen"), ("none", ["winner"], ""),
     ("abcdefghij", ["abcdefxyzw"], ""), ("abcdefghij", ["abcdefgxyz"], "abcdefgxyz"), ("x", [], "")],
)  # fmt: skip
def test_what_was_meant(word: str, known: list[str], meant: str) -> None:
    """From a likeness of 0.65 on: of ten letters seven in a row."""
    assert nearest_word(word, known) == meant
    assert did_you_mean(word, known) == (f"; did you mean {meant}?" if meant else "")


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999 B"), (999_499, "999 kB"), (999_500, "1 MB"), (99_949, "99.9 kB"), (99_950, "100 kB"),
     (10**15, "1000 TB"), (5 * 10**13, "50 TB")],
)  # fmt: skip
def test_bytes_at_the_borders(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_of_a_long_text_its_end_is_kept() -> None:
    """Triton has the source first, and what is wrong with it last."""
    text = "at 10:10: def kernel(x):\n" + "    x += 1\n" * 200 + "AssertionError('a type')"
    short = ends_of(text, 100)
    assert (len(short), short.count(" [...] ")) == (100, 1)
    assert (short[:13], short[-24:]) == ("at 10:10: def", "AssertionError('a type')")
    assert ends_of("short", 5) == "short"
