"""What programs that tests start find of the packages that this process was given by ``PYTHONPATH``."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from source_path import source_path

TESTS = Path(__file__).parent

ALONE = re.compile(r"""["']PYTHONPATH["'](: |, )str\(""")

IN_PROCESS = {"benchmarks/test_before_after.py"}
"""Whose variable is for a function that is called here."""


def test_what_was_given_comes_after(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", "given")
    assert source_path(tmp_path, "b") == os.pathsep.join([str(tmp_path), "b", "given"])
    monkeypatch.delenv("PYTHONPATH")
    assert source_path(tmp_path) == str(tmp_path), "an empty entry is the working folder"


def test_no_program_of_a_test_loses_what_was_given() -> None:
    files = {p.relative_to(TESTS).as_posix(): p.read_text(encoding="utf-8") for p in TESTS.rglob("*.py") if p.is_file()}
    assert [name for name, text in files.items() if name not in IN_PROCESS and ALONE.search(text)] == []
