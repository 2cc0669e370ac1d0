"""What a case's view is drawn from."""

from __future__ import annotations

import json
import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gate.reporting.made_runs import made_curves, made_run
from kerntune.base.case_result import Attribution, CaseResult, Share, TrialReport
from kerntune.base.config import Config
from kerntune.base.failed_candidates import ConfigReport, FailedTrial
from kerntune.base.numerics import MADE_UP, ChangedOutput, NumericsReport, NumericsRule
from kerntune.base.policy import Outcome
from kerntune.gate.report import RankedResult, RunReport
from kerntune.gate.reporting.case_details import case_details

MAX_CONFIGS = 300
MAX_SAMPLES = 600
MAX_TEXT = 4_000


(RESULT,) = made_run(1, samples=30, configs=12).results


def details(**changes: object) -> dict[str, object]:
    result = msgspec.structs.replace(RESULT, **changes)
    return case_details(RankedResult(result, RunReport((result,))))


def bare() -> CaseResult:
    return CaseResult(RESULT.case, "", RESULT.verdict, RESULT.outcome, "REGRESSED", "cuda:90")


def test_every_section_of_a_timed_case() -> None:
    run = RunReport((RESULT,))
    found = case_details(RankedResult(RESULT, run), made_curves(run, points=10)[0])
    assert {
        "samples", "waterfall", "landscape", "roofline", "history", "launches", "code", "facts", "notes"
    } <= set(found)  # fmt: skip
    assert len(found["history"]["steps"]) == 1
    assert found["launches"][0]["figures"][0] == ["registers", "128", "96"]
    assert found["launches"][0]["limiter"] == "registers"


def test_a_case_without_anything_has_no_empty_sections() -> None:
    result = bare()
    assert set(case_details(RankedResult(result, RunReport((result,))))) == {
        "title",
        "verdict",
        "outcome",
        "message",
        "accept",
        "facts",
    }


def test_changed_results_have_a_list_of_their_own() -> None:
    """Of both contents, while a finding is about one of them."""
    own = ChangedOutput("y_ptr", "float32", 4096, 2, 5, 12, "0.5", "0.6", ulp=9, relative=0.1)
    made_up = msgspec.structs.replace(own, count=3, content=MADE_UP)
    report = NumericsReport("bitwise", outputs=(made_up, own))
    sentences = report.texts(NumericsRule("bitwise"))
    warned = {"numerics": report, "outcome": Outcome.WARN}
    notes = dict(details(**warned, findings=("registers: 128 instead of 96", *sentences))["notes"])
    assert notes["Findings"] == ["registers: 128 instead of 96"]
    gated, *rest = notes["Changed results"]
    assert gated.startswith("y_ptr: 2 of 4,096 elements differ, at most 9 ulp and 0.1 relative, at 12: 0.5 -> 0.6")
    assert gated.endswith("; bitwise is gated")
    assert [text.partition(" of ")[0] for text in rest] == ["y_ptr: 3", "y_ptr: 2"]
    assert rest[0].endswith("(on made-up content)")


def test_samples_of_both_sides_are_bounded_and_keep_their_order() -> None:
    many = tuple(float(i) for i in range(10_000))
    found = details(times_ns=many, baseline_times_ns=many[::-1], outliers=(9_999,))["samples"]
    assert len(found["today"]) == len(found["stored"]) == MAX_SAMPLES
    assert found["today"] == sorted(found["today"])
    assert found["stored"] == sorted(found["stored"], reverse=True)
    assert found["outliers"] == [], "indices mean nothing among fewer times"
    assert len(found["replayedBaseline"]) == len(found["replayedToday"]) == 6


def test_the_landscape_has_what_failed_and_why() -> None:
    (part,) = details()["landscape"]
    states = [c["state"] for c in part["configs"]]
    assert (states.count("ran"), states.count("failed"), states.count("left out")) == (6, 3, 3)
    assert [c["ns"] for c in part["configs"] if "ns" in c] == sorted(c["ns"] for c in part["configs"] if "ns" in c)
    assert all(c["reason"] for c in part["configs"] if c["state"] != "ran")
    assert part["chosen"] == part["configs"][0]["at"]


def test_wrong_output_has_a_state_of_its_own() -> None:
    failed = FailedTrial("k", Config({"B": 1}), "it wrote other values to y")
    (part,) = details(trials=(), left_out=(), failed_trials=(failed,))["landscape"]
    assert [c["state"] for c in part["configs"]] == ["wrong output"]


def test_a_long_list_keeps_what_failed_and_counts_the_rest() -> None:
    ran = tuple(TrialReport("k", Config({"B": i}), 1000.0 + i) for i in range(2_000))
    failed = tuple(FailedTrial("k", Config({"B": -i}), "no") for i in range(1, 6))
    (part,) = details(trials=ran, failed_trials=failed, left_out=())["landscape"]
    assert len(part["configs"]) == MAX_CONFIGS
    assert part["more"] == 2_005 - MAX_CONFIGS
    assert [c["state"] for c in part["configs"]].count("failed") == 5
    assert part["configs"][0]["at"]["B"] == 0


def test_compiled_configs_have_their_figures() -> None:
    made = (
        ConfigReport("k", Config({"B": 1}), 32, 0, 64), ConfigReport("k", Config({"B": 2}), broken="can't be compiled")
    )  # fmt: skip
    (part,) = details(trials=(), failed_trials=(), left_out=(), configs=made)["landscape"]
    assert [(c["state"], c.get("registers")) for c in part["configs"]] == [("compiled", 32), ("failed", None)]


def test_parameters_are_numbers_or_text() -> None:
    config = Config({"B": 16, "X": math.inf, "Y": "bf16", "Z": True})
    (part,) = details(trials=(TrialReport("k", config, 1.0),), failed_trials=(), left_out=())["landscape"]
    at = part["configs"][0]["at"]
    assert (at["B"], at["X"], at["Y"], at["Z"]) == (16, "inf", "bf16", "True")


def test_the_waterfall_names_what_was_timed_together_and_what_was_not() -> None:
    parts = Attribution(
        environment=Share(0.01),
        compiler=Share(0.0),
        code=Share(0.05, "source changed"),
        config=Share(None, "not measured: no"),
        launch=Share(None, "BLOCK", "launch options", "code"),
    )
    found = {s["name"]: s for s in details(attribution=parts)["waterfall"]}
    assert list(found) == ["environment", "code", "launch options", "config"]
    assert found["launch options"]["within"] == "code"
    assert found["config"]["change"] is None


def test_the_roofline_has_what_was_measured_of_the_device() -> None:
    found = details(flops=3e9, bytes_moved=1e6, bandwidth=4e12, matmul_peak=7e14, matmul_dtype="bfloat16")["roofline"]
    assert (found["flops"], found["bytes"], found["bandwidth"]) == (3e9, 1e6, 4e12)
    assert (found["peak"], found["peakOf"]) == (7e14, "bfloat16")
    assert details(matmul_peak=math.inf)["roofline"]["peak"] is None
    assert "roofline" not in details(flops=None, bytes_moved=None)
    assert "roofline" not in details(current_ns=None)


def test_long_texts_are_cut() -> None:
    found = details(message="x" * 100_000, causes=("y" * 100_000,))
    assert len(found["message"]) == MAX_TEXT + 1
    assert len(json.dumps(found)) < 60_000


@given(
    st.lists(st.floats(), max_size=5),
    st.none() | st.floats(),
    st.none() | st.floats(),
    st.text(max_size=20),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.floats(allow_nan=False), max_size=3),
)
def test_whatever_a_result_holds_is_json(times, ns, amount, text, kwargs) -> None:
    result = msgspec.structs.replace(
        RESULT,
        times_ns=tuple(times),
        current_ns=ns,
        flops=amount,
        bytes_moved=amount,
        message=text,
        trials=(TrialReport(text, Config(kwargs), 1.0),),
    )
    found = case_details(RankedResult(result, RunReport((result,))))
    json.dumps(found, allow_nan=False)
