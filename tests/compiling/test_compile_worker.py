"""What a compiling process answers, in this process."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from kerntune.base.device import Target
from kerntune.compiling import compile_worker
from kerntune.compiling.compile_worker import address_space, answer_to
from kerntune.compiling.frontend import lower, request_of
from kerntune.compiling.kernel_facts import facts_of
from kerntune.compiling.protocol import CompileFailed, Done, Job

from . import kernels


@pytest.fixture(scope="module")
def job() -> Job:
    return lower(request_of(kernels.add_launch())).job


@pytest.fixture(scope="module")
def done(job: Job) -> Done:
    found = answer_to(job)
    assert isinstance(found, Done)
    return found


def test_all_stages_after_the_given_one_run_and_are_timed(job: Job, done: Done) -> None:
    assert list(done.stages) == ["ttgir", "llir", "ptx", "cubin"]
    assert [name for name, _ in done.times] == list(done.stages)
    assert all(0 < us < 60_000_000 for _, us in done.times)
    assert done.seconds == sum(us for _, us in done.times) / 1e6
    assert json.loads(done.metadata)["name"] == "add"


def test_facts_are_those_of_the_first_text(job: Job, done: Done) -> None:
    assert done.facts == facts_of(Target.parse("cuda:90"), {"ttir": job.ir, **done.stages})


def test_a_kernel_that_has_no_such_text_has_no_facts(job: Job, done: Done) -> None:
    later = msgspec.structs.replace(job, ext="ttgir", ir=done.stages["ttgir"].decode(), metadata=done.metadata)
    found = answer_to(later)
    assert isinstance(found, Done)
    assert list(found.stages) == ["llir", "ptx", "cubin"]
    assert found.facts is None


def test_what_the_size_of_this_process_is() -> None:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    assert address_space() == pytest.approx(int(lines["VmSize"].split()[0]) << 10, rel=0.2)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ValueError("  it is wrong\n"), CompileFailed("ValueError: it is wrong")),
        (SystemExit(), CompileFailed("SystemExit")),
        (RuntimeError("x" * 5000), CompileFailed("RuntimeError: " + "x" * 4000)),
        (OSError(28, "No space left"), CompileFailed("OSError: [Errno 28] No space left", passing=True)),
    ],
    ids=["text", "none", "long", "system"],
)
def test_an_exception_is_an_answer(
    job: Job, monkeypatch: pytest.MonkeyPatch, error: BaseException, answer: CompileFailed
) -> None:
    def fails(job: Job) -> None:
        raise error

    monkeypatch.setattr(compile_worker, "_compile", fails)
    assert answer_to(job) == answer


def test_sequences_of_options_are_tuples_and_unknown_ones_are_left_out(job: Job) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    backend = make_backend(GPUTarget(job.backend, job.arch, job.warp_size))
    fields = {**job.options, "of_another_triton": 1}
    options = compile_worker.options_from(backend, fields)
    assert options.hash() == job.options_hash
    assert compile_worker._tuples([["a", 1], [2, [3]]]) == (("a", 1), (2, (3,)))
    assert compile_worker._tuples("ab") == "ab"


def test_limits_are_those_of_the_system_and_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soft limit alone, never above the hard one; none for 0. No core dumps; others of the host come first."""
    resource = compile_worker.resource
    set_to: list[tuple[int, tuple[int, int]]] = []
    nice: list[int] = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: set_to.append((which, limits)))
    monkeypatch.setattr(os, "nice", nice.append)
    monkeypatch.setattr(compile_worker.Path, "write_text", lambda path, text: set_to.append((0, (str(path), text))))
    for memory, hard, limit in ((100, resource.RLIM_INFINITY, 100), (100, 60, 60), (0, 60, None)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, hard=hard: (5, hard))
        set_to.clear()
        compile_worker._limit(memory)
        expected = [(resource.RLIMIT_CORE, (0, 0))]
        expected += [(resource.RLIMIT_AS, (limit, hard))] if limit else []
        assert set_to == [*expected, (0, ("/proc/self/oom_score_adj", "1000"))]
    assert nice == [3, 3, 3]
