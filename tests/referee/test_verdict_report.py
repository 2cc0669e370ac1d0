"""A verdict as text and JSON: the schema's fields, and nothing that a candidate wrote changes a terminal."""

from __future__ import annotations

import json

import msgspec

from kerntune.base.stats import Estimate
from kerntune.referee.reasons import TOLD, Reason
from kerntune.referee.result_errors import ResultError
from kerntune.referee.verdict_report import as_data, text_of, to_json
from kerntune.referee.verdicts import CandidateVerdict, ShapeResult, TimedLaunch, Word

CHANGE = Estimate(-0.5, -0.52, -0.48, 0.999)
ERRORS = (
    ResultError(0, "float32", 1e-8, 1e-7, 2e-8, 1e-6, 1.0), ResultError(1, "float32", 2e-8, 5e-8, 2e-8, 1e-6, 1.0),
    ResultError(2, "float32", 3e-8, 9e-7, 2e-8, 1e-6, 1.0),
)  # fmt: skip
LAUNCHES = (
    TimedLaunch("k", (2, 1, 1), 1000.0, 0.75), TimedLaunch("l", (3, 2, 1)), TimedLaunch("m", (1, 1, 1), 200.0)
)  # fmt: skip
TIMED = ShapeResult(
    "x: f32[8]", Word.FASTER, ERRORS, change=CHANGE, warm=-0.4, reference_ns=2000.0, candidate_ns=1000.0,
    launches=LAUNCHES, must_move=512_000, bandwidth=1e12, remarks=("a remark",),
)  # fmt: skip
FASTER = CandidateVerdict(
    Word.FASTER, "c.py::f", "r.py::f", (TIMED,), speeds="scripted", device="Fake", remarks=("a remark of all",)
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
        "    warm L2: speed-up 1.667, of one process",
        "    512 kB must move: 51% of the device's bandwidth",
        "    results of 3 comparisons: error at most 2e-08 of their size, 5e-08 allowed",
        "    launch k 2x1x1, 1.00 µs (75%)",
        "    launch l 3x2x1",
        "    launch m 1x1x1, 200 ns (0%)",
        "    a remark",
        "  a remark of all",
    ]


def test_unsealed_and_reasons_are_told() -> None:
    assert list(text_of(REFUSED)) == [
        "REFUSED c.py::f against r.py::f",
        "  unsealed: the candidate ran without limits on files, network and processes",
        "  REFUSED (fault) x",
        "    why",
    ]


def test_where_nothing_may_be_off_the_largest_error_is_told() -> None:
    errors = (ResultError(0, "int32", 0.25), ResultError(1, "int32", 0.5), ResultError(2, "int32"))
    shape = ShapeResult("x", Word.UNTIMED, errors)
    *_, line = text_of(CandidateVerdict(Word.UNTIMED, "c", "r", (shape,)))
    assert line == "    results of 3 comparisons: error at most 0.5 of their size, 0 allowed"


def test_json_has_the_documents_fields() -> None:
    launches = [
        {"grid": [2, 1, 1], "kernel": "k", "ns": 1000.0, "share": 0.75}, {"grid": [3, 2, 1], "kernel": "l"},
        {"grid": [1, 1, 1], "kernel": "m", "ns": 200.0},
    ]  # fmt: skip
    assert json.loads(to_json(FASTER)) == {
        "schema": "kerntune.judge/1", "verdict": "FASTER", "reason": None, "told": None, "exit_code": 0,
        "candidate": "c.py::f", "reference": "r.py::f", "device": "Fake", "speeds": "scripted", "sealed": True,
        "remarks": ["a remark of all"],
        "shapes": [{
            "inputs": "x: f32[8]", "verdict": "FASTER", "reason": None, "text": "",
            "speedup": {"estimate": 2.0, "low": 1 / 0.52, "high": 1 / 0.48}, "level": 0.999, "reference_ns": 2000.0,
            "candidate_ns": 1000.0, "warm_speedup": 1 / 0.6, "must_move_bytes": 512_000, "bandwidth": 1e12,
            "errors": [msgspec.to_builtins(error) for error in ERRORS], "launches": launches, "remarks": ["a remark"],
        }],
    }  # fmt: skip
    (shape,) = as_data(REFUSED)["shapes"]
    assert {k: v for k, v in shape.items() if v} == {
        "inputs": "x", "verdict": "REFUSED", "reason": "fault", "text": "why"
    }  # fmt: skip
    refused = as_data(REFUSED)
    assert (refused["reason"], refused["told"], refused["sealed"]) == ("fault", TOLD[Reason.FAULT], False)
    assert (refused["exit_code"], refused["speeds"], refused["device"]) == (8, "none", "")


def test_numbers_that_json_has_not_are_no_crash() -> None:
    odd = ShapeResult("x", Word.UNDECIDED, change=Estimate(0.1, -0.5, float("inf"), 0.999))
    json.loads(to_json(CandidateVerdict(Word.UNDECIDED, "c", "r", (odd,))))
