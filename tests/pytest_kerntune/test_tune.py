"""``--kerntune-tune``."""

from __future__ import annotations

import pytest

from pytest_kerntune.options import OPTIONS

pytest_plugins = ["pytester"]


@pytest.mark.parametrize("mode", ["auto", "frozen", "force"])
def test_option_and_ini_key(project, mode):
    project.file(f"def test_a(autotune):\n    assert autotune._session.settings.tune.value == {mode!r}\n")
    project.run(f"--kerntune-tune={mode}").assert_outcomes(passed=1)
    project.pytester.makeini(f"[pytest]\nkerntune_tune = {mode}\n")
    project.run().assert_outcomes(passed=1)


def test_wrong_value(project, one_test):
    project.file(one_test())
    result = project.run("--kerntune-tune=never")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --kerntune-tune: 'never' is none of auto, frozen, force"])


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
