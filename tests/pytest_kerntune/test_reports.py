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


@pytest.mark.parametrize(("option", "asked"), [("--kerntune-json=x", True), ("--kerntune-html=x", True), ("-q", False)])
def test_results_have_code_only_where_a_file_takes_it(project, monkeypatch, option, asked):
    """It costs a compilation for each changed kernel."""
    install_plotly(monkeypatch)
    project.file(SOURCE)
    project.run(option)
    assert (project.path / "asked-for-code").exists() is asked
