"""A lock that knows its user."""

from __future__ import annotations

import threading

from kerntune.capture.entry_points import OneHolder


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
