"""Annotations for GitHub Actions."""

from __future__ import annotations

import msgspec

from gate.reporting.made_runs import made_run
from kerntune.base.policy import Outcome
from kerntune.gate.report import RunReport, worst_first
from kerntune.gate.reporting.summaries import SHOWN, annotation_lines, file_of

RUN = made_run(50, samples=3, configs=7)


def lines(run: RunReport) -> list[str]:
    return annotation_lines(worst_first([run]), lambda nodeid: (file_of(nodeid), 7))


def test_errors_and_warnings_the_worst_first() -> None:
    found = lines(RUN)
    assert [line.split()[0] for line in found] == ["::error"] * 3 + ["::warning"] * 4
    worst = worst_first([RUN])[0].result
    assert found[0].startswith(f"::error file={worst.case.nodeid.partition('::')[0]},line=7,title=REGRESSED tests/")
    assert found[0].endswith(worst.message.replace("%", "%25"))


def test_of_more_than_github_shows_the_last_says_how_many() -> None:
    """Ten a step and kind: of 31 errors nine are named, and the tenth stands for 22."""
    failing = tuple(msgspec.structs.replace(r, outcome=Outcome.FAIL) for r in RUN.results[:31])
    found = lines(RunReport(failing))
    assert len(found) == SHOWN
    assert found[-1] == "::error title=kerntune::22 more cases: GitHub shows 10 errors; the job's summary has all"


def test_exactly_as_many_as_are_shown_are_all_named() -> None:
    failing = tuple(msgspec.structs.replace(r, outcome=Outcome.FAIL) for r in RUN.results[:10])
    assert "more" not in lines(RunReport(failing))[-1]


def test_text_cannot_end_a_command_or_add_a_property() -> None:
    result = RUN.results[0]
    case = msgspec.structs.replace(result.case, nodeid="t.py::test_x[a,line=1::b\n::error::c]")
    bad = msgspec.structs.replace(result, case=case, message="one\n::set-env name=X::y\r%0A")
    (line,) = lines(RunReport((bad,)))
    assert "\n" not in line
    assert "\r" not in line
    assert "title=REGRESSED t.py%3A%3Atest_x[a%2Cline=1%3A%3Ab%0A\\u003a%3Aerror%3A%3Ac]::" in line
    assert line.endswith("::one%0A\\u003a:set-env name=X::y\\u000d%250A")
