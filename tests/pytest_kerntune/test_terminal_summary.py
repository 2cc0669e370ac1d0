"""The lines at the end of a run, and the commands that it offers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.case_result import UNJUDGED, CaseId, CaseResult, LeftOut, TrialReport, UncheckedValue
from kerntune.base.config import Config
from kerntune.base.failed_candidates import FailedTrial
from kerntune.base.policy import Outcome, Verdict
from kerntune.gate.stores import CALL_GONE
from pytest_kerntune import terminal
from pytest_kerntune.payload import Collected, Payload
from pytest_kerntune.terminal import offers, write_summary

MAX_LINES = 20


class Reporter:
    """Keeps its lines; ``marked`` are those with a color."""

    def __init__(self, verbosity: int = 0, update: str = "") -> None:
        self.verbosity, self.lines, self.marked = verbosity, list[str](), dict[str, set[str]]()
        self.config: Any = config(update)
        self._tw = SimpleNamespace(fullwidth=160)

    def write_sep(self, sep: str, title: str) -> None:
        self.lines.append(f"{sep} {title}")

    def write_line(self, line: str, **markup: bool) -> None:
        self.lines += line.splitlines() or [""]
        self.marked[line] = {color for color, on in markup.items() if on}


def config(update: str = "", *words: str) -> Any:
    return SimpleNamespace(
        getoption={"kerntune_update": update}.get,
        invocation_params=SimpleNamespace(args=words or ("-q", "t.py"), dir=Path("/here")),
    )


def result(test: str = "t.py::a", outcome: Outcome = Outcome.PASS, verdict: Verdict = Verdict.PASS, **more: Any) -> Any:
    message = more.pop("message", f"{verdict.value} {test}")
    return CaseResult(CaseId(test, "0"), more.pop("fingerprint", "f"), verdict, outcome, message, "cuda:90", **more)


def summary(verbosity: int, results: list[CaseResult], stale: Any = (), errors: Any = (), **more: Any) -> Reporter:
    reporter, collected = Reporter(verbosity), Collected()
    for nodeid in dict.fromkeys(r.case.nodeid for r in results):
        collected.add(Payload(nodeid, results=tuple(r for r in results if r.case.nodeid == nodeid)))
    collected.carry(more.get("static_only", {}), {})
    for nodeid, values in more.get("unchecked", {}).items():
        collected._unchecked[nodeid] = dict.fromkeys(values)
    write_summary(reporter, collected, stale, errors)  # type: ignore[arg-type]
    return reporter


def test_a_summary_has_a_table_unless_it_is_quiet() -> None:
    many = [*(result(f"t.py::a{i}") for i in range(60)), result("t.py::a60", Outcome.FAIL, Verdict.REGRESSED)]
    rows = [sum("t.py::a" in line for line in summary(v, many).lines) for v in (-1, 0, 1)]
    assert rows == [0, 1, 61], "passing cases are a count"
    assert summary(0, []).lines[0] == "= kerntune"


@pytest.mark.parametrize(
    ("results", "stale", "colors"),
    [
        ([result()], [], {"green"}),
        ([result(), result("t.py::b", Outcome.FAIL)], [], {"red"}),
        ([], [], set()),
        ([], [result(verdict=Verdict.STALE, message="stale")], {"green"}),
        ([], [result(outcome=Outcome.FAIL, verdict=Verdict.STALE, message="stale")], {"red"}),
    ],
)
def test_the_counts_are_red_where_a_case_fails(results: Any, stale: Any, colors: set[str]) -> None:
    found = summary(-1, results, stale).marked
    assert [c for line, c in found.items() if line[:1].isdigit() or "no " in line][:1] == [colors]
    assert [found[result.message] for result in stale] == [{"yellow"}] * len(stale)


def test_stopped_tests_and_errors_are_told() -> None:
    found = summary(0, [result()], errors=["no room"], static_only={"t.py::b": "item()"})
    assert "static only: t.py::b stopped where it needs results of a GPU: item()" in found.lines
    assert found.lines[-1] == "ERROR: no room"
    assert found.marked["ERROR: no room"] == {"red"}


def test_cases_with_other_code_are_counted() -> None:
    other = (f"other code: {UNJUDGED}",)
    lines = summary(0, [result(remarks=other), result("t.py::b", remarks=other), result("t.py::c")]).lines
    assert f"2 cases passed with other code than before: {UNJUDGED}" in lines
    assert not any("passed with other code" in line for line in summary(0, [result()]).lines)


def test_warnings_of_cases_that_pass_are_shown_up_to_a_limit() -> None:
    warnings = tuple(f"w{i}" for i in range(MAX_LINES + 2))
    cases = [result(warnings=warnings), result("t.py::b", Outcome.WARN, warnings=("in its message",))]
    found = [summary(v, cases) for v in (0, 1)]
    shown = [[line for line in f.lines if line.startswith("t.py::a: w")] for f in found]
    assert [len(lines) for lines in shown] == [MAX_LINES, MAX_LINES + 2]
    assert "... and 2 more warnings; -v shows all" in found[0].lines
    assert not any("more warnings" in line or "in its message" in line for line in found[1].lines)
    assert found[0].marked["t.py::a: w0"] == {"yellow"}
    exactly = summary(0, [result(warnings=warnings[:MAX_LINES])])
    assert not any("more warnings" in line for line in exactly.lines)


def test_unchecked_values_are_counted_and_shown() -> None:
    values = {"t.py::a": [UncheckedValue("t.py:3", "assert x", True), UncheckedValue("t.py:4", "x == y")]}
    quiet, loud = (summary(v, [result()], unchecked=values) for v in (0, 1))
    line = "values not checked without a GPU: 1 assertion and 1 other comparison in 1 test"
    assert quiet.marked[f"{line}; -v shows them"] == loud.marked[line] == {"yellow"}
    assert not any("t.py:3" in line for line in quiet.lines)
    assert loud.lines[(at := loud.lines.index(line)) : at + 3] == [
        line, "  t.py::a: t.py:3: assert x", "  t.py::a: t.py:4: x == y",
    ]  # fmt: skip


def test_problems_of_configs_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = Config({"BLOCK": 32}), Config({"BLOCK": 64})
    problems = {"a": [("k", [small], "spills", 0)], "b": [("k", [small, large], "spills", 0)]}
    cases = [result("t.py::a"), result("t.py::b")]
    asked = iter([*problems.values(), *problems.values()])
    monkeypatch.setattr(terminal, "config_problems", lambda configs: next(asked))
    monkeypatch.setattr(terminal, "configs_text", lambda configs: f"{len(configs)} configs")
    assert "cuda:90: k with 2 configs: spills" in summary(0, cases).lines
    assert f"cuda:90: k with {small}, {large}: spills" in summary(1, cases).lines


def test_failed_configs_are_a_line_for_each_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the number of all that were tried or left out of its list."""
    a, b, c, d = (Config({"BLOCK": n}) for n in (32, 64, 128, 256))
    case = result(
        failed_trials=(FailedTrial("add", b, "x"), FailedTrial("add", c, "y"), FailedTrial("mul", b, "z")),
        trials=(TrialReport("add", a, 9.0), TrialReport("add", c, 8.0), TrialReport("mul", a, 7.0)),
        left_out=(LeftOut("add", d, "too large"),),
    )
    monkeypatch.setattr(terminal, "failures_line", lambda failed, count: f"{failed[0].kernel} {len(failed)}/{count}")
    lines = summary(0, [result("t.py::b"), case]).lines
    assert [line for line in lines if "/" in line] == ["t.py::a: add 2/4", "t.py::a: mul 1/2"]


# what it offers


NEW, IMPROVED = Verdict.NEW, Verdict.IMPROVED


@pytest.mark.parametrize(
    ("results", "update", "lines"),
    [
        ([], "", []),
        ([], "all", []),
        ([result()], "", []),
        ([result()], "all", ["no baseline has changed"]),
        (
            [result(recorded=True, baseline_path="b/cuda/x"), result(recorded=True, baseline_path="b/cuda/y")],
            "all",
            ["2 baselines recorded in b/cuda; commit the folder, so that later runs are held against it"],
        ),
        (
            [result(recorded=True, baseline_path="b/x"), result(recorded=True, baseline_path="/abs/y")],
            "",
            ["2 baselines recorded; commit the folder, so that later runs are held against it"],
        ),
        (
            [result(recorded=True, baseline_path="b/x"), result(recorded=True, baseline_path="c/y")],
            "",
            ["2 baselines recorded; commit the folder, so that later runs are held against it"],
        ),
        (
            [result(verdict=IMPROVED), result(verdict=IMPROVED, recorded=True, baseline_path="")],
            "",
            [
                "1 baseline recorded; commit the folder, so that later runs are held against it",
                "1 case improved; to hold the gain: pytest t.py --kerntune-update=improved",
            ],
        ),
        (
            [
                *(result("a", verdict=NEW), result("b", Outcome.FAIL, NEW), result("c", verdict=NEW)),
                result("c", Outcome.FAIL, Verdict.REGRESSED),
            ],
            "",
            [
                "2 cases without a baseline; to record: pytest t.py --kerntune-update=new",
                "1 case REGRESSED; to accept, if that is meant: pytest t.py --kerntune-update=regressed",
            ],
        ),
    ],
)
def test_what_keeps_the_findings_is_offered(results: Any, update: str, lines: list[str]) -> None:
    assert offers(results, [], config(update), None) == lines
    sealed = config(update)
    sealed.getoption = {"kerntune_update": update, "kerntune_sealed": True}.get
    assert offers(results, [], sealed, None) == []


def test_a_case_that_may_be_a_renamed_one_is_not_offered_as_a_new_one() -> None:
    """The command that keeps its baseline is on a line of its own: a table may break it."""
    hint = "renamed from t.py::b and edited? `kerntune baselines mv t.py::b t.py::a` holds it against what is known"
    cases = [result("t.py::a", verdict=NEW, remarks=("other", hint)), result("t.py::c", verdict=NEW)]
    assert offers(cases, [], config(), None) == [
        f"NEW t.py::a: {hint}",
        "1 case without a baseline; to record: pytest t.py --kerntune-update=new",
    ]
    taken = result("t.py::a", verdict=NEW, remarks=(hint,), recorded=True, baseline_path="b/x")
    assert not any(hint in line for line in offers([taken], [], config(), None))


@pytest.mark.parametrize(("case", "needed"), [("t.py::b", True), ("t.py", False), ("t.py::z", False)])
@pytest.mark.parametrize("asked", [" and edited? do this", "? do this"])
def test_a_baseline_that_a_renamed_case_needs_is_not_offered_to_be_removed(case: str, asked: str, needed: bool) -> None:
    renamed = result("t.py::a", verdict=NEW, remarks=(f"renamed from t.py::b{asked}",))
    stale = [result(case, verdict=Verdict.STALE), result("t.py::old", verdict=Verdict.STALE)]
    last = offers([renamed], stale, config(), None)[-1]
    kept = "2 stale baselines; remove none before renamed cases have theirs: see above"
    assert last == (kept if needed else "2 stale baselines; to remove: kerntune baselines prune")


def test_of_a_test_that_failed_by_itself_no_baseline_is_offered() -> None:
    cases = [result("t.py::a", verdict=NEW), result("t.py::b", Outcome.FAIL, NEW)]
    (line,) = offers(cases, [], config(), None, {"t.py::a": "boom", "t.py::b": "no baseline"})
    assert line.startswith("1 case without a baseline; to record: ")
    assert offers(cases[:1], [], config(), None, {"t.py::a"}) == []


GONE = f"STALE: {CALL_GONE}"


@pytest.mark.parametrize(
    ("messages", "written", "command"),
    [
        (["its test is gone"], Path("/here/x.json"), "kerntune baselines prune"),
        (["its test is gone", GONE], Path("/here/x.json"), "kerntune baselines prune --stale-from x.json"),
        (
            [GONE],
            None,
            "pytest --kerntune-json=run.json -- t.py, then kerntune baselines prune --stale-from run.json",
        ),
    ],
)
def test_what_removes_stale_baselines_is_offered(messages: list[str], written: Path | None, command: str) -> None:
    stale = [result(verdict=Verdict.STALE, message=m) for m in messages]
    unreadable = result(verdict=Verdict.STALE, message=GONE, fingerprint="")
    options = config("", "-q", "--kerntune-update", "--", "t.py")
    (line,) = offers([], [*stale, unreadable], options, written)
    assert line == f"{len(stale)} stale baseline{'s'[: len(stale) - 1]}; to remove: {command}"
    assert offers([], [unreadable], options, written) == []
