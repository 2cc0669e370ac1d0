"""Shared by the tests of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.command import Command


@pytest.fixture
def kerntune(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """The command, in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)
    return Command(capsys)
