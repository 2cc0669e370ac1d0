"""The summary of a CI job."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.reporting.made_runs import HARD_TEXT, made_run
from kerntune.base.case_result import UNJUDGED, CaseId, LaunchFigures, LaunchReport
from kerntune.errors import StoreError
from kerntune.gate.report import RunReport, worst_first
from kerntune.gate.reporting import summaries
from kerntune.gate.reporting.page import html_page
from kerntune.gate.reporting.summaries import (
    MAX_BYTES,
    MAX_PASSES,
    annotation_lines,
    append_summary,
    code_of,
    escaped,
    summary,
)

RUN = made_run(50, samples=3, configs=7)


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ") and "case |" not in line]


def test_the_worst_come_first() -> None:
    text = summary([RUN])
    assert text.startswith("## kerntune\n\n39 PASS, 3 IMPROVED, 3 REGRESSED")
    verdicts = [row.split()[2] for row in rows(text)]
    assert verdicts[:5] == ["REGRESSED"] * 3 + ["INCONCLUSIVE"] * 2
    assert verdicts[-1] == "PASS"
    assert len(verdicts) == 50
    assert "`tests/test_softmax.py::test_softmax_kernel[0-bf16]`" in text
    assert "more" not in text


def test_cases_without_times_have_their_static_figures() -> None:
    (result,) = made_run(1, samples=3, configs=7).results
    launch = LaunchReport("scale", registers=40, before=LaunchFigures(registers=32))
    untimed = msgspec.structs.replace(result, current_ns=None, baseline_ns=None, change=None, launches=(launch,))
    assert "| 32 regs | 40 regs |" in summary([RunReport((untimed,))])


def test_it_is_cut_below_githubs_limit_with_a_count() -> None:
    results = tuple(
        msgspec.structs.replace(r, case=CaseId(f"t.py::test_{i}", "0"), causes=("x" * 1500,))
        for i, r in enumerate(RUN.results[:3] * 400)
    )
    text = summary([RunReport(results)])
    assert MAX_BYTES - 5_000 < len(text.encode()) <= MAX_BYTES < 1 << 20
    shown = len(rows(text))
    assert f"… and {1200 - shown} more; the JSON and the report have all." in text


def test_passes_beyond_some_are_counted() -> None:
    (result,) = made_run(12, samples=3, configs=7).results[-1:]
    text = summary([RunReport((result,) * (MAX_PASSES + 7))])
    assert len(rows(text)) == MAX_PASSES
    assert "… and 7 more;" in text


def test_failures_without_a_verdict_are_named() -> None:
    run = msgspec.structs.replace(RUN, failed={"t.py::test_x": "AssertionError: a|b", RUN.results[0].case.nodeid: "no"})
    text = summary([run])
    assert "* `t.py::test_x`: AssertionError: a&#124;b\n" in text
    assert text.count("* ") == 1, "the one that a verdict failed has its row"


def test_it_is_appended_and_the_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.md"
    path.write_text("# Mine\n")
    append_summary(path, [RUN])
    assert path.read_text().startswith("# Mine\n## kerntune\n")
    monkeypatch.setattr(summaries, "MAX_BYTES", len(path.read_bytes()) + 1_000)
    for _ in range(3):
        append_summary(path, [RUN])
        assert len(path.read_bytes()) <= summaries.MAX_BYTES


def test_a_file_that_cant_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the summary can't be written"):
        append_summary(tmp_path, [RUN])


def test_names_of_tests_stay_in_their_cell() -> None:
    run = made_run(3, samples=3, configs=7, hard=True)
    for row in rows(summary([run])):
        assert len(re.findall(r"(?<!\\)\|", row)) == 7
        assert "<script" not in row
        assert "`code`" not in row


@pytest.mark.parametrize(
    "text", ["a|b", "`a`", "a\nb", "<b>", "[a](http://b)", "@me", "#1", ":tada:", "$x$", "*a* _b_"]
)
def test_what_markdown_reads_is_escaped(text: str) -> None:
    assert not set(escaped(text).replace("<br>", "").replace("&#", "")) & set("|`\n<>[]@#*$")
    assert "a_b" in escaped(f"a_b {text}"), "within a word it means nothing"


@given(st.text(max_size=60))
def test_any_text_is_one_line_of_one_cell(text: str) -> None:
    for shown in (escaped(text), code_of(text)):
        assert len(shown.splitlines()) <= 1
        assert "|" not in shown
        assert shown.count("`") in (0, 2)


def test_hard_text_is_shown_whole() -> None:
    import html

    assert html.unescape(escaped(HARD_TEXT)) == HARD_TEXT


def test_a_case_without_a_baseline_fails_by_that_word_in_every_report() -> None:
    regressed = RUN.results[0]
    failing = msgspec.structs.replace(regressed, message=f"FAILS {regressed.case}, can't be compiled")
    run = RunReport((failing, regressed))
    assert "1 REGRESSED, 1 FAILS" in summary([run])
    assert "❌ FAILS" in summary([run])
    page = html_page([run], [], "")
    assert '<span class="verdict v-FAILS">FAILS</span> 1' in page
    lines = annotation_lines(worst_first([run]), lambda nodeid: (nodeid, 1))
    assert sum("title=FAILS " in line for line in lines) == 1


def test_other_code_that_passes_says_that_its_speed_was_not_judged() -> None:
    passing = msgspec.structs.replace(RUN.results[-1], remarks=(f"code changed; {UNJUDGED}",))
    assert passing.verdict.value == "PASS"
    assert f"code changed; {UNJUDGED}" in summary([RunReport((passing,))])
    assert UNJUDGED not in summary([RunReport((RUN.results[-1],))])
    assert f"code changed; {UNJUDGED}" in html_page([RunReport((passing,))], [], "")
