"""A pool of one process for each GPU: its environment, its end, and that no pool takes another with it."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from doubles import raising

from kerntune.errors import UsageError
from kerntune.gpu.host_gpus import CUDA
from kerntune.tuning.many import gpu_pools
from kerntune.tuning.many.gpu_pools import GpuPools, WorkByKind, chosen_gpus


def seen() -> tuple[int, str, int]:
    return os.getpid(), os.environ.get(CUDA, ""), os.getpgid(0)


def die(path: str) -> None:
    Path(path).touch()
    os.kill(os.getpid(), signal.SIGKILL)


def hang(path: str) -> None:
    Path(path).touch()
    signal.pause()


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuPools]:
    monkeypatch.setenv(CUDA, "4,GPU-aa,6")
    with GpuPools(("4", "GPU-aa"), environment={"KERNTUNE_TESTS_MADE": "yes"}) as made:
        yield made


def test_each_process_sees_its_own_gpu_first(pools: GpuPools) -> None:
    found = {pid: rest for pid, *rest in (pools.submit(seen_there).result() for _ in range(4))}
    assert {text for text, _ in found.values()} <= {"4,GPU-aa,6", "GPU-aa,6,4"}
    assert all(group == pid for pid, (_, group) in found.items()), "Ctrl-C at the terminal isn't theirs"
    assert os.environ[CUDA] == "4,GPU-aa,6", "this process's own is as it was"
    assert "KERNTUNE_TESTS_MADE" not in os.environ


def seen_there() -> tuple[int, str, int]:
    assert os.environ["KERNTUNE_TESTS_MADE"] == "yes"
    return seen()


def wait_for(path: str) -> int:
    """Until something is written to a pipe."""
    Path(path).read_text()
    return os.getpid()


def note(path: str, word: str) -> int:
    with Path(path).open("a") as file:
        file.write(word)
    return os.getpid()


@pytest.mark.slow
def test_a_process_goes_on_with_the_kinds_that_it_has_had(pools: GpuPools, tmp_path: Path) -> None:
    log, gates = tmp_path / "log", {kind: tmp_path / kind for kind in "ab"}
    for gate in gates.values():
        os.mkfifo(gate)
    held = {kind: pools.submit_of(kind, wait_for, str(gate)) for kind, gate in gates.items()}
    more = [pools.submit_of(kind, note, str(log), kind) for _ in range(2) for kind in "ba"]
    gates["a"].write_text("go on")
    pid = held["a"].result(60)
    assert {future.result(60) for future in more} == {pid}, "the other one is held"
    assert log.read_text() == "aabb"
    gates["b"].write_text("go on")
    assert held["b"].result(60) != pid


@pytest.mark.slow
def test_a_process_that_dies_takes_no_other(pools: GpuPools, tmp_path: Path) -> None:
    first = [pools.submit(seen) for _ in range(6)]
    dying = pools.submit(die, str(tmp_path / "died"))
    after = [pools.submit(seen) for _ in range(6)]
    with pytest.raises(BrokenProcessPool):
        dying.result(60)
    assert (tmp_path / "died").exists()
    before, later = ({f.result(60)[0] for f in futures} for futures in (first, after))
    assert len(before | later) <= 3, "the other process went on, and one came for the one that died"
    assert all(f.result() for f in first + after)


@pytest.mark.slow
def test_closing_ends_what_hangs(pools: GpuPools, tmp_path: Path) -> None:
    hanging = pools.submit(hang, str(tmp_path / "hangs"))
    while not (tmp_path / "hangs").exists():
        assert not hanging.done()
    pids = pools.pids
    pools.close()
    with pytest.raises(BrokenProcessPool):
        hanging.result(60)
    assert pids
    assert all(map(gone, pids))


def test_closing_ends_what_is_only_starting(tmp_path: Path) -> None:
    """Its imports may take many seconds, which Ctrl-C must not wait for."""
    with GpuPools(("0",)) as pools:
        starting = pools.submit(seen)
        while not pools.pids:
            assert not starting.done()
        (pid,) = pools.pids
    with pytest.raises((BrokenProcessPool, CancelledError)):
        starting.result(60)
    assert gone(pid)


KILLED = """
import os, signal, time
from kerntune.tuning.many.gpu_pools import GpuPools
pools = GpuPools(("0",))
pools.submit(time.sleep, 600)
while not pools.pids:
    pass
print(pools.pids[0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_process_that_is_only_starting_ends_with_a_killed_parent() -> None:
    """Its parent is another one by then, and never ends."""
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert gone(int(done.stdout))


def gone(pid: int) -> bool:
    """Once the process has ended; pytest-timeout ends a test that waits in vain."""
    while Path(f"/proc/{pid}").exists():
        os.sched_yield()
    return True


@pytest.mark.slow
def test_a_spoiled_process_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CUDA, "0")
    with GpuPools(("0",), spoiled=lambda result: result[1] == "0") as pools:
        assert pools.submit(seen).result()[0] != pools.submit(seen).result()[0]
    with GpuPools(("0",)) as pools:
        assert pools.submit(seen).result()[0] == pools.submit(seen).result()[0]


def test_work_that_cannot_be_judged_fails_and_the_pool_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with GpuPools(("0",), spoiled=raising(ValueError("not ours"))) as pools:
        for _ in range(2):
            with pytest.raises(ValueError, match="not ours"):
                pools.submit(seen).result(60)


def test_a_process_has_its_own_group_and_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "setpgid", lambda *given: called.append(given))
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace(sentinel=7, pid=8))
    monkeypatch.setattr(gpu_pools, "end_with_parent", lambda *given: called.append(given))
    gpu_pools._begin()
    assert called == [(0, 0), (7, 8)]


def test_closing_begins_no_work_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is killed, which is no reason to begin the next."""
    begun, go_on = queue.SimpleQueue[str](), threading.Event()

    def run(pool: gpu_pools._Pool, function: object, arguments: tuple[str]) -> str:
        begun.put(arguments[0])
        go_on.wait(30)
        return arguments[0]

    monkeypatch.setattr(gpu_pools._Pool, "run", run)
    pools = GpuPools(("0",))
    first, second = (pools.submit(str, text) for text in ("first", "second"))
    assert begun.get(timeout=30) == "first"
    pools.close()
    go_on.set()
    for thread in pools._threads:
        thread.join(30)
        assert thread.daemon, "a process that hangs keeps no program from its end"
    assert (first.result(30), second.done(), begun.empty()) == ("first", False, True)


def test_a_pool_that_ends_waits_for_nothing() -> None:
    pool, asked = gpu_pools._Pool("0", {}), list[dict[str, bool]]()
    pool._executor = cast("Any", SimpleNamespace(shutdown=lambda **words: asked.append(words)))
    pool.end()
    pool.end()
    assert (asked, pool._executor, pool.pids) == ([{"wait": False}], None, ())


# which GPUs


def test_gpus_are_asked_for_by_their_place() -> None:
    environ = {CUDA: "3,GPU-aa"}
    assert chosen_gpus(None, environ) == ("3", "GPU-aa")
    assert chosen_gpus(["1"], environ) == ("GPU-aa",)
    assert chosen_gpus([0, "GPU-zz"], environ) == ("3", "GPU-zz")
    for asked, says in (([2], "there is no GPU 2: 2 are visible"), ([0, 0], "name each once"), ([], "name each once")):
        with pytest.raises(UsageError, match=says):
            chosen_gpus(asked, environ)
    with pytest.raises(UsageError, match="there is no GPU here to tune on"):
        chosen_gpus(None, {CUDA: ""})


@pytest.mark.parametrize("asked", ["foo", "-1", "0-1", ""])
def test_what_is_no_gpu_is_refused_at_once(asked: str) -> None:
    with pytest.raises(UsageError, match="is no GPU; name each by its number"):
        chosen_gpus([asked], {CUDA: "3,4"})


@pytest.mark.parametrize("asked", [["0"], ["foo"], ["0", "1"], ["GPU-aa"]])
def test_where_no_gpu_is_none_can_be_asked_for(asked: list[str]) -> None:
    with pytest.raises(UsageError, match="there is no GPU here to tune on"):
        chosen_gpus(asked, {CUDA: ""})


# who gets which work


def filled(*work: str) -> WorkByKind[str]:
    """Of the kind that its first letter says."""
    queue = WorkByKind[str]()
    for one in work:
        queue.put(one[0], one)
    return queue


def test_new_kinds_come_first_then_those_one_has_had() -> None:
    queue = filled("a1", "a2", "b1", "b2")
    assert [queue.take("x"), queue.take("y")] == ["a1", "b1"]
    queue.put("c", "c1")
    assert [queue.take("y"), queue.take("y"), queue.take("x")] == ["c1", "b2", "a2"]


def test_without_work_of_its_own_kinds_one_helps_where_the_most_is_left() -> None:
    queue = filled("a1", "b1")
    assert [queue.take("x"), queue.take("x")] == ["a1", "b1"]
    for one in ("a2", "b2", "b3", "b4"):
        queue.put(one[0], one)
    assert [queue.take("y"), queue.take("y"), queue.take("x")] == ["b2", "b3", "a2"]


def test_work_without_a_kind_is_of_one_kind() -> None:
    """As ``submit`` gives it."""
    queue = filled("b1")
    queue.put("", "first")
    assert [queue.take("y"), queue.take("x")] == ["b1", "first"]
    for kind, work in (("b", "b2"), ("b", "b3"), ("", "second")):
        queue.put(kind, work)
    assert queue.take("x") == "second"


def test_work_of_one_kind_comes_in_its_order() -> None:
    queue = filled(*(f"a{n}" for n in range(5)))
    assert [queue.take(n % 2) for n in range(5)] == [f"a{n}" for n in range(5)]


def test_who_waits_gets_what_comes_and_then_the_end() -> None:
    queue, found = WorkByKind[str](), list[str | None]()
    waiting = threading.Thread(target=lambda: found.extend([queue.take("x"), queue.take("x")]))
    waiting.start()
    queue.put("a", "a1")
    queue.end()
    waiting.join()
    assert found == ["a1", None]


def test_what_was_put_before_the_end_is_still_taken() -> None:
    queue = filled("a1")
    queue.end()
    assert [queue.take("x"), queue.take("x")] == ["a1", None]
