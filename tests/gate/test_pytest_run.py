"""How commands start pytest with the plugin."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest

from kerntune.gate import project
from kerntune.gate.project import IMPORTED, PLUGIN, plugin_args, run


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
