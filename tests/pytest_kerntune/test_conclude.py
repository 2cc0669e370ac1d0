"""How a test ends: what its results, errors and baselines make of it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from doubles import Item

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.policy import Outcome, Policy, Verdict
from kerntune.errors import KerntuneError, UsageError
from pytest_kerntune import conclude as ends
from pytest_kerntune import marker
from pytest_kerntune.conclude import (
    DeviceLoss,
    after_error,
    conclude,
    conclude_teardown,
    end_worker,
    is_device_error,
    settle_crash,
    skipped_setup,
    unfinished_setup,
    warning_of,
    write_baselines,
)
from pytest_kerntune.fixture import UPHELD, Record
from pytest_kerntune.marker import HEADLINE

NODE = "t.py::test_a"
STRICT = Policy(outcomes={Verdict.INCOMPLETE: Outcome.FAIL, Verdict.INCONCLUSIVE: Outcome.FAIL})
LAX = Policy(outcomes={Verdict.INCOMPLETE: Outcome.WARN, Verdict.INCONCLUSIVE: Outcome.WARN})


def a_test(options: dict[str, str] | None = None, **more: Any) -> Any:
    given = {f"kerntune_{name}": value for name, value in (options or {}).items()}
    place = SimpleNamespace(dir=Path("/project/tests"))
    config = SimpleNamespace(getoption=given.get, rootpath=Path("/project"), invocation_params=place)
    return Item(config=config, **more)


def strictly(warning: Warning) -> None:
    raise warning


@pytest.fixture(autouse=True)
def plain_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "nodeid_of", lambda item: item.nodeid)
    monkeypatch.setattr(ends, "never_called", lambda item: "it was never called")
    monkeypatch.setattr(ends, "properties", lambda results: [r.message for r in results])


def result(outcome: Outcome, message: str = "said", call: str = "0", **more: Any) -> CaseResult:
    verdict = more.pop("verdict", Verdict.REGRESSED)
    return CaseResult(CaseId(NODE, call), "f", verdict, outcome, message, "cuda:90", **more)


PASS, WARN, FAIL = (result(o, o.value, o.value) for o in (Outcome.PASS, Outcome.WARN, Outcome.FAIL))


ACCEPT = "  to accept: pytest --kerntune --kerntune-update=regressed ../t.py::test_a"


def failed(call: Any, *args: Any, **words: Any) -> str:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a skip that nobody expects would skip this test
        call(*args, **words)
    assert isinstance(caught.value, pytest.fail.Exception)
    assert not caught.value.pytrace
    return str(caught.value)


def test_a_test_fails_by_its_failing_results_and_warns_of_others() -> None:
    item, record = a_test(), Record(results=[PASS, WARN], lost=["in a thread"])
    said = failed(conclude, item, record, STRICT, marked=True, extra=[FAIL])
    assert said == f"in a thread\nfail\n{ACCEPT}"
    assert (item.warned, item.user_properties) == (["warn"], ["pass", "warn", "fail"])
    assert (record.finished, record.settled, record.failed, record.concluded) == (True, True, True, 3)


@pytest.mark.parametrize(
    ("lines", "before", "line"),
    [
        (["slower", "spills"], [], "slower (and 1 more)"), (["slower", "", "spills", "x"], [], "slower (and 2 more)"),
        (["slower", ""], [], "slower"), (["a\x1b"], [], "a\\u001b"), (["", ""], [], None),
        (["slower"], ["in a thread"], None),
    ],
)  # fmt: skip
def test_a_failures_line_is_its_worst_finding(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], before: list[str], line: str | None
) -> None:
    monkeypatch.setattr(ends, "_line_of", lambda result: lines[int(result.case.call)])
    results = [result(Outcome.FAIL, call=str(i)) for i in range(len(lines))]
    with pytest.raises(pytest.fail.Exception) as caught:
        ends.fail_with(a_test(), results, before)
    assert getattr(caught.value, HEADLINE, None) == line


@pytest.mark.parametrize(
    ("found", "cause", "line"),
    [("spills 0 -> 8 B", "num_warps 4 -> 1", "spills 0 -> 8 B · num_warps 4 -> 1"), ("spills", "", "spills"),
     ("", "no baseline on this device", "REGRESSED · no baseline on this device"), ("", "", "")],
)  # fmt: skip
def test_a_finding_is_told_with_its_cause(monkeypatch: pytest.MonkeyPatch, found: str, cause: str, line: str) -> None:
    monkeypatch.setattr(ends, "headline", lambda result: found)
    monkeypatch.setattr(ends, "cause_text", lambda result: cause)
    assert ends._line_of(FAIL) == line


def test_no_update_accepts_what_is_held_against_a_revision() -> None:
    item = a_test({"against": "main"})
    assert failed(conclude, item, Record(results=[FAIL]), STRICT, marked=True) == "fail"


def test_the_command_repeats_target_and_folder_of_the_command_line() -> None:
    item = a_test({"target": "cuda:90,hip:gfx942", "baselines": "there"})
    said = failed(conclude, item, Record(results=[FAIL]), STRICT, marked=True)
    options = "--kerntune-target=cuda:90,hip:gfx942 --kerntune-baselines=there --kerntune-update=regressed"
    assert said.endswith(f" {options} ../t.py::test_a")


def test_warnings_that_are_errors_fail_the_test() -> None:
    assert failed(conclude, a_test(warn=strictly), Record(results=[WARN]), STRICT, marked=True) == "warn"


def test_a_test_without_failures_passes() -> None:
    item, record = a_test(), Record(results=[PASS])
    conclude(item, record, STRICT, marked=True)
    assert (record.settled, record.failed, record.concluded, item.warned) == (True, False, 1, [])


@pytest.mark.parametrize("more", [{"static_only": "x"}, {"failed": True}, {}])
def test_what_fixtures_call_after_the_body_counts_by_itself(more: dict[str, Any]) -> None:
    record = Record(results=[PASS])
    conclude(a_test(), record, STRICT, marked=True)
    conclude_teardown(a_test(), record, accepts=False)
    record.results.append(FAIL)
    if "static_only" in more:
        record.finished = False
    record.failed = "failed" in more
    if more:
        return conclude_teardown(a_test(), record, accepts=False)
    item = a_test()
    assert failed(conclude_teardown, item, record, accepts=False) == f"fail\n{ACCEPT}"
    assert (item.user_properties, record.concluded) == (["fail"], 2)


@pytest.mark.parametrize(
    ("record", "marked", "said"),
    [
        (Record(), True, f"INCOMPLETE {NODE}: it was never called"),
        (Record(), False, ""),
        (Record(checked=1), True, ""),
        (Record(static_only="x"), False, "before its first autotune call, for want of a GPU: x"),
        (Record(static_only="x", begun=True), False, "in its first autotune call, before a launch, for want of a GPU"),
    ],
)
def test_a_test_without_results(record: Record, marked: bool, said: str) -> None:
    record = Record(static_only=record.static_only, begun=record.begun, checked=record.checked)
    if not said:
        conclude(a_test(), record, STRICT, marked=marked)
        assert record.results == []
        return
    assert said in failed(conclude, a_test(), record, STRICT, marked=marked)
    assert record.finished == (not record.static_only)


FOUND = ("more registers", "in said")


@pytest.mark.parametrize(
    ("made", "accepts", "text"),
    [
        (result(Outcome.PASS), False, ""),
        (result(Outcome.PASS, findings=FOUND), False, "REGRESSED t.py::test_a (cuda:90): more registers; in said"),
        (result(Outcome.PASS, "more registers", findings=FOUND), False, "REGRESSED t.py::test_a (cuda:90): in said"),
        (result(Outcome.PASS, findings=FOUND), True, ""),
        (result(Outcome.WARN, findings=FOUND), False, "said; more registers; in said"),
        (result(Outcome.WARN, findings=FOUND), True, "said"),
    ],
)
def test_what_is_warned_of(made: CaseResult, accepts: bool, text: str) -> None:
    assert warning_of(made, accepts) == text


# errors of the body


def never(error: BaseException) -> None:
    return None


def test_an_error_stays_what_it_is_with_the_verdicts_beside_it() -> None:
    item, error = a_test(), ValueError("mine")
    with pytest.raises(ValueError, match="mine"):
        after_error(item, Record(results=[FAIL, PASS]), error, never)
    assert (item.sections, item.user_properties) == ([("call", "kerntune", "fail")], ["fail", "pass"])
    item = a_test()
    with pytest.raises(ValueError, match="mine"):
        after_error(item, Record(results=[PASS]), error, never)
    assert item.sections == []


def test_a_skip_hides_no_regression() -> None:
    skip = pytest.skip.Exception("not here")
    assert failed(after_error, a_test(), Record(results=[FAIL, PASS]), skip, never) == f"fail\n{ACCEPT}"
    with pytest.raises(pytest.skip.Exception, match="not here"):
        after_error(a_test(), Record(results=[WARN]), skip, never)
    standing = Record(standing=(FAIL,))
    assert failed(skipped_setup, a_test(), standing) == f"fail\n{ACCEPT}"
    skipped_setup(a_test(), Record(results=[PASS, WARN]))


STOPPED: Any = SimpleNamespace(end="reads values", results=(PASS,), checks=())


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (ValueError("x"), True),
        (pytest.skip.Exception("x"), False),
        (pytest.fail.Exception("x"), False),
        (pytest.exit.Exception("x"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_ends_for_want_of_a_gpu_is_no_error(error: BaseException, asked: bool) -> None:
    record = Record()
    if asked:
        after_error(a_test(), record, error, lambda error: STOPPED)
        assert (record.static_only, record.results) == ("reads values", [PASS])
        return
    with pytest.raises(type(error)):
        after_error(a_test(), record, error, lambda error: pytest.fail("asked"))
    assert record.static_only == ""


# baselines


class Checked:
    result = PASS

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.commits = error, 0

    def commit(self) -> CaseResult:
        self.commits += 1
        if self.error:
            raise self.error
        return msgspec.structs.replace(PASS, recorded=True)


@pytest.mark.parametrize(
    ("passed", "settled", "failing", "commits"),
    [(True, True, False, 1), (False, True, False, 0), (True, False, False, 0), (True, True, True, 0)],
)
def test_baselines_are_written_of_what_has_passed(passed: bool, settled: bool, failing: bool, commits: int) -> None:
    check = Checked()
    record = Record(results=[PASS], checks=[check], settled=settled, failed=failing)  # type: ignore[list-item]
    report: Any = SimpleNamespace(passed=passed, outcome="passed", longrepr=None)
    write_baselines(NODE, record, report)
    assert (check.commits, record.failed, report.outcome) == (commits, failing or not passed, "passed")
    assert [bool(r.recorded) for r in record.results] == [bool(commits)]
    write_baselines(NODE, record, report)
    assert check.commits == commits


def test_baselines_that_cannot_be_written_fail_the_test() -> None:
    record = Record(results=[PASS], checks=[Checked(KerntuneError("no room"))], settled=True)  # type: ignore[list-item]
    report: Any = SimpleNamespace(passed=True, outcome="passed", longrepr=None)
    write_baselines(NODE, record, report)
    assert (record.failed, report.outcome) == (True, "failed")
    assert report.longrepr == "no room", "pytest's line begins with the test's id"


# fixtures that need a GPU


NEEDS = f"{NODE} needs results that only a GPU gives, in its setup: reads values"


def test_a_setup_that_needs_a_gpu_skips_or_fails_its_test() -> None:
    with pytest.raises(pytest.skip.Exception) as caught:
        unfinished_setup(a_test(), None, STRICT, STOPPED)
    assert str(caught.value) == NEEDS
    record = Record()
    assert failed(unfinished_setup, a_test(), record, STRICT, STOPPED) == f"INCOMPLETE {NEEDS}"
    assert len(record.results) == 1
    with pytest.raises(pytest.skip.Exception):
        unfinished_setup(a_test(), Record(), LAX, STOPPED)


def test_calls_of_fixtures_are_judged_where_the_setup_needs_a_gpu() -> None:
    record = Record(results=[FAIL])
    assert failed(unfinished_setup, a_test(), record, STRICT, STOPPED) == f"fail\n{ACCEPT}"
    stopped: Any = SimpleNamespace(end="reads values", results=(), checks=(Checked(KerntuneError("no room")),))
    assert failed(unfinished_setup, a_test(), Record(results=[PASS]), STRICT, stopped) == f"{NODE}: no room"
    item = a_test()
    with pytest.raises(pytest.skip.Exception):
        unfinished_setup(item, Record(results=[PASS]), STRICT, STOPPED, [WARN])
    assert item.warned == ["warn"]
    item, found = a_test(), result(Outcome.PASS, verdict=Verdict.PASS, findings=("occupancy fell",))
    with pytest.raises(pytest.skip.Exception):
        unfinished_setup(item, Record(results=[found]), STRICT, STOPPED)
    assert item.warned == [f"PASS {NODE} (cuda:90): occupancy fell"]


# reruns


def test_a_regression_stands_whatever_a_rerun_gives() -> None:
    first = Record(results=[FAIL, result(Outcome.PASS), result(Outcome.FAIL, verdict=Verdict.DRIFTED, call="c")])
    (stands,) = first.regressed()
    assert stands.message == f"fail{UPHELD}"
    again = Record(results=[result(Outcome.PASS, "quick", "fail"), PASS], standing=(stands,))
    assert again.regressed() == (stands,)
    again.uphold()
    assert [r.message for r in again.results] == [stands.message, "pass"]
    assert (again.standing, again.regressed()) == ((), (stands,))
    other = Record(standing=(stands,))
    other.uphold()
    assert other.results == [stands]
    for ends_well in (True, False):
        rerun = Record(results=[result(Outcome.PASS, "quick", "fail")], standing=(stands,))
        if ends_well:
            said = failed(conclude, a_test(), rerun, STRICT, marked=True)
        else:
            said = failed(after_error, a_test(), rerun, pytest.skip.Exception("not here"), never)
        assert said.startswith("fail")


# a GPU that answers no more


def test_a_lost_device_keeps_its_first_reason() -> None:
    loss = DeviceLoss()
    loss.note("first", "")
    assert not loss
    loss.note("", "gone")
    loss.note("second", "again")
    assert (bool(loss), loss.culprit, loss.text) == (True, "", "gone")
    other = DeviceLoss()
    other.note("first", "gone")
    assert other.text == "since first the GPU runs nothing any more in its process: gone"


def test_a_test_after_a_lost_device_does_not_run() -> None:
    loss, record = DeviceLoss(), Record()
    loss.note("", "gone")
    message = f"INCONCLUSIVE {NODE}: not run: gone"
    assert failed(loss.refuse, a_test(), record, STRICT) == message
    assert [(r.verdict, r.message) for r in record.results] == [(Verdict.INCONCLUSIVE, message)]
    with pytest.raises(pytest.skip.Exception, match="not run: gone"):
        loss.refuse(a_test(), Record(), LAX)
    said = failed(loss.refuse, a_test(), Record(standing=(FAIL,)), LAX)
    assert said == "fail"


class AcceleratorError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "device"),
    [
        (AcceleratorError("x"), True),
        (RuntimeError("CUDA error: x"), True),
        (RuntimeError("CUDA_ERROR_X"), True),
        (RuntimeError("Triton Error [CUDA]: x"), True),
        (RuntimeError("x"), False),
    ],
)
def test_errors_of_the_device(error: Exception, device: bool) -> None:
    assert is_device_error(error) == device


def test_a_worker_ends_whatever_closing_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Any] = []
    monkeypatch.setattr(os, "_exit", ended.append)

    def close() -> None:
        ended.append("closed")
        raise RuntimeError("busy")

    end_worker(close)
    assert ended == ["closed", 70]


def test_a_worker_that_ended_on_purpose_is_no_failure() -> None:
    report = SimpleNamespace(when="???", outcome="failed", longrepr="crashed")
    settle_crash(report)
    assert (report.when, report.outcome, report.longrepr) == ("teardown", "passed", None)


# what pytest-benchmark is told


def test_a_benchmark_that_calls_again_and_again_is_refused() -> None:
    """Wherever in the stack its loop is; not one that is disabled, which calls once."""
    inside: dict[str, Any] = {"__name__": "pytest_benchmark.fixture"}
    exec("def loop(self, work): return work()\ndef other(work): return work()", inside)
    refused = lambda: inside["other"](marker.refuse_inside)  # noqa: E731
    with pytest.raises(UsageError, match=r"autotune is called by benchmark\(\), again and again"):
        inside["loop"](SimpleNamespace(disabled=False), refused)
    inside["loop"](SimpleNamespace(disabled=True), refused)
    inside["loop"](SimpleNamespace(), refused)
    marker.refuse_inside()


def test_a_benchmark_is_told_to_call_once() -> None:
    fixture = SimpleNamespace(disabled=False)
    marker.run_once(fixture)
    assert fixture.disabled is True
    marker.run_once(other := SimpleNamespace())
    assert vars(other) == {}
