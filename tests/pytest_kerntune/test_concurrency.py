"""Turns of threads and of workers, which never wait for one that waits for them."""

from __future__ import annotations

import contextlib
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.errors import MeasurementError, UsageError
from kerntune.gpu import host_gpus, probe
from pytest_kerntune import concurrency
from pytest_kerntune.concurrency import CROWDED, Spread, Turns, TurnTaking, in_turn


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "LOOK_SECONDS", 0.01)


def test_a_call_inside_of_a_call_has_its_turn_at_once() -> None:
    turns, me = Turns(), threading.get_ident()
    with turns.turn():
        with turns.turn():
            assert turns._owner == me
        assert turns._owner == me
    assert turns._owner is None


def in_thread(turns: Turns) -> list[str]:
    """What a thread comes to that takes a turn, once it has ended."""
    found: list[str] = []

    def work() -> None:
        try:
            with turns.turn():
                found.append("had its turn")
        except UsageError as exc:
            found.append(str(exc))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60.0)
    return found


def test_a_thread_that_is_joined_is_refused() -> None:
    turns = Turns()
    with turns.turn():
        (said,) = in_thread(turns)
    assert said.startswith("autotune(...) was called in a thread that the function of another autotune(...) call waits")
    assert in_thread(turns) == ["had its turn"]


def test_a_thread_that_is_not_waited_for_waits() -> None:
    turns, order = Turns(), list[str]()
    begun = threading.Event()

    def work() -> None:
        begun.set()
        with turns.turn():
            order.append("thread")

    with turns.turn():
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert begun.wait(60.0)
        threading.Event().wait(0.1)
        order.append("first")
    thread.join(60.0)
    assert order == ["first", "thread"]


def result(future: Future[str]) -> Any:
    return future.result(60.0)


def exception(future: Future[str]) -> Any:
    return future.exception(60.0)


def waited(future: Future[str]) -> Any:
    return wait([future], 60.0).done.pop().result()


def completed(future: Future[str]) -> Any:
    return next(as_completed([future], 60.0)).result()


@pytest.mark.parametrize("way", [result, exception, waited, completed])
def test_work_of_a_pool_whose_result_is_awaited_is_refused(way: Any) -> None:
    turns = Turns()

    def work() -> str:
        with turns.turn():
            return "had its turn"

    with turns.turn(), ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        with contextlib.suppress(UsageError):
            assert isinstance(way(future), UsageError)
        assert isinstance(future.exception(60.0), UsageError)


def test_frames_that_wait_for_others_do_not_count() -> None:
    assert not concurrency._waits_for_me(None)
    assert not concurrency._waits_for_me(sys._getframe())


# GPUs of workers


def spec(name: str, popen: bool = True, **env: str) -> Any:
    return SimpleNamespace(id=name, popen=popen, env=dict(env))


def node(name: str) -> Any:
    return SimpleNamespace(gateway=SimpleNamespace(id=name))


@pytest.fixture
def rotations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was asked of the list of GPUs."""
    asked: list[Any] = []

    def rotated(environ: Any, count: int, turns: int, *, amd: bool) -> dict[str, str]:
        asked.append((count, turns, amd))
        return {"TURN": str(turns)}

    monkeypatch.setattr(host_gpus, "rotated", rotated)
    monkeypatch.setattr(host_gpus, "turned_by_others", lambda env: "MINE" in env)
    monkeypatch.setattr(host_gpus, "visible_count", lambda seen: seen)
    monkeypatch.setattr(probe, "amd_gpus", lambda: 3)
    return asked


@pytest.mark.parametrize(
    ("wanted", "seen", "turns", "crowded"),
    [
        (True, 2, [(2, 0, False), (2, 1, False)], False),
        (True, 1, [(1, 0, False), (1, 1, False)], True),
        (False, 2, [], True),
        (True, 0, [(3, 0, True), (3, 1, True)], False),
    ],
)
def test_each_worker_of_this_host_has_its_turn(
    rotations: list[Any], wanted: bool, seen: int, turns: list[Any], crowded: bool
) -> None:
    spread = Spread(wanted)
    specs = [spec("a"), spec("far", popen=False), spec("own", MINE="1"), spec("b")]
    spread.turn(specs, seen)
    assert rotations == turns
    assert [s.env.get("TURN") for s in specs] == (["0", None, None, "1"] if wanted else [None] * 4)
    assert spread.input_of(node("b")) == {CROWDED: crowded}
    assert spread.input_of(node("in the place of another")) == {CROWDED: crowded}


def test_a_worker_alone_is_not_crowded(rotations: list[Any]) -> None:
    spread = Spread(wanted=False)
    spread.turn([spec("a")], 1)
    assert spread.input_of(node("a")) == {CROWDED: False}
    assert Spread(wanted=True).input_of(node("a")) == {CROWDED: False}


@pytest.mark.parametrize(
    ("turns", "fixtures", "mark", "waits"),
    [
        (TurnTaking.ALL, (), "", True),
        (TurnTaking.MARKED, (), "", False),
        (TurnTaking.MARKED, (), "gpu", True),
        (TurnTaking.MARKED, (), "cuda", True),
        (TurnTaking.MARKED, ("autotune",), "", True),
        (TurnTaking.OFF, ("autotune",), "gpu", False),
    ],
)
def test_which_tests_take_turns(
    monkeypatch: pytest.MonkeyPatch, turns: TurnTaking, fixtures: tuple[str, ...], mark: str, waits: bool
) -> None:
    monkeypatch.setattr(concurrency, "concerns", lambda item: "autotune" in fixtures)
    asked: list[Any] = []

    @contextlib.contextmanager
    def turn(crowded: bool) -> Any:
        asked.append(crowded)
        yield
        asked.append("ended")

    item: Any = SimpleNamespace(get_closest_marker=lambda name: name == mark)
    session: Any = SimpleNamespace(in_turn=turn)
    with in_turn(session, item, turns, True):
        assert asked == ([True] if waits else [])
    assert asked == ([True, "ended"] if waits else [])


def test_a_turn_that_never_comes_fails_no_test(monkeypatch: pytest.MonkeyPatch) -> None:
    def turn(crowded: bool) -> Any:
        raise MeasurementError("busy")

    ran: list[int] = []
    monkeypatch.setattr(concurrency, "concerns", lambda item: True)
    with in_turn(SimpleNamespace(in_turn=turn), SimpleNamespace(), TurnTaking.ALL, False):  # type: ignore[arg-type]
        ran.append(1)
    assert ran == [1]
