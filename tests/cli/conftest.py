"""Shared by the tests of the commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from inner import QUICK

from cli.command import Command


@pytest.fixture
def kerntune(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """The command, in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)
    return Command(capsys)


@pytest.fixture
def inner(kerntune: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder whose tests the command hands to pytest in this process. Not pytester's: that forgets all modules that
    are imported meanwhile, and torch can't be imported twice."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(QUICK))
    monkeypatch.delitem(sys.modules, "conftest", raising=False)
    yield tmp_path
    for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", "")).startswith(str(tmp_path))]:
        del sys.modules[name]
