"""The driver of ``benchmarks/one_gpu_run.py``: limits, what it leaves, what it runs again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import one_gpu_run as session

WRITES = "import sys; open(sys.argv[1], 'a').write('x'); print('said')"
HANGS = "import sys, time; open(sys.argv[1], 'w').write('partial'); time.sleep(600)"
FAILS = "raise SystemExit(3)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("writes.py", WRITES), ("hangs.py", HANGS), ("fails.py", FAILS)):
        (tmp_path / name).write_text(text)
    parts = {n: session.Part(10.0, (f"{n}.py {{out}}",)) for n in ("writes", "fails")}
    monkeypatch.setattr(session, "PARTS", {**parts, "hangs": session.Part(2.0, ("hangs.py {out}",))})
    monkeypatch.setattr(session, "HERE", tmp_path)
    return tmp_path / "out"


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["one_gpu_run.py", str(folder), *options])
    return session.main()


def codes(folder: Path) -> dict[str, list[int | None]]:
    return {part: row["exit_codes"] for part, row in json.loads((folder / "run.json").read_text()).items()}


def test_one_part_that_fails_or_hangs_ends_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(folder, monkeypatch) == 2
    assert codes(folder) == {"writes": [0], "fails": [3], "hangs": [None]}
    assert (folder / "hangs.json").read_text() == "partial"
    assert "sleep" in (folder / "hangs.log").read_text() or "Current thread" in (folder / "hangs.log").read_text()


def test_what_succeeded_is_not_run_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        assert run(folder, monkeypatch, "--parts", "writes,fails") == 1
    assert (folder / "writes.json").read_text() == "x"


def test_a_part_without_time_is_not_begun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(folder, monkeypatch, "--seconds", "1", "--parts", "writes") == 0
    assert not (folder / "writes.json").exists()


def test_all_scripts_are_there() -> None:
    for part in session.PARTS.values():
        assert all((session.HERE / command.split()[0]).is_file() for command in part.commands)
