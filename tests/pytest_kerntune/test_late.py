"""What is known of a test only after collection: markers from hooks and fixtures, the fixture asked for by name."""

from __future__ import annotations

import pytest

HOOK = """
import pytest
import scripted

scripted.install()

@pytest.hookimpl(PRIORITY)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.autotune(MARKER))
"""

PRIORITIES = ["", "trylast=True", "tryfirst=True"]


def hook(project, marker: str, priority: str = "") -> None:
    project.pytester.makeconftest(HOOK.replace("PRIORITY", priority).replace("MARKER", marker))


def checks(project) -> list[str]:
    return [line.partition("::")[2] for line in project.log.splitlines() if line.startswith("check ")]


@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_marker_that_a_hook_adds_counts(project, priority):
    hook(project, "tolerance=0.25, scope='op', name='mine'", priority)
    project.file("def test_a(autotune):\n    autotune(kernel())\n")
    project.run().assert_outcomes(passed=1)
    assert checks(project) == ["test_a mine scope=op tolerance=0.25"]


@pytest.mark.parametrize(
    ("arguments", "priority"),
    [*((["--kerntune"], one) for one in PRIORITIES), (["-q"], "trylast=True"), (["--kerntune", "-n1"], "trylast=True")],
)
def test_a_wrong_marker_that_a_hook_adds_is_a_usage_error(project, priority, arguments):
    hook(project, "tolerence=0.25", priority)
    project.file("def test_a(autotune): pass\n")
    result = project.plain(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stderr.str() + result.stdout.str()
    assert "test_it.py::test_a: marker autotune has no keyword tolerence; it knows tolerance," in text


BODY = """
@pytest.fixture
def loose(request):
    request.node.add_marker(pytest.mark.autotune(MARKER))

def test_a(autotune, loose):
    autotune(kernel())

def test_b(autotune, request):
    autotune(kernel(), name="before")
    request.node.add_marker(pytest.mark.autotune(MARKER))
    autotune(kernel(), name="after")
"""


def test_a_marker_that_is_added_while_the_test_runs_counts_from_then_on(project):
    project.file(BODY.replace("MARKER", "tolerance=0.25"))
    project.run("--kerntune-tolerance=0.1").assert_outcomes(passed=2)
    assert [c.partition(" ")[2] for c in checks(project)] == [
        "0 scope=kernels tolerance=0.25",
        "before scope=kernels tolerance=0.1",
        "after scope=kernels tolerance=0.25",
    ]


@pytest.mark.parametrize("flag", ["--kerntune", "-q"])
def test_a_wrong_one_fails_the_test(project, flag):
    project.file(BODY.replace("MARKER", "tolerence=0.25"))
    result = project.plain(flag)
    result.assert_outcomes(failed=2)
    assert result.stdout.str().count("marker autotune has no keyword tolerence; it knows tolerance,") >= 2
    result.stdout.no_fnmatch_line("*Traceback*")


BY_NAME = """
def test_body(request):
    autotune = request.getfixturevalue("autotune")
    assert autotune(kernel("VERDICT"), 5) == 5

@pytest.fixture
def tuned(request):
    return request.getfixturevalue("autotune")

class TestIt:
    @pytest.mark.parametrize("n", [1, 2])
    def test_fixture(self, tuned, n):
        assert tuned(kernel("VERDICT"), n) == n
"""


@pytest.mark.parametrize(
    ("arguments", "verdict", "outcome"),
    [
        ([], "PASS", "passed"),
        ([], "REGRESSED", "failed"),
        pytest.param(["-n1"], "REGRESSED", "failed", marks=pytest.mark.slow),
    ],
)
def test_the_fixture_asked_for_by_name(project, arguments, verdict, outcome):
    project.file(BY_NAME.replace("VERDICT", verdict))
    result = project.run("--kerntune-json=run.json", *arguments)
    result.assert_outcomes(**{outcome: 3})
    assert project.json()["counts"] == {verdict: 3}
    if verdict == "REGRESSED":
        result.stdout.fnmatch_lines(["REGRESSED test_it.py::test_body: scripted"])


def test_the_fixture_asked_for_by_name_without_kerntune(project):
    project.file(BY_NAME.replace("VERDICT", "REGRESSED"))
    project.plain().assert_outcomes(passed=3)
    assert project.log == ""


def test_without_a_gpu_a_test_that_asks_by_name_keeps_its_figures(project):
    project.engine(static=True)
    project.file(
        "def test_a(request):\n    request.getfixturevalue('autotune')(kernel('REGRESSED', ns=None))\n"
        "    raise NeedsGpu('item()')\n"
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["REGRESSED test_it.py::test_a: scripted"])
