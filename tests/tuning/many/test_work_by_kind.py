"""Who gets which work."""

from __future__ import annotations

import threading

from kerntune.tuning.many.gpu_pools import WorkByKind


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
