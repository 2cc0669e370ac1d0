"""What the command line, the ini file and the marker say of how a test is judged, and what none of them can say."""

from __future__ import annotations

import pytest
from inner import usage_error

from kerntune.base.policy import StaticPrune
from pytest_kerntune.options import OPTIONS


@pytest.mark.parametrize(
    ("ini", "marker", "flag", "judged"),
    [
        ("", "", "", "scope=kernels tolerance=0.02"),
        ("tolerance = 0.5", "", "--kerntune-tolerance=0.05", "scope=kernels tolerance=0.05"),
        ("tolerance = 0.5", "", "--kerntune-tolerance=5%", "scope=kernels tolerance=0.05"),
        ("floor = 0.5us", "", "", "floor_ns=500.0"),
        ("scope = op", "", "", "scope=op"),
        ("anchor_tolerance = 9%", "", "", "anchor_tolerance=0.09"),
        ("metrics = time registers=5%", "", "", "metrics=Metrics(time=True, static={'registers': 0.05})"),
        ("verify = finalists", "", "", "verify='finalists'"),
        ("verify = finalists", "verify='all'", "", "verify='all'"),
        ("static_prune = ", "", "", "static_prune=None"),
        ("static_prune = spills 50%", "", "", f"static_prune={StaticPrune(spills=True, share=0.5)}"),
        ("static_prune = spills", "static_prune=['model', 0.25]", "", f"{StaticPrune(model=True, share=0.25)}"),
        ("static_prune = spills", "static_prune='off'", "", f"static_prune={StaticPrune()}"),
        ("verify_ignore = ", "", "", "verify_ignore=None"),
        ("verify_ignore = parts, add_kernel.counts", "", "", "verify_ignore=('parts', 'add_kernel.counts')"),
        ("verify_ignore = parts", "verify_ignore=['counts']", "", "verify_ignore=('counts',)"),
        ("verify_ignore = parts", "verify_ignore=''", "", "verify_ignore=()"),
    ],
)
def test_a_test_is_judged_as_its_marker_the_flag_or_the_ini_file_says(project, one_test, ini, marker, flag, judged):
    project.file(one_test(marker=marker))
    project.pytester.makeini(f"[pytest]\n{ini and 'kerntune_'}{ini}\n")
    project.run(*filter(None, [flag])).assert_outcomes(passed=1)
    assert judged in project.log


KEYS = ("tolerance", "floor", "scope", "missing", "tune", "target", "anchor_tolerance", "metrics", "outcomes")


@pytest.mark.parametrize(
    ("ini", "flag", "says"),
    [
        ("", "--kerntune-tolerance=5", "--kerntune-tolerance: '5' is no tolerance; write a share * 0.02 or 2%"),
        ("", "--kerntune-missing=skip", "--kerntune-missing: 'skip' is none of record, warn, fail"),
        ("", "--kerntune-tune=never", "--kerntune-tune: 'never' is none of auto, frozen, force"),
        ("", "--kerntune-target=h100", "--kerntune-target: unknown target 'h100': write backend:arch, *"),
        *((f"{key} = -wrong-", "", f"ini key kerntune_{key}: *-wrong-*") for key in KEYS),
        ("static_prune = spils", "", "ini key kerntune_static_prune: 'spils' is none of spills, occupancy, model, *"),
        ("verify_ignore = a.b.c", "", "ini key kerntune_verify_ignore: 'a.b.c' is no list of arguments; *"),
    ],
)
def test_a_wrong_value_is_a_usage_error_that_names_its_place(project, one_test, ini, flag, says):
    project.file(one_test())
    project.pytester.makeini(f"[pytest]\n{ini and 'kerntune_'}{ini}\n")
    usage_error(project.run(*filter(None, [flag])), f"ERROR: {says}")


MISSING = {"record": {"passed": 1}, "warn": {"passed": 1, "warnings": 1}, "fail": {"failed": 1}}


@pytest.mark.parametrize(
    ("verdict", "said", "ci", "outcomes"),
    [
        *(("NEW", {"flag": f"--kerntune-missing={word}"}, "", outcomes) for word, outcomes in MISSING.items()),
        *(("NEW", {"ini": f"missing = {word}"}, "", outcomes) for word, outcomes in MISSING.items()),
        ("NEW", {}, "true", {"failed": 1}),
        ("NEW", {}, "", {"passed": 1}),
        ("INCOMPLETE", {}, "true", {"failed": 1}),
        ("INCONCLUSIVE", {}, "", {"passed": 1, "warnings": 1}),
        ("INCONCLUSIVE", {"flag": "--kerntune-strict"}, "", {"failed": 1}),
        ("INCONCLUSIVE", {"ini": "outcomes = inconclusive=fail"}, "", {"failed": 1}),
        (
            "INCONCLUSIVE",
            {"flag": "--kerntune-strict", "marker": "outcomes={'INCONCLUSIVE': 'warn'}"},
            "",
            {"passed": 1, "warnings": 1},
        ),
        ("DRIFTED", {"ini": "outcomes = drifted=fail"}, "", {"failed": 1}),
    ],
)
def test_what_a_verdict_does(project, one_test, monkeypatch, verdict, said, ci, outcomes):
    monkeypatch.setenv("CI", ci)
    project.file(one_test(verdict, said.get("marker", "")))
    project.pytester.makeini(f"[pytest]\n{'kerntune_' + said['ini'] if 'ini' in said else ''}\n")
    project.run(*([said["flag"]] if "flag" in said else [])).assert_outcomes(**outcomes)


@pytest.mark.parametrize(
    ("text", "targets"),
    [("cuda:90", "cuda:90"), ("cuda:90, hip:gfx942,", "cuda:90,hip:gfx942"), ("cuda:80,cuda:80", "cuda:80")],
)
def test_targets(project, one_test, text, targets):
    project.file(one_test())
    project.run(f"--kerntune-target={text}").assert_outcomes(passed=1)
    project.pytester.makeini(f"[pytest]\nkerntune_target = {text}\n")
    project.run().assert_outcomes(passed=1)
    assert [x.split("targets=")[1] for x in project.log.splitlines() if "targets=" in x] == [targets] * 2


@pytest.mark.parametrize("mode", ["auto", "frozen", "force"])
def test_the_mode_of_tuning(project, mode):
    project.file(f"def test_a(autotune):\n    assert autotune._session.settings.tune.value == {mode!r}\n")
    project.run(f"--kerntune-tune={mode}").assert_outcomes(passed=1)
    project.pytester.makeini(f"[pytest]\nkerntune_tune = {mode}\n")
    project.run().assert_outcomes(passed=1)


def test_every_option_is_prefixed_and_has_help_and_a_flag_or_an_ini_key(project):
    result = project.plain("--help")
    text = result.stdout.str()
    assert [o.flag for o in OPTIONS if not o.help] == ["--kerntune-export"], "what one run tells another"
    for option in (o for o in OPTIONS if o.help):
        assert option.flag or option.ini
        assert option.flag == "" or option.flag == "--kerntune" or option.flag.startswith("--kerntune-")
        assert option.ini in ("", "kerntune") or option.ini.startswith("kerntune_")
        assert not (option.flag and option.ini) or option.flag.replace("-", "_") == f"__{option.ini}"
        assert not option.ini or f"  {option.ini} (" in text
        assert len(option.help) > 20
        assert not option.flag or f"  {option.flag}" in text
