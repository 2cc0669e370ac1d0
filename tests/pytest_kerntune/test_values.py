"""Values that people write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.errors import UsageError
from pytest_kerntune.values import (
    parse_choice,
    parse_floor,
    parse_kernel_values,
    parse_name,
    parse_switch,
    parse_tolerance,
)


@pytest.mark.parametrize(
    ("value", "share"), [(0.02, 0.02), ("0.02", 0.02), ("2%", 0.02), (" 2.5 % ", 0.025), ("1e-3", 1e-3)]
)
def test_tolerance(value, share):
    assert parse_tolerance(value, "here") == pytest.approx(share)


@pytest.mark.parametrize(
    "value", [0, 1, 2, -0.1, "2", "", "two", "200%", True, None, float("nan"), float("inf"), [0.1]]
)
def test_no_tolerance(value):
    with pytest.raises(UsageError, match=r"^here: .* is no tolerance; .*2%"):
        parse_tolerance(value, "here")


@pytest.mark.parametrize(
    ("value", "ns"),
    [(500, 500), (0, 0), ("500", 500), ("500ns", 500), ("0.5us", 500), ("0.5 µs", 500), ("1ms", 1e6), ("2s", 2e9)],
)
def test_floor(value, ns):
    assert parse_floor(value, "here") == pytest.approx(ns)


@pytest.mark.parametrize("value", [-1, "-1us", "", "fast", "5 minutes", True, None, float("nan"), "inf"])
def test_no_floor(value):
    with pytest.raises(UsageError, match=r"^here: .* is no time"):
        parse_floor(value, "here")


@given(st.floats(min_value=0, max_value=1e12), st.sampled_from(["ns", "us", "µs", "ms", "s"]))
def test_floor_reads_any_number_with_a_unit(number, unit):
    scale = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert parse_floor(f"{number}{unit}", "here") == pytest.approx(number * scale)


def test_choice_names_the_choices():
    assert parse_choice("op", ("kernels", "op"), "here") == "op"
    for wrong in ("all", 5, None):
        with pytest.raises(UsageError, match="is none of kernels, op"):
            parse_choice(wrong, ("kernels", "op"), "here")


def test_switch_takes_truth_values_only():
    assert parse_switch(True, "here") is True
    for wrong in (1, "yes", None):
        with pytest.raises(UsageError, match="neither True nor False"):
            parse_switch(wrong, "here")


def test_name_has_no_separator():
    assert parse_name("forward", "here") == "forward"
    for wrong in ("", "  ", "a::b", "a\nb", 5):
        with pytest.raises(UsageError, match="is no name"):
            parse_name(wrong, "here")


class Tensor:
    """What torch's tensors are known by."""

    untyped_storage = None


def test_kernel_values_are_sorted_by_kernel():
    x, y, z = Tensor(), Tensor(), Tensor()
    given = {"route.counts": x, "route.ends": y, "sort.at": z}
    assert parse_kernel_values(given, "values") == {"route": {"counts": x, "ends": y}, "sort": {"at": z}}
    assert parse_kernel_values({}, "values") == {}


@pytest.mark.parametrize(
    "value", [Tensor(), {"counts": Tensor()}, {"a.b.c": Tensor()}, {1: Tensor()}, [("a.b", Tensor())], {"a.": Tensor()}]
)
def test_no_kernel_values(value):
    with pytest.raises(UsageError, match=r"^values: .* is no mapping from arguments .*lambda: fn\(values"):
        parse_kernel_values(value, "values")


def test_kernel_values_are_tensors():
    with pytest.raises(UsageError, match=r"^values: route.counts: a list is no tensor"):
        parse_kernel_values({"route.counts": [1, 2]}, "values")
