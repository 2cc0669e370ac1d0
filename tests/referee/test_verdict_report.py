"""A verdict as text and JSON: the schema's fields, and nothing that a candidate wrote changes a terminal."""

from __future__ import annotations

import json

from kerntune.base.stats import Estimate
from kerntune.referee.reasons import TOLD, Reason
from kerntune.referee.result_errors import ResultError
from kerntune.referee.verdict_report import as_data, text_of, to_json
from kerntune.referee.verdicts import CandidateVerdict, ShapeResult, TimedLaunch, Word

CHANGE = Estimate(-0.5, -0.52, -0.48, 0.999)
TIMED = ShapeResult(
    "x: f32[8]", Word.FASTER, (ResultError(0, "float32", 1e-8, 1e-7, 2e-8, 1e-6, 1.0),), change=CHANGE, warm=-0.5,
    reference_ns=2000.0, candidate_ns=1000.0, launches=(TimedLaunch("k", (2, 1, 1), 1000.0, 1.0),), must_move=1024,
    bandwidth=1e12, remarks=("a remark",),
)  # fmt: skip
FASTER = CandidateVerdict(Word.FASTER, "c.py::f", "r.py::f", (TIMED,), speeds="scripted", device="Fake")
REFUSED = CandidateVerdict(
    Word.REFUSED, "c.py::f", "r.py::f", (ShapeResult("x", Word.REFUSED, reason=Reason.FAULT, text="why"),), sealed=False
)


def test_the_text_begins_with_the_verdict_and_says_what_it_is_worth() -> None:
    lines = list(text_of(FASTER))
    assert lines[0] == "FASTER c.py::f against r.py::f on Fake"
    assert lines[1] == "  speeds are scripted: no GPU has run anything"
    text = "\n".join(lines)
    assert "speed-up 2.000 (99.9% interval 1.923 to 2.083), cold L2" in text
    assert "warm L2: speed-up 2.000, of one process" in text
    assert "error at most 1e-08 of their size, 1e-07 allowed" in text
    assert "launch k 2x1x1, 1 µs (100%)" in text or "launch k 2x1x1, 1.00 µs (100%)" in text
    assert "a remark" in text


def test_unsealed_and_reasons_are_told() -> None:
    lines = list(text_of(REFUSED))
    assert "  unsealed: the candidate ran without limits on files, network and processes" in lines
    assert "  REFUSED (fault) x" in lines


def test_json_has_the_documents_fields() -> None:
    data = json.loads(to_json(FASTER))
    assert data["schema"] == "kerntune.judge/1"
    assert (data["verdict"], data["exit_code"], data["reason"]) == ("FASTER", 0, None)
    shape = data["shapes"][0]
    assert shape["speedup"] == {"estimate": 2.0, "low": 1 / 0.52, "high": 1 / 0.48}
    assert shape["launches"] == [{"grid": [2, 1, 1], "kernel": "k", "ns": 1000.0, "share": 1.0}]
    refused = as_data(REFUSED)
    assert (refused["reason"], refused["told"], refused["sealed"]) == ("fault", TOLD[Reason.FAULT], False)


def test_numbers_that_json_has_not_are_no_crash() -> None:
    odd = ShapeResult("x", Word.UNDECIDED, change=Estimate(0.1, -0.5, float("inf"), 0.999))
    json.loads(to_json(CandidateVerdict(Word.UNDECIDED, "c", "r", (odd,))))
