"""Sealed processes of a fork server that imports nothing large: answers, ends, and what such a process may do."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kerntune.errors import MeasurementError
from kerntune.referee import sealed_process
from kerntune.referee.sealed_process import Answered, SealedEnd, SealedProcesses, folder_of
from kerntune.referee.sealing import landlock_version

LANDLOCK = bool(landlock_version())
MODULE = "tests.referee.sealed_roles"


@pytest.fixture(scope="module")
def processes() -> Iterator[SealedProcesses]:
    made = SealedProcesses(LANDLOCK, MODULE)
    yield made
    made.close()
    assert made._server.returncode is not None
    assert not made._scratch.folder.exists()


def ask(processes: SealedProcesses, role: str, task: Any = None, **words: Any) -> Answered:
    found = processes.ask(role, task, **{"readable": (), "seconds": 10.0, "most": 1 << 23, **words})
    assert [p.name for p in processes._scratch.folder.iterdir() if p.name.isdigit()] == [], "its folder is left"
    return found


@pytest.mark.parametrize("count", [0, 3 << 20])
def test_an_answer_comes_whole_if_it_has_no_more_bytes_than_are_read(processes: SealedProcesses, count: int) -> None:
    """Of more bytes, too, than a pipe holds."""
    content = os.urandom(count)
    told = msgspec.msgpack.encode(content)
    assert ask(processes, "echo", content, most=len(told)) == Answered(told[::-1], SealedEnd(), "")
    assert ask(processes, "echo", content, most=len(told) - 1, seconds=0.1).data is None


def test_a_process_without_an_answer_is_told_by_its_last_words(processes: SealedProcesses) -> None:
    found = ask(processes, "speak")
    assert (found.data, found.end) == (None, SealedEnd(code=3))
    assert found.printed == ("x" * 10_000 + "\nsaid\x1b\n \nlast words\n\n\n")[-8192:]
    assert found.how == "it ended with status 3 and gave no whole answer: last words"


def test_a_late_process_is_killed(processes: SealedProcesses) -> None:
    began = time.monotonic()
    found = ask(processes, "hang", seconds=0.2)
    assert (found.data, found.end, found.how) == (None, SealedEnd(code=-9, late=True), "it was ended, being late")
    assert time.monotonic() - began < 5


def test_what_it_has_started_is_killed_though_it_has_left_its_session(processes: SealedProcesses) -> None:
    found = ask(processes, "litter")
    assert found.data is not None
    assert (found.end.killed, found.end.survivors, found.end.code) == (2, 0, 0)
    assert [pid for pid in found.data.split() if Path(f"/proc/{pid.decode()}").exists()] == []


@pytest.mark.parametrize(
    ("role", "told"),
    [("crowd", "it has more than 64 processes"), ("hoard", "it writes more than 1.07 GB or 10,000 files")],
)
def test_what_uses_too_much_is_ended(processes: SealedProcesses, role: str, told: str) -> None:
    """Nothing of it is left. Without a limit of memory nobody looks."""
    found = ask(processes, role)
    assert (found.end.code, found.end.late, found.end.survivors, found.end.excess) == (-9, False, 0, told)
    assert found.how == f"it was ended: {told}"
    assert ask(processes, role, memory=0, seconds=1.0).end.late


@pytest.mark.parametrize(("alone", "killed"), [(True, [-1]), (False, [7, 8])])
def test_what_is_left_is_killed_at_once_where_signals_reach_nothing_else(
    alone: bool, killed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one by one: of a chain of processes that fork and end none is left in a list."""
    asked, ends = list[int](), iter([(7, 9), (8, 9)])

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        try:
            return next(ends)
        except StopIteration:
            raise ChildProcessError from None

    monkeypatch.setattr(sealed_process, "_children", lambda: [7, 8])
    monkeypatch.setattr(os, "kill", lambda pid, number: asked.append(pid))
    monkeypatch.setattr(os, "waitpid", waitpid)
    assert sealed_process._kill_all(alone) == (2, 0)
    assert asked == killed


@pytest.mark.parametrize("gpu", [False, True])
def test_what_such_a_process_is_like(processes: SealedProcesses, gpu: bool) -> None:
    answer = ask(processes, "facts", [], seconds=7.5, gpu=gpu)
    assert answer.data is not None, answer.how
    found = json.loads(answer.data)
    scratch = found["cwd"]
    assert Path(scratch).parent == processes._scratch.folder
    home = {"HOME": scratch, "TMPDIR": scratch, "KERNTUNE_CACHE_DIR": f"{scratch}/kerntune"}
    caches = {"TRITON_CACHE_DIR": f"{scratch}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor"}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    fixed = {"CUDA_CACHE_DISABLE": "1", "PYTHONDONTWRITEBYTECODE": "1", **threads}
    assert found["environ"].items() >= {**home, **caches, **fixed}.items()
    assert "PYTEST_CURRENT_TEST" not in found["environ"]
    assert found["tempdir"] == scratch
    assert (found["limits"]["CORE"], found["limits"]["CPU"]) == (0, 8)
    space = found["limits"]["AS"]
    assert space == -1 if gpu else 5.9 * 2**30 < space - found["size"] <= 6 * 2**30
    assert (found["turn"] >= 0) == gpu == (processes._scratch.folder / "turn").exists()


@pytest.mark.skipif(not LANDLOCK, reason="this kernel has no Landlock")
def test_what_it_may_read(processes: SealedProcesses, tmp_path: Path) -> None:
    own, other = tmp_path / "own" / "a", tmp_path / "other" / "b"
    for path in (own, other):
        path.parent.mkdir()
        path.touch()
    answer = ask(processes, "facts", [str(own), str(other)], readable=(folder_of(str(own)),))
    assert answer.data is not None
    assert json.loads(answer.data)["tried"] == {"../written": False, str(own): True, str(other): False}


def test_a_fork_server_that_does_not_start_or_has_ended_is_an_error() -> None:
    with pytest.raises(MeasurementError, match=r"^the judge's processes do not start: "):
        SealedProcesses(LANDLOCK, "tests.referee.no_such_module").wait()
    ended = SealedProcesses(LANDLOCK, MODULE)
    ended.wait()
    ended._server.kill()
    ended._server.wait()
    with pytest.raises(MeasurementError, match=r"^the judge's processes have ended"):
        ended.ask("echo", None, (), 1.0, 100)
    ended.close()
