"""Case ids and results."""

from __future__ import annotations

import msgspec
import pytest

from kerntune.base import codec
from kerntune.base.case_result import CaseId, CaseResult, FailedTrial, LaunchReport, LeftOut
from kerntune.base.config import Config
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.stats import Estimate

RESULT = CaseResult(
    case=CaseId("tests/test_a.py::test_a[1]", "add"),
    fingerprint="0123456789abcdef",
    verdict=Verdict.REGRESSED,
    outcome=Outcome.FAIL,
    message="REGRESSED",
    target="cuda:90",
    device="NVIDIA H100",
    launches=(LaunchReport("add_kernel", Config({"BLOCK": 128}), (8, 1, 1), 32, 0, 1024),),
    baseline_ns=12_400.0,
    current_ns=13_900.5,
    change=Estimate(0.121, 0.116, 0.125, 0.999),
    tolerance=0.02,
    rung="paired replay",
    causes=("code changed",),
    failed_trials=(FailedTrial("add_kernel", Config({"BLOCK": 4096}), "out of resources"),),
    left_out=(LeftOut("add_kernel", Config({"BLOCK": 8192}), "spills 8 bytes a thread, others none"),),
    times_ns=(1.0, 2.5),
)


@pytest.mark.parametrize(
    ("call", "text"), [("0", "t.py::test"), ("", "t.py::test"), ("1", "t.py::test::1"), ("add", "t.py::test::add")]
)
def test_the_only_call_of_a_test_goes_by_the_tests_name(call: str, text: str) -> None:
    assert str(CaseId("t.py::test", call)) == text


def test_ids_sort_by_test_then_call() -> None:
    ids = [CaseId("b", "0"), CaseId("a", "1"), CaseId("a", "0")]
    assert sorted(ids) == [CaseId("a", "0"), CaseId("a", "1"), CaseId("b", "0")]
    assert len({*ids, CaseId("a", "1")}) == 3


def test_round_trip() -> None:
    data = codec.to_json(RESULT)
    assert msgspec.json.decode(data, type=CaseResult, strict=True) == RESULT


def test_what_is_unset_is_not_written() -> None:
    bare = CaseResult(CaseId("t", "0"), "f", Verdict.NEW, Outcome.PASS, "NEW t", "cuda:90")
    written = msgspec.json.decode(codec.to_json(bare))
    assert set(written) == {"case", "fingerprint", "verdict", "outcome", "message", "target"}
    assert (written["verdict"], written["outcome"]) == ("NEW", "pass")
    assert msgspec.convert(written, CaseResult) == bare
