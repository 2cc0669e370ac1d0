"""Jobs, outcomes and executors for tests."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from kerntune.base.tuning_job import SCHEMA, TuningJob
from kerntune.tuning.many.job_run import JobEnd, JobRequest, KeyOutcome, encoded, request_of


def job(number: int) -> TuningJob:
    return TuningJob(SCHEMA, "module", f"kernel{number}", key=f"({number},)", file="/a/module.py")


def request(number: int) -> JobRequest:
    return JobRequest(job(number))


def done(data: bytes, ended: JobEnd = JobEnd.TUNED, **words: Any) -> bytes:
    """What a process says of a request."""
    one = request_of(data).job
    return encoded(KeyOutcome(one.digest(), one.name, one.key, ended, **words))


class Scripted:
    """An executor whose results are there at once, or are what a test says: ``dies`` counts deaths by kernel."""

    def __init__(self, dies: dict[str, int] | None = None) -> None:
        self.dies = dict(dies or {})
        self.given: list[str] = []

    def submit(self, function: Any, /, data: bytes) -> Any:
        kernel = request_of(data).job.kernel
        self.given.append(kernel)
        future: Future[bytes] = Future()
        if self.dies.get(kernel, 0):
            self.dies[kernel] -= 1
            future.set_exception(ConnectionResetError("the worker is gone"))
        else:
            future.set_result(done(data))
        return future


class Silent:
    """Results that must be asked, and that don't call back: submitit's."""

    def __init__(self, asked_before: int = 3) -> None:
        self.asked_before, self.results = asked_before, []

    def submit(self, function: Any, /, data: bytes) -> Any:
        outer = self

        class Result:
            left = outer.asked_before

            def done(self) -> bool:
                self.left -= 1
                return self.left < 0

            def result(self) -> bytes:
                assert self.left < 0, "asked before it was there"
                return done(data)

        self.results.append(Result())
        return self.results[-1]
