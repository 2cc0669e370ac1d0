"""Case ids and results."""

from __future__ import annotations

import msgspec
import pytest

from kerntune.base import codec
from kerntune.base.case_result import CaseId, CaseResult, LaunchReport, LeftOut
from kerntune.base.config import Config
from kerntune.base.failed_candidates import (
    SAME,
    WRONG,
    ConfigReport,
    FailedTrial,
    config_problems,
    failures_line,
    told_once,
)
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.stats import Estimate

MAX_REASON = 200


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


LONG = "can't be compiled: " + "line\n" * MAX_REASON
SIZES = tuple(Config({"BLOCK": b}) for b in (64, 128, 256, 512))


@pytest.mark.parametrize("kind", [FailedTrial, ConfigReport])
def test_a_long_reason_that_candidates_share_stands_at_the_first(kind: type) -> None:
    name = kind.__struct_fields__[-1]
    told = told_once(kind(kernel, config, **{name: LONG}) for kernel in ("a", "b") for config in SIZES)
    reasons = [getattr(one, name) for one in told]
    assert reasons[:4] == reasons[4:] == [LONG, *[f"{SAME}{SIZES[0]}"] * 3]
    assert [one.config for one in told] == [*SIZES, *SIZES]


@pytest.mark.parametrize("reason", ["too large", f"{WRONG}: {LONG}"])
def test_short_reasons_and_wrong_results_are_told_of_each(reason: str) -> None:
    given = tuple(FailedTrial("a", config, reason) for config in SIZES)
    assert told_once(given) == given


def test_problems_are_those_of_all_reports_again() -> None:
    given = [ConfigReport("a", config, broken=LONG) for config in SIZES[:3]]
    given += [ConfigReport("a", SIZES[3], spill_bytes=8), ConfigReport("a", SIZES[0], broken=LONG[:-1])]
    given += [ConfigReport("a", SIZES[1], broken=LONG[:-1]), ConfigReport("a", SIZES[1])]
    problems = config_problems(given)
    assert config_problems(told_once(given)) == problems
    assert [(p.configs, p.broken) for p in problems] == [(SIZES[:3], True), (SIZES[3:], False), (SIZES[:2], True)]
    assert str(problems[0]).startswith(f"a with {SIZES[0]} and 2 others: can't be compiled")
    assert str(problems[1]) == f"a with {SIZES[3]}: spills 8 bytes per thread"


def test_a_summary_cuts_a_long_reason_and_no_other() -> None:
    def line(reason: str) -> str:
        return failures_line([FailedTrial("k", SIZES[0], reason)], 2)

    begin = f"kernel k: 1 of 2 configs failed: {SIZES[0]}: "
    assert line("x" * MAX_REASON) == begin + "x" * MAX_REASON
    assert line("x" * (MAX_REASON + 1)) == f"{begin}{'x' * (MAX_REASON - 3)}..."


@pytest.mark.parametrize(
    ("current_ns", "rates"),
    [
        (10.0, (2e9, 3e9, 0.5, 0.25)),
        (None, (None, None, None, None)),
    ],
)
def test_rates_are_of_today_s_time_where_there_is_one(
    current_ns: float | None, rates: tuple[float | None, ...]
) -> None:
    result = msgspec.structs.replace(
        RESULT, current_ns=current_ns, bytes_moved=20, flops=30.0, bandwidth=4e9, matmul_peak=12e9
    )
    found = result.roofline
    given = (found.bytes_per_second, found.flops_per_second, found.of_bandwidth, found.of_matmul)
    assert given == (rates[0], rates[1], rates[2], rates[3])
