"""The project's ini file is the one that pytest takes."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from kerntune.errors import UsageError
from kerntune.gate import project
from kerntune.gate.project import IMPORTED, PLUGIN, baseline_folder, find_project, plugin_args, run

KEY = "kerntune_baselines"

FILES = {
    "pytest.ini": f"[pytest]\n{KEY} = stored\n",
    ".pytest.ini": f"[pytest]\n{KEY} = stored\n",
    "tox.ini": f"[pytest]\n{KEY} = stored\n",
    "setup.cfg": f"[tool:pytest]\n{KEY} = stored\n",
    "pyproject.toml": f'[tool.pytest.ini_options]\n{KEY} = "stored"\n',
}

OTHERS = {
    "tox.ini": "[tox]\nenvlist = py\n",
    "setup.cfg": "[metadata]\nname = x\n",
    "pyproject.toml": '[project]\nname = "x"\n',
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("inside", ["", "tests/deep"])
def test_the_folder_is_relative_to_the_ini_file(pytester, name, inside):
    (pytester.path / name).write_text(FILES[name])
    start = pytester.path / inside
    start.mkdir(parents=True, exist_ok=True)
    assert baseline_folder(None, start) == pytester.path / "stored"
    assert find_project(start).ini == pytester.parseconfig(start).inipath


@pytest.mark.parametrize("first", sorted(FILES))
@pytest.mark.parametrize("second", sorted(FILES))
def test_of_two_files_the_one_that_pytest_takes(pytester, first, second):
    for name in (first, second):
        (pytester.path / name).write_text(FILES[name])
    assert find_project(pytester.path).ini == pytester.parseconfig(pytester.path).inipath


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_without_settings_for_pytest_is_passed_over(tmp_path, name):
    (tmp_path / "pytest.ini").write_text(FILES["pytest.ini"])
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / name).write_text(OTHERS[name])
    assert find_project(tmp_path / "inner").root == tmp_path


@pytest.mark.parametrize(
    "files", [["pyproject.toml"], ["tox.ini"], ["setup.cfg"], ["setup.py"], [], [*OTHERS, "setup.py"]]
)
def test_without_settings_a_project_begins_where_pytest_says(pytester, monkeypatch, files):
    for name in files:
        (pytester.path / name).write_text(OTHERS.get(name, ""))
    start = pytester.path / "deep" / "er"
    start.mkdir(parents=True)
    monkeypatch.chdir(start)
    config = pytester.parseconfig()
    found = find_project(start)
    assert (found.root, found.ini) == (config.rootpath, config.inipath)


def test_an_empty_pytest_ini_counts(tmp_path):
    (tmp_path / "pytest.ini").write_text("")
    assert find_project(tmp_path).ini == tmp_path / "pytest.ini"
    assert baseline_folder(None, tmp_path) == tmp_path / "baselines"


def test_percent_signs_and_repeated_keys_are_no_error(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nkerntune_tolerance = 2%\nlog_format = %(message)s\n")
    assert find_project(tmp_path).values["kerntune_tolerance"] == "2%"


def test_what_is_given_counts_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "pytest.ini").write_text(FILES["pytest.ini"])
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert baseline_folder("mine", Path.cwd()) == tmp_path / "inner" / "mine"


def test_home_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{KEY} = ~/stored\n")
    assert baseline_folder(None, tmp_path) == tmp_path / "me" / "stored"


@pytest.mark.parametrize("name", ["pytest.toml", ".pytest.toml"])
def test_pytests_own_toml_is_understood(tmp_path, name):
    (tmp_path / name).write_text(f'[pytest]\n{KEY} = "stored"\n')
    found = find_project(tmp_path)
    assert (found.ini, found.folder(KEY)) == (tmp_path / name, tmp_path / "stored")
    (tmp_path / name).write_text("")
    assert find_project(tmp_path).values == {}


def test_pyproject_s_new_table_counts_where_there_is_no_old_one(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text(f'[tool.pytest]\n{KEY} = "new"\n')
    assert baseline_folder(None, tmp_path) == tmp_path / "new"
    path.write_text(f'[tool.pytest]\n{KEY} = "new"\n[tool.pytest.ini_options]\n{KEY} = "old"\n')
    assert baseline_folder(None, tmp_path) == tmp_path / "old"


@pytest.mark.parametrize(("name", "text"), [("pytest.ini", "kerntune"), ("pyproject.toml", "["), ("pytest.toml", "=")])
def test_a_broken_file_is_named_with_what_to_do(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=rf"(?s){name}: can't be read \(.*repair it, or say --baselines=DIR") as caught:
        find_project(tmp_path)
    assert str(tmp_path / name) in str(caught.value)


def test_a_project_without_an_ini_file_begins_at_its_setup(tmp_path):
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "inner").mkdir()
    found = find_project(tmp_path / "inner")
    assert (found.root, found.ini) == (tmp_path, None)
    (tmp_path / "inner" / "pyproject.toml").write_text("")
    found = find_project(tmp_path / "inner")
    assert (found.root, found.ini) == (tmp_path / "inner", tmp_path / "inner" / "pyproject.toml")


def test_an_empty_key_names_no_folder(tmp_path):
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{KEY} =\n")
    found = find_project(tmp_path)
    assert found.folder(KEY) is None
    assert found.folder("another") is None
    assert baseline_folder(None, tmp_path) == tmp_path / "baselines"


def test_home_is_understood_where_it_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert baseline_folder("~/stored", tmp_path) == tmp_path / "me" / "stored"


# how commands start pytest with the plugin


@pytest.mark.parametrize(("installed", "name"), [(["an entry point"], "kerntune"), ([], PLUGIN)])
def test_an_installed_plugin_goes_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, installed: list[str], name: str
) -> None:
    asked: list[dict[str, str]] = []

    def entry_points(**words: str) -> list[str]:
        asked.append(words)
        return installed

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert plugin_args() == ["-p", name, "-W", f"ignore:{IMPORTED}"]
    assert asked == [{"group": "pytest11", "name": "kerntune"}]


def test_pytest_s_warning_is_the_one_that_is_ignored() -> None:
    assert IMPORTED == "Module already imported so cannot be rewritten"


def test_a_users_arguments_come_last_and_pytest_s_exit_code_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(project, "plugin_args", lambda: ["-p", "it"])
    monkeypatch.setattr(pytest, "main", lambda args: seen.append(args) or pytest.ExitCode.TESTS_FAILED)
    assert run(["--kerntune-update=new", "tests"]) == 1
    assert seen == [["-p", "it", "--kerntune", "--kerntune-update=all", "--kerntune-update=new", "tests"]]
