"""A verdict as text and JSON: the schema's fields, and nothing that a candidate wrote changes a terminal."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from kerntune.base.stats import Estimate
from kerntune.referee.element_errors import ResultError
from kerntune.referee.reasons import Reason
from kerntune.referee.verdict_report import as_data, text_of, to_json
from kerntune.referee.verdicts import CandidateVerdict, ShapeResult, TimedLaunch, Word

CHANGE = Estimate(-0.5, -0.52, -0.48, 0.999)
ERRORS = tuple(ResultError(0, "float32", rms, allowed) for rms, allowed in ((0.6, 2.0), (0.35, 0.0), (1e-8, 1e-7)))
LAUNCHES = (TimedLaunch("k", (2, 3, 1), 750.0, 0.75), TimedLaunch("later", (1, 1, 1)), TimedLaunch("l", (1, 1, 1), 9.0))
TIMED = ShapeResult(
    "x: f32[8]", Word.FASTER, ERRORS, change=CHANGE, warm=-0.75, reference_ns=2000.0, candidate_ns=1000.0,
    launches=LAUNCHES, must_move=1024, bandwidth=1.6e9, remarks=("a remark",),
)  # fmt: skip
FASTER = CandidateVerdict(
    Word.FASTER, "c.py::f", "r.py::f", (TIMED,), speeds="scripted", device="Fake", remarks=("of all",)
)
REFUSED = CandidateVerdict(
    Word.REFUSED, "c.py::f", "r.py::f", (ShapeResult("x", Word.REFUSED, reason=Reason.FAULT, text="why"),), sealed=False
)


def test_the_text_begins_with_the_verdict_and_says_what_it_is_worth() -> None:
    assert list(text_of(FASTER)) == [
        "FASTER c.py::f against r.py::f on Fake",
        "  speeds are scripted: no GPU has run anything",
        "  FASTER x: f32[8]",
        "    2.00 µs -> 1.00 µs, speed-up 2.000 (99.9% interval 1.923 to 2.083), cold L2",
        "    warm L2: speed-up 4.000, of one process",
        "    1.02 kB must move: 64% of the device's bandwidth",
        "    results of 3 comparisons: error at most 0.35 of their size, 0 allowed",
        "    launch k 2x3x1, 750 ns (75%)",
        "    launch later 1x1x1",
        "    launch l 1x1x1, 9.00 ns (0%)",
        "    a remark",
        "  of all",
    ]
    beside = replace(TIMED, launches=(TimedLaunch("aten.sum.out", ()), LAUNCHES[1]))
    lines = [*text_of(replace(FASTER, shapes=(beside,)))]
    assert lines[7:9] == ["    operator aten.sum.out", "    launch later 1x1x1"]
    assert list(text_of(REFUSED)) == [
        "REFUSED c.py::f against r.py::f",
        "  unsealed: the candidate ran without limits on files, network and processes",
        "  REFUSED (fault) x",
        "    why",
    ]


def test_launches_without_blocks_and_those_after_the_64th_are_not_listed() -> None:
    many = [TimedLaunch(str(i), (i % 2, 1, 1)) for i in range(131)]
    verdict = replace(FASTER, shapes=(replace(TIMED, launches=tuple(many)),))
    lines = [line for line in text_of(verdict) if "launch" in line]
    assert lines == [*(f"    launch {i} 1x1x1" for i in range(1, 129, 2)), "    and 1 launches more"]


def test_json_has_the_documents_fields() -> None:
    data = json.loads(to_json(FASTER))
    (shape,) = data.pop("shapes")
    assert data == {
        "schema": "kerntune.judge/1", "verdict": "FASTER", "reason": None, "told": None, "exit_code": 0,
        "candidate": "c.py::f", "reference": "r.py::f", "device": "Fake", "speeds": "scripted", "sealed": True,
        "remarks": ["of all"],
    }  # fmt: skip
    assert shape.pop("errors")[0] == {"result": 0, "dtype": "float32", "rms": 0.6, "rms_allowed": 2.0}
    assert shape.pop("launches")[:2] == [
        {"grid": [2, 3, 1], "kernel": "k", "ns": 750.0, "share": 0.75},
        {"grid": [1, 1, 1], "kernel": "later"},
    ]
    assert shape == {
        "inputs": "x: f32[8]", "verdict": "FASTER", "reason": None, "text": "",
        "speedup": {"estimate": 2.0, "low": 1 / 0.52, "high": 1 / 0.48}, "level": 0.999, "reference_ns": 2000.0,
        "candidate_ns": 1000.0, "warm_speedup": 4.0, "must_move_bytes": 1024, "bandwidth": 1.6e9,
        "remarks": ["a remark"],
    }  # fmt: skip
    refused = as_data(REFUSED)
    assert (refused["reason"], refused["told"], refused["sealed"]) == ("fault", Reason.FAULT.told, False)
    untimed = {"speedup", "level", "reference_ns", "candidate_ns", "warm_speedup", "bandwidth"}
    assert {k for k, v in refused["shapes"][0].items() if v is None} == untimed


def test_numbers_that_json_has_not_are_no_crash() -> None:
    odd = ShapeResult("x", Word.UNDECIDED, change=Estimate(0.1, -0.5, float("inf"), 0.999))
    json.loads(to_json(CandidateVerdict(Word.UNDECIDED, "c", "r", (odd,))))


def test_where_nothing_may_be_off_the_largest_error_is_told() -> None:
    errors = (ResultError(0, "int32", 0.25), ResultError(1, "int32", 0.5), ResultError(2, "int32"))
    shape = ShapeResult("x", Word.UNTIMED, errors)
    *_, line = text_of(CandidateVerdict(Word.UNTIMED, "c", "r", (shape,)))
    assert line == "    results of 3 comparisons: error at most 0.5 of their size, 0 allowed"


@pytest.mark.parametrize(("count", "more"), [(64, []), (65, ["    and 1 launches more"])])
def test_launches_that_work_are_shown_up_to_64(count: int, more: list[str]) -> None:
    launches = [TimedLaunch("k", (1, 2, 3))] * count + [TimedLaunch("none", (1, 0, 3))]
    shape = ShapeResult("x", Word.UNTIMED, launches=tuple(launches))
    found = list(text_of(CandidateVerdict(Word.UNTIMED, "c", "r", (shape,))))
    assert found[2:] == ["    launch k 1x2x3"] * 64 + more


def test_what_a_candidate_says_takes_one_line() -> None:
    shape = ShapeResult("x", Word.REFUSED, text="why\n\n  not")
    assert list(text_of(CandidateVerdict(Word.REFUSED, "c\nd.py", "r", (shape,)))) == [
        "REFUSED c d.py against r", "  REFUSED x", "    why not"
    ]  # fmt: skip
