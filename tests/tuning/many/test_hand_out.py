"""Jobs are given out, again where a process died, and every one comes back once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

from kerntune.base.config import Config
from kerntune.base.tuning_job import (
    SCHEMA,
    ArgumentText,
    ConstantText,
    DescriptorText,
    DtypeText,
    NamedArgument,
    ScalarText,
    SequenceText,
    TensorText,
    TuningJob,
)
from kerntune.tuning.many import hand_out
from kerntune.tuning.many.hand_out import HandOut, kind_of
from kerntune.tuning.many.job_run import JobEnd, JobRequest, encoded, request_of
from tuning.many.made import Scripted, Silent, done, job, request

MOST_TRIES = 3


def test_each_job_comes_back_once() -> None:
    executor = Scripted()
    found = list(HandOut([request(n) for n in range(20)], executor, window=3))
    assert [o.kernel for o in found] == [f"module.kernel{n}" for n in range(20)]
    assert {o.given_out for o in found} == {1}
    assert len(executor.given) == 20


def test_a_job_whose_process_died_is_given_out_again() -> None:
    executor = Scripted({"kernel1": 2})
    found = {o.kernel: o for o in HandOut([request(n) for n in range(3)], executor)}
    assert found["module.kernel1"].ended is JobEnd.TUNED
    assert found["module.kernel1"].given_out == 3
    assert Counter(executor.given) == {"kernel0": 1, "kernel1": 3, "kernel2": 1}


def test_after_the_third_death_it_is_named() -> None:
    executor = Scripted({"kernel1": 99})
    found = {o.kernel: o for o in HandOut([request(n) for n in range(3)], executor)}
    lost = found["module.kernel1"]
    assert lost.ended is JobEnd.LOST
    assert not lost.good
    assert Counter(executor.given)["kernel1"] == MOST_TRIES == 3
    for part in (
        "module.kernel1",
        "/a/module.py",
        "(1,)",
        "3 processes",
        "the worker is gone",
        "KERNTUNE_ISOLATE=always",
    ):
        assert part in lost.error
    assert lost.job == job(1).digest()
    assert found["module.kernel2"].good, "the others go on"


def test_keys_of_a_kernel_whose_first_one_is_lost_are_still_tuned() -> None:
    jobs = [TuningJob(SCHEMA, "module", "kernel1", key=key) for key in ("first", "second", "third")]
    found = list(HandOut([JobRequest(one) for one in jobs], Scripted({"kernel1": MOST_TRIES})))
    assert [(o.key, o.ended, o.given_out) for o in found] == [
        ("first", JobEnd.LOST, 3), ("second", JobEnd.TUNED, 1), ("third", JobEnd.TUNED, 1),
    ]  # fmt: skip
    lost = found[0]
    assert (lost.pid, lost.seconds, lost.time_ns, lost.spoiled) == (0, 0.0, 0.0, False), "nothing is known of it"


def test_an_answer_of_another_version_is_named_at_once() -> None:
    class Other:
        given = 0

        def submit(self, function: Any, /, data: bytes) -> Any:
            self.given += 1
            future: Future[bytes] = Future()
            future.set_result(b'{"job": "x", "news": 1}')
            return future

    executor = Other()
    (found,) = HandOut([request(1)], executor)
    assert found.ended is JobEnd.FAILED
    assert "kernel module.kernel1" in found.error
    assert "do the executor's workers have this very kerntune" in found.error
    assert executor.given == 1


def test_results_that_do_not_call_back_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_out, "FIRST_POLL_S", 0.0)
    monkeypatch.setattr(hand_out, "LONGEST_POLL_S", 0.001)
    found = list(HandOut([request(n) for n in range(10)], Silent(), window=4))
    assert sorted(o.kernel for o in found) == sorted(f"module.kernel{n}" for n in range(10))


@pytest.mark.parametrize("seed", range(5))
def test_random_deaths_lose_none(seed: int) -> None:
    """And no job is done twice that didn't die."""
    chance = random.Random(seed)
    deaths = {f"kernel{n}": chance.choice([0, 0, 0, 1, 2, 3, 9]) for n in range(60)}
    executor = Scripted(deaths)
    out = HandOut([request(n) for n in range(60)], executor, window=chance.randrange(1, 9))
    found = list(out)
    assert out._affinity._left == 0
    assert len({o.job for o in found}) == len(found) == 60
    for outcome in found:
        died = deaths[outcome.kernel.removeprefix("module.")]
        assert outcome.given_out == min(died + 1, MOST_TRIES)
        assert (outcome.ended is JobEnd.LOST) == (died >= MOST_TRIES)
    assert Counter(executor.given) == {k: min(died + 1, MOST_TRIES) for k, died in deaths.items()}


def test_no_more_than_the_window_is_given_out_at_once() -> None:
    most, now, lock = 0, 0, threading.Lock()

    class Counting:
        def submit(self, function: Any, /, data: bytes) -> Any:
            nonlocal most, now
            with lock:
                now += 1
                most = max(most, now)
            future: Future[bytes] = Future()

            def finish() -> None:
                nonlocal now
                with lock:
                    now -= 1
                future.set_result(done(data))

            threads.submit(finish)
            return future

    with ThreadPoolExecutor(4) as threads:
        assert len(list(HandOut([request(n) for n in range(50)], Counting(), window=5))) == 50
    assert most <= 5


def test_cancelling_withdraws_what_was_not_begun() -> None:
    class Never:
        futures: list[Future[bytes]] = []

        def submit(self, function: Any, /, data: bytes) -> Any:
            self.futures.append(Future())
            if len(self.futures) == 1:
                self.futures[0].set_result(done(data))
            return self.futures[-1]

    executor = Never()
    out = HandOut([request(n) for n in range(9)], executor, window=4)
    assert next(iter(out)).good
    out.cancel()
    assert [f.cancelled() for f in executor.futures] == [False, True, True, True]
    assert len(executor.futures) == 4


def test_two_jobs_of_a_kernel_are_not_under_way_before_the_first_has_come_back() -> None:
    """They would compile the same code at once."""
    given: dict[str, list[Future[bytes]]] = {}

    class Holding:
        def submit(self, function: Any, /, data: bytes) -> Any:
            asked = request_of(data).job
            future = Future[bytes]()
            given.setdefault(asked.kernel, []).append(future)
            if asked.key == "second":
                future.set_result(done(data))
            else:
                assert len(given) <= 2
                if len(given) == 2:
                    ready()
            return future

    def ready() -> None:
        assert [len(futures) for futures in given.values()] == [1, 1]
        for kernel, (future,) in list(given.items()):
            future.set_result(done(encoded(JobRequest(TuningJob(SCHEMA, "module", kernel, key="first")))))

    jobs = [TuningJob(SCHEMA, "module", kernel, key=key) for kernel in "ab" for key in ("first", "second")]
    found = list(HandOut([JobRequest(one) for one in jobs], Holding()))
    assert Counter((o.kernel, o.key) for o in found) == Counter((one.name, one.key) for one in jobs)


def test_an_executor_that_asks_is_told_the_kind() -> None:
    class Knowing(Scripted):
        kinds: list[str] = []

        def submit_of(self, kind: str, function: Any, /, data: bytes) -> Any:
            self.kinds.append(kind)
            return self.submit(function, data)

    executor = Knowing()
    requests = [request(n) for n in range(3)]
    assert len(list(HandOut(requests, executor))) == 3
    assert executor.kinds == [kind_of(one.job) for one in requests]


class BreaksDown:
    """A pool that takes nothing any more once a process of it has died, as :class:`ProcessPoolExecutor`."""

    def __init__(self, good: int) -> None:
        self.good = good

    def submit(self, function: Any, /, data: bytes) -> Any:
        self.good -= 1
        if self.good < 0:
            raise BrokenProcessPool("a child process terminated abruptly")
        future: Future[bytes] = Future()
        if self.good:
            future.set_result(done(data))
        else:
            future.set_exception(BrokenProcessPool("a child process terminated abruptly"))
        return future


def test_a_pool_that_takes_no_more_loses_the_other_keys_by_name() -> None:
    found = {o.kernel: o for o in HandOut([request(n) for n in range(5)], BreaksDown(3), window=1)}
    assert len(found) == 5, "each comes back"
    assert [o.ended for o in found.values()].count(JobEnd.TUNED) == 2
    lost = [o for o in found.values() if o.ended is JobEnd.LOST]
    assert len(lost) == 3
    assert all("BrokenProcessPool: a child process terminated" in o.error for o in lost)


def of_kind(value: ArgumentText) -> str:
    return hand_out._of(value)


def tensor(**words: Any) -> TensorText:
    return TensorText("float16", (4,), (1,), 0, 64, **words)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (tensor(), "float16"),
        (tensor(offset=16), "float16"),
        (tensor(offset=8), "float16 misaligned"),
        (tensor(offset=8, misaligned=8), "float16"),
        (tensor(misaligned=4, host=True), "float16 misaligned host"),
        (ScalarText("int", "0"), "int32 divisible"),
        (ScalarText("int", "1"), "int 1"),
        (ScalarText("int", "2"), "int32"),
        (ScalarText("int", "-16"), "int32 divisible"),
        (ScalarText("int", str(2**31 - 1)), "int32"),
        (ScalarText("int", str(2**31)), "int64 divisible"),
        (ScalarText("int", str(-(2**31))), "int32 divisible"),
        (ScalarText("int", str(-(2**31) - 1)), "int64"),
        (ScalarText("int", "x"), "int x"),
        (ScalarText("float", "1.5"), "float"),
        (ScalarText("bool", "True"), "bool True"),
        (SequenceText("tuple", (ScalarText("int", "1"), ScalarText("int", "5"))), "tuple(int 1,int32)"),
        (DescriptorText(tensor(), (4,), (1,), (2,)), "descriptor float16 (2,)"),
        (ConstantText(ScalarText("int", "5")), repr(ScalarText("int", "5"))),
        (DtypeText("torch", "float16"), repr(DtypeText("torch", "float16"))),
    ],
)
def test_what_triton_compiles_for(value: ArgumentText, kind: str) -> None:
    assert of_kind(value) == kind


def test_jobs_of_a_kind_have_the_same_code() -> None:
    one = TuningJob(SCHEMA, "m", "k", (NamedArgument("n", ScalarText("int", "32")),))
    assert kind_of(one) == kind_of(TuningJob(SCHEMA, "m", "k", (NamedArgument("n", ScalarText("int", "48")),)))
    for other in (
        TuningJob(SCHEMA, "m", "k", (NamedArgument("n", ScalarText("int", "33")),)),
        TuningJob(SCHEMA, "m", "k", (NamedArgument("m", ScalarText("int", "32")),)),
        TuningJob(SCHEMA, "m", "other", one.arguments),
        TuningJob(SCHEMA, "m", "k", one.arguments, configs=(Config({"BLOCK": 64}),)),
    ):
        assert kind_of(other) != kind_of(one)
    assert kind_of(one).partition(":")[0] == "m.k"
    assert len(kind_of(one).partition(":")[2]) == 16


def test_first_ones_of_kinds_with_the_most_jobs_come_first() -> None:
    """The others of a kind wait for it; what died is the next."""

    def asked(kernel: str, key: str) -> JobRequest:
        return JobRequest(TuningJob(SCHEMA, "m", kernel, key=key))

    jobs = hand_out.WaitingJobs([asked("a", "1"), asked("b", "1"), asked("b", "2"), asked("b", "3"), asked("c", "1")])
    taken = [jobs.take() for _ in range(4)]
    named = [job and (job.request.job.kernel, job.request.job.key, job.times) for job in taken]
    assert named == [("b", "1", 1), ("a", "1", 1), ("c", "1", 1), None]
    first, second = taken[:2]
    assert first is not None
    assert second is not None
    jobs.again(second)
    jobs.ended(first)
    left = [job for job in (jobs.take() for _ in range(4)) if job is not None]
    assert [(job.request.job.kernel, job.request.job.key, job.times) for job in left] == [
        ("a", "1", 2), ("b", "2", 1), ("b", "3", 1),
    ]  # fmt: skip
    assert not jobs
    jobs.again(second)
    assert jobs
    jobs.clear()
    assert not jobs


def test_those_that_do_not_call_back_are_asked_more_and_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    out = HandOut([request(0)], Silent())
    real = out._wait

    def wait(seconds: float) -> int | None:
        waited.append(seconds)
        return real(0.0) if len(waited) > 8 else None

    monkeypatch.setattr(out, "_wait", wait)
    assert len(list(out)) == 1
    assert waited[:9] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]
