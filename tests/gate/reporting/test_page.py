"""The HTML report, without a browser: what it holds, what it would execute, what it would load."""

from __future__ import annotations

import base64
import hashlib
import re

import msgspec
import pytest
from fake_plotly import SCRIPT

from gate.reporting.made_runs import HARD_TEXT, made_curves, made_run
from gate.reporting.parsed import Element, details_of, parsed
from kerntune.base.case_result import CodeChange
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.stats import Estimate
from kerntune.gate.report import RunReport, worst_first
from kerntune.gate.reporting import page as module
from kerntune.gate.reporting.page import html_page


def made(run: RunReport, *more: RunReport) -> Element:
    return parsed(html_page([run, *more], made_curves(run, points=10), SCRIPT))


@pytest.fixture(scope="module")
def hostile() -> Element:
    run = made_run(12, samples=20, configs=12, hard=True)
    static_only = {f"t.py::test_{HARD_TEXT}": HARD_TEXT}
    run = msgspec.structs.replace(run, failed=static_only, static_only=static_only, header=(HARD_TEXT,))
    return parsed(html_page([run], made_curves(run, points=10), SCRIPT, title=HARD_TEXT))


def test_the_table_has_every_case_the_worst_first() -> None:
    run = made_run(50, samples=5, configs=8)
    page = made(run)
    rows = page.one("tbody").all("tr")
    assert len(rows) == 50
    assert [r.attributes["data-verdict"] for r in rows[:5]] == ["REGRESSED"] * 3 + ["INCONCLUSIVE"] * 2
    assert [r.one("a").text for r in rows] == [str(r.result.case) for r in worst_first([run])]
    assert "fails" in rows[0].text
    changes = [float(r.attributes["data-change"]) for r in rows[:3]]
    assert changes == sorted(changes, reverse=True)
    counts = [li.text.split() for li in page.one("ul", aria_label="Cases by verdict").all("li")]
    assert counts[0] == ["REGRESSED", "3"]
    assert sum(int(n) for _, n in counts) == 50


def test_what_fails_comes_before_what_warns_whatever_its_verdict() -> None:
    first, second, third, *_ = made_run(3, samples=5, configs=8).results
    accepted = msgspec.structs.replace(first, outcome=Outcome.PASS)
    strict = msgspec.structs.replace(second, verdict=Verdict.INCONCLUSIVE, outcome=Outcome.FAIL)
    warned = msgspec.structs.replace(third, outcome=Outcome.WARN)
    ranked = worst_first([RunReport((accepted, warned, strict))])
    assert [r.result for r in ranked] == [strict, warned, accepted]


def test_details_are_those_of_their_rows() -> None:
    run = made_run(20, samples=5, configs=8)
    page = made(run)
    titles = [d["title"] for d in details_of(page)]
    assert titles == [r.one("a").text for r in page.one("tbody").all("tr")]
    links = [r.one("a").attributes["href"] for r in page.one("tbody").all("tr")]
    assert links == [f"#case={i}" for i in range(20)]


def test_text_of_users_stays_text(hostile: Element) -> None:
    """Node ids, kernels, causes, header and title: none opens an element, ends a script or becomes an attribute."""
    assert hostile.one("title").text == HARD_TEXT
    assert hostile.one("h1").text == HARD_TEXT
    assert HARD_TEXT in hostile.one("tbody").all("a")[0].text
    assert hostile.all("img") == []
    assert len(hostile.all("script")) == 3
    assert [e for e in hostile.all() if any(name.startswith("on") for name in e.attributes)] == []
    listed = [li.text for li in hostile.one("section", id="list").all("li")]
    assert listed == [f"t.py::test_{HARD_TEXT}: {HARD_TEXT}"] * 2
    assert all(HARD_TEXT in d["title"] for d in details_of(hostile))


def test_only_the_pages_own_scripts_may_run(hostile: Element) -> None:
    policy = hostile.one("meta", http_equiv="Content-Security-Policy").attributes["content"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline'; img" in policy, "styles alone"
    assert "eval" not in policy
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    data, plotly, script = hostile.all("script")
    assert data.attributes["type"] == "application/json"
    assert plotly.attributes["type"] == "text/plain", "run when it is needed"
    hashes = {base64.b64encode(hashlib.sha256(e.text.encode()).digest()).decode() for e in (plotly, script)}
    assert allowed == hashes


def test_nothing_is_loaded(hostile: Element) -> None:
    loading = [e for e in hostile.all() if {"src", "action", "srcset", "poster"} & set(e.attributes)]
    assert loading == []
    assert [e.attributes["href"] for e in hostile.all("link")] == ["data:,"]
    assert all(e.attributes["href"].startswith("#") for e in hostile.all("a"))
    style = hostile.one("style").text
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize(
    "name", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
)
def test_the_script_makes_no_markup_of_text(name: str) -> None:
    assert name not in module._asset("report.js")


def test_controls_and_tables_have_names(hostile: Element) -> None:
    assert hostile.one("html").attributes["lang"] == "en"
    for field in hostile.all("input"):
        labels = [e for e in hostile.all("label") if field in e.all("input")]
        assert len(labels) == 1
        assert labels[0].text.strip()
    for table in hostile.all("table"):
        assert table.one("caption").text
        assert all(e.attributes.get("scope") for e in table.all("th"))
    ids = [e.attributes["id"] for e in hostile.all() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for element in hostile.all():
        if (name := element.attributes.get("aria-labelledby")) is not None:
            assert name in {*ids, "case-title"}, "the script makes that one"
    assert hostile.one("p", id="shown").attributes["role"] == "status"
    assert [e.tag for e in hostile.all() if e.tag in ("main", "header")] == ["header", "main"]
    assert all(e.attributes.get("aria-hidden") == "true" for e in hostile.all("svg"))


def test_several_runs_have_a_column() -> None:
    first, second = made_run(3, samples=5, configs=8), made_run(2, seed=2, samples=5, configs=8)
    page = made(first, second)
    assert [h.text for h in page.one("thead").all("th")][-1] == "Run"
    assert sorted(r.all("td")[-1].text for r in page.one("tbody").all("tr")) == ["1", "1", "1", "2", "2"]
    assert "Run" not in [h.text for h in made(first).one("thead").all("th")]


def test_code_is_given_to_the_worst_cases_first(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made_run(50, samples=5, configs=8)
    lines = "\n".join(hashlib.sha256(str(i).encode()).hexdigest() for i in range(50))
    heavy = tuple(
        msgspec.structs.replace(r, code=(CodeChange("k", "ptx", f"{r.fingerprint}{lines}"),)) for r in run.results
    )
    run = msgspec.structs.replace(run, results=heavy)
    monkeypatch.setattr(module, "MAX_CODE_BYTES", 15_000)
    shown = ["code" in d for d in details_of(made(run))]
    assert 1 <= sum(shown) < 50
    assert shown == sorted(shown, reverse=True)
    assert details_of(made(run))[-1]["codeLeftOut"] == 1


def test_a_report_of_many_cases_stays_small() -> None:
    """A twentieth of the 500 cases that may take 12 MB, of which plotly has 4.8."""
    run = made_run(25)
    assert len(html_page([run], made_curves(run), "").encode()) < 60_000 + (12_000_000 - 4_900_000) / 20


def test_a_run_without_cases_is_a_page() -> None:
    page = parsed(html_page([RunReport(())], [], SCRIPT))
    assert page.one("tbody").all("tr") == []
    assert "no case was checked" in page.one("ul", aria_label="Cases by verdict").text


def test_endless_changes_are_no_numbers() -> None:
    """What JSON can't hold is stored as the largest float."""
    (result,) = made_run(1, samples=5, configs=8).results
    huge = Estimate(1.7976931348623157e308, 0.1, 1.7976931348623157e308, 0.99)
    odd = msgspec.structs.replace(
        result, change=huge, shown=None, verdict=Verdict.NEW, outcome=Outcome.PASS, baseline_ns=0.0, current_ns=None
    )
    page = made(RunReport((odd,)))
    (row,) = page.one("tbody").all("tr")
    assert row.attributes["data-change"] == ""
    assert [e for e in row.all("svg") if e.attributes["class"] == "bar"] == []
