"""A run for other tools: the Markdown of a CI job, its annotations, and tables for other programs."""

from __future__ import annotations

import csv
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.reporting.made_runs import HARD_TEXT, made_run
from kerntune.base.case_result import UNJUDGED, CaseId, LaunchFigures, LaunchReport
from kerntune.base.formatting import visible
from kerntune.base.policy import Outcome
from kerntune.errors import StoreError, UsageError
from kerntune.gate.report import RunReport, worst_first
from kerntune.gate.reporting import summaries
from kerntune.gate.reporting.page import html_page
from kerntune.gate.reporting.summaries import (
    FlatRow,
    annotation_lines,
    append_summary,
    code_of,
    escaped,
    file_of,
    flat_rows,
    summary,
    write_csv,
    write_parquet,
)

MAX_BYTES = 1_024_000
MAX_PASSES = 200
SHOWN = 10


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
        assert len(path.read_bytes()) <= 1000 * 1024


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


# annotations for GitHub Actions


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


# results as tables for other programs


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode(), newline="")))


def test_csv_has_a_row_a_result(tmp_path: Path) -> None:
    write_csv(tmp_path / "r.csv", [RUN])
    rows = read(tmp_path / "r.csv")
    assert len(rows) == 50
    first, result = rows[0], max(RUN.results[:3], key=lambda r: r.shown.point)
    assert list(first) == list(FlatRow.__struct_fields__)
    assert first["test"] == result.case.nodeid
    assert float(first["time_ns"]) == result.current_ns
    assert float(first["change"]) == result.shown.point
    assert float(first["change_level"]) == 0.99
    assert (first["verdict"], first["outcome"], first["branch"]) == ("REGRESSED", "fail", "main")
    assert (first["registers"], first["spill_bytes"], first["occupancy"]) == ("128", "64", "0.25")
    assert float(first["share_of_bandwidth"]) == result.roofline.of_bandwidth


def test_what_is_not_known_is_empty(tmp_path: Path) -> None:
    result = msgspec.structs.replace(RUN.results[0], current_ns=None, change=None, shown=None, launches=(), flops=None)
    write_csv(tmp_path / "r.csv", [RunReport((result,))])
    (row,) = read(tmp_path / "r.csv")
    empty = ("time_ns", "change", "change_low", "registers", "flops_per_second", "bytes_per_second", "commit")
    assert [row[name] for name in empty] == [""] * len(empty)


@pytest.mark.slow
@given(st.text(max_size=30))
def test_any_name_is_read_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("csv") / "r.csv"
    result = msgspec.structs.replace(RUN.results[0], case=CaseId(text + HARD_TEXT, "0"))
    write_csv(path, [RunReport((result,))])
    (name,) = [row["test"] for row in read(path)]
    shown = visible(text + HARD_TEXT)
    assert name in (shown, f"'{shown}")
    assert name == visible(name)


def test_parquet_has_the_same(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    write_parquet(tmp_path / "r.parquet", [RUN])
    table = pq.read_table(tmp_path / "r.parquet")
    assert table.to_pylist() == [msgspec.structs.asdict(row) for row in flat_rows([RUN])]
    kinds = {field.name: str(field.type) for field in table.schema}
    assert (kinds["time_ns"], kinds["registers"], kinds["test"]) == ("double", "int64", "string")


def test_columns_go_to_pyarrow_with_their_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    fake: Any = SimpleNamespace(
        string=lambda: "text", float64=lambda: "number", int64=lambda: "whole", schema=dict,
        array=lambda column, kind: (kind, column),
        table=lambda columns, schema: dict(zip(schema, columns, strict=True)),
        BufferOutputStream=lambda: SimpleNamespace(getvalue=lambda: SimpleNamespace(to_pybytes=lambda: b"parquet")),
        parquet=SimpleNamespace(write_table=lambda table, sink: written.append(table)),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pyarrow", fake)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", fake.parquet)
    write_parquet(tmp_path / "r.parquet", [RUN])
    assert (tmp_path / "r.parquet").read_bytes() == b"parquet"
    (table,) = written
    found = flat_rows([RUN])
    assert {name: column for name, (_, column) in table.items()} == {
        name: [getattr(row, name) for row in found] for name in FlatRow.__struct_fields__
    }
    assert [table[name][0] for name in ("test", "change", "registers")] == ["text", "number", "whole"]


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r'r.parquet: pyarrow .* pip install "kerntune\[parquet\]"'):
        write_parquet(tmp_path / "r.parquet", [RUN])
    assert not (tmp_path / "r.parquet").exists()
