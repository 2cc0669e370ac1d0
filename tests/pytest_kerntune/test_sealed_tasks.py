"""What sealed processes do for a run: pytest in bounds, and compilers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kerntune.base.device import Target
from kerntune.gate.claimed_cases import CodeFigures, CodeRequest
from pytest_kerntune import sealed_tasks
from pytest_kerntune.sealed_tasks import ROLES, TestRun, TestsRan


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """How pytest was started in the working folder; it prints and reports what the test puts in ``gives``."""
    did: list[Any] = []

    def run(command: list[str], *, stdout: Any, **words: Any) -> Any:
        did.append((command, words))
        stdout.write(did[0]["printed"])
        stdout.flush()
        if "report" in did[0]:
            (tmp_path / "run.json").write_bytes(did[0]["report"])
        return subprocess.CompletedProcess(command, 5)

    did.append({"printed": b""})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sealed_tasks.subprocess, "run", run)
    monkeypatch.setattr(sealed_tasks, "bound_command", lambda command: ["bound", *command])
    for name in ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "KERNTUNE_CACHE_DIR"):
        monkeypatch.setenv(name, f"/own/{name}")
    return did


def run_tests(*words: str) -> TestsRan:
    task = TestRun(words, "/project", {"PATH": "/bin", "HOME": "/home/theirs"})
    return ROLES["tests"](msgspec.msgpack.encode(task))


@pytest.mark.parametrize(
    ("words", "before", "after"), [(("-x", "a.py"), ["-x", "a.py"], []), (("-x", "--", "-y"), ["-x"], ["--", "-y"])]
)
def test_tests_run_in_their_own_places(
    started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any, before: Any, after: Any
) -> None:
    monkeypatch.delenv("TMPDIR")
    assert run_tests(*words).code == 5
    command, given = started[1]
    report = f"--kerntune-json={tmp_path}/run.json"
    assert command == ["bound", sys.executable, "-m", "pytest", *before, report, *after]
    own = {
        name: f"/own/{name}" for name in ("HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "KERNTUNE_CACHE_DIR")
    }
    assert given == {
        "cwd": "/project", "env": {"PATH": "/bin", **own, "PYTHONDONTWRITEBYTECODE": "1"}, "check": False,
        "stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT,
    }  # fmt: skip


@pytest.mark.parametrize(("size", "kept"), [(3, 3), ((256 << 10) + 1, 256 << 10)])
def test_the_end_of_what_they_print_is_handed_on(started: list[Any], size: int, kept: int) -> None:
    started[0]["printed"] = b"a" + b"b" * (size - 1)
    found = run_tests()
    assert (len(found.printed), found.printed[:1]) == (kept, b"a" if kept == size else b"b")


@pytest.mark.parametrize(("report", "most", "handed"), [(b"{}", 2, b"{}"), (b"{}", 1, b""), (None, 9, b"")])
def test_a_report_that_is_too_large_is_none(
    started: list[Any], monkeypatch: pytest.MonkeyPatch, report: bytes | None, most: int, handed: bytes
) -> None:
    monkeypatch.setattr(sealed_tasks, "MAX_REPORT", most)
    if report is not None:
        started[0]["report"] = report
    assert run_tests().report == handed


def test_compilers_answer_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [CodeRequest(Target.parse("cuda:90"), "k", b"module {}", {"num_warps": 4})]
    made = [CodeFigures("code")]
    monkeypatch.setattr(sealed_tasks, "figures_of", lambda requests: made if requests == asked else None)
    assert ROLES["figures"](msgspec.msgpack.encode(asked)) == made


def test_pytest_takes_no_message_for_a_test() -> None:
    assert [kind.__test__ for kind in (TestRun, TestsRan)] == [False, False]  # type: ignore[attr-defined]
