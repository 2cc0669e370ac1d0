"""The marker: a wrong one is a usage error at collection that names the test."""

from __future__ import annotations

import pytest
from inner import usage_error

WRONG = [
    ("0.1", "marker autotune takes keywords only, got 0.1"),
    ("tolerence=0.1", "marker autotune has no keyword tolerence; it knows tolerance, floor, *"),
    ("tolerance=2", "marker autotune, tolerance: 2 is no tolerance; *"),
    ("floor='soon'", "marker autotune, floor: 'soon' is no time; *"),
    ("static={'all': 1}", "marker autotune, static, all: 1 is neither True nor False"),
    ("strict=True", "marker autotune has no keyword strict; it knows tolerance, floor, *"),
    ("missing='skip'", "marker autotune, missing: 'skip' is none of record, warn, fail"),
    ("verify='none'", "marker autotune, verify: 'none' is none of winner, finalists, all, bitwise, off"),
    ("verify_ignore=3", "marker autotune, verify_ignore: 3 is no list of arguments; *"),
    ("numerics='ulp:1.5'", "marker autotune, numerics: 'ulp:1.5' is none of report, bitwise, ulp:2 *"),
    ("static_prune=2", "marker autotune, static_prune: 2 is none of spills, occupancy, model, a share above 0 *"),
    ("timer='sundial'", "marker autotune, timer: 'sundial' is none of auto, graph, events, profiler"),
    ("scope='all'", "marker autotune, scope: 'all' is none of kernels, op"),
    ("name=''", "marker autotune, name: '' is no name; *"),
    ("candidates=[{'BLOCK': 1}]", "marker autotune, candidates: * is no mapping from a kernel's name*"),
    ("candidates={}", "marker autotune, candidates: {} is no mapping *"),
    ("candidates={test_b: [{'BLOCK': 1}]}", "marker autotune, candidates: <function * is no kernel's name; *"),
    ("candidates={'add': []}", "marker autotune, candidates, kernel add: the list of configs is empty; *"),
    ("candidates={'add': {'BLOCK': 1}}", "marker autotune, candidates, kernel add: * is no list of configs"),
    ("candidates={'add': [5]}", "marker autotune, candidates, kernel add: 5 is no config; *"),
    ("candidates={'add': [{'BLOCK': [1]}]}", "*kernel add: config value BLOCK=[[]1] is a list; *"),
    ("candidates={'add': [{'num_warps': '8'}]}", "*kernel add: num_warps='8' is no whole number above 0"),
]
"""What a marker says, and what is said of it."""


@pytest.mark.parametrize("flag", ["--kerntune", "-q"])
def test_wrong_markers_are_usage_errors(project, flag):
    tests = [f"@pytest.mark.autotune({given})\ndef test_{i}(autotune): pass\n" for i, (given, _) in enumerate(WRONG)]
    project.file("\n".join(["def test_b(): pass\n", *tests]))
    says = [f"test_it.py::test_{i}: {text}" for i, (_, text) in enumerate(WRONG)]
    usage_error(project.plain(flag), f"ERROR: {says[0]}", *says[1:])


def test_marker_overrides_the_options_per_test(project):
    project.file(
        """
@pytest.mark.autotune(tolerance="10%", scope="op")
class TestIt:
    @pytest.mark.autotune(tolerance=0.2)
    def test_near(self, autotune):
        autotune(kernel())

    def test_far(self, autotune):
        autotune(kernel())
        autotune(kernel(), name="own", scope="kernels")

def test_plain(autotune):
    autotune(kernel())
"""
    )
    project.run("--kerntune-tolerance=0.3").assert_outcomes(passed=4 - 1)
    checks = [line.partition("::")[2] for line in project.log.splitlines() if line.startswith("check ")]
    assert checks == [
        "TestIt::test_near 0 scope=op tolerance=0.2",
        "TestIt::test_far 0 scope=op tolerance=0.1",
        "TestIt::test_far own scope=kernels tolerance=0.1",
        "test_plain 0 scope=kernels tolerance=0.3",
    ]


def test_outcomes_and_missing_decide_the_outcome(project, one_test):
    project.file(one_test("INCONCLUSIVE", "outcomes={'INCONCLUSIVE': 'fail'}"), "test_in_strict")
    project.file(one_test("NEW", "missing='fail'"), "test_in_new")
    project.file(one_test("NEW", "missing='warn'"), "test_in_warn")
    project.run().assert_outcomes(failed=2, passed=1, warnings=1)


def test_candidates_reach_the_engine(project):
    project.engine()
    project.file(
        """
class TritonConfig:  # as triton.Config looks
    pre_hook = None
    def all_kwargs(self):
        return {"BLOCK": 64, "num_warps": 4, "maxnreg": None}

@pytest.mark.autotune(candidates={"add": [{"BLOCK": 64}, TritonConfig(), {"BLOCK": 128, "num_warps": 8}]})
def test_a(autotune, monkeypatch):
    seen = []
    check = autotune._session.check
    monkeypatch.setattr(
        autotune._session, "check", lambda call, progress: seen.append(call) or check(call, progress))
    autotune(kernel(), flops=1.0, bytes=2.0)
    assert [str(c) for c in seen[0].candidates["add"]] == [
        "BLOCK=64 num_warps=4 num_stages=3", "BLOCK=128 num_warps=8 num_stages=3"]
    assert (seen[0].flops, seen[0].bytes) == (1.0, 2.0)
"""
    )
    project.run().assert_outcomes(passed=1)


def test_config_with_a_hook_is_refused(project):
    project.file(
        """
class TritonConfig:
    pre_hook = print

@pytest.mark.autotune(candidates={"add": [TritonConfig()]})
def test_a(autotune): pass
"""
    )
    usage_error(project.run(), "*test_a*has a pre_hook*")
