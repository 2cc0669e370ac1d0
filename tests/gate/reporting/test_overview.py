"""Pictures of a report's first page: which places they have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gate.reporting.made_runs import made_run
from gate.reporting.parsed import details_of, parsed
from kerntune.base.case_result import CaseId, CaseResult, LaunchFigures, LaunchReport
from kerntune.base.config import Config
from kerntune.base.policy import Outcome
from kerntune.base.stats import Estimate
from kerntune.gate.report import Origin, RankedResult, RunReport, word_counts, worst_first
from kerntune.gate.reporting import overview as module
from kerntune.gate.reporting.case_details import configs_of, paste_text
from kerntune.gate.reporting.overview import figure_bars, overview
from kerntune.gate.reporting.page import html_page, pieces

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
