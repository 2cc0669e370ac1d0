"""What the command line, the ini file and the marker say of how a test is judged, and what none of them can say."""

from __future__ import annotations

import pytest
from inner import usage_error

from kerntune.base.policy import Missing, StaticPrune, TuneMode, Update
from pytest_kerntune.concurrency import TurnTaking
from pytest_kerntune.options import OPTIONS, enabled, resolve


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
        ("", "--kerntune-tune=never", "--kerntune-tune: 'never' is none of auto, frozen, force, nearest"),
        (
            "",
            "--kerntune-target=cuda90",
            "--kerntune-target: unknown target 'cuda90': write *; did you mean cuda:90[?]",
        ),
        *((f"{key} = -wrong-", "", f"ini key kerntune_{key}: *-wrong-*") for key in KEYS),
        ("", "--kerntune-missing=Warm", "--kerntune-missing: 'Warm' is none of *; did you mean warn[?]"),
        ("static = spils=warn", "", "ini key kerntune_static: there is no rule 'spils'; *; did you mean spills[?]"),
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
    [("H100,sm_90", "cuda:90"), ("cuda:90, hip:gfx942,", "cuda:90,hip:gfx942"), ("cuda:80,cuda:80", "cuda:80")],
)
def test_targets(project, one_test, text, targets):
    project.file(one_test())
    project.run(f"--kerntune-target={text}").assert_outcomes(passed=1)
    project.pytester.makeini(f"[pytest]\nkerntune_target = {text}\n")
    project.run().assert_outcomes(passed=1)
    assert [x.split("targets=")[1] for x in project.log.splitlines() if "targets=" in x] == [targets] * 2


@pytest.mark.parametrize("mode", ["auto", "frozen", "force", "nearest"])
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


# all options of one run


def resolved(pytester: pytest.Pytester, *arguments: str, ini: str = "", environ: dict[str, str] | None = None):
    pytester.makeini(f"[pytest]\n{ini}\n")
    config = pytester.parseconfig("--kerntune", *arguments)
    assert enabled(config)
    return resolve(config, environ=environ or {})


def test_what_a_run_is_by_default(pytester: pytest.Pytester) -> None:
    found, root = resolved(pytester), pytester.path
    expected = {
        "root": root, "baselines": root / "baselines", "update": Update.NONE, "tune": TuneMode.AUTO, "scope": "kernels",
        "targets": (), "cache_dir": None, "json": None, "baselines_ref": "", "against": "", "anchor": "",
        "interpret_limit": 60.0, "history": "", "spread": True, "turns": TurnTaking.ALL, "profile": None, "html": None,
        "summary": None, "export": None, "reference": None, "reference_baselines": root / "baselines",
    }  # fmt: skip
    assert {name: getattr(found, name) for name in expected} == expected
    assert (found.reference_name, found.policy.tolerance, found.policy.level) == ("", 0.02, 0.999)
    engine = found.settings()
    assert (engine.calibrate, engine.code_changes, engine.read_only, engine.yardstick_targets) == (
        True,
        False,
        False,
        (),
    )
    assert (engine.root, engine.baselines, engine.update) == (root, root / "baselines", Update.NONE)


@pytest.mark.parametrize(
    ("arguments", "ini", "settings"),
    [
        (["--kerntune-json=a.json"], "", {"code_changes": True}),
        (["--kerntune-html=a.html"], "", {"code_changes": True}),
        (["--kerntune-summary=a.md"], "", {"code_changes": False}),
        (["--kerntune-export=e", "--kerntune-json=a.json"], "",
         {"code_changes": False, "calibrate": False, "baselines": "e", "update": Update.ALL}),
        (["--kerntune-update=new", "--kerntune-baselines=b"], "", {"update": Update.NEW, "baselines": "b"}),
        ([], "kerntune_baselines = b\nkerntune_tune = frozen", {"baselines": "b", "tune": TuneMode.FROZEN}),
        (["--kerntune-profile=p", "--kerntune-cache-dir=c"], "", {"profile": "p", "cache_dir": "c"}),
    ],
)  # fmt: skip
def test_what_the_engine_is_told(pytester: pytest.Pytester, arguments, ini, settings) -> None:
    engine = resolved(pytester, *arguments, ini=ini).settings()
    for name, value in settings.items():
        found = getattr(engine, name)
        assert found == (pytester.path / value if isinstance(value, str) else value), name


@pytest.mark.parametrize(
    ("ini", "name", "value"),
    [("kerntune_interpret_limit = 0", "interpret_limit", 0.0), ("kerntune_spread = off", "spread", False),
     ("kerntune_spread = on", "spread", True), ("kerntune_turns = marked", "turns", TurnTaking.MARKED),
     ("kerntune_scope = op", "scope", "op")],
)  # fmt: skip
def test_what_the_ini_file_alone_says(pytester: pytest.Pytester, ini, name, value) -> None:
    assert getattr(resolved(pytester, ini=ini), name) == value


@pytest.mark.parametrize(
    ("variable", "missing"),
    [(None, Missing.RECORD), ("", Missing.RECORD), ("0", Missing.RECORD), ("False", Missing.RECORD),
     ("no", Missing.RECORD), ("true", Missing.FAIL), ("1", Missing.FAIL)],
)  # fmt: skip
def test_a_case_without_a_baseline_fails_in_ci(pytester: pytest.Pytester, variable, missing) -> None:
    found = resolved(pytester, environ={} if variable is None else {"CI": variable})
    assert found.policy.missing is missing


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--kerntune-baselines-ref=main", "--kerntune-against=HEAD"],
         "--kerntune-baselines-ref takes baselines from main, --kerntune-against does without any: drop one of them"),
        (["--kerntune-against=HEAD", "--kerntune-update=all"],
         "--kerntune-against writes no baselines, --kerntune-update=all asks for some: drop one of them"),
        (["--kerntune-json=a", "--kerntune-summary=a"], "--kerntune-json and --kerntune-summary both name"),
        (["--kerntune-interpret"], "--kerntune times and compiles, --kerntune-interpret only computes"),
    ],
)  # fmt: skip
def test_what_can_not_be_said_together(pytester: pytest.Pytester, arguments, told) -> None:
    with pytest.raises(pytest.UsageError) as refused:
        resolved(pytester, *arguments)
    assert told in str(refused.value)
