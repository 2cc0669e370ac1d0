"""Processes for first launches whose child is scripted: what it is asked, when it ends, and who keeps it."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.child_process import ChildEnded, module_command
from kerntune.errors import BackendError, FrameError, MeasurementError, PeerTimeout
from kerntune.gpu.staging import HOST
from kerntune.timing.worker.requests import FirstLaunchesRequest, FirstLaunchMessage, Ready, RequestFailed
from kerntune.tuning import isolation as isolation_module
from kerntune.tuning.isolation import FirstLaunchProcess, Isolate, Isolation, KeptIsolation, device_of

READY = Ready("a GPU")
ANSWER: Any = "the answer"
REQUEST: Any = "the request"
SEVERAL = FirstLaunchesRequest(("one", "two", "three"))  # type: ignore[arg-type]


class Child:
    """Notes what it is asked, and answers what ``replies`` has; the first is what it says at its start."""

    replies: list[Any] = []

    def __init__(self, *given: Any) -> None:
        self.given, self.alive = given, True
        self.asked: list[Any] = []
        self.ended: list[bool] = []

    def ready(self, limit_s: float) -> Any:
        self.asked.append(("ready", limit_s))
        return self._next()

    def ask(self, request: Any, limit_s: float) -> Any:
        self.asked.append((request, limit_s))
        return self._next()

    def _next(self) -> Any:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def end(self, wait: bool) -> None:
        self.ended.append(wait)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(isolation_module, "ChildProcess", Child)
    monkeypatch.setattr(isolation_module, "visible_env", lambda environ: {"seen": "0"})
    monkeypatch.setattr(Child, "replies", [READY])
    return FirstLaunchProcess(("--device", "3"), 7)


def test_a_process_is_started_with_its_device_and_the_memory_that_it_inherits(process: Any) -> None:
    words = ("first-launches", str(os.getpid()), "7", "--device", "3")
    command = module_command("kerntune.timing.worker", *words)
    assert process.child.given == (command, FirstLaunchMessage, {"seen": "0", "CUDA_LAUNCH_BLOCKING": "0"}, (7,))
    assert (process.asked, process.alive) == (0, True)


def test_a_request_waits_until_the_process_has_its_device(process: Any) -> None:
    Child.replies.append(ANSWER)
    assert process.ask(REQUEST, 5.0) == ANSWER
    assert process.child.asked == [("ready", 60.0), (REQUEST, 5.0)]
    assert process.asked == 1
    Child.replies += [READY, ANSWER]
    process.ask(REQUEST, 6.0)
    assert process.asked == 2
    process.end()
    process.end(wait=False)
    assert process.child.ended == [True, False]


@pytest.mark.parametrize(
    ("replies", "error", "text", "asked"),
    [([FrameError("cut off")], MeasurementError, "a process for first launches did not start: cut off", 0),
     ([RequestFailed("no such device")], MeasurementError, "no such device", 0),
     ([ANSWER], MeasurementError, "a process for first launches did not start", 0),
     ([READY, ChildEnded("it was killed", -9)], ChildEnded, "it was killed", 1),
     ([READY, PeerTimeout("late")], PeerTimeout, "late", 1),
     ([READY, FrameError("cut off")], ChildEnded, "its process wrote what is no answer: cut off", 1)],
)  # fmt: skip
def test_what_is_no_reply(process: Any, replies: list[Any], error: type[Exception], text: str, asked: int) -> None:
    Child.replies[:] = replies
    with pytest.raises(error) as caught:
        process.ask(REQUEST, 5.0)
    assert (type(caught.value), str(caught.value), process.asked) == (error, text, asked)


def test_several_are_sent_at_once_and_each_reply_has_its_limit(process: Any) -> None:
    Child.replies += ["a", "b", "c"]
    limits = iter((1.0, 2.0, 3.0))
    assert list(process.ask_each(SEVERAL, lambda: next(limits))) == ["a", "b", "c"]
    assert process.child.asked == [("ready", 60.0), (SEVERAL, 1.0), (None, 2.0), (None, 3.0)]
    assert (process.asked, process.child.ended) == (1, [])


@pytest.mark.parametrize(("taken", "ended"), [(1, [False]), (2, [False]), (3, [])])
def test_one_whose_replies_are_not_all_taken_is_ended_behind(process: Any, taken: int, ended: list[bool]) -> None:
    Child.replies += ["a", "b", "c"]
    replies = process.ask_each(SEVERAL, lambda: 1.0)
    for _ in range(taken):
        next(replies)
    replies.close()
    assert process.child.ended == ended


# who has a process, and how bytes come to it


class Gpu:
    """A device for which processes can be had."""

    def __init__(self, name: str = "a", arguments: Any = ("0",)) -> None:
        self.spec, self._arguments = name, arguments

    def first_launch_arguments(self) -> Any:
        if isinstance(self._arguments, Exception):
            raise self._arguments
        return self._arguments


class Host:
    kind, file = HOST, 7

    def __init__(self, gpu: Any) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def isolation(process: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    Child.replies[:] = [READY] * 9
    monkeypatch.setattr(isolation_module, "HostStaging", Host)
    return Isolation(Gpu())  # type: ignore[arg-type]


def test_one_process_is_begun_at_a_time_with_one_piece_of_memory(isolation: Any) -> None:
    assert (isolation.wanted, isolation.why_not, isolation.kind, isolation.ready) == (True, "", "", False)
    isolation.begin()
    first, host = isolation._process, isolation._host
    isolation.begin()
    assert isolation.process() is first
    assert isolation.has(first)
    assert not isolation.ready, "it was asked for nothing"
    first.asked = 1
    assert isolation.ready
    first.child.alive = False
    assert not isolation.ready
    assert isolation.has(first), "until the next is asked for"
    second = isolation.process()
    assert (isolation.has(first), isolation.has(second), isolation._host is host) == (False, True, True)
    assert (first.child.ended, second.child.ended) == ([True], [])
    isolation.renew()
    assert second.child.ended == [True]
    third = isolation._process
    isolation.close()
    assert (third.child.ended, host.closed, isolation._process) == ([False], 1, None)
    isolation.close()
    assert host.closed == 1


@pytest.mark.parametrize(
    ("near", "kinds"), [(SimpleNamespace(kind="ipc"), ["ipc", "ipc", HOST]), (None, [HOST, HOST, HOST])]
)
def test_bytes_travel_through_the_device_if_they_can(
    isolation: Any, near: Any, kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(isolation_module, "device_staging", lambda gpu, nbytes: asked.append(nbytes) or near)
    isolation.begin()
    found = [isolation.staging(512).kind, isolation.staging(1024).kind]
    new = isolation.without_ipc()
    assert [*found, isolation.staging(2048).kind] == kinds
    assert asked == ([512, 1024] if near else [512]), "no device is asked twice in vain"
    assert (new, isolation.without_ipc()) == (near is not None, False)


def test_where_none_is_wanted_none_is_begun(isolation: Any) -> None:
    for gpu, mode in (
        (Gpu(), Isolate.OFF),
        (Gpu(arguments=()), Isolate.AUTO),
        (Gpu(arguments=BackendError("MPS")), Isolate.AUTO),
    ):
        one: Any = Isolation(gpu, mode)  # type: ignore[arg-type]
        one.begin()
        assert (one.wanted, one._process, one._host) == (False, None, None)
        assert one.why_not == ("MPS" if isinstance(gpu._arguments, Exception) else "")


@pytest.mark.parametrize(
    ("single", "asked", "alive", "forgets"),
    [(False, 1, True, True), (True, 1, True, False), (False, 0, True, False), (False, 1, False, False)],
)
def test_a_process_that_stays_frees_its_memory(
    single: bool, asked: int, alive: bool, forgets: bool, isolation: Any
) -> None:
    isolation.forget()
    isolation._single = single
    isolation.begin()
    child = isolation._process.child
    isolation._process.asked, child.alive = asked, alive
    isolation.forget()
    assert [limit for _, limit in child.asked] == [60.0, 60.0] * forgets
    assert isolation._process is not None


# kept for the next


class Lent:
    """In the place of :class:`Isolation`."""

    def __init__(self, gpu: Any, mode: Isolate, single: bool = False) -> None:
        self.single, self.wanted, self.closed = single, True, 0

    def close(self) -> None:
        self.closed += 1


class Timer:
    """Of which none ends before it is asked to."""

    made: list[Timer] = []
    fails = False

    def __init__(self, seconds: float, work: Callable[[], None]) -> None:
        self.seconds, self.work, self.daemon, self.cancelled = seconds, work, False, 0

    def start(self) -> None:
        if self.fails:
            raise RuntimeError("can't start new thread")
        self.made.append(self)

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> KeptIsolation:
    monkeypatch.setattr(isolation_module, "Isolation", Lent)
    monkeypatch.setattr(isolation_module.threading, "Timer", Timer)
    monkeypatch.setattr(Timer, "made", [])
    return KeptIsolation()


def used(kept: KeptIsolation, gpu: Any, mode: Isolate = Isolate.AUTO) -> Any:
    with kept.lent(gpu, mode) as isolation:
        assert not isolation.closed  # type: ignore[attr-defined]
    return isolation


def test_a_tuning_alone_ends_its_process(kept: KeptIsolation) -> None:
    one, two = used(kept, Gpu()), used(kept, Gpu())
    assert (one.single, one.closed, two.closed, one is two) == (True, 1, 1, False)


def test_tunings_in_turn_have_one_which_ends_some_seconds_after_the_last(kept: KeptIsolation) -> None:
    with kept.keeping():
        one = used(kept, Gpu())
        with kept.keeping(5.0):
            assert used(kept, Gpu()) is one, "of an equal device"
        assert (one.single, one.closed, Timer.made) == (False, 0, [])
    (timer,) = Timer.made
    assert (timer.seconds, timer.daemon, timer.cancelled, one.closed) == (10.0, True, 0, 0)
    with kept.keeping(0.5):
        assert timer.cancelled == 1
        assert used(kept, Gpu()) is one
    assert [t.seconds for t in Timer.made] == [10.0, 0.5]
    Timer.made[1].work()
    assert one.closed == 1
    with kept.keeping(0.0):
        two = used(kept, Gpu())
    assert (two.closed, len(Timer.made)) == (1, 2), "at once"


def test_where_no_thread_could_end_it_later_it_ends_at_once(
    kept: KeptIsolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Timer, "fails", True)
    with kept.keeping():
        one = used(kept, Gpu())
    assert one.closed == 1


def test_another_device_or_mode_has_another_process(kept: KeptIsolation) -> None:
    with kept.keeping():
        made = [used(kept, Gpu())]
        made += [used(kept, Gpu(*given), Isolate.ALWAYS) for given in (("a",), ("b",), ("b", ("1",)))]
        assert [one.closed for one in made] == [1, 1, 1, 0]
        made[-1].wanted = False
        assert used(kept, Gpu("b", ("1",)), Isolate.ALWAYS) is made[-1]
        assert made[-1].closed == 1, "what isn't wanted any more isn't kept"
        with pytest.raises(KeyError), kept.lent(Gpu(), Isolate.AUTO) as isolation:  # type: ignore[arg-type]
            raise KeyError
        assert isolation.closed == 1  # type: ignore[attr-defined]
    assert device_of(Gpu("b", BackendError("MPS"))) == ("b", None)  # type: ignore[arg-type]


def test_of_two_tunings_at_once_one_process_is_kept(kept: KeptIsolation) -> None:
    with kept.keeping():
        with kept.lent(Gpu(), Isolate.AUTO) as one:  # type: ignore[arg-type]
            two = used(kept, Gpu())
        assert (one.closed, two.closed) == (1, 0)  # type: ignore[attr-defined]
        with kept.lent(Gpu(), Isolate.AUTO) as again:  # type: ignore[arg-type]
            pass
    assert again is two
