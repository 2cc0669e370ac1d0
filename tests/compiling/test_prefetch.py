"""Results that a thread pulls: in order, waited for as long as one likes, errors where they came."""

from __future__ import annotations

import threading

import pytest

from kerntune.compiling.farm import PrefetchedIterator


def test_results_come_in_order_and_end():
    pulled = PrefetchedIterator(iter([1, 2, 3]))
    assert list(pulled) == [1, 2, 3]
    assert list(pulled) == []
    assert pulled.wait(0)


def test_waiting_is_limited_and_takes_nothing_away():
    gate = threading.Event()

    def results():
        gate.wait(30)
        yield 1

    pulled = PrefetchedIterator(results())
    assert not pulled.wait(0.001)
    gate.set()
    assert pulled.wait()
    assert pulled.wait()
    assert next(pulled) == 1


def test_it_goes_on_without_a_taker():
    seen: list[int] = []
    pulled = PrefetchedIterator(seen.append(i) or i for i in range(5))
    pulled.done.result(30)
    assert seen == [0, 1, 2, 3, 4]


def test_an_error_is_raised_where_it_came():
    def results():
        yield 1
        raise ValueError("after one")

    pulled = PrefetchedIterator(results())
    assert next(pulled) == 1
    with pytest.raises(ValueError, match="after one"):
        next(pulled)
    assert list(pulled) == []
    pulled.done.result(30)


def test_stopping_is_asked_of_the_iterator():
    gate = threading.Event()

    def results():
        while not gate.wait(0.001):
            yield 1

    pulled = PrefetchedIterator(results(), gate.set)
    next(pulled)
    pulled.stop()
    pulled.done.result(30)


def test_a_thread_that_pulls_holds_up_no_end_of_the_process():
    def results():
        yield threading.current_thread()

    (thread,) = PrefetchedIterator(results(), name="its name")
    assert (thread.daemon, thread.name) == (True, "its name")


def test_nothing_is_asked_of_an_iterator_that_can_not_be_stopped():
    pulled = PrefetchedIterator(iter([1]))
    pulled.stop()
    assert list(pulled) == [1]
    assert pulled.done.result(30) is None
