"""``--kerntune-html`` and ``--kerntune-summary``."""

from __future__ import annotations

import pytest
from fake_plotly import hide_plotly, install_plotly
from gate.reporting.parsed import details_of, parsed
from inner import usage_error

SOURCE = """
@pytest.mark.autotune
def test_slow(autotune):
    autotune(kernel("REGRESSED"))
    autotune(kernel("PASS"), name="second")

@pytest.mark.autotune
@pytest.mark.parametrize("text", ["a|b`c`", "</script>"])
def test_odd(autotune, text):
    autotune(kernel("DRIFTED"))

def test_fails_by_itself(autotune):
    autotune(kernel("PASS"))
    assert False, "for a reason of its own"
"""


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("arguments", [[], pytest.param(["-n2"], marks=pytest.mark.slow)])
def test_html_has_every_case(project, monkeypatch, arguments):
    """Workers of xdist draw nothing, and need nothing for it."""
    if arguments:
        pytest.importorskip("xdist")
    install_plotly(monkeypatch)
    project.file(SOURCE)
    result = project.run("--kerntune-html=out/report.html", *arguments)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    page = parsed((project.path / "out" / "report.html").read_text())
    verdicts = [r.attributes["data-verdict"] for r in page.one("tbody").all("tr")]
    assert verdicts == ["REGRESSED", "DRIFTED", "DRIFTED", "PASS", "PASS"]
    assert "test_it.py::test_odd[</script>]" in [d["title"] for d in details_of(page)]
    assert "test_it.py::test_fails_by_itself: " in page.one("section", id="list").text


def test_html_draws_the_runs_history(project, monkeypatch):
    install_plotly(monkeypatch)
    project.file(SOURCE)
    project.run("--kerntune-history=h")
    project.run("--kerntune-history=h", "--kerntune-html=r.html", f"--kerntune-cache-dir={project.path / 'cache'}")
    assert (project.path / "cache" / "history").is_dir()


def test_a_history_that_cant_be_read_costs_no_report(project, monkeypatch):
    install_plotly(monkeypatch)
    project.file(SOURCE)
    (project.path / "cache").mkdir()
    (project.path / "cache" / "history").write_text("not a folder")
    result = project.run("--kerntune-history=h", "--kerntune-html=r.html", "--kerntune-cache-dir=cache")
    result.stdout.fnmatch_lines(["*r.html: holds no history: *cache*"])
    assert (project.path / "r.html").exists()


def test_without_plotly_nothing_runs(project, monkeypatch):
    hide_plotly(monkeypatch)
    project.file(SOURCE)
    usage_error(project.run("--kerntune-html=r.html"), '*--kerntune-html: plotly *: pip install "kerntune?report?"')
    assert project.log == ""


def test_summary_is_appended(project):
    project.file(SOURCE)
    (project.path / "s.md").write_text("# Before\n")
    project.run("--kerntune-summary=s.md")
    text = (project.path / "s.md").read_text()
    assert text.startswith("# Before\n## kerntune\n")
    assert text.index("REGRESSED |") < text.index("DRIFTED |") < text.index("PASS |")
    assert "a&#124;b&#96;c&#96;" in text
    assert "* `test_it.py::test_fails_by_itself`: " in text


def test_addopts_may_name_them(project, monkeypatch):
    install_plotly(monkeypatch)
    project.file(SOURCE)
    project.pytester.makeini("[pytest]\naddopts = --kerntune-summary=from/s.md --kerntune-html=from/r.html\n")
    (project.path / "from").mkdir()
    project.run()
    assert {p.name for p in (project.path / "from").iterdir()} == {"s.md", "r.html"}


def test_github_gets_annotations_where_it_looks_for_files(project, monkeypatch):
    project.file(SOURCE)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path.parent))
    result = project.run("--kerntune-summary=s.md")
    lines = [line for line in result.outlines if line.startswith("::")]
    folder = project.path.name
    assert len(lines) == 3
    assert lines[0].startswith(f"::error file={folder}/test_it.py,line=4,title=REGRESSED test_it.py%3A%3Atest_slow::")
    assert all(line.startswith(f"::warning file={folder}/test_it.py,line=9,title=DRIFTED") for line in lines[1:])


@pytest.mark.parametrize("variables", [{}, {"GITHUB_ACTIONS": "false"}])
def test_elsewhere_there_are_none(project, monkeypatch, variables):
    project.file(SOURCE)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert "::error" not in project.run("--kerntune-summary=s.md").stdout.str()


@pytest.mark.parametrize(("option", "asked"), [("--kerntune-json=x", True), ("--kerntune-html=x", True), ("-q", False)])
def test_results_have_code_only_where_a_file_takes_it(project, monkeypatch, option, asked):
    """It costs a compilation for each changed kernel."""
    install_plotly(monkeypatch)
    project.file(SOURCE)
    project.run(option)
    assert (project.path / "asked-for-code").exists() is asked
