"""What a compiling process answers, in this process."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from doubles import raising

from kerntune.base.device import Target
from kerntune.base.frames import Reader
from kerntune.compiling import compile_worker
from kerntune.compiling.compile_worker import address_space, answer_to
from kerntune.compiling.frontend import lower, request_of
from kerntune.compiling.protocol import Answer, CompileFailed, Done, Hello, Job, facts_of
from kerntune.kernels import writes

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


def test_accesses_are_found_in_the_module_that_is_compiled(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text isn't parsed once more, in a context of its own."""
    monkeypatch.setattr(writes, "_understood", lambda ttir, target: pytest.fail("parsed again"))
    found = answer_to(job)
    assert isinstance(found, Done)
    assert found.facts is not None
    assert found.facts.access.reads == {0, 1}
    assert found.facts.access.writes == {2}


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
    monkeypatch.setattr(compile_worker, "_compile", raising(error))
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


@pytest.mark.parametrize(("limit", "allowed"), [(100, 100 + 5), (0, None)], ids=["some", "none"])
def test_a_worker_has_the_knobs_and_the_memory_that_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, allowed: int | None
) -> None:
    """Knobs come by themselves, too: ``triton.knobs.propagate_env`` may keep them out of the environment. What the
    process had reserved before counts in no limit, and makes none."""
    from triton import knobs

    inbox, asked = os.pipe()
    told, outbox = os.pipe()
    os.close(asked)
    resource, soft = compile_worker.resource, list[int]()
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: soft.append(limits[0]))
    monkeypatch.setattr(resource, "getrlimit", lambda which: (0, resource.RLIM_INFINITY))
    monkeypatch.setattr(os, "nice", lambda more: None)
    monkeypatch.setattr(compile_worker.Path, "write_text", lambda path, text: None)
    monkeypatch.setattr(compile_worker, "_take_pipes", lambda: (inbox, outbox))
    monkeypatch.setattr(compile_worker, "end_with_parent", lambda *given: SimpleNamespace(join=lambda: None))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(knobs, "propagate_env", False)
    monkeypatch.delenv("TRITON_DISABLE_LINE_INFO", raising=False)
    with warnings.catch_warnings():
        compile_worker.main(limit, '[["compilation", "disable_line_info", true]]', str(tmp_path), 4321, 5)
    assert knobs.compilation.disable_line_info is True
    assert soft == [0, *([] if allowed is None else [allowed])], "no core dumps, and the addresses"
    assert isinstance(Reader(told, Answer).receive(), Hello)
    for one in (inbox, outbox, told):
        os.close(one)


def test_what_prints_or_reads_is_kept_out_of_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input is empty, and standard output goes where errors go."""
    files = {0: "jobs", 1: "answers", 2: "errors"}

    def opened(name: str) -> int:
        files[max(files) + 1] = name
        return max(files)

    stand_in = SimpleNamespace(
        O_RDONLY=os.O_RDONLY,
        devnull=os.devnull,
        dup=lambda handle: opened(files[handle]),
        open=lambda path, flags: opened(path),
        dup2=lambda handle, place: files.update({place: files[handle]}),
        close=files.pop,
    )
    monkeypatch.setattr(compile_worker, "os", stand_in)
    inbox, outbox = compile_worker._take_pipes()
    assert files == {0: os.devnull, 1: "errors", 2: "errors", inbox: "jobs", outbox: "answers"}


def test_a_worker_ends_with_the_process_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    class WatchedError(Exception):
        pass

    def watch(*given: object) -> None:
        raise WatchedError(*given)

    monkeypatch.setattr(compile_worker, "_take_pipes", lambda: (5, 6))
    monkeypatch.setattr(compile_worker, "end_with_parent", watch)
    with pytest.raises(WatchedError) as seen:
        compile_worker.main(0, "[]", "folder", 77, 0)
    assert seen.value.args == (5, 77)


def test_what_was_printed_goes_before_the_answer_and_inherited_memory_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {"one": Done({}, b"", [], 100), "two": CompileFailed("no"), "three": Done({}, b"", [], 40)}
    did: list[object] = []
    streams = {name: SimpleNamespace(flush=lambda name=name: did.append(name)) for name in ("stdout", "stderr")}
    monkeypatch.setattr(compile_worker, "sys", SimpleNamespace(**streams))
    monkeypatch.setattr(compile_worker, "answer_to", answers.__getitem__)
    monkeypatch.setattr(compile_worker, "send", lambda outbox, answer: did.append((outbox, answer)))
    jobs: Any = [*answers]
    compile_worker._serve(jobs, 7, 30)
    assert did == [
        step
        for answer in (Done({}, b"", [], 70), CompileFailed("no"), Done({}, b"", [], 10))
        for step in ("stdout", "stderr", (7, answer))
    ]
