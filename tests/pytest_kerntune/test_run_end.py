"""The end of a run: which tests count as seen, what fails it, and what it leaves, step by step."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.policy import Outcome, Verdict
from kerntune.errors import HistoryError, KerntuneError
from kerntune.gate.history import places
from kerntune.gate.reporting import summaries
from pytest_kerntune import run_end
from pytest_kerntune.payload import Payload, attach
from pytest_kerntune.run_end import RunEnd

OK, FAILED, INTERRUPTED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED


def result(nodeid: str = "t.py::test_a", outcome: Outcome = Outcome.PASS, **changes: Any) -> CaseResult:
    made = CaseResult(CaseId(nodeid, "0"), "f", Verdict.PASS, outcome, "said", "cuda:90")
    return msgspec.structs.replace(made, **changes)


def stale(nodeid: str = "t.py::test_gone", outcome: Outcome = Outcome.WARN) -> CaseResult:
    return result(nodeid, outcome, verdict=Verdict.STALE, message=f"STALE {nodeid}")


class Engine:
    """Finds the stale baselines that it is given, and notes how it was asked."""

    def __init__(self, *stale: CaseResult, unreadable: dict[Path, str] | None = None) -> None:
        self._stale, self._unreadable = stale, unreadable or {}
        self.asked: list[tuple[list[str], bool]] = []

    def stale(self, ran: frozenset[str], selected_all: bool) -> tuple[CaseResult, ...]:
        self.asked.append((sorted(ran), selected_all))
        return self._stale

    def unreadable(self) -> dict[Path, str]:
        return self._unreadable


def config(**more: Any) -> Any:
    plugins = SimpleNamespace(get_plugin=lambda name: None)
    option = SimpleNamespace(collectonly=more.pop("collectonly", False), keyword=more.pop("keyword", ""))
    root = Path("/project")
    run = SimpleNamespace(dir=root)
    return SimpleNamespace(
        rootpath=root, args=["t.py"], invocation_params=run, option=option, pluginmanager=plugins, **more
    )


def options(**more: Any) -> Any:
    return SimpleNamespace(
        **dict.fromkeys(("json", "history", "html", "summary", "export")) | {"root": Path("/project")} | more
    )


def end_of(engine: Any = None, settings: Any = None, **more: Any) -> RunEnd:
    end = RunEnd(config(**more), settings or options())
    if engine is not None:
        end.begin(engine, ("header",), run_end.ExtraTargets())
    return end


def session(exitstatus: int = OK, **more: Any) -> Any:
    return SimpleNamespace(**{"exitstatus": exitstatus, "shouldstop": False, "shouldfail": False} | more)


def report(
    nodeid: str = "t.py::test_a", when: str = "call", crash: str | None = None, text: str = "", **more: Any
) -> Any:
    shown = SimpleNamespace(reprcrash=SimpleNamespace(message=crash)) if crash is not None else text
    given = {"failed": bool(crash is not None or text), "passed": crash is None and not text}
    return SimpleNamespace(nodeid=nodeid, when=when, location=("t.py", 3, "test_a"), longrepr=shown, **given | more)


def of_test(payload: Payload, **more: Any) -> Any:
    attach(made := report(payload.nodeid, "teardown", **more), payload)
    return made


# while tests run


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (report(crash="first\nsecond"), "first"),
        (report(text="Traceback\n  raised here\nImportError: no\n\n"), "ImportError: no"),
        (report(text=" ", failed=True), ""),
        (report(crash="", failed=True), ""),
    ],
    ids=["the error's first line", "the last line of a text", "nothing said", "an empty error"],
)
def test_the_line_that_says_why_a_test_failed(made: Any, line: str) -> None:
    end = end_of()
    for note in (end.pytest_collectreport, end.pytest_runtest_logreport):
        end.failed.clear()
        note(made)
        assert end.failed == {"t.py::test_a": line}
        note(report(crash="later"))
        assert end.failed == {"t.py::test_a": line}, "the first one stays"
    end.failed.clear()
    end.pytest_runtest_logreport(report())
    assert end.failed == {}


def test_what_a_report_tells_is_kept() -> None:
    end = end_of()
    lost = Payload("t.py::test_a", (result(),), True, lost="no answer")
    end.pytest_runtest_logreport(of_test(lost))
    end.pytest_runtest_logreport(of_test(Payload("t.py::test_b", finished=True)))
    assert end.collected.tests == {"t.py::test_a", "t.py::test_b"}
    assert (end.ended, end.loss.why, end.loss.culprit) == ({"t.py::test_a": "no answer"}, "no answer", "t.py::test_a")
    assert end._locations == dict.fromkeys(("t.py::test_a", "t.py::test_b"), ("t.py", 3, "test_a"))
    for when in ("setup", "call", "teardown"):
        end.pytest_runtest_logreport(report("t.py::test_c", when))
    assert (end.notes, end._unseen) == ([], set())


def test_a_test_in_which_a_worker_crashed_is_not_judged() -> None:
    end = end_of()
    end.pytest_runtest_logreport(report(when="???", text="worker 'gw0' crashed"))
    assert end.notes == ["not judged: t.py::test_a: worker 'gw0' crashed"]
    assert end._unseen == {"t.py::test_a"}


def test_which_tests_a_run_would_have_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that can't be imported, or skips itself, none; of others those that its arguments cover."""
    monkeypatch.setattr(run_end, "covered", lambda config, nodeid: nodeid.startswith("t"))
    end = end_of()
    end.pytest_collectreport(report("t_broken.py", text="ImportError: no"))
    end.pytest_collectreport(report("t_skips.py", passed=False, failed=False))
    end.pytest_collectreport(report("t.py"))
    end.collected.add(Payload("x.py::test_a"))
    asked = [
        "t_broken.py::test_a",
        "t_skips.py::test_a",
        "t_broken.pyx::test_a",
        "t.py::test_a",
        "x.py::test_a",
        "x.py::b",
    ]
    assert [end.would_meet(nodeid) for nodeid in asked] == [False, False, True, True, True, False]
    assert (end.failed, end.narrowed) == ({"t_broken.py": "ImportError: no"}, False)
    end.pytest_deselected()
    assert end.narrowed


def test_a_worker_hands_over_what_only_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And writes nothing: the controller joins what its workers hand over."""
    monkeypatch.setattr(run_end, "kernels_that_know_pytest", lambda names: [f"asks: {sorted(names)}"])
    output: dict[str, Any] = {}
    end = end_of(Engine(), workeroutput=output)
    end._watch = SimpleNamespace(changed=lambda: ["decide"])  # type: ignore[assignment]
    end.marker_changes, end.stale_outcomes, end._unseen = ["a marker"], {"t.py::test_a": "fail"}, {"z.py", "b.py"}
    end._finish(session(), OK)
    found = {
        "narrowed": False, "unseen": ["b.py", "z.py"], "stale_outcomes": {"t.py::test_a": "fail"},
        "notes": ["asks: []", "a marker"], "overruled": ["decide"],
    }  # fmt: skip
    assert output == {"kerntune_found": found}
    assert end.notes == []

    controller = end_of(Engine())
    for told in (found, {**found, "narrowed": True}, {}):
        controller.pytest_testnodedown(SimpleNamespace(workeroutput={"kerntune_found": told}))
        assert controller.narrowed is (told is not found)
    controller.pytest_testnodedown(SimpleNamespace(workeroutput=None))
    controller.pytest_testnodedown(SimpleNamespace())
    assert (controller._unseen, controller.stale_outcomes) == ({"b.py", "z.py"}, {"t.py::test_a": "fail"})
    assert (controller.notes, list(controller._overruled)) == (["asks: []", "a marker"], ["decide"])


# the end


def finished(end: RunEnd, given: Any, exitstatus: int = OK) -> list[str]:
    end._finish(given, exitstatus)
    return end._errors


@pytest.mark.parametrize(("engine", "more"), [(None, {}), (Engine(), {"collectonly": True})])
def test_a_run_that_opened_nothing_or_only_collects_ends_without_a_word(
    engine: Any, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_end, "write_summary", lambda *words: pytest.fail("written"))
    end = end_of(engine, **more)
    end.loss.note("", "lost")
    assert finished(end, session()) == []
    end.pytest_terminal_summary(SimpleNamespace())  # type: ignore[arg-type]


def test_what_fails_a_run_whatever_its_verdicts() -> None:
    """All of it is said, and its exit code stays where it says something already."""
    end = end_of(Engine(stale(outcome=Outcome.FAIL)), settings=options())
    end.collected.add(Payload("t.py::test_gone", (), True))
    end.collected.add(Payload("t.py::test_a", (result(),)))
    end.collected._tests["t.py::test_a"] = Payload("t.py::test_a", (result(outcome=Outcome.FAIL),))
    end._watch = SimpleNamespace(changed=lambda: ["kerntune.decide"])  # type: ignore[assignment]
    end.loss.note("t.py::test_a", "no answer")
    run = session()
    assert finished(end, run) == [
        "what decides about verdicts was changed while tests ran: kerntune.decide, the results of t.py::test_a; the "
        "verdicts of this run mean nothing. outcomes= in a marker or the ini file says what a verdict does",
        "since t.py::test_a the GPU runs nothing any more in its process: no answer",
        "STALE baselines fail this run (1): move or remove them, or change outcomes=",
    ]
    assert run.exitstatus == FAILED
    interrupted = session(INTERRUPTED)
    end._finish(interrupted, INTERRUPTED)
    assert interrupted.exitstatus == INTERRUPTED


def test_a_run_without_errors_keeps_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[Any] = []
    monkeypatch.setattr(run_end, "hand_over", lambda config, collected: handed.append(collected))
    for settings, given in ((options(), True), (options(export=Path("/base")), False)):
        end, run = end_of(Engine(), settings=settings), session()
        assert finished(end, run) == []
        assert (run.exitstatus, handed) == (OK, [end.collected] if given else [])
        handed.clear()


@pytest.mark.parametrize(
    ("exitstatus", "more", "narrowed", "keyword", "whole"),
    [
        (OK, {}, False, "", True), (FAILED, {}, False, "", True), (INTERRUPTED, {}, False, "", False),
        (OK, {"shouldstop": "stop"}, False, "", False), (OK, {"shouldfail": "stop"}, False, "", False),
        (OK, {}, True, "", False), (OK, {}, False, "word", False),
    ],
)  # fmt: skip
def test_whether_a_run_has_seen_all_of_its_tests(
    exitstatus: int, more: dict[str, Any], narrowed: bool, keyword: str, whole: bool
) -> None:
    engine = Engine()
    end = end_of(engine, keyword=keyword)
    end.narrowed = narrowed
    end.collected.add(Payload("t.py::test_a"))
    finished(end, session(**more), exitstatus)
    assert engine.asked == [(["t.py::test_a"], whole)]


def test_stale_baselines_have_the_outcome_of_their_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that this run has checked, or wouldn't have met; those of other targets as their runs say."""
    monkeypatch.setattr(run_end, "covered", lambda config, nodeid: not nodeid.startswith("far"))
    found = [stale(f"{name}.py::t") for name in ("far", "seen", "plain", "marked")]
    end = end_of(Engine(*found, unreadable={Path("a.msgpack"): "a: broken", Path("b.msgpack"): "b: broken"}))
    end.failed["t.py"] = "can't read b.msgpack"
    end.collected.add(Payload("seen.py::t", (result("seen.py::t"),), True))
    end.stale_outcomes = {"marked.py::t": "pass"}
    end._extra = SimpleNamespace(  # type: ignore[assignment]
        tests=[], static_only={}, baselines={}, stale=(stale("other.py::t"),)
    )
    assert finished(end, session()) == []
    assert [(r.case.nodeid, r.outcome) for r in end._stale] == [
        ("plain.py::t", Outcome.WARN), ("marked.py::t", Outcome.PASS), ("other.py::t", Outcome.WARN),
    ]  # fmt: skip
    assert end.notes == ["a: broken"], "the other one has failed a test"


def test_what_other_targets_say_joins_and_fails_the_run() -> None:
    """But for what this run says of a case itself."""
    end = end_of()
    there = [result(target=t, outcome=o, message=f"on {t}") for t, o in
             (("cuda:90", Outcome.FAIL), ("cuda:80", Outcome.FAIL), ("cuda:89", Outcome.PASS),
              ("hip:gfx942", Outcome.FAIL))]  # fmt: skip
    end.collected.add(Payload("t.py::test_a", (result(),)))
    end._extra = SimpleNamespace(  # type: ignore[assignment]
        tests=["t.py::test_a"], results=lambda nodeid: there, static_only={"s": "why"}, baselines={"b": 1}
    )
    with pytest.raises(KerntuneError, match=r"^on cuda:80\non hip:gfx942$"):
        end._join_extra_targets()
    assert end.collected.results == (result(), *there[1:])
    assert (end.collected.static_only, end.collected.baselines) == ({"s": "why"}, {"b": 1})


def test_the_report_is_made_once_for_all_that_a_run_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrote: list[Any] = []
    made: list[Any] = []
    monkeypatch.setattr(run_end, "RunReport", lambda **fields: made.append(fields) or "report")
    monkeypatch.setattr(places, "origin_of", lambda root, environ: f"origin of {root}")
    monkeypatch.setattr(run_end, "write_run", lambda path, report: wrote.append((path, report)))
    monkeypatch.setattr(
        run_end, "write_html", lambda path, report, options: wrote.append((path, report)) or "no curves"
    )
    monkeypatch.setattr(run_end, "annotated", lambda report, root, locations, environ: [f"::error::{root} {locations}"])
    monkeypatch.setattr(summaries, "append_summary", lambda path, reports: wrote.append((path, *reports)))
    paths = {name: tmp_path / name for name in ("json", "html", "summary")}
    end = end_of(Engine(stale("t.py::x")), settings=options(**paths))
    end.collected.add(Payload("t.py::x", (result("t.py::x", fingerprint="g"),), True))
    end.failed["t.py::y"] = "no"
    end._not_passed.add("t.py::z")
    assert finished(end, session(FAILED), FAILED) == []
    assert wrote == [(tmp_path / name, "report") for name in ("json", "html", "summary")]
    results = (*end.collected.results, *end._stale)
    (fields,) = made
    assert (fields["results"], fields["header"]) == (results, ("header",))
    assert (fields["failed"], fields["exit_status"]) == ({"t.py::y": "no"}, FAILED)
    assert fields["origin"] == "origin of /project"
    assert len(results) == 2
    assert (end.notes, end._annotations) == (["no curves"], ["::error::/project {}"])

    shown: list[Any] = []
    monkeypatch.setattr(run_end, "write_summary", lambda reporter, *words: shown.append(words))
    monkeypatch.setattr(run_end, "write_text", lambda reporter, text, **markup: shown.append((text, markup)))
    end.pytest_terminal_summary(SimpleNamespace(write_line=shown.append))  # type: ignore[arg-type]
    assert shown == [
        (end.collected, end._stale, [], tmp_path / "json", {"t.py::z"}),
        ("no curves", {"yellow": True}),
        "::error::/project {}",
    ]


@pytest.mark.parametrize(
    ("added", "notes"),
    [
        ("run-1", []),
        ("", ["nothing was timed, so nothing was added to the history"]),
        (HistoryError("no network"), [
            "this run is not in the history; add it with kerntune history add: no network"]),
    ],
)  # fmt: skip
def test_a_run_is_added_to_its_history(monkeypatch: pytest.MonkeyPatch, added: Any, notes: list[str]) -> None:
    """The verdicts stand, whatever became of the network."""

    def add(place: str, run: str) -> str:
        assert (place, run) == ("git:x of /project", "history of a report")
        if isinstance(added, Exception):
            raise added
        return added

    monkeypatch.setattr(places, "place_of", lambda text, root: f"{text} of {root}")
    monkeypatch.setattr(places, "history_run", lambda report: f"history of {report}")
    monkeypatch.setattr(places, "add_run", add)
    monkeypatch.setattr(run_end, "RunReport", lambda **fields: "a report")
    end = end_of(Engine(), settings=options(history="git:x"))
    assert finished(end, session()) == []
    assert end.notes == notes


@pytest.mark.parametrize(
    ("before", "outcome", "after", "kept"),
    [
        (FAILED, Outcome.FAIL, OK, FAILED), (FAILED, Outcome.FAIL, INTERRUPTED, INTERRUPTED),
        (FAILED, Outcome.WARN, OK, OK), (OK, Outcome.FAIL, OK, OK),
    ],
)  # fmt: skip
def test_another_plugin_can_not_pass_a_run_with_failing_cases(
    capsys: pytest.CaptureFixture[str], before: int, outcome: Outcome, after: int, kept: int
) -> None:
    end, run = end_of(Engine()), session(before)
    end.collected.add(Payload("t.py::test_a", (result(outcome=outcome), result("t.py::test_b")), True))
    hook: Generator[None, object, object] = end.pytest_sessionfinish(run, before)
    next(hook)
    run.exitstatus = after
    with pytest.raises(StopIteration) as ended:
        hook.send("answer")
    assert (ended.value.value, run.exitstatus) == ("answer", kept)
    said = "kerntune: error: the exit code of a run with failing cases was set to 0; it stays 1\n"
    assert capsys.readouterr().err == (said if kept != after else "")
