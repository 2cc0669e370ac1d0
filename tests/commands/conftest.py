"""Calling the command in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kerntune.cli import main


@dataclass(frozen=True)
class Ran:
    """What a call of the command came to."""

    code: int
    out: str
    err: str

    @property
    def clean(self) -> bool:
        """Whether what it complained of is messages only."""
        return "Traceback" not in self.out + self.err


@pytest.fixture
def kerntune(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """``kerntune("baselines", "show")`` in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> Ran:
        capsys.readouterr()
        try:
            code = main([str(w) for w in words])
        except SystemExit as exc:  # argparse's help and usage errors
            code = int(exc.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
