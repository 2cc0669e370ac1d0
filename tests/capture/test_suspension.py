"""Launches of a captured function's other threads while one of them decides."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch
from fake_runs import COMPILER, N, by_block, increment_kernel, scale_kernel, tuned, wait_until_blocked
from triton.compiler.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kerntune import capture as captures
from kerntune.capture import Capture, capture
from kerntune.capture.capture import wait_while_suspended
from kerntune.capture.entry_points import OneHolder, ReplacedFunctions, Suspension
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import tuned_call


def in_thread_of_before(work: Any) -> tuple[threading.Thread, threading.Event]:
    """A thread that does some work at the event: it isn't one that a suspension begun later has started."""
    go = threading.Event()

    def wait_and_work() -> None:
        assert go.wait(60.0)
        work()

    thread = threading.Thread(target=wait_and_work, daemon=True)
    thread.start()
    return thread, go


def test_one_that_ends_while_another_thread_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Just after that thread has found it."""
    suspension = Suspension([])
    suspension.release()
    monkeypatch.setattr(capture, "_suspension", suspension)
    lines = list[int]()

    def end_after_first_line(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code is capture.wait_while_suspended.__code__ and event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == 2:
                monkeypatch.setattr(capture, "_suspension", None)
        return end_after_first_line

    def look() -> None:
        before = sys.gettrace()
        sys.settrace(end_after_first_line)
        try:
            capture.wait_while_suspended("a_kernel")
        finally:
            sys.settrace(before)

    look()
    assert len(lines) >= 2


def test_what_only_compiles_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """``kernel.warmup(...)`` launches nothing, so nothing of the call's is lost."""
    monkeypatch.setattr("kerntune.capture.entry_points.PATIENCE_S", 0.01)
    ran = list[Any]()
    monkeypatch.setattr(JITFunction, "run", lambda kernel, *args, **words: ran.append(words["warmup"]))

    def launch(warmup: bool) -> None:
        scale_kernel.run(grid=(1,), warmup=warmup)

    missed = list[str]()
    threads = [in_thread_of_before(lambda w=w: launch(w)) for w in (True, False)]
    suspension = Suspension(missed)
    suspension.begin()
    try:
        for (thread, go), expected in zip(threads, ([], ["scale_kernel"]), strict=True):
            go.set()
            thread.join(60.0)
            assert missed == expected
    finally:
        suspension.end()
    assert ran == [True, False]


def test_launches_of_compiled_kernels_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU they don't come to any other entry point; stand-ins have another class for them."""
    monkeypatch.setattr("kerntune.capture.entry_points.PATIENCE_S", 0.01)

    class Unloaded(CompiledKernel):
        def __init__(self) -> None:
            self.metadata = SimpleNamespace(name="scale_kernel")

        def __del__(self) -> None:
            """Triton's unloads what was loaded."""

    compiled = Unloaded()
    got, missed = list[Any](), list[str]()
    monkeypatch.setattr(CompiledKernel, "__getitem__", lambda kernel, grid: got.append(grid))
    thread, go = in_thread_of_before(lambda: compiled[(1, 1, 1)])
    suspension = Suspension(missed)
    suspension.begin()
    try:
        go.set()
        thread.join(60.0)
    finally:
        suspension.end()
    assert (missed, got) == (["scale_kernel"], [(1, 1, 1)])


def launched(x: torch.Tensor, y: torch.Tensor) -> dict[str, Callable[[], object]]:
    compiled = scale_kernel.warmup(x, y, N, 2.0, BLOCK=128, grid=(1,))
    tuner = tuned(64, 128)
    return {
        "kernel": lambda: increment_kernel[by_block](y, N, BLOCK=128),
        "tuner": lambda: tuner[by_block](x, y, N, 2.0),
        "compiled": lambda: compiled[(N // 128, 1, 1)](x, y, N, 2.0, 128),
    }


@pytest.mark.parametrize("way", ["kernel", "tuner", "compiled"])
@pytest.mark.parametrize("on_its_way", [False, True])
def test_each_launch_of_another_thread_waits_and_is_recorded_once(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, way: str, on_its_way: bool
) -> None:
    """Also one that was begun before, and has come as far as the capture's own stand-in."""
    one = Capture(backend, COMPILER, {})
    with one.active():
        x, y = (torch.empty(N, device="cuda") for _ in range(2))
        launch = launched(x, y)[way]
        begun, go_on, records = threading.Event(), threading.Event(), one._entries._records

        def begin() -> None:
            if not on_its_way:
                assert go_on.wait(60.0)
            launch()

        thread = threading.Thread(target=begin, daemon=True)

        def records_late(kernel: Any) -> bool:
            if on_its_way and threading.current_thread() is thread and not begun.is_set():
                begun.set()
                assert go_on.wait(60.0)
            return records(kernel)

        monkeypatch.setattr(one._entries, "_records", records_late)
        with one.suspended():
            pass  # what stands in takes the function above from now on
        thread.start()
        if on_its_way:
            assert begun.wait(60.0)
        with one.suspended():
            go_on.set()
            wait_until_blocked(thread)
            assert one.launches == []
        thread.join(60.0)
    expected = {"kernel": "increment_kernel"}.get(way, "scale_kernel")
    assert ([launch.kernel for launch in one.launches], one.missed) == ([expected], [])


def test_triton_is_never_without_one_of_both(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that came between would be made, and nobody would have seen it."""
    one, said = Capture(backend, COMPILER, {}), list[str]()
    with one.active():
        before = ReplacedFunctions._set_and_forget

        def noted(replaced: ReplacedFunctions) -> None:
            said.append(" ".join(type(user).__name__ for user, _ in replaced._users))
            before(replaced)

        monkeypatch.setattr(ReplacedFunctions, "_set_and_forget", noted)
        with one.suspended():
            said.append("-")
        monkeypatch.undo()
    assert said == ["Suspension", "-", "EntryPoints"]


@pytest.mark.parametrize(("step", "way"), [("concerns_me", "kernel"), ("site_of", "tuner")])
def test_what_begins_while_it_is_asked_about_a_launch(backend: FakeBackend, step: str, way: str) -> None:
    """Between two looks of the launching thread, where the launch was made unrecorded, or as an untuned kernel's."""
    one = Capture(backend, COMPILER, {})
    with one.active():
        x, y = (torch.empty(N, device="cuda") for _ in range(2))
        thread = threading.Thread(target=launched(x, y)[way], daemon=True)
        there, go_on, found = threading.Event(), threading.Event(), getattr(one, step)

        def halting(*args: Any) -> Any:
            result = found(*args)
            if threading.current_thread() is thread and not there.is_set():
                there.set()
                assert go_on.wait(60.0)
            return result

        setattr(one, step, halting)
        thread.start()
        assert there.wait(60.0)
        with one.suspended():
            go_on.set()
            wait_until_blocked(thread)
        thread.join(60.0)
    assert [launch.site is not None for launch in one.launches] == [way == "tuner"]
    assert one.missed == []


PLACES = ((JITFunction, "run"), (Autotuner, "run"), (CompiledKernel, "__getitem__"), (threading.Thread, "start"))
STEPS = {
    one.__code__
    for one in (
        *(vars(Capture)[name] for name in ("_begin_suspension", "_end_suspension", "_stand_in")),
        Capture._set_current,
        inspect.unwrap(Capture.suspended),
        *(vars(OneHolder)[name] for name in ("take", "wait_for", "let_go")),
        *(vars(ReplacedFunctions)[name] for name in ("add", "_set_and_forget")),
        *(getattr(Suspension, name) for name in ("begin", "release")),
    )
}


def suspended_but_interrupted(one: Capture, at: int) -> bool:
    """A capture that is suspended once, with an interrupt at one of the points where the interpreter looks for one:
    where a function begins, and after a call. Whether there is such a point."""
    points = 0

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        nonlocal points
        if frame.f_code in STEPS and event in ("call", "return", "c_return"):
            points += 1
            if points == at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    with one.active():
        before = sys.getprofile()
        sys.setprofile(interrupt)
        try:
            with one.suspended():
                pass
        finally:
            sys.setprofile(before)
    return points >= at


def test_an_interrupt_anywhere_leaves_no_suspension(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a second error hide it."""
    before, one = [getattr(*place) for place in PLACES], Capture(backend, COMPILER, {})
    monkeypatch.setattr(one.compiler, "end", lambda: None)
    for at in range(1, 1000):
        one = Capture(backend, COMPILER, {})
        try:
            assert not suspended_but_interrupted(one, at)
            break
        except KeyboardInterrupt:
            pass
        assert [getattr(*place) for place in PLACES] == before, at
        assert (capture.current(), capture._suspension) == (None, None), at
    assert at > 20
    with Capture(backend, COMPILER, {}).active():
        pass


@pytest.mark.parametrize("raising", ["EntryPoints", "weakref"])
def test_what_fails_before_it_has_begun_lets_the_next_begin(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, raising: str
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    one = Capture(backend, COMPILER, {})
    monkeypatch.setattr(one.compiler, "end", lambda: None)
    with monkeypatch.context() as patched:
        patched.setattr(capture, raising, SimpleNamespace(ref=interrupted) if raising == "weakref" else interrupted)
        with pytest.raises(KeyboardInterrupt), one.active():
            pass
    with one.active():
        pass


def test_a_tuner_of_ours_keeps_to_the_capture_that_it_has_waited_for(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the next decision begins just then, it took the call for one outside of a capture, and tuned it."""
    one, wait = Capture(backend, COMPILER, {}), captures.wait_while_suspended
    there, go_on, failed = threading.Event(), threading.Event(), list[BaseException]()

    def halting(name: str) -> Any:
        result = wait(name)
        there.set()
        assert go_on.wait(60.0)
        return result

    def outside() -> None:
        raise AssertionError("it is tuned")

    monkeypatch.setattr(captures, "wait_while_suspended", halting)
    monkeypatch.setattr(tuned_call, "watch_environment", outside)
    with one.active():
        x, y = (torch.empty(N, device="cuda") for _ in range(2))

        def launch() -> None:
            try:
                words = {"grid": by_block, "warmup": False}
                tuned_call.run_tuned(tuned(64, 128), (x, y, N, 2.0), words, keep=False, plain=lambda: None)
            except BaseException as exc:
                failed.append(exc)

        thread = threading.Thread(target=launch, daemon=True)
        thread.start()
        assert there.wait(60.0)
        with one.suspended():
            go_on.set()
            wait_until_blocked(thread)
        thread.join(60.0)
    assert (failed, [launch.site is not None for launch in one.launches]) == ([], [True])


def test_without_a_capture_nobody_waits() -> None:
    assert wait_while_suspended("a kernel") is None


def test_a_decision_that_ends_between_two_looks_gives_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = object()
    answers = iter([None, found])
    monkeypatch.setattr(capture, "_suspension", None)
    monkeypatch.setattr(capture, "current", lambda: next(answers))
    assert wait_while_suspended("a_kernel") is found
    monkeypatch.setattr(capture, "current", lambda: found)
    assert wait_while_suspended("a_kernel") is found
    monkeypatch.setattr(capture, "current", lambda: None)
    assert wait_while_suspended("a_kernel") is None
