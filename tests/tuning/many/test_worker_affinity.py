"""Jobs of a kind stay with the worker that has its code, and no other worker is idle for that."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from typing import Any

import pytest

from kerntune.tuning.many import job_run
from kerntune.tuning.many.hand_out import DaskExecutor, HandOut, WorkerAffinity, kind_of, with_affinity
from tuning.many.hand_out_simulated import Costs, SimulatedWorkers, efficiency, keys
from tuning.many.made import done, request

COSTS = Costs([0.52] * 8, [[0.16]] * 8, 0.15)
"""Seconds of a kernel's first key, of a later one, and more for a first one in another process: as on H200."""


@pytest.mark.parametrize("way", ["pools", "dask"])
def test_few_kernels_are_met_twice(way: str) -> None:
    for gpus in (2, 8):
        found = efficiency(gpus, COSTS, way, 1)
        before = efficiency(gpus, COSTS, "first_free", 1)
        assert found["visits"] <= 1.35 < 1.9 < before["visits"]
        assert found["efficiency"] >= 0.95 > before["efficiency"]


def test_keys_of_one_kernel_are_divided() -> None:
    workers = SimulatedWorkers(8, COSTS)
    assert len(list(HandOut(keys(1, 400), workers))) == 400
    assert workers.visits == 8
    assert workers.now <= 1.05 * (0.52 + 0.15 + 50 * 0.16)


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


def test_workers_that_join_later_are_counted() -> None:
    """An adaptive cluster begins with one worker; most of the jobs of a single kernel would be kept for that."""
    here = ["a"]
    affinity = WorkerAffinity(42, lambda: len(here))
    affinity.ended("kind", "", "a")
    here += ["b", "c"]
    affinity.ended("kind", "", "b")
    given = Counter(affinity.choose("kind") for _ in range(40))
    assert given == {"a": 10, "": 30}, "0.75 of 40 jobs by 3 workers"


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


def test_what_an_executor_around_dask_calls_workers_is_not_asked() -> None:
    class Around(ClientExecutor):
        workers = ("tcp://a:1", "tcp://b:1")

    Around.__module__ = "somewhere"
    executor = Around()
    assert len(list(HandOut(keys(2, 8), executor))) == 16
    assert executor.given == [{}] * 16


def test_outside_of_a_dask_task_there_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert job_run.dask_worker() == ""
    monkeypatch.setitem(job_run.sys.modules, "distributed", object())
    assert job_run.dask_worker() == ""


def test_requests_have_kinds_of_their_own() -> None:
    assert kind_of(request(1).job) != kind_of(request(2).job)
