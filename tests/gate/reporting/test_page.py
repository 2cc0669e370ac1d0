"""The HTML report, without a browser: what it holds, what it would execute, what it would load."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import msgspec
import pytest
from fake_plotly import SCRIPT

from gate.reporting.made_runs import HARD_TEXT, made_curves, made_run
from gate.reporting.parsed import Element, details_of, parsed
from kerntune.base.case_result import CaseId, CaseResult, CodeChange, LaunchFigures, LaunchReport
from kerntune.base.config import Config
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.stats import Estimate
from kerntune.gate.report import CODE_LEFT_OUT, Origin, RankedResult, RunReport, word_counts, worst_first
from kerntune.gate.reporting import page as module
from kerntune.gate.reporting.case_details import configs_of, paste_text
from kerntune.gate.reporting.page import figure_bars, html_page, overview, pieces


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
    heavy = tuple(msgspec.structs.replace(r, code=(CodeChange("k", "ptx", "x" * 100),)) for r in run.results)
    run = msgspec.structs.replace(run, results=heavy)
    monkeypatch.setattr("kerntune.gate.report.MAX_CODE", 1_000)
    found = details_of(made(run))
    assert sum("code" in d for d in found) == 10
    failing = [d for d in found if d["outcome"] == "fail"]
    assert sum("code" in d for d in failing) == min(10, len(failing))
    assert all(("code" in d) is (CODE_LEFT_OUT not in str(d.get("notes"))) for d in found)


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


RUN = made_run(50, samples=5, configs=8)
SPILLING = LaunchReport("a", None, (1, 1, 1), 40, 64, 0, 0.25, "threads", LaunchFigures(40, 0, 16, 0.5))
SMALL = LaunchReport("b", None, (1, 1, 1), 24, 0, 0, 0.5, "threads", LaunchFigures(20, 0, 0, 0.5))


def untimed(*launches: LaunchReport, **more: Any) -> CaseResult:
    return msgspec.structs.replace(
        RUN.results[0], current_ns=None, baseline_ns=None, change=None, shown=None, launches=launches, **more
    )


def drawn(run: RunReport) -> dict[str, Any]:
    ranked = worst_first([run])
    return overview(ranked, word_counts(r.result for r in ranked))


def test_verdicts_fill_the_bar() -> None:
    parts = drawn(RUN)["parts"]
    assert sum(p["width"] for p in parts) == pytest.approx(100, abs=0.1)
    assert {p["verdict"]: p["width"] for p in parts}["REGRESSED"] == 6.0


def test_a_timed_case_is_a_dot_the_slowest_first() -> None:
    found = drawn(RUN)
    dots = found["dots"]
    assert len(dots) == 50
    assert [d["point"] for d in dots] == sorted(d["point"] for d in dots), "slower is above, as y grows downwards"
    assert [d["x"] for d in dots] == [6.0 + 12 * i for i in range(50)]
    assert all(8 <= d["high"] <= d["point"] <= d["low"] <= 112 for d in dots)
    assert "50 timed" in found["sentence"]


def test_no_more_dots_than_can_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DOTS", 10)
    found = drawn(RUN)
    assert len(found["dots"]) == 10
    assert "the slowest 10 are drawn" in found["sentence"]


def test_endless_changes_are_not_drawn() -> None:
    odd = msgspec.structs.replace(RUN.results[0], shown=Estimate(float("inf"), 0.0, 1.0, 0.99))
    assert drawn(RunReport((odd,)))["dots"] == []


def test_figures_of_cases_without_a_time_are_counted() -> None:
    found = drawn(RunReport((untimed(SPILLING), untimed(SMALL), *RUN.results[1:])))["figures"]
    counted = {f["name"]: (f["worse"], f["better"], f["all"]) for f in found}
    assert counted == {"spills": (1, 0, 2), "shared memory": (0, 1, 2), "occupancy": (1, 0, 2), "registers": (1, 0, 2)}


def test_a_case_without_a_time_has_a_pair_of_bars_a_figure() -> None:
    bars = figure_bars(untimed(SPILLING, msgspec.structs.replace(SMALL, kernel="a")))
    assert [(b["text"], b["before"], b["now"], b["worse"]) for b in bars] == [
        ("registers 20 -> 24", 83.3, 100.0, True),
        ("spills 0 -> 64 B", 0.0, 100.0, True),
        ("shared memory 16 -> 0 B", 100.0, 0.0, False),
        ("occupancy 50 % -> 25 %", 100.0, 50.0, True),
    ]
    assert figure_bars(RUN.results[0]) == [], "a timed case has its change"
    assert figure_bars(untimed(LaunchReport("a", None, (1, 1, 1), 40))) == [], "and a new one nothing to hold it to"


def test_bars_are_of_the_kernel_that_the_finding_names() -> None:
    case = untimed(SPILLING, SMALL, findings=("b: more registers a thread: 20 -> 24",))
    assert [b["text"] for b in figure_bars(case)] == ["registers 20 -> 24"]
    assert [node.text for node in page(RunReport((case,))).all(class_="sub bars-of")] == ["b"]


def test_commands_name_the_target_of_cases_that_no_gpu_ran() -> None:
    failing = next(r for r in RUN.results if r.word == "REGRESSED")
    for device, told in (("", True), ("NVIDIA_H200", False)):
        made = page(RunReport((msgspec.structs.replace(failing, device=device, target="cuda:90"),)))
        (every,) = made.all("p", class_="accept")
        (one,) = made.all("span", class_="sub accept")
        commands = [every.text, one.text, details_of(made)[0]["accept"]]
        assert ["--kerntune-target=cuda:90 --kerntune-update=regressed" in x for x in commands] == [told] * 3


def page(run: RunReport) -> Any:
    return parsed(html_page([run], [], ""))


def with_origin(**fields: str) -> RunReport:
    return msgspec.structs.replace(RUN, origin=Origin(commit="1f0c27aa31" * 4, **fields))


def test_the_heading_names_the_project() -> None:
    assert page(with_origin(project="my-kernels")).one("h1").text == "my-kernels: speed of kernels"
    assert page(with_origin()).one("h1").text == "kerntune"


@pytest.mark.parametrize(
    ("url", "linked"),
    [
        ("https://github.com/acme/kernels", True),
        ("javascript:alert(1)//a/b", False),
        ("https://user:word@github.com/acme/kernels", False),
        ('https://github.com/a"onclick="x/b', False),
        ("", False),
    ],
)
def test_a_commit_is_a_link_where_the_address_is_one(url: str, linked: bool) -> None:
    """A run's file may be a stranger's."""
    made = page(with_origin(url=url))
    links = [a.attributes["href"] for a in made.all("a") if not a.attributes["href"].startswith("#")]
    assert links == ([f"{url}/commit/{'1f0c27aa31' * 4}"] if linked else [])
    assert [d.get("repository") for d in details_of(made)[:1]] == [url if linked else None]


def test_failing_cases_have_the_command_that_accepts_them() -> None:
    made = page(RUN)
    assert "3 cases REGRESSED" in made.one("p", class_="accept").text
    rows = made.one("tbody").all("tr")
    with_command = ["--kerntune-update=regressed" in row.text for row in rows]
    assert with_command == [True] * 3 + [False] * 47
    assert "accept" in details_of(made)[0]
    assert "accept" not in details_of(made)[5]
    warned = msgspec.structs.replace(RUN.results[0], outcome=Outcome.WARN)
    assert "--kerntune-update" not in page(RunReport((warned,))).one("body").text.partition("<script")[0]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("tests/test_a.py::test_a[2048-x]::back", ["tests/", "test_a.py::", "test_a", "[2048-x]::", "back"]),
        ("pytest --kerntune 't.py::test_a[1]'", ["pytest", " ", "--kerntune", " ", "'t.py::", "test_a", "[1]'"]),
        (":a[[//b", [":a", "[", "[/", "/", "b"]),
        ("", []),
    ],
)
def test_names_are_broken_at_their_parts_alone(text: str, parts: list[str]) -> None:
    assert [piece for piece, _ in pieces(text)] == parts
    assert all(whole != piece.isspace() for piece, whole in pieces(text))
    row = page(RunReport((msgspec.structs.replace(RUN.results[0], case=CaseId(text, "0")),))).one("th", scope="row")
    link = row.one("a")
    assert link.text == text
    assert [x.text for x in link.all("span", class_="whole")] == [x for x in parts if x != " "]


def test_a_piece_that_would_widen_the_column_may_be_broken() -> None:
    assert pieces("a" * 48 + " " + "b" * 49) == [("a" * 48, True), (" ", False), ("b" * 49, False)]


def test_the_page_says_what_was_compiled_and_not_timed() -> None:
    static = msgspec.structs.replace(untimed(SMALL), device="", target="cuda:90")
    other = msgspec.structs.replace(static, target="cuda:75")
    timed = msgspec.structs.replace(RUN.results[0], device="NVIDIA_H200")

    def said(*results: CaseResult) -> list[str]:
        return [x.text for x in page(RunReport(results)).all("p", class_="compiled")]

    assert said(static) == ["All cases compiled for NVIDIA H100 (cuda:90), not timed."]
    assert said(static, timed) == ["1 case compiled for NVIDIA H100 (cuda:90), not timed."]
    assert said(static, other)[0].startswith("All cases compiled for NVIDIA H100 (cuda:90), ")
    assert said(timed) == []


def test_every_kernel_is_named_whole_with_what_it_was_launched_with() -> None:
    bare = LaunchReport("bare_kernel", written={"BLOCK": "128", "num_warps": "4"})
    many = [LaunchReport(f"kernel_{i}", Config({"BLOCK": i}, num_warps=8)) for i in range(9)]
    lines = configs_of([bare, bare, *many]).splitlines()
    assert lines[0] == "bare_kernel: BLOCK=128 num_warps=4"
    assert len(lines) == 10
    assert paste_text(bare) == "BLOCK=128, num_warps=4"
    assert paste_text(many[3]) == "triton.Config({'BLOCK': 3}, num_warps=8, num_stages=3)"
    assert RankedResult(RUN.results[0], RUN).result.launches[0].config is not None


@pytest.mark.parametrize(("outcome", "back"), [(Outcome.FAIL, True), (Outcome.PASS, False)])
def test_a_failing_case_offers_the_config_of_the_baseline(outcome: Outcome, back: bool) -> None:
    tuned = LaunchReport("a", Config({"B": 1}), config_before=Config({"B": 2}))
    written = LaunchReport("b", written={"num_warps": "1"}, written_before={"num_warps": "8"})
    case = untimed(tuned, written, LaunchReport("c", Config({"B": 3})), outcome=outcome)
    told = [(x["paste"], x["pasteOf"]) for x in details_of(page(RunReport((case,))))[0]["launches"]]
    assert told == [
        (f"triton.Config({{'B': {2 if back else 1}}}, num_warps=4, num_stages=3)", OF[back]),
        (f"num_warps={8 if back else 1}", OF[back]),
        ("triton.Config({'B': 3}, num_warps=4, num_stages=3)", OF[False]),
    ]


OF = {True: "the baseline's", False: "today's"}
"""Whose config is offered."""


def test_a_bar_goes_to_the_right_where_a_case_got_slower() -> None:
    slower = Estimate(0.1, 0.05, 0.3, 0.99)
    assert module.change_bar(slower, 0.05, 0.2) == {"low": 62.0, "point": 74.0, "high": 98.0, "limit": 62.0}
    faster = Estimate(-0.1, -0.3, -0.05, 0.99)
    assert module.change_bar(faster, None, 0.2) == {"low": 2.0, "point": 26.0, "high": 38.0, "limit": 50.0}


@pytest.mark.parametrize(
    ("place", "of", "change", "ends"),
    [
        (0, 1, (-0.1, 0.0, 0.1), (300.0, 112.0, 60.0, 8.0)), (0, 4, (-0.5, 0.05, 0.5), (75.0, 112.0, 34.0, 8.0)),
        (3, 4, (0.0123, 0.0234, 0.0345), (525.0, 53.6, 47.8, 42.1)),
        (1, 3, (-0.0345, -0.0234, -0.0123), (300.0, 77.9, 72.2, 66.4)),
    ],
)  # fmt: skip
def test_a_dot_lies_higher_the_slower_a_case_got(
    place: int, of: int, change: tuple[float, float, float], ends: tuple[float, ...]
) -> None:
    """In a picture of 600 by 120, to a tenth; what is beyond the scale lies at its end."""
    low, point, high = change
    result = CaseResult(CaseId("t.py::a", "0"), "f", Verdict.PASS, Outcome.PASS, "", "cuda:90")
    dot = module._dot(place, of, Estimate(point, low, high, 0.99), result, 0.1)
    assert (dot["x"], dot["low"], dot["point"], dot["high"], dot["verdict"]) == (*ends, "PASS")


PLAIN = CaseResult(CaseId("t.py::a", "0"), "f", Verdict.PASS, Outcome.PASS, "", "cuda:90")


def ranked(*changes: Estimate | None) -> list[RankedResult]:
    run = RunReport(tuple(msgspec.structs.replace(PLAIN, change=change) for change in changes))
    return [RankedResult(result, run) for result in run.results]


@pytest.mark.parametrize(
    ("ends", "half"),
    [
        ([(-0.03, 0.02)], 0.03), ([(0.01, 0.02), (0.1, 0.25)], 0.25), ([(0.0, 1.5)], 1.0), ([], 0.1),
        ([(0.05, float("inf"))], 0.05), ([(float("-inf"), float("inf"))], 0.1),
    ],
)  # fmt: skip
def test_the_widest_interval_is_the_scale(ends: list[tuple[float, float]], half: float) -> None:
    """Within bounds, and without ends that are no numbers."""
    assert module.half_scale(ranked(None, *(Estimate(low, low, high, 0.99) for low, high in ends))) == half


def test_a_tolerance_beyond_the_scale_lies_at_its_end() -> None:
    bar = module.change_bar(Estimate(0.0, 0.0, 0.0, 0.99), 0.5, 0.2)
    assert bar == {"low": 50.0, "point": 50.0, "high": 50.0, "limit": 98.0}
    assert module.change_bar(None, 0.5, 0.2) is None


def test_verdicts_stand_side_by_side() -> None:
    parts = module._parts({"FAILS": 1, "NEW": 2, "PASS": 1})
    assert [tuple(part.values()) for part in parts] == [("FAILS", 0.0, 25.0), ("NEW", 25.0, 50.0), ("PASS", 75.0, 25.0)]
    assert module._parts({"NEW": 1, "PASS": 2})[1] == {"verdict": "PASS", "at": 33.33, "width": 66.67}


def test_what_got_worse_and_better_are_shares_of_cases_without_a_time() -> None:
    less = msgspec.structs.replace(SMALL, registers=10)
    counts = module._figure_counts([untimed(SMALL), untimed(SMALL), untimed(less), untimed(), RUN.results[1]])
    assert counts[0] == {
        "name": "registers", "worse": 2, "better": 1, "worse_at": 50.0, "better_at": 25.0, "all": 4,
    }  # fmt: skip


def test_the_sentence_says_from_where_to_where_changes_go(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [(Estimate(point, 0.0, 0.1, 0.99), PLAIN) for point in (0.12, 0.01, -0.05)]
    monkeypatch.setattr(module, "MAX_DOTS", 3)
    assert module._sentence(5, changes) == "5 cases; 3 timed, from +12.0 % to -5.0 %."
    assert module._sentence(1, []) == "1 case."


def test_a_row_has_numbers_to_sort_by() -> None:
    timed = msgspec.structs.replace(
        PLAIN, current_ns=1100.0, baseline_ns=1000.0, change=Estimate(0.1, 0.05, 0.15, 0.99), tolerance=0.02
    )
    names = ("run", "today_value", "baseline_value", "change_value", "timed", "bar", "bars")
    rows = [module._row(RankedResult(result, RUN, 2), 0.2) for result in (timed, PLAIN)]
    bar = {"low": 62.0, "point": 74.0, "high": 86.0, "limit": 54.8}
    assert [rows[0][name] for name in names] == [3, 1100.0, 1000.0, 0.1, True, bar, []]
    assert [rows[1][name] for name in names] == [3, -1, -1, "", False, None, []]


@pytest.mark.parametrize(
    ("projects", "title"),
    [((), "kerntune"), (("a", "b", "a"), "a and b: speed of kernels"), (("", "a"), "a: speed of kernels")],
)
def test_the_title_names_each_project_once(projects: tuple[str, ...], title: str) -> None:
    assert module._title([RunReport((), origin=Origin(project=name)) for name in projects]) == title


@pytest.mark.parametrize(
    ("commit", "linked"), [("a" * 6, False), ("a" * 7, True), ("f" * 64, True), ("f" * 65, False), ("A" * 7, False)]
)
def test_a_commit_s_name_is_hexadecimal(commit: str, linked: bool) -> None:
    run = RunReport((), origin=Origin(commit=commit, url="https://github.com/a/b"))
    assert module._commit_link(run) == (f"https://github.com/a/b/commit/{commit}" if linked else "")
