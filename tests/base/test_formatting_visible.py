"""Hostile texts by every way out: nothing of them is raw."""

from __future__ import annotations

import csv
import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cli import made
from gate.reporting.parsed import details_of, parsed
from of_each import of_each

from kerntune.base.case_result import CaseId, CaseResult, LaunchReport
from kerntune.base.config import Config
from kerntune.base.failed_candidates import FailedTrial
from kerntune.base.formatting import code_of, escaped, visible
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.url_files import shown_url
from kerntune.cli.command import main
from kerntune.errors import BaselineError, UsageError
from kerntune.gate.console import complain, say
from kerntune.gate.report import RunReport, properties, worst_first, write_run
from kerntune.gate.reporting.page import html_page
from kerntune.gate.reporting.summaries import annotation_lines, summary, write_csv, write_parquet
from kerntune.tuning.cache.entries import report_damage, tell_user
from kerntune.tuning.cache.store_client import check_url
from pytest_kerntune import conclude, terminal
from pytest_kerntune.payload import Collected, Payload

ESCAPES = ["\x1b[2J\x1b[31mred", "\x9b31m", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "a\rb", "\x08\x08", "\x7f",
           "\0", "\x0e\x0f", "\x85", "\u2028", "\u2029", "\udc9b"]  # fmt: skip
BIDI = ["\u202eevil", "\u2066a\u2069", "\u200e", "\u061c", "\u200b", "\ufeff", "\u00ad", "\U000e0041"]
COMMANDS = ["::error file=a.py,line=1::broken", "  ::add-mask::x", "::stop-commands::t", "##[error]x", "##vso[task.x]y",
            "##teamcity[message]", "x\n::error::y", "x\r\n::warning::y", "x\n \t::set-env name=a::b"]  # fmt: skip
HTML = ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</script>", "&lt;", "<!--"]
MARKDOWN = ["[a](http://x)", "![a](http://x)", "@everyone", "#1", "`code`", "|", "**b**", "$x$", "https://x.y", "\\"]
CSV = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://x")', " =1"]
TEXTS = [*ESCAPES, *BIDI, *COMMANDS, *HTML, *MARKDOWN, *CSV]


def assert_plain(text: str) -> None:
    """No character that a terminal obeys, and no line that a CI system does."""
    assert_printable(text)
    assert re.search(r"^\s*::|##\w*\[", text, re.MULTILINE) is None


def assert_printable(text: str) -> None:
    assert [x for x in text if not x.isprintable() and x not in "\n\t"] == []


@of_each("text", TEXTS)
def test_a_text_is_shown_with_nothing_raw(text: str) -> None:
    shown = visible(text)
    assert_plain(shown)
    assert visible(shown) == shown
    assert json.loads(visible(json.dumps({"a": text}, ensure_ascii=False))) == {"a": text}, "JSON stays JSON"


@pytest.mark.parametrize("text", [
    "tests/test_a.py::test_b[1-x]", "12.4 µs ± 1", "a\n  b\tc", "kernel ‘k’", "# heading", "⚠ ❌", "a::b", "日本",
])  # fmt: skip
def test_what_is_plain_stays(text: str) -> None:
    assert visible(text) == text


def result_of(text: str) -> CaseResult:
    """A failing result that has the text wherever a file or a program may put one."""
    return CaseResult(
        CaseId(text, text), "f" * 16, Verdict.REGRESSED, Outcome.FAIL, f"{text} {text}", "cuda:90", device=text,
        launches=(LaunchReport(text, Config({"B": text})),), causes=(text,), warnings=(text,), findings=(text,),
        remarks=(text,), failed_trials=(FailedTrial(text, Config({"B": text}), text),), baseline_path=text,
        timer=text, current_ns=1.0, baseline_ns=1.0,
    )  # fmt: skip


RESULTS = [result_of(text) for text in TEXTS]
FORMATS = Path(__file__).parents[1] / "data" / "formats"


def report_of(result: CaseResult) -> RunReport:
    whole = json.loads((FORMATS / "run-new.json").read_bytes())
    report = msgspec.convert({**whole, "results": [], "baselines": {}, "failed": {}}, RunReport)
    return msgspec.structs.replace(report, results=(result,))


CONFIG = SimpleNamespace(
    getoption=lambda name: "", rootpath=Path(), invocation_params=SimpleNamespace(args=(), dir=Path())
)


@of_each("result", RESULTS)
def test_the_terminal_of_a_run(result: CaseResult, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    reporter: Any = SimpleNamespace(
        write_line=lambda text, **markup: lines.append(text), write_sep=lambda *args: None, verbosity=1, config=CONFIG,
        _tw=SimpleNamespace(fullwidth=80),
    )  # fmt: skip
    collected = Collected()
    collected.add(Payload("t.py::test", (result,), static_only=result.message))
    stale = msgspec.structs.replace(result, verdict=Verdict.STALE, outcome=Outcome.WARN)
    terminal.write_summary(reporter, collected, (stale,), [result.message])
    assert len(lines) > 5
    assert_plain("\n".join(lines))


@of_each("result", RESULTS)
def test_failures_warnings_and_properties_of_a_test(result: CaseResult) -> None:
    said: list[str] = []
    item: Any = SimpleNamespace(warn=lambda warning: said.append(str(warning)), user_properties=[], config=CONFIG)
    record: Any = SimpleNamespace(results=[result], concluded=0, lost=[result.message])
    with pytest.raises(pytest.fail.Exception) as failed:
        conclude._settle(item, record, False)
    warning = msgspec.structs.replace(result, outcome=Outcome.WARN)
    conclude._settle(item, SimpleNamespace(results=[warning], concluded=0, lost=[]), False)  # type: ignore[arg-type]
    assert said
    for text in (str(failed.value), *said, *(value for _, value in item.user_properties)):
        assert_plain(text)
    assert [value for _, value in properties([result])]


@of_each("result", RESULTS)
def test_annotations(result: CaseResult) -> None:
    for line in annotation_lines(worst_first([report_of(result)]), lambda nodeid: (nodeid, 1)):
        assert line.startswith("::error file=")
        assert_plain(line.removeprefix("::error file="))
        assert "\n" not in line


@of_each("result", RESULTS)
def test_the_summary_of_a_job(result: CaseResult) -> None:
    text = summary([report_of(result)])
    assert_plain(text)
    for raw in ("<script", "<img", "](http", "<!--", "@everyone"):
        assert raw not in re.sub(r"`[^`\n]*`", "", text)


@of_each("result", RESULTS)
def test_csv(result: CaseResult, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [report_of(result)])
    rows = list(csv.reader((tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()))
    for cell in rows[1]:
        assert_plain(cell)
        assert cell.lstrip()[:1] not in ("=", "+", "-", "@") or re.fullmatch(r"-?[\d.e+-]+", cell)


@of_each("result", RESULTS)
def test_the_html_page(result: CaseResult) -> None:
    """Its texts and attributes, and the details that a script shows."""
    text = result.message
    run = msgspec.structs.replace(report_of(result), header=(text,), failed={text: text}, static_only={text: text})
    page = parsed(html_page([run], [], "", title=text))
    assert len(page.all("script")) == 3
    for raw in ("img", "b", "iframe"):
        assert page.all(raw) == []
    for element in page.all():
        texts = [] if element.tag in ("script", "style") else [c for c in element.children if isinstance(c, str)]
        for part in (*texts, *element.attributes.values()):
            assert_printable(part)
    for part in strings_in(details_of(page)):
        assert_printable(part)


def strings_in(value: Any) -> Iterator[str]:
    """All texts in lists and dicts, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from strings_in(list(pair))
    elif isinstance(value, list):
        for one in value:
            yield from strings_in(one)


@of_each("result", RESULTS)
def test_parquet(result: CaseResult, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_parquet(tmp_path / "a.parquet", [report_of(result)])
    (row,) = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    for cell in strings_in(row):
        assert_plain(cell)


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_commands_on_a_run(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run.json", report_of(result_of(text)))
    for words in (["figures"], ["baselines", "apply"], ["history", "add", f"--history={tmp_path / 'h'}"]):
        main([*words, str(tmp_path / "run.json")])
    main(["report", str(tmp_path / "run.json"), "--summary", str(tmp_path / "a.md")])
    out = capsys.readouterr()
    assert_plain(out.out + out.err)


TOGETHER = ["".join(ESCAPES), "".join(BIDI), "\n".join(COMMANDS), "".join(HTML), " ".join(MARKDOWN), *COMMANDS[:2]]
"""Several at once, for what takes long."""


@pytest.mark.parametrize("text", TOGETHER, ids=ascii)
def test_commands_on_baselines(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a folder one of whose baselines has the text in each field that may have any, and another as its id."""
    folder = made.folder(tmp_path / "a", made.timed(), made.static())
    for path in sorted((tmp_path / "a").rglob("*.json")):
        data = json.loads(path.read_bytes())
        data["recorded"] = "2026-01-01T00:00:00Z"
        data["case"]["nodeid"] = f"t.py::{text}"
        path.with_name("other.json").write_text(json.dumps(data))
        data["case"]["nodeid"] = "t.py::test_it"
        for launch in data.get("launches", data.get("static", [])):
            launch["kernel"], launch["origins"], launch["compiler"] = text, [text], text
            launch["config"] = {"kwargs": {"BLOCK": text}, "options": {text: text}}
        if "environment" in data:
            data["environment"] = {
                key: text if isinstance(value, str) else value for key, value in data["environment"].items()
            }
        path.write_text(json.dumps(data))
    made.folder(tmp_path / "b", made.timed(times=(2.0,)), made.static())
    for words in (
        ["baselines", "show"], ["baselines", "show", "--json"], ["baselines", "verify"], ["figures"],
        ["baselines", "prune", "--dry-run"],
    ):  # fmt: skip
        main([*words, f"--baselines={folder.folder}"])
    main(["diff", str(tmp_path / "a"), str(tmp_path / "b")])
    main(["diff", "--markdown", str(tmp_path / "b"), str(tmp_path / "a")])
    main(["diff", "--static", "--markdown", str(tmp_path / "a"), str(tmp_path / "b")])
    out = capsys.readouterr()
    assert out.out
    assert_plain(out.out + out.err)


@of_each("text", TEXTS)
def test_errors_warnings_and_logs(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say(text)
    complain(f"a {text}")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        report_damage([f"{tmp_path}: {text}"])
        tell_user(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell_user(text)  # never ends a call
    shown = [str(w.message) for w in said]
    assert len(shown) == 2
    with pytest.raises(UsageError) as refused:
        check_url(f"s9://{text}", "KERNTUNE_STORE")
    out = capsys.readouterr()
    for one in (out.out, out.err, *shown, str(refused.value), shown_url(f"s3://{text}")):
        assert_plain(one)


@of_each("text", TEXTS)
@of_each("way", [escaped, code_of])
def test_markdown(text: str, way: Callable[[str], str]) -> None:
    found = way(text)
    assert_plain(found)
    if not found.startswith("`"):
        assert re.search(r"[<>\[\]@|*]", found.replace("<br>", "")) is None


def test_a_field_s_name_is_not_raw(tmp_path: Path) -> None:
    from kerntune.gate.baselines import decode_time

    for text in TEXTS:
        with pytest.raises(BaselineError) as caught:
            decode_time(json.dumps({"schema": "kerntune.time/1", text: 1}).encode(), "it.json")
        assert_plain(str(caught.value))


def test_texts_reach_a_terminal_by_one_way() -> None:
    """No other place of the plugin and of the commands writes to one."""
    root = Path(__file__).parents[2]
    found = []
    for path in sorted([*(root / "pytest_kerntune").rglob("*.py"), *(root / "kerntune" / "cli").rglob("*.py")]):
        for line in path.read_text().splitlines():
            told = "# a command for the CI" in line or "; print(" in line  # another Python's code
            if re.search(r"(?<![\w.])print\(|\.write_line\(", line) and not told:
                found.append(f"{path.relative_to(root)}: {line.strip()}")
    assert found == ["pytest_kerntune/terminal.py: reporter.write_line(visible(text), **markup)"]
