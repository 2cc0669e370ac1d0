"""Names of what is launched, bare launches, and who has Triton's entry points."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from fake_runs import scale_kernel, tuned
from triton.runtime.jit import JITFunction

from kerntune.capture.entry_points import BareLaunches, OneHolder, ReplacedFunctions, launching_tuned, name_of


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("a kernel", "a kernel"),
        (SimpleNamespace(metadata=SimpleNamespace(name="compiled")), "compiled"),
        (tuned(64), "scale_kernel"),
        (scale_kernel, "scale_kernel"),
    ],
    ids=["text", "compiled", "tuner", "kernel"],
)
def test_what_is_launched_has_a_name(kernel: Any, name: str) -> None:
    assert name_of(kernel) == name


def test_bare_launches_are_seen_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    run = lambda jit, *args, **kwargs: seen.append(("run", args, kwargs)) or "ran"  # noqa: E731 - put into a class
    monkeypatch.setattr(JITFunction, "run", run)
    bare = BareLaunches(lambda jit, args, kwargs: seen.append((jit, args, kwargs)))
    bare.end()
    bare.begin()
    assert scale_kernel.run(1, n=2) == "ran"
    assert seen == [(scale_kernel, (1,), {"n": 2}), ("run", (1,), {"n": 2})]
    seen.clear()
    scale_kernel.run(1, warmup=True)
    with launching_tuned(), launching_tuned():
        scale_kernel.run(2, warmup=False)
    assert [args for _, args, _ in seen] == [(1,), (2,)]
    scale_kernel.run(3, warmup=False)
    assert [args for _, args, _ in seen] == [(1,), (2,), (3,), (3,)]
    bare.end()
    assert JITFunction.run is run


def test_what_is_raised_before_a_bare_launch_is_raised_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise ValueError("not now")

    monkeypatch.setattr(JITFunction, "run", lambda *args, **kwargs: pytest.fail("launched"))
    bare = BareLaunches(refuse)
    bare.begin()
    try:
        with pytest.raises(ValueError, match="not now"):
            scale_kernel.run(1)
    finally:
        bare.end()


def test_another_thread_launches_bare_while_this_one_launches_a_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(JITFunction, "run", lambda *args, **kwargs: None)
    bare = BareLaunches(lambda jit, args, kwargs: seen.append(args[0]))
    bare.begin()
    try:
        with launching_tuned():
            thread = threading.Thread(target=scale_kernel.run, args=(1,))
            thread.start()
            thread.join()
            scale_kernel.run(2)
    finally:
        bare.end()
    assert seen == [1]


def test_a_user_who_comes_again_has_one_layer() -> None:
    class Owner:
        def run(self) -> str:
            return ""

    replaced, place, user = ReplacedFunctions(), (Owner, "run"), object()
    add = lambda word: {place: lambda below: lambda self: word + below(self)}  # noqa: E731
    replaced.add(user, add("a"))
    replaced.add(user, add("b"))
    assert Owner().run() == "b"
    replaced.remove(user)
    assert Owner().run() == ""


def test_a_holder_lets_others_wait_and_goes_by_itself_alone() -> None:
    holder, first, second = OneHolder(), object(), object()
    assert holder.take(first)
    assert not holder.take(second)
    assert not holder.take(first)
    holder.wait_for(first)
    holder.let_go(second)
    assert holder.holder is first
    taken = threading.Thread(target=holder.wait_for, args=(second,), daemon=True)
    taken.start()
    taken.join(0.05)
    assert holder.holder is first
    holder.let_go(first)
    taken.join(60.0)
    assert holder.holder is second


# a lock that knows its user


def test_only_who_has_it_lets_the_next_have_it() -> None:
    one = OneHolder()
    assert one.take("a")
    assert not one.take("b")
    assert not one.take("a")
    one.let_go("b")
    assert one.holder == "a"
    one.let_go("a")
    one.let_go("a")
    assert one.take("b")


def test_who_has_it_does_not_wait_for_itself() -> None:
    one = OneHolder()
    assert one.take("a")
    one.wait_for("a")
    assert one.holder == "a"


def test_another_one_waits_until_it_is_let_go() -> None:
    one, order = OneHolder(), list[str]()
    assert one.take("a")

    def wait() -> None:
        one.wait_for("b")
        order.append("taken")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while not one._free._waiters:  # type: ignore[attr-defined]
        assert thread.is_alive()
    order.append("let go")
    one.let_go("a")
    thread.join(60.0)
    assert (order, one.holder) == (["let go", "taken"], "b")
