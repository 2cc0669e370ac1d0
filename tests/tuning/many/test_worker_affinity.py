"""Jobs of a kind stay with the worker that has its code, and no other worker is idle for that."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from kerntune.tuning.many import dask_executor
from kerntune.tuning.many.dask_executor import DaskExecutor, with_affinity
from kerntune.tuning.many.hand_out import HandOut
from kerntune.tuning.many.job_kind import kind_of
from kerntune.tuning.many.outcome import JobRequest, request_of
from kerntune.tuning.many.worker_affinity import WorkerAffinity
from tuning.many.made import done, job, request

FIRST_S, VISIT_S, KEY_S = 0.52, 0.31, 0.16
"""Seconds of a kernel's first key, of a first one in another process, and of a later one: on H200."""


class Workers:
    """An executor in simulated time: each worker takes what it was asked to do first, and then the oldest work."""

    def __init__(self, count: int) -> None:
        self.count, self.now, self.number = count, 0.0, 0
        self.own: list[deque[Any]] = [deque() for _ in range(count)]
        self.any: deque[Any] = deque()
        self.running: list[Any] = []
        self.busy: set[int] = set()
        self.met: set[tuple[str, int]] = set()
        self.compiled: set[str] = set()
        self.visits = 0
        self.unread = 0

    def workers(self) -> int:
        return self.count

    def submit(self, function: Any, /, data: bytes) -> Any:
        return self._put(self.any, data)

    def submit_on(self, worker: str, function: Any, /, data: bytes) -> Any:
        return self._put(self.own[int(worker)], data)

    def _put(self, queue: deque[Any], data: bytes) -> Any:
        future: Future[bytes] = Future()
        queue.append((future, data))
        return _Asked(future, self)

    def step(self) -> None:
        for worker in range(self.count):
            queue = self.own[worker] or self.any
            if worker not in self.busy and queue:
                future, data = queue.popleft()
                self.busy.add(worker)
                end = self.now + self._seconds(kind_of(request_of(data).job), worker)
                heapq.heappush(self.running, (end, worker, future, data))
        if self.running:
            self.now, worker, future, data = heapq.heappop(self.running)
            self.busy.discard(worker)
            future.set_result(done(data, worker=str(worker)))
            self.unread += 1

    def _seconds(self, kind: str, worker: int) -> float:
        known, compiled = (kind, worker) in self.met, kind in self.compiled
        self.met.add((kind, worker))
        self.compiled.add(kind)
        self.visits += not known
        return KEY_S if known else VISIT_S if compiled else FIRST_S


class _Asked:
    """A result that is asked for; each question lets some time pass."""

    def __init__(self, future: Future[bytes], workers: Workers) -> None:
        self.future, self.workers = future, workers

    def done(self) -> bool:
        if not self.future.done() and not self.workers.unread:
            self.workers.step()
        return self.future.done()

    def result(self) -> bytes:
        self.workers.unread -= 1
        return self.future.result()


def keys(kernels: int, each: int) -> list[JobRequest]:
    """All kernels in turn, as a run meets them."""
    both = [(kernel, number) for number in range(each) for kernel in range(kernels)]
    return [JobRequest(msgspec.structs.replace(job(kernel), key=f"({number},)")) for kernel, number in both]


def simulated(workers: int, kernels: int, each: int) -> tuple[float, Workers]:
    """How many times one worker's throughput, and what was simulated."""
    one, several = Workers(1), Workers(workers)
    for executor in (one, several):
        assert len(list(HandOut(keys(kernels, each), executor))) == kernels * each
    return one.now / several.now, several


def test_two_workers_meet_few_kernels_twice() -> None:
    times, workers = simulated(2, 8, 8)
    assert workers.visits <= 8 + 2, "of 8 kernels"
    assert times >= 1.93


def test_many_workers_are_not_kept_waiting() -> None:
    for workers in (4, 16):
        times, _ = simulated(workers, 8 * workers, 8)
        assert times / workers >= 0.95, workers


def test_a_kernel_of_many_keys_is_divided() -> None:
    times, workers = simulated(8, 1, 400)
    assert workers.visits == 8
    assert times >= 0.95 * 400 * KEY_S / (FIRST_S + VISIT_S + 50 * KEY_S)


def test_nothing_is_kept_where_the_workers_are_not_known() -> None:
    affinity = WorkerAffinity(100, lambda: 0)
    affinity.ended("kind", "", "a")
    assert affinity.choose("kind") == ""


def test_a_worker_gets_no_more_than_its_share() -> None:
    affinity = WorkerAffinity(41, lambda: 2)
    assert affinity.choose("kind") == "", "no worker has had it"
    affinity.ended("kind", "", "a")
    given = Counter(affinity.choose("kind") for _ in range(40))
    assert given == {"a": 15, "": 25}, "0.75 of 40 jobs by 2 workers"


def test_a_worker_that_is_gone_is_not_asked_for_again() -> None:
    affinity = WorkerAffinity(40, lambda: 2)
    affinity.ended("kind", "", "a")
    assert affinity.choose("kind") == "a"
    affinity.died("kind", "a")
    assert affinity.choose("kind") == ""
    affinity.ended("kind", "", "b")
    assert affinity.choose("kind") == "b"


# Dask's


class ClientExecutor:
    """As ``distributed.cfexecutor`` has it."""

    def __init__(self, **kwargs: Any) -> None:
        self._client, self._kwargs, self.given = self, kwargs, []

    def nthreads(self) -> dict[str, int]:
        return {"tcp://a:1": 1, "tcp://b:1": 1}

    def submit(self, function: Any, *arguments: Any, **words: Any) -> Any:
        self.given.append(words)
        future: Future[bytes] = Future()
        future.set_result(done(*arguments, worker="tcp://b:1"))
        return future


ClientExecutor.__module__ = "distributed.cfexecutor"


def test_dask_is_asked_for_a_worker_and_may_take_another() -> None:
    executor = ClientExecutor(pure=False)
    assert isinstance(with_affinity(executor), DaskExecutor)
    assert len(list(HandOut(keys(2, 8), executor))) == 16
    asked = [words for words in executor.given if words]
    assert executor.given[:2] == [{}, {}], "the first ones of both kernels"
    assert len(asked) >= 5
    assert all(words == {"workers": ["tcp://b:1"], "allow_other_workers": True} for words in asked)


def test_workers_that_the_user_has_chosen_are_kept() -> None:
    executor = ClientExecutor(workers=["tcp://a:1"])
    list(HandOut(keys(2, 8), executor))
    assert executor.given == [{}] * 16


def test_other_executors_are_left_alone() -> None:
    executor = object()
    assert with_affinity(executor) is executor
    assert DaskExecutor(executor).workers() == 0


def test_outside_of_a_dask_task_there_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dask_executor.dask_worker() == ""
    monkeypatch.setitem(dask_executor.sys.modules, "distributed", object())
    assert dask_executor.dask_worker() == ""


def test_requests_have_kinds_of_their_own() -> None:
    assert kind_of(request(1).job) != kind_of(request(2).job)
