"""Without a GPU: tests run on stand-ins, and ending for want of values is no failure."""

from __future__ import annotations

import pytest
from inner import usage_error


@pytest.fixture
def project(project):
    """Without a GPU."""
    project.engine(static=True)
    return project


ENDS_AFTER = """
@pytest.mark.autotune
def test_ends(autotune):
    autotune(kernel("VERDICT", ns=None))
    raise NeedsGpu("item()")
"""


def test_test_that_can_not_go_on_is_static_only(project):
    project.file(ENDS_AFTER.replace("VERDICT", "PASS"))
    result = project.run("--kerntune-json=run.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["static only: test_it.py::test_ends stopped *: static_end of item()"])
    assert project.json()["static_only"] == {"test_it.py::test_ends": "static_end of item()"}


@pytest.mark.parametrize("ci", [False, True])
@pytest.mark.parametrize(
    ("source", "unreached", "outcomes", "said", "counts"),
    [
        (
            ENDS_AFTER.replace("VERDICT", "PASS"),
            ["backward"],
            ({"passed": 1, "warnings": 1}, {"failed": 1}),
            "*INCOMPLETE test_it.py::test_ends::backward: not reached*",
            {"PASS": 1, "INCOMPLETE": 1},
        ),
        (
            "@pytest.mark.autotune\ndef test_a(autotune):\n    raise NeedsGpu('item()')\n",
            [],
            ({"passed": 1, "warnings": 1}, {"failed": 1}),
            "*INCOMPLETE test_it.py::test_a: ended before its first autotune call*",
            {"INCOMPLETE": 1},
        ),
        (
            "@pytest.fixture\ndef x():\n    raise NeedsGpu('item()')\n\ndef test_a(autotune, x): pass\n",
            [],
            ({"skipped": 1}, {"errors": 1}),
            "*test_it.py::test_a needs results that only a GPU gives*",
            {"INCOMPLETE": 1},
        ),
    ],
    ids=["a later call", "the first call", "after a fixture"],
)
def test_a_call_that_is_not_reached_is_incomplete(project, monkeypatch, source, unreached, outcomes, said, counts, ci):
    monkeypatch.setenv("CI", "1" if ci else "")
    project.engine(static=True, unreached=unreached)
    project.file(source)
    result = project.run("-rs", "--kerntune-json=run.json")
    result.assert_outcomes(**outcomes[ci])
    result.stdout.fnmatch_lines([said])
    assert project.json()["counts"] == counts
    assert ("stopped after 1 calls" in project.log) == bool(unreached)


def test_a_call_after_a_fixture_that_stops_is_incomplete(project, monkeypatch):
    monkeypatch.setenv("CI", "1")
    project.engine(static=True, unreached=["body"])
    project.file(IN_SETUP.replace("VERDICT", "PASS"))
    result = project.run("--kerntune-json=run.json")
    result.assert_outcomes(errors=1)
    assert project.json()["counts"] == {"PASS": 1, "INCOMPLETE": 1}


def test_verdict_still_falls(project):
    project.file(ENDS_AFTER.replace("VERDICT", "REGRESSED"))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["REGRESSED test_it.py::test_ends: scripted"])


def test_real_errors_still_fail(project):
    project.file("def test_a(autotune):\n    autotune(kernel())\n    assert 1 == 2\n")
    project.run().assert_outcomes(failed=1)


def test_ending_in_the_first_call_is_told_as_that(project):
    project.file(
        "def launch():\n    raise NeedsGpu('item()')\nlaunch.script = {}\n\n"
        "def test_a(autotune):\n    autotune(launch)\n"
    )
    result = project.run()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*INCOMPLETE test_it.py::test_a: ended in its first autotune call, before a launch*"])


CUT_SHORT = """
def test_a(autotune):
    autotune(kernel("VERDICT", ns=None), NeedsGpu("item()"))
    assert "not reached" == ""
"""


IN_SETUP = """
@pytest.fixture
def x(autotune):
    autotune(kernel("VERDICT", ns=None))
    raise NeedsGpu("item()")

def test_a(x): pass
"""


@pytest.mark.parametrize(
    ("source", "verdict", "outcome"),
    [
        (CUT_SHORT, "PASS", "passed"),
        (CUT_SHORT, "REGRESSED", "failed"),
        (IN_SETUP, "PASS", "skipped"),
        (IN_SETUP, "REGRESSED", "errors"),
    ],
)
def test_a_call_that_stops_after_its_launches_is_judged(project, source, verdict, outcome):
    project.file(source.replace("VERDICT", verdict))
    result = project.run("--kerntune-json=run.json")
    result.assert_outcomes(**{outcome: 1})
    assert project.json()["counts"] == {verdict: 1}
    if outcome == "passed":
        result.stdout.fnmatch_lines(["static only: test_it.py::test_a stopped *"])


def test_other_tests_run_and_are_skipped_only_if_they_need_values(project):
    project.file(
        """
@pytest.fixture
def x():
    raise NeedsGpu("item()")

def test_passes(): pass
def test_fails(): assert 1 == 2
def test_needs(): raise NeedsGpu("item()")
def test_setup(x): pass
"""
    )
    result = project.run("-rs")
    result.assert_outcomes(passed=1, failed=1, skipped=2)
    result.stdout.fnmatch_lines(["*needs results that only a GPU gives: static_end of item()"])


def test_with_a_gpu_the_same_error_is_an_error(project):
    project.engine()
    project.file(ENDS_AFTER.replace("VERDICT", "PASS"))
    project.run().assert_outcomes(failed=1)


def test_stand_ins_are_in_place_before_collection_and_go_at_the_end(project):
    project.file("log('collected')\ndef test_a(autotune):\n    autotune(kernel())\n")
    project.run().assert_outcomes(passed=1)
    events = [line.split()[0] for line in project.log.splitlines()]
    order = [e for e in events if e in ("open", "start", "collected", "check", "stale", "close")]
    assert order == ["open", "start", "collected", "check", "stale", "close"]


def test_engine_is_closed_after_a_collection_error(project):
    project.file("raise ValueError\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert project.log.splitlines()[-1] == "close"


COMPARES = """
def test_a(autotune):
    autotune(kernel("PASS", ns=None))

@pytest.mark.parametrize("n", [1, 2])
def test_other(n): pass
"""

UNCHECKED = {
    "test_it.py::test_a": [
        ("test_it.py:4", "assert torch.equal(y, z)", True),
        ("ops.py:9", "if y.isnan().any():", False),
    ],
    "test_it.py::test_other[1]": [("test_it.py:8", "assert (y == 0).all()", True)] * 2,
}


@pytest.mark.parametrize("options", [(), ("-v",), pytest.param(("-n1",), marks=pytest.mark.slow)])
def test_values_that_nothing_checked_are_counted(project, options):
    """Of tests without autotune as well: they run on the same stand-ins."""
    project.engine(static=True, unchecked=UNCHECKED)
    project.file(COMPARES)
    result = project.run(*options, "--kerntune-json=run.json")
    result.assert_outcomes(passed=3)
    said = "values not checked without a GPU: 2 assertions and 1 other comparison in 2 tests"
    verbose = "-v" in options
    assert [x for x in result.outlines if x.startswith("values not")] == [said + ("" if verbose else "; -v shows them")]
    places = [x for x in result.outlines if x.startswith("  test_it")]
    assert (
        places
        == [
            "  test_it.py::test_a: test_it.py:4: assert torch.equal(y, z)",
            "  test_it.py::test_a: ops.py:9: if y.isnan().any():",
            "  test_it.py::test_other[1]: test_it.py:8: assert (y == 0).all()",
        ]
        * verbose
    )
    found = project.json()["unchecked"]
    assert found["test_it.py::test_a"][0] == {
        "place": "test_it.py:4", "line": "assert torch.equal(y, z)", "asserted": True,
    }  # fmt: skip
    assert {nodeid: len(values) for nodeid, values in found.items()} == {
        "test_it.py::test_a": 2, "test_it.py::test_other[1]": 1,
    }  # fmt: skip


def test_nothing_is_said_where_all_was_checked(project):
    project.file(COMPARES)
    result = project.run("--kerntune-json=run.json")
    assert "values not checked" not in result.stdout.str()
    assert "unchecked" not in project.json()


CONFIGS = """
from kerntune.base.case_result import ConfigReport

def reports(n):
    return tuple(ConfigReport("add", Config({"BLOCK": i}), 32, 0, 64, f"{WHY}" if i else "") for i in range(n))

def test_a(autotune):
    autotune(kernel("PASS", ns=None, base=None, configs=reports(COUNT)))
    autotune(kernel("PASS", ns=None, base=None, configs=reports(2)))
"""


@pytest.mark.parametrize(("count", "options", "lines", "more"), [(3, (), 2, 0), (40, (), 20, 19), (40, ("-v",), 39, 0)])
def test_configs_with_a_problem_are_listed_once(project, count, options, lines, more):
    project.file(CONFIGS.replace("COUNT", str(count)).replace("{WHY}", "too large by {i}"))
    result = project.run(*options, "--kerntune-json=run.json")
    result.assert_outcomes(passed=1)
    shown = [x for x in result.outlines if x.startswith("cuda:90: add with BLOCK=")]
    assert len(shown) == lines
    assert shown[0].endswith(": too large by 1")
    said = f"... and {more} more problems of configs; -v shows all"
    assert (said in result.outlines) == bool(more)
    first = project.json()["results"][0]["configs"]
    assert [len(first), first[0].get("broken", ""), first[1]["broken"]] == [count, "", "too large by 1"]


@pytest.mark.parametrize(("options", "about"), [((), "BLOCK=1 {} and 38 others"), (("-v",), "BLOCK=2 {}, BLOCK=3 {}")])
def test_a_problem_that_configs_share_is_told_once(project, options, about):
    project.file(CONFIGS.replace("COUNT", "40").replace("{WHY}", "too large"))
    result = project.run(*options)
    (shown,) = [x for x in result.outlines if x.startswith("cuda:90: add with BLOCK=1 ")]
    assert about.replace("{}", "num_warps=4 num_stages=3") in shown
    assert shown.endswith(": too large")


def test_other_code_that_passes_is_said_and_counted(project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    project.file(
        "@pytest.mark.autotune\ndef test_a(autotune):\n"
        '    autotune(kernel(ns=None, base=None, remarks=("code changed; speed is judged on a GPU",)))\n'
    )
    result = project.run("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*code changed; speed*", "1 PASS", "1 case passed with other code than before: speed is judged on a GPU"]
    )
    project.run("-q").stdout.fnmatch_lines(["1 case passed with other code*"])


def test_nothing_to_compile_for_is_a_usage_error(project, one_test):
    project.engine(unusable="no GPU, and no target is known: give --kerntune-target=cuda:90")
    project.file(one_test())
    usage_error(project.run(), "ERROR: no GPU, and no target is known: *")
