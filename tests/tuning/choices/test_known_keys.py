"""Locks by key: one thread decides a key, however many wait and whatever comes of it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.tuning.choices import decided_keys
from kerntune.tuning.choices.decided_keys import KeyLocks


class Seen:
    """A lock that tells when a thread is about to wait for it."""

    def __init__(self) -> None:
        self._lock, self.waits = threading.RLock(), threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waits.set()
            self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def test_who_comes_last_waits_for_who_waited_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one leaves the key open, so that the second decides it: the third mustn't do so beside it."""
    made: list[Seen] = []
    scripted = SimpleNamespace(Lock=threading.Lock, RLock=lambda: made.append(Seen()) or made[-1])
    monkeypatch.setattr(decided_keys, "threading", scripted)
    locks = KeyLocks()
    inside, leave = threading.Event(), threading.Event()
    at_once: list[int] = []
    now = 0

    def decide() -> None:
        nonlocal now
        with locks.of("key"):
            now += 1
            at_once.append(now)
            inside.set()
            leave.wait(30)
            now -= 1

    first = locks.of("key")
    with first:
        second = threading.Thread(target=decide, daemon=True)
        second.start()
        assert made[0].waits.wait(30)
    assert inside.wait(30)
    del first
    third = threading.Thread(target=decide, daemon=True)
    made[0].waits.clear()
    third.start()
    waited = made[0].waits.wait(30)
    leave.set()
    for thread in (second, third):
        thread.join(30)
    assert waited
    assert at_once == [1, 1]


def test_other_keys_do_not_wait_and_no_lock_is_kept() -> None:
    locks = KeyLocks()
    done: list[Any] = []

    def other() -> None:
        with locks.of("other"):
            done.append(1)

    with locks.of("key"), locks.of("key"):  # a choice that calls itself on a copy
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        thread.join(30)
    assert done == [1]
    assert not list(locks._locks)
