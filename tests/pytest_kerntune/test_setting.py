"""One setting: how it is registered, and where its value comes from."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doubles import raising

from kerntune.base.policy import Missing, Outcome, Update, Verdict
from kerntune.errors import UsageError
from pytest_kerntune import setting
from pytest_kerntune.options import OPTIONS
from pytest_kerntune.setting import Option, SettingSource

SWITCH = Option("--k-on", "k_on", "On or off.")
FOLDER = Option("--k-dir", "k_dir", "A folder, 2%% of it.", "DIR")
FLAG = Option("--k-write", "", "A file.", "FILE", bare="all", output=True)
KEY = Option("", "k_key", "A key.")
HIDDEN = Option("--k-hidden", "", "", "DIR")


@pytest.mark.parametrize(
    ("option", "flag", "ini"),
    [
        (SWITCH, {"action": "store_true", "default": False, "help": "On or off."},
         ("k_on", "Default of --k-on: On or off.", "bool", False)),
        (FOLDER, {"default": None, "metavar": "DIR", "help": "A folder, 2%% of it."},
         ("k_dir", "Default of --k-dir: A folder, 2% of it.", "string", "")),
        (FLAG, {"default": None, "metavar": "FILE", "help": "A file.", "nargs": "?", "const": "all"}, None),
        (KEY, None, ("k_key", "A key.", "string", "")),
        (HIDDEN, {"default": None, "metavar": "DIR", "help": argparse.SUPPRESS}, None),
    ],
)  # fmt: skip
def test_an_option_is_a_flag_or_an_ini_key_or_both(option: Option, flag: Any, ini: Any) -> None:
    flags: list[Any] = []
    keys: list[Any] = []
    group: Any = SimpleNamespace(addoption=lambda name, **words: flags.append((name, words)))
    parser: Any = SimpleNamespace(addini=lambda name, text, type, default: keys.append((name, text, type, default)))
    option.register(parser, group)
    assert flags == ([] if flag is None else [(option.flag, flag)])
    assert keys == ([] if ini is None else [ini])


def source(
    root: Path = Path("/project"), ini: dict[str, Any] | None = None, elsewhere: bool = False, **given: Any
) -> SettingSource:
    """Values of the command line (by destination) and of an ini file in ``root``; pytest was called in ``sub``."""
    options = (SWITCH, FOLDER, FLAG, KEY, *OPTIONS)
    config: Any = SimpleNamespace(
        inipath=root / "pytest.ini", rootpath=Path("/elsewhere"), getini=lambda name: (ini or {}).get(name, ""),
        invocation_params=SimpleNamespace(dir=root / "sub", args=()),
    )  # fmt: skip
    named = {option.dest: None for option in options if option.flag}
    return SettingSource(config, argparse.Namespace(**named | given), options, reported_elsewhere=elsewhere)


def parsed(text: str, where: str) -> str:
    return f"{text} of {where}"


@pytest.mark.parametrize(
    ("ini", "given", "value"),
    [
        ({}, {}, "default"), ({"k_dir": "  "}, {}, "default"), ({"k_dir": " a "}, {}, "a of ini key k_dir"),
        ({"k_dir": "a"}, {"k_dir": "b"}, "b of --k-dir"),
    ],
)  # fmt: skip
def test_the_command_line_comes_before_the_ini_file(ini: Any, given: Any, value: str) -> None:
    found = source(ini=ini, **given)
    assert found.read("--k-dir", parsed, "default") == value
    assert found.on_command_line("--k-dir") is bool(given)
    assert found.read("k_key", parsed, "default") == "default"
    assert not source(k_on=False).on_command_line("--k-on")
    assert source(k_on=True).on_command_line("--k-on")


def test_a_flag_without_its_value_is_an_error() -> None:
    for text in ("", " "):
        with pytest.raises(UsageError, match=r"^--k-dir= has no value; a variable that should give one may be unset"):
            source(k_dir=text).read("--k-dir", parsed, "default")


def test_a_path_begins_where_it_was_written() -> None:
    assert source(k_dir="a/../b").path("--k-dir") == Path("/project/sub/b")
    assert source(ini={"k_dir": "a"}).path("--k-dir") == Path("/project/a")
    assert source(k_dir="/a").path("--k-dir") == Path("/a")
    assert source(k_dir="~/a").path("--k-dir") == Path.home() / "a"
    assert source().path("--k-dir") is None
    config: Any = SimpleNamespace(inipath=None, rootpath=Path("/root"))
    assert SettingSource(config, argparse.Namespace(), (), reported_elsewhere=False).root == Path("/root")


def test_what_lies_in_the_way_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "sub" / "folder").mkdir(parents=True)
    (tmp_path / "sub" / "file").touch()
    assert source(tmp_path, k_dir="folder").folder("--k-dir") == tmp_path / "sub" / "folder"
    assert source(tmp_path).folder("--k-dir") is None
    with pytest.raises(
        UsageError, match=r"^--k-dir: .*/file/a can't be a folder, .*/file is a file; name another one$"
    ):
        source(tmp_path, k_dir="file/a").folder("--k-dir")
    assert source(tmp_path, k_write="file").file("--k-write") == tmp_path / "sub" / "file"
    assert source(tmp_path).file("--k-write") is None
    with pytest.raises(UsageError, match=r"^--k-write: .*/folder is a folder; name a file$"):
        source(tmp_path, k_write="folder").file("--k-write")


def test_a_run_that_another_one_reports_writes_its_json_alone() -> None:
    there = {"k_write": "a", "kerntune_json": "run.json", "k_dir": "d"}
    mine, other = source(**there), source(elsewhere=True, **there)
    assert [x.path("--k-write") is not None for x in (mine, other)] == [True, False]
    assert [x.path("--kerntune-json") is not None for x in (mine, other)] == [True, True]
    assert other.path("--k-dir") == Path("/project/sub/d")
    assert other.leaves(FLAG)
    assert not source(elsewhere=True).leaves(FOLDER)


@pytest.mark.parametrize("error", [TypeError, ValueError, pytest.UsageError])
def test_a_value_of_another_kind_names_its_key(error: type[Exception]) -> None:
    config: Any = SimpleNamespace(getini=raising(error("'x' is no switch")))
    with pytest.raises(pytest.UsageError, match=r"^ini key k_on: 'x' is no switch; write true or false$"):
        setting.ini_switch(config, "k_on")
    config.getini = lambda name: name == "k_on"
    assert [setting.ini_switch(config, name) for name in ("k_on", "other")] == [True, False]


# the policy


@pytest.mark.parametrize(
    ("update", "said", "ini", "ci", "missing"),
    [
        (Update.NONE, None, "", False, Missing.RECORD), (Update.NONE, None, "", True, Missing.FAIL),
        (Update.NONE, "warn", "", True, Missing.WARN), (Update.IMPROVED, None, "fail", False, Missing.FAIL),
        (Update.NEW, None, "fail", True, Missing.RECORD), (Update.ALL, "record", "", True, Missing.RECORD),
        (Update.NEW, "fail", "", False, None), (Update.ALL, "warn", "", False, None),
    ],
)  # fmt: skip
def test_what_a_case_without_a_baseline_does(
    update: Update, said: str | None, ini: str, ci: bool, missing: Missing | None
) -> None:
    found = source(ini={"kerntune_missing": ini}, kerntune_missing=said)
    if missing is None:
        says = rf"^--kerntune-update={update.value} records cases .* --kerntune-missing={said} refuses to: drop one"
        with pytest.raises(UsageError, match=says):
            setting.policy_of(found, update, ci)
        return
    policy = setting.policy_of(found, update, ci)
    assert (policy.missing, policy.ci, policy.strict) == (missing, ci, False)


def test_strict_comes_before_what_the_ini_file_says_of_inconclusive() -> None:
    ini = {"kerntune_outcomes": "inconclusive=pass drifted=fail"}
    drifted = {Verdict.DRIFTED: Outcome.FAIL}
    lax, strict = (setting.policy_of(source(ini=ini, kerntune_strict=on), Update.NONE, False) for on in (False, True))
    assert (lax.outcomes, lax.strict) == ({Verdict.INCONCLUSIVE: Outcome.PASS, **drifted}, False)
    assert (strict.outcomes, strict.strict) == (drifted, True)
