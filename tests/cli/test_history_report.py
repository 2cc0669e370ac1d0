"""``kerntune report``."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from fake_plotly import hide_plotly, install_plotly
from gate.reporting.made_runs import made_run
from gate.reporting.parsed import details_of, parsed

from kerntune.base.case_result import CaseId
from kerntune.cli import history
from kerntune.gate.history.places import Folder, add_run
from kerntune.gate.history.points import SCHEMA, HistoryRun, Point, Shift
from kerntune.gate.report import write_run


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    for seed in (1, 2):
        write_run(tmp_path / f"run{seed}.json", made_run(8, seed=seed, samples=5, configs=8))
    return ["run1.json", "run2.json"]


def test_one_page_of_several_runs(kerntune, tmp_path, runs, monkeypatch):
    install_plotly(monkeypatch)
    ran = kerntune("report", *runs, "-o", "out/report.html", "--title", "nightly <1>")
    assert (ran.code, ran.out, ran.err) == (0, "out/report.html: 16 cases of 2 runs\n", "")
    page = parsed((tmp_path / "out" / "report.html").read_text())
    assert page.one("title").text == "nightly <1>"
    assert len(page.one("tbody").all("tr")) == len(details_of(page)) == 16


@pytest.mark.parametrize("named", ["option", "ini"])
def test_a_history_is_drawn(kerntune, tmp_path, runs, monkeypatch, named):
    install_plotly(monkeypatch)
    options = ["--history=h"]
    if named == "ini":
        options = []
        (tmp_path / "pytest.ini").write_text("[pytest]\nkerntune_history = h\n")
    case = made_run(8, samples=5, configs=8).results[0].case.nodeid
    for i in range(6):
        moment = f"2026-01-{1 + i:02}T00:00:00+00:00"
        change = Shift(0.001 * (i % 2), 0.001, "2026-01-01")
        point = Point(CaseId(case, "0"), "cuda:90", "NVIDIA H200", "PASS", f"w{i}", "", 1000.0, change)
        add_run(Folder(tmp_path / "h"), HistoryRun(SCHEMA, moment, (point,), f"{i}" * 40, moment, "main"))
    assert kerntune("report", runs[0], "-o", "r.html", *options).code == 0
    found = [d for d in details_of(parsed((tmp_path / "r.html").read_text())) if "history" in d]
    assert [d["title"] for d in found] == [case]
    assert len(found[0]["history"]["points"]) == 6


def test_a_history_of_the_ini_file_that_is_out_of_reach_fails_no_report(kerntune, tmp_path, runs, monkeypatch):
    install_plotly(monkeypatch)
    (tmp_path / "pytest.ini").write_text("[pytest]\nkerntune_history = git:nowhere\n")
    ran = kerntune("report", runs[0], "-o", "r.html")
    assert ran.code == 0
    assert "the history of the ini file is left out" in ran.err
    assert (tmp_path / "r.html").exists()
    assert kerntune("report", runs[0], "-o", "r2.html", "--history=git:nowhere").code != 0


def test_a_history_that_isnt_there_is_an_error(kerntune, tmp_path, runs, monkeypatch):
    install_plotly(monkeypatch)
    kerntune("report", runs[0], "-o", "r.html", "--history=nowhere").complains(
        2, f"--history=nowhere: there is no folder {tmp_path}/nowhere"
    )
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("case", "options", "said"),
    [
        ("", (), "h: no run was added there yet; the report has no history"),
        ("t.py::test_other", (), "h: no measured change of these cases; the report has no history"),
        ("t.py::test_other", ("--branch=side",), "h: no run of branch side; most are of main; the report has no"),
    ],
)
def test_a_history_without_these_cases_is_told(kerntune, tmp_path, runs, monkeypatch, case, options, said):
    install_plotly(monkeypatch)
    (tmp_path / "h").mkdir()
    moment = "2026-01-01T00:00:00+00:00"
    point = Point(CaseId(case, "0"), "cuda:90", "H200", "PASS", "w", "", 1000.0, Shift(0.0, 0.001, "2026-01-01"))
    if case:
        add_run(Folder(tmp_path / "h"), HistoryRun(SCHEMA, moment, (point,), "0" * 40, moment, "main"))
    ran = kerntune("report", runs[0], "-o", "r.html", "--history=h", *options)
    assert ran.code == 0
    assert said in ran.err
    assert (tmp_path / "r.html").exists()


def test_summary_and_csv(kerntune, tmp_path, runs):
    (tmp_path / "s.md").write_text("before\n")
    ran = kerntune("report", *runs, "--csv", "r.csv", "--summary", "s.md")
    assert (ran.code, ran.out) == (0, "r.csv: 16 cases of 2 runs\n")
    assert len(list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))) == 16
    assert (tmp_path / "s.md").read_text().startswith("before\n## kerntune\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what to write: -o report.html, --csv FILE, --parquet FILE, --summary FILE or --comment"),
        (["--csv", "r.csv", "--history", "h"], "--history is drawn in the HTML report: add -o report.html"),
    ],
)
def test_nothing_to_write_is_a_usage_error(kerntune, runs, words, said):
    kerntune("report", *runs, *words).complains(2, said)


@pytest.mark.parametrize("form", ["-o", "--csv", "--parquet", "--summary", "--comment"])
def test_any_form_is_enough(kerntune, runs, monkeypatch, form):
    wrote = []
    for name in ("write_page", "write_csv", "write_parquet", "append_summary", "_comment"):
        monkeypatch.setattr(history, name, lambda *words, name=name: wrote.append(name))
    install_plotly(monkeypatch)
    assert kerntune("report", *runs, form, "always" if form == "--comment" else "file").code == 0
    names = {"-o": "write_page", "--csv": "write_csv", "--parquet": "write_parquet", "--summary": "append_summary"}
    assert wrote == [names.get(form, "_comment")]


def test_without_plotly_it_says_what_to_install(kerntune, tmp_path, runs, monkeypatch):
    hide_plotly(monkeypatch)
    ran = kerntune("report", *runs, "-o", "r.html")
    assert ran.code == 2
    assert '-o r.html: plotly draws the report, and is not installed: pip install "kerntune[report]"' in ran.err
    assert not (tmp_path / "r.html").exists()


def test_a_file_that_isnt_there_or_isnt_a_run_is_named(kerntune, tmp_path, runs):
    assert "nosuch.json: no such file" in kerntune("report", "nosuch.json", "--csv", "r.csv").err
    (tmp_path / "bad.json").write_text('{"schema": "kerntune.run/1", "results": 3}')
    kerntune("report", "bad.json", "--csv", "r.csv").complains(1, "bad.json")
    assert not (tmp_path / "r.csv").exists()
