"""Of jobs with the same code one is given out first."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.tuning_job import SCHEMA, TuningJob
from kerntune.tuning.many.hand_out import WaitingJob, WaitingJobs
from kerntune.tuning.many.job_run import JobRequest


def request(kernel: str, key: int) -> JobRequest:
    return JobRequest(TuningJob(SCHEMA, "module", kernel, key=str(key)))


def taken(jobs: WaitingJobs) -> list[WaitingJob]:
    found = []
    while (job := jobs.take()) is not None:
        found.append(job)
    return found


def names(jobs: list[WaitingJob]) -> list[str]:
    return [f"{job.request.job.kernel}{job.request.job.key}" for job in jobs]


def test_one_of_each_kernel_goes_first_and_the_others_when_it_is_back() -> None:
    jobs = WaitingJobs([request(kernel, key) for key in range(3) for kernel in "ab"])
    first = taken(jobs)
    assert names(first) == ["a0", "b0"]
    assert jobs
    jobs.ended(first[1])
    assert names(taken(jobs)) == ["b1", "b2"], "nothing of the kernel that is still compiled"
    jobs.ended(first[0])
    assert names(taken(jobs)) == ["a1", "a2"]
    assert not jobs


def test_kernels_with_the_most_keys_begin() -> None:
    jobs = WaitingJobs([request("a", 0), request("b", 0), request("b", 1), request("c", 0)])
    assert names(taken(jobs)) == ["b0", "a0", "c0"]


def test_one_whose_process_died_is_given_out_again_and_others_go_on_waiting() -> None:
    jobs = WaitingJobs([request("a", key) for key in range(3)])
    (first,) = taken(jobs)
    jobs.again(first)
    (again,) = taken(jobs)
    assert (again.request, again.times) == (first.request, 2)
    jobs.ended(again)
    assert names(taken(jobs)) == ["a1", "a2"]


def test_cleared_there_are_none() -> None:
    jobs = WaitingJobs([request("a", key) for key in range(3)])
    jobs.clear()
    assert not jobs
    assert jobs.take() is None


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=40), st.data())
def test_each_is_given_out_once_and_none_of_a_kernel_beside_its_first(
    keys: list[tuple[str, int]], data: st.DataObject
) -> None:
    jobs, under_way, seen = WaitingJobs([request(*key) for key in keys]), deque[WaitingJob](), list[WaitingJob]()
    begun, ended = set[str](), set[str]()
    while jobs or under_way:
        for job in taken(jobs):
            kernel = job.request.job.kernel
            assert kernel not in begun or kernel in ended
            begun.add(kernel)
            under_way.append(job)
            seen.append(job)
        under_way.rotate(data.draw(st.integers(0, 5)))
        job = under_way.popleft()
        ended.add(job.request.job.kernel)
        jobs.ended(job)
    assert sorted(names(seen)) == sorted(f"{kernel}{key}" for kernel, key in keys)
