"""What changed between two baselines, as data: how bad it is, and a line for each difference."""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pytest

from cli.made import SOFTMAX, static, timed
from kerntune.base.config import Config
from kerntune.cli import changes
from kerntune.cli.changes import Change, Figure, case_list, change_of, compare, ungateable
from kerntune.cli.stored import Entry, key_of
from kerntune.gate.baselines import Calibration


def figure(name: str, before: float | None, after: float | None) -> Figure:
    return Figure("k", name, before, after)


@pytest.mark.parametrize(
    ("share", "figures", "badness"),
    [
        (0.5, (), 0.5),
        (-0.5, (figure("spilled bytes", 0, 8),), -0.5),
        (0.0, (figure("registers", 32, 64),), 0.0),
        (None, (), 0.0),
        (None, (figure("registers", 32, 48), figure("shared bytes", 100, 175)), 0.75),
        (None, (figure("registers", 48, 36),), -0.25),
        (None, (figure("code bytes", 1, 9), figure("occupancy", 0.5, 1.0)), 0.0),
        (None, (figure("registers", 32, 48), figure("spilled bytes", 8, 9)), math.inf),
        (None, (figure("registers", 32, 48), figure("spilled bytes", 9, 8)), 0.5),
        (None, (figure("spilled bytes", None, 1),), math.inf),
        (None, (figure("spilled bytes", 1, None),), 0.0),
        (None, (figure("shared bytes", 0, 1),), math.inf),
        (None, (figure("shared bytes", None, 0),), 0.0),
        (None, (figure("registers", 4, None),), -1.0),
    ],
)
def test_changes_rank_by_time_then_by_growth_and_new_spills_are_beyond_any(
    share: float | None, figures: tuple[Figure, ...], badness: float
) -> None:
    assert Change("c", "cuda:90", "p", None, None, share, (), figures, (), ()).badness == badness


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [(None, 3, "? -> 3"), (0.25, 1.0, "0.25 -> 1"), (128, 12_000, "128 -> 12000"), (0, None, "0 -> ?")],
)
def test_a_figure_is_a_line(before: float | None, after: float | None, text: str) -> None:
    assert str(figure("registers", before, after)) == f"k: registers {text}"


@pytest.mark.parametrize(
    ("markdown", "text"), [(False, "Added:\n  a[1]\n  b|c"), (True, "Added:\n\n- `a[1]`\n- b&#124;c")]
)
def test_cases_below_their_title(markdown: bool, text: str) -> None:
    assert case_list("Added", ["a[1]", "b|c"], markdown) == text


def entry(made: Any, path: str = "a.json") -> Entry:
    return Entry(PurePosixPath(path), made.baseline)


def test_two_sets_have_what_was_added_removed_and_stayed_the_same() -> None:
    """A file that one side can't read may hold the case: it is neither added nor removed."""
    one, two, slower = timed(), timed("t.py::two"), timed("t.py::two", times=(99_000.0,))
    three, bad = static("t.py::three"), Entry(PurePosixPath("3.json"), None, "it is damaged")
    found = compare([entry(one, "1.json"), entry(two, "2.json")], [entry(one, "1.json"), entry(slower, "2.json")])
    assert [c.case for c in found.changed] == ["t.py::two"]
    assert (found.added, found.removed, found.same, found.problems, found.differs) == ((), (), 1, (), True)
    added = "t.py::three (cuda:90, static, Triton 3.9)", f"{SOFTMAX} (cuda:90, NVIDIA H200)"
    more = [entry(one, "1.json"), entry(three, "3.json")]
    assert (compare([], more).added, compare([], more).removed) == (added, ())
    assert (compare(more, []).added, compare(more, []).removed) == ((), added)
    for sides in (([bad], more), (more, [bad])):
        told = compare(*sides)
        assert [*told.added, *told.removed] == [added[1]]
        assert (told.problems, told.same, told.changed) == (("it is damaged",), 0, ())
    assert not compare(more, more).differs


@pytest.mark.parametrize(
    ("timers", "note"),
    [
        (("graph", "graph"), ""),
        (("events", "graph"), "timed by events (protocol 2), then by graph (protocol 2): not comparable"),
    ],
)
def test_times_are_compared_where_both_were_taken_alike(timers: tuple[str, str], note: str) -> None:
    old, new = (timed(timer=t, times=(ns,)).baseline for t, ns in zip(timers, (8000.0, 10_000.0), strict=True))
    found = change_of(key_of(new), old, new)
    assert (found.before_ns, found.after_ns, found.change) == (8000.0, 10_000.0, None if note else 0.25)
    assert found.notes == ((note,) if note else ())
    assert (found.case, found.target, found.place) == (SOFTMAX, "cuda:90", "NVIDIA H200")


def test_a_time_beside_static_figures_is_no_change() -> None:
    old, new = static(config=Config({"BLOCK": 1024}, num_warps=8)).baseline, timed().baseline
    for sides, ns in (((old, new), (None, 12_400.0)), ((new, old), (12_400.0, None))):
        found = change_of(key_of(new), *sides)
        assert ((found.before_ns, found.after_ns), found.change, found.environment) == (ns, None, ())


@pytest.mark.parametrize(("floor", "said"), [(0.02, ""), (0.021, "changes under 2.1 % can't be told from none there")])
def test_what_is_noisier_than_the_usual_tolerance_is_said_to_be(floor: float, said: str) -> None:
    made = timed().baseline
    noisy = msgspec.structs.replace(made, calibration=Calibration(4, 24, floor, 0.0, 0.001))
    assert ungateable(noisy) == (f"can't be gated at 2.0 %: {said}" if said else "")
    assert ungateable(made) == ungateable(static().baseline) == ""


def test_launches_are_compared_one_by_one() -> None:
    (launch,) = static(config=Config({"BLOCK": 64})).baseline.launches
    named = msgspec.structs.replace(launch, kernel="other")
    wide = msgspec.structs.replace(launch, config=Config({"BLOCK": 128}))
    assert changes._config(launch, wide) == ["softmax_kernel: BLOCK 64 -> 128"]
    assert changes._config(launch, named) == ["launch: softmax_kernel -> other"]
    assert changes._config(None, launch) == ["launch added: softmax_kernel"]
    assert changes._config(launch, None) == ["launch removed: softmax_kernel"]
    assert changes._config(None, None) == changes._config(launch, launch) == changes._figures(launch, named) == []
    grown = msgspec.structs.replace(launch, grid=(1, 2, 3))
    assert list(changes._code(launch, grown, "3.9", "3.9"))[-1] == "softmax_kernel: grid 4096x1x1 -> 1x2x3"
    assert list(changes._code(launch, launch, "3.9", "3.9")) == []
