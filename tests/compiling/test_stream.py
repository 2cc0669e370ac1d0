"""Launches in, results out: each once, equal ones compiled once, failures with their reason."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
import triton
from doubles import raising
from triton import knobs

from kerntune.compiling import compiler as compiler_module
from kerntune.compiling import frontend, stream
from kerntune.compiling.binary.identity import strip_locations
from kerntune.compiling.compiler import Compiled, Compiler
from kerntune.compiling.compiler_tokens import SWITCH, CompilerTokens
from kerntune.compiling.farm import Deadline, NotStarted
from kerntune.compiling.frontend_forks import Crashed
from kerntune.compiling.protocol import CompileFailed, Done
from kerntune.compiling.stream import is_passing
from kerntune.compiling.worker_process import Died, JobOutcome
from kerntune.errors import CompileError, EnvironmentFault

from . import kernels
from .kernels import CUDA90, FLOATS, INTS

BAD = {
    "abort": ("SIGABRT", kernels.launch(kernels.abort, FLOATS, CUDA90, B=128)),
    "asm": ("Unknown modifier '.bogus'", kernels.launch(kernels.wide_asm, INTS, CUDA90, B=128)),
    "letter": ("constraint 'f'", kernels.launch(kernels.float_asm, INTS, kernels.GFX942, B=128)),
    "front": ("range must be a power of 2", kernels.launch(kernels.bad_front, FLOATS, CUDA90, B=100)),
    "hang": ("did not come back", kernels.launch(kernels.huge, kernels.HALVES, CUDA90, B=1024)),
}


@pytest.mark.slow
def test_each_launch_comes_once_and_bad_ones_cost_themselves(farm):
    good = [kernels.add_launch(t, 64 << i) for i in range(3) for t in kernels.TARGETS]
    launches = [*(launch for _, launch in BAD.values()), *good]
    compiler = Compiler(farm(deadline=Deadline(floor=4)))
    results = {id(launch): found for launch, found in compiler.compile_stream(launches)}
    assert set(results) == set(map(id, launches))
    assert all(isinstance(results[id(launch)], Compiled) for launch in good)
    for words, launch in BAD.values():
        error = results[id(launch)]
        assert isinstance(error, CompileError)
        assert words in str(error)
        assert f"kernel {launch.name} ({__file__.replace('test_stream', 'kernels')}) for {launch.target}" in str(error)


def test_a_failure_is_the_same_error_each_time(farm):
    compiler = Compiler(farm())
    errors = []
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            compiler.compile(BAD["asm"][1])
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])


@pytest.mark.parametrize(
    "answer",
    [Died("the compiler process died (SIGKILL)", passing=True), CompileFailed("OSError: full", passing=True)],
    ids=str,
)
def test_a_failure_that_passes_is_known_as_such(farm, monkeypatch, answer):
    """This process doesn't try again and again; another one may."""
    one = farm()
    compiler, launch, submit = Compiler(one), kernels.add_launch(), one.submit
    refused: Future[JobOutcome] = Future()
    refused.set_result(JobOutcome(answer, ""))
    monkeypatch.setattr(one, "submit", lambda job, shape: refused)
    ((_, error),) = compiler.compile_stream([launch])
    assert is_passing(error)
    assert answer.reason in str(error)
    monkeypatch.setattr(one, "submit", submit)
    with pytest.raises(CompileError) as again:
        compiler.compile(launch)
    assert (str(again.value), is_passing(again.value)) == (str(error), True)
    assert isinstance(Compiler(one).compile(launch), Compiled)


def test_what_is_compiled_is_not_compiled_again(farm, monkeypatch):
    one = farm()
    compiler = Compiler(one)
    launch = kernels.add_launch()
    first = compiler.compile(launch)
    monkeypatch.setattr(one, "submit", None)
    assert compiler.compile(kernels.add_launch()) is first
    assert [found for _, found in compiler.compile_stream([launch, launch])] == [first, first]


@triton.jit
def ignores(x, UNUSED: triton.language.constexpr):
    triton.language.store(x, 1.0)


def jobs_of(one, monkeypatch):
    """The jobs that a farm is given from now on."""
    jobs, submit = [], one.submit
    monkeypatch.setattr(one, "submit", lambda job, shape: jobs.append(job) or submit(job, shape))
    return jobs


def test_equal_ir_is_one_job(farm, monkeypatch):
    one = farm()
    jobs = jobs_of(one, monkeypatch)
    results = dict_of(Compiler(one), [kernels.launch(ignores, FLOATS, CUDA90, UNUSED=i) for i in range(3)])
    assert len(jobs) == 1
    assert len({r.data for r in results}) == 1
    assert len({path.rpartition("/")[0] for r in results for path in r.files().values()}) == 3


def test_equal_ir_that_fails_is_one_job_too(farm, monkeypatch):
    one = farm()
    jobs, compiler = jobs_of(one, monkeypatch), Compiler(one)
    launches = [kernels.launch(twice_bad, FLOATS, CUDA90, B=128, UNUSED=i) for i in (1, 2)]
    for _ in range(2):
        assert all("SIGABRT" in str(found) for found in dict_of(compiler, launches))
    assert len(jobs) == 1


@triton.jit
def twice_bad(x, out, B: triton.language.constexpr, UNUSED: triton.language.constexpr):
    kernels.abort(x, out, B)


@pytest.mark.slow
def test_closing_the_iterator_cancels_what_has_not_begun(farm):
    one = farm(workers=1)
    stream = Compiler(one).compile_stream([kernels.add_launch(block=64 << i) for i in range(8)])
    next(stream)
    stream.close()
    assert one._orders.qsize() > 0
    one.close()
    assert one._open == 0


def test_without_processes_this_one_compiles_and_says_why_once(farm, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    compiler = Compiler(farm())
    with pytest.warns(RuntimeWarning, match=r"compiled in this process.*/nowhere/python") as heard:
        results = dict_of(compiler, [kernels.add_launch(), kernels.add_launch(kernels.GFX942), BAD["asm"][1]])
    assert len(heard) == 1
    assert [type(r) for r in results] == [Compiled, Compiled, CompileError]
    assert "ptxas" in str(results[2])


def dict_of(compiler, launches):
    found = {id(launch): result for launch, result in compiler.compile_stream(launches)}
    return [found[id(launch)] for launch in launches]


def test_settings_that_look_into_the_stages_keep_the_compilation_here(farm, monkeypatch, tmp_path):
    monkeypatch.setattr(knobs.compilation, "dump_ir", True)
    monkeypatch.setenv("TRITON_DUMP_DIR", str(tmp_path / "dump"))
    one = farm()
    assert Compiler(one).compile(kernels.add_launch()).data[:4] == b"\x7fELF"
    assert one.pids == []
    assert list((tmp_path / "dump").rglob("*.ptx"))


def test_what_a_compiler_prints_on_request_reaches_the_user(farm, monkeypatch, capfd):
    monkeypatch.setattr(knobs.nvidia, "dump_nvptx", True)
    Compiler(farm()).compile(kernels.add_launch())
    assert ".visible .entry add" in capfd.readouterr().err


@pytest.mark.slow
def test_a_closed_compiler_starts_processes_again(farm):
    compiler = Compiler(farm())
    compiler.compile(kernels.add_launch())
    compiler.close()
    compiler.compile(kernels.add_launch(block=256))
    pids = compiler._compilations.farm.pids
    assert pids
    compiler.close()
    assert compiler._compilations.farm.pids == []


@pytest.fixture
def hashing(monkeypatch):
    """Triton's own files are being read, until the test ends that."""
    done = Future()
    monkeypatch.setattr(frontend, "_hashing", done)
    yield done
    if not done.done():
        done.set_result(None)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "forks"), [(5, False), (5, True), (2, True)])
def test_results_do_not_wait_for_tritons_hash(farm, hashing, monkeypatch, count, forks):
    monkeypatch.setattr(stream, "may_fork", lambda: forks)
    launches = [kernels.add_launch(block=64 << i) for i in range(count)]
    compiler = Compiler(farm())
    aside = compiler.compile_aside(launches)
    found = [next(aside) for _ in launches if aside.wait(60)]
    assert [type(result) for _, result in found] == [Compiled] * count
    assert not aside.done.done(), "Triton's cache waits for it"
    hashing.set_result(None)
    aside.done.result(60)
    group = found[0][1].files()
    assert any(name.endswith(".cubin") for name in group)


@pytest.mark.slow
def test_what_tritons_cache_holds_is_taken_back_once_it_can_be_asked(farm, hashing, monkeypatch):
    launches = [kernels.add_launch(block=64 << i) for i in range(5)]
    hashing.set_result(None)
    Compiler(farm()).compile_all(launches)
    later, one, jobs = Future(), farm(), []
    monkeypatch.setattr(frontend, "_hashing", later)
    monkeypatch.setattr(one, "submit", lambda job, shape: jobs.append(Future()) or jobs[-1])
    aside = Compiler(one).compile_aside(launches)
    assert not aside.wait(0.5)
    later.set_result(None)
    assert {id(launch) for launch, found in aside if isinstance(found, Compiled)} == set(map(id, launches))
    assert all(job.cancelled() for job in jobs)


@pytest.mark.slow
def test_what_was_probably_made_before_waits_until_tritons_cache_can_be_searched(farm, hashing, monkeypatch):
    launches = [kernels.add_launch(block=64 << i) for i in range(3)]
    hashing.set_result(None)
    Compiler(farm()).compile_all(launches)
    later, one, jobs = Future(), farm(), []
    monkeypatch.setattr(frontend, "_hashing", later)
    monkeypatch.setattr(one, "submit", lambda job, shape: jobs.append(job) or Future())
    aside = Compiler(one).compile_aside(launches, {id(launch) for launch in launches})
    assert not aside.wait(0.3)
    later.set_result(None)
    assert {id(launch) for launch, found in aside if isinstance(found, Compiled)} == set(map(id, launches))
    assert jobs == []


@pytest.mark.slow
def test_a_job_that_another_launch_waits_for_is_not_taken_back(farm, hashing, monkeypatch):
    launches = [kernels.launch(ignores, FLOATS, CUDA90, UNUSED=i) for i in (31, 32)]
    hashing.set_result(None)
    Compiler(farm()).compile_all(launches)
    later, one, jobs = Future(), farm(), []
    submit, taken_back = one.submit, stream.Compilations._take_back
    monkeypatch.setattr(frontend, "_hashing", later)
    monkeypatch.setattr(stream, "may_fork", lambda: True)
    monkeypatch.setattr(stream, "fork_count", lambda requests: 0)
    monkeypatch.setattr(one, "submit", lambda job, shape: jobs.append((job, shape, Future())) or jobs[-1][2])

    def take_back(self, run):
        taken_back(self, run)
        for job, shape, future in jobs:
            if not future.done():
                future.set_result(submit(job, shape).result())

    monkeypatch.setattr(stream.Compilations, "_take_back", take_back)
    aside = Compiler(one).compile_aside(launches)
    assert not aside.wait(0.2)
    later.set_result(None)
    assert {id(launch) for launch, found in aside if isinstance(found, Compiled)} == set(map(id, launches))
    assert [future.cancelled() for _, _, future in jobs] == [False]


@pytest.mark.slow
def test_results_come_while_the_front_end_still_runs(farm, monkeypatch):
    one, lowered, seen = farm(), [], []
    lower, submit = stream.lower, one.submit
    monkeypatch.setattr(stream, "fork_count", lambda requests: 0)
    monkeypatch.setattr(stream, "lower", lambda request: lowered.append(request) or lower(request))

    def done_at_once(job, shape):
        future = submit(job, shape)
        future.result()
        return future

    monkeypatch.setattr(one, "submit", done_at_once)
    for _ in Compiler(one).compile_stream([kernels.add_launch(block=64 << i) for i in range(3)]):
        seen.append(len(lowered))
    assert seen == [1, 2, 3]


@pytest.mark.slow
def test_an_equal_job_that_comes_after_the_first_is_done_is_not_lost(farm, monkeypatch):
    one = farm()
    submit = one.submit
    monkeypatch.setattr(stream, "fork_count", lambda requests: 0)
    monkeypatch.setattr(one, "submit", lambda job, shape: _waited_for(submit(job, shape)))
    good = [kernels.launch(ignores, FLOATS, CUDA90, UNUSED=i) for i in (11, 12)]
    bad = [kernels.launch(twice_bad, FLOATS, CUDA90, B=128, UNUSED=i) for i in (11, 12)]
    results = {id(launch): found for launch, found in Compiler(one).compile_stream([*good, *bad])}
    assert [type(results[id(launch)]) for launch in (*good, *bad)] == [Compiled, Compiled, CompileError, CompileError]


def test_an_equal_job_that_comes_after_a_failure_that_passes_is_tried_in_the_same_stream(farm, monkeypatch):
    one, jobs = farm(), []
    submit = one.submit
    refused: Future[JobOutcome] = Future()
    refused.set_result(JobOutcome(Died("the compiler process died (SIGKILL)", passing=True), ""))

    def submitted(job, shape):
        jobs.append(job)
        return refused if len(jobs) == 1 else _waited_for(submit(job, shape))

    monkeypatch.setattr(stream, "fork_count", lambda requests: 0)
    monkeypatch.setattr(one, "submit", submitted)
    launches = [kernels.launch(ignores, FLOATS, CUDA90, UNUSED=i) for i in (41, 42)]
    results = dict_of(Compiler(one), launches)
    assert [isinstance(found, Compiled) for found in results] == [False, True]
    assert len(jobs) == 2


def _waited_for(future):
    future.result()
    return future


@pytest.mark.slow
def test_what_is_compiled_aside_goes_on_without_a_taker(farm):
    compiler, launches = Compiler(farm()), [kernels.add_launch(block=64 << i) for i in range(3)]
    aside = compiler.compile_aside(launches)
    first = next(aside)
    aside.done.result(60)
    assert compiler.missing(launches) == 0
    assert sorted(id(launch) for launch, _ in (first, *aside)) == sorted(map(id, launches))


@pytest.mark.slow
def test_what_is_compiled_aside_can_be_stopped(farm):
    one = farm(workers=1)
    aside = Compiler(one).compile_aside([kernels.add_launch(block=64 << i) for i in range(8)])
    next(aside)
    aside.stop()
    aside.stop()
    aside.done.result(60)
    assert len(list(aside)) < 7
    one.close()
    assert one._open == 0


def test_a_launch_that_can_t_be_asked_for_is_an_answer_too(farm, monkeypatch):
    """Its kernel's source can't be read, for example: the others compile, and none is left out."""
    bad, good = kernels.add_launch(), kernels.add_launch(block=64)

    def request_of(launch):
        if launch is bad:
            raise OSError("could not get source code")
        return frontend.request_of(launch)

    monkeypatch.setattr(stream, "request_of", request_of)
    found = {id(launch): result for launch, result in Compiler(farm()).compile_stream([bad, good])}
    assert isinstance(found[id(good)], Compiled)
    assert "could not get source code" in str(found[id(bad)])


@pytest.mark.slow
def test_a_compiler_that_is_ended_drops_what_it_compiles_and_starts_anew(farm):
    """At Ctrl-C nothing waits for compilers that are busy; a notebook goes on."""
    one = farm(workers=1)
    compiler = Compiler(one)
    aside = compiler.compile_aside([kernels.launch(kernels.huge, kernels.HALVES, kernels.CUDA90, B=1024)])
    while not one.pids or one.queued:
        time.sleep(0.01)
    pids = one.pids
    compiler.end()
    assert list(aside) == []
    one.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert isinstance(compiler.compile(kernels.add_launch()), Compiled)
    compiler.close()


def test_what_ending_does_to_compilations_is_no_result(farm, monkeypatch):
    """Those that wait aren't compiled in this process then, and no launch is remembered as one that can't be."""
    compiler, ended, wait = Compiler(farm(workers=1)), threading.Event(), stream._wait

    def wait_until_ended(run):
        wait(run)
        assert ended.wait(60)

    monkeypatch.setattr(stream, "_wait", wait_until_ended)
    one, launches = compiler.farm, [BAD["hang"][1], *(kernels.add_launch(block=64 << i) for i in range(2))]
    aside = compiler.compile_aside(launches)
    while not one.pids or one.queued != 2:
        time.sleep(0.01)
    compiler.end()
    one.close()  # until it is clear what came of each
    ended.set()
    assert list(aside) == []
    assert compiler.missing(launches) == 3


def test_a_thread_that_waits_for_a_compilation_that_another_one_ends_has_it_compiled_anew(farm, monkeypatch):
    compiler, wait, ended = Compiler(farm(workers=1)), stream._wait, []

    def end_once(run):
        if not ended:
            ended.append(compiler.farm)
            compiler.end()
        wait(run)

    monkeypatch.setattr(stream, "_wait", end_once)
    assert isinstance(compiler.compile(kernels.add_launch()), Compiled)
    assert compiler.farm is not ended[0]
    compiler.close()


# what goes to the farm, what waits, and what is taken back


def scripted(monkeypatch, ready, known=()):
    """Compilations whose farm and cache are scripted: ``ready`` says whether hashes are, one answer after the other."""
    one = stream.Compilations(SimpleNamespace())
    answers = iter(ready)
    monkeypatch.setattr(stream, "prepare_hashes", lambda: None)
    monkeypatch.setattr(stream, "hashes_are_ready", lambda: next(answers))
    seen = {"known": [], "sent": [], "back": []}
    one._is_known = lambda request, run: seen["known"].append(request) or request in known
    one._take_back = lambda run: seen["back"].append(len(run.unsearched))
    one._lower = lambda request, run, result: seen["sent"].append(request) or f"future of {request}"
    one._lowered_in_forks = lambda requests: ((r, None) for r in requests)
    return one, seen


def test_what_tritons_cache_has_is_sent_nowhere(monkeypatch):
    one, seen = scripted(monkeypatch, [True], known=["a"])
    run = stream._Run(Future())
    assert len(list(one._submit(["a", "b"], run))) == 1
    assert seen == {"known": ["a", "b"], "sent": ["b"], "back": []}
    assert run.unsearched == []


def test_what_can_not_be_searched_for_yet_is_remembered(monkeypatch):
    """Until the hashes are ready: then all of it is looked for, and each further one before it is sent."""
    one, seen = scripted(monkeypatch, [False, False, True, True], known=["b"])
    run = stream._Run(Future())
    assert len(list(one._submit(["a", "b", "c"], run))) == 2
    assert seen == {"known": ["b", "c"], "sent": ["a", "c"], "back": [1, 1]}
    assert run.unsearched == [("a", "future of a"), ("c", "future of c")]


def test_patient_ones_are_searched_for_first(monkeypatch):
    one, seen = scripted(monkeypatch, [], known=["a"])
    assert len(list(one._submit(["a", "b"], stream._Run(Future()), patient=True))) == 1
    assert (seen["known"], seen["sent"]) == (["a", "b"], ["b"])


def test_a_stream_that_is_stopped_sends_no_more(monkeypatch):
    one, seen = scripted(monkeypatch, [True])
    run = stream._Run(Future())
    pauses = one._submit(["a", "b", "c"], run)
    next(pauses)
    run.stopped.set_result(None)
    assert list(pauses) == []
    assert seen["sent"] == ["a"]


@pytest.mark.parametrize(
    ("count", "before", "forks", "patient"),
    [
        (2, 0, False, [True, True]),
        (3, 0, False, [False, True]),
        (2, 0, True, [False, True]),
        (3, 1, False, [False, True]),
        (1, 1, True, [False, True]),
    ],
)
def test_few_launches_wait_until_tritons_cache_can_be_searched(monkeypatch, count, before, forks, patient):
    launches = [SimpleNamespace(options=None, constexprs={}) for _ in range(count)]
    one = stream.Compilations(SimpleNamespace())
    asked = []
    monkeypatch.setattr(stream, "may_fork", lambda: forks)
    monkeypatch.setattr(stream, "request_of", lambda launch: SimpleNamespace(launch=launch))
    one._submit = lambda requests, run, patient: asked.append((len(requests), bool(patient))) or iter(())
    made_before = {id(launch) for launch in launches[:before]}
    assert list(one.stream(launches, made_before)) == []
    assert asked == [(count - before, patient[0]), (before, patient[1])]


def test_launches_that_take_longest_are_asked_for_first(monkeypatch):
    launches = [SimpleNamespace(options=None, constexprs={0: size}) for size in (64, 1024, 256)]
    one = stream.Compilations(SimpleNamespace())
    monkeypatch.setattr(stream, "request_of", lambda launch: SimpleNamespace(launch=launch))
    found = one._requests(launches, stream._Run(Future()))
    assert [r.launch.constexprs[0] for r in found] == [1024, 256, 64]


def test_jobs_that_are_known_after_all_are_taken_back(monkeypatch):
    """Not those that a process has begun, that another launch waits for, or that aren't known."""
    one = stream.Compilations(SimpleNamespace())
    run, jobs, finished = stream._Run(Future()), {}, []
    one._needs_no_compiler = lambda request: request != "unknown"
    one._is_known = lambda request, run: finished.append(request)
    for name, waiting in (("free", 1), ("begun", 1), ("shared", 2), ("unknown", 1)):
        jobs[name] = Future()
        lowered = [SimpleNamespace(identity=lambda name=name: name)] * waiting
        run.futures[jobs[name]] = run.equals[name] = lowered
        run.unsearched.append((name, jobs[name]))
    run.unsearched.append(("never sent", None))
    jobs["begun"].set_running_or_notify_cancel()
    one._take_back(run)
    assert finished == ["free"]
    assert [name for name, job in jobs.items() if job.cancelled()] == ["free"]
    assert list(run.equals) == ["begun", "shared", "unknown"]
    assert jobs["free"] not in run.futures
    assert run.unsearched == []


def test_a_reason_for_compiling_here_is_said_once():
    one = stream.Compilations(SimpleNamespace())
    one._is_stored = lambda request: False
    one._here = lambda request: (request.launch, "kernel")
    lowered = [SimpleNamespace(request=SimpleNamespace(launch=number)) for number in range(2)]
    with pytest.warns(RuntimeWarning, match="one by one: no processes") as told:
        found = [*one._instead("no processes", lowered), *one._instead("no processes", lowered)]
    assert len(told) == 1
    assert found == [(0, "kernel"), (1, "kernel")] * 2
    with pytest.warns(RuntimeWarning, match="another reason"):
        list(one._instead("another reason", lowered))


def test_one_that_can_not_be_compiled_here_either_is_its_own_error():
    def here(request):
        if request.launch.name == "bad":
            raise ValueError("its own words")
        return request.launch, "kernel"

    one = stream.Compilations(SimpleNamespace())
    one._is_stored, one._here = lambda request: False, here
    names = ("bad", "good")
    jits = [SimpleNamespace(name=n, jit=kernels.add, target="cuda:90") for n in names]
    lowered = [SimpleNamespace(request=SimpleNamespace(launch=launch)) for launch in jits]
    with pytest.warns(RuntimeWarning):
        (_, error), (_, good) = one._instead("no processes", lowered)
    assert "its own words" in str(error)
    assert good == "kernel"


@pytest.mark.parametrize("known", [True, False])
def test_a_compiler_in_this_process_holds_a_token_of_the_host(monkeypatch, tmp_path, known):
    """What Triton's cache has needs none, and waits for none."""
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tokens, held = CompilerTokens(), []
    monkeypatch.setattr(stream, "TOKENS", tokens)
    monkeypatch.setattr(triton, "compile", lambda source, **words: held.append(len(tokens._held)))
    one = stream.Compilations(SimpleNamespace())
    one._is_stored = lambda request: known
    one._here(frontend.request_of(kernels.add_launch()))
    assert held == [0 if known else 1]
    assert tokens._held == set(), "and gives it back"


def test_damage_is_reported_once_each():
    one = stream.Compilations(SimpleNamespace())
    one._damage = ["a is damaged", "b is damaged", "a is damaged"]
    with pytest.warns(RuntimeWarning) as told:
        one._report_damage()
    one._report_damage()
    assert [str(one.message) for one in told] == ["a is damaged", "b is damaged"]


def test_an_error_s_text_has_its_first_cause():
    try:
        try:
            try:
                raise KeyError("the reason")
            except KeyError as exc:
                raise ValueError("between") from exc
        except ValueError as exc:
            raise RuntimeError("at line 3") from exc
    except RuntimeError as exc:
        found = exc
    assert stream._text(found) == "at line 3\n'the reason'"
    assert stream._text(ValueError("alone")) == "alone"
    assert stream._text(ValueError()) == "ValueError"
    told = RuntimeError("it says the reason itself")
    told.__cause__ = ValueError("the reason")
    assert stream._text(told) == "it says the reason itself"


def test_an_error_that_is_kept_holds_no_frames():
    try:
        try:
            raise KeyError("inner")
        except KeyError:
            raise ValueError("outer")  # noqa: B904 - its context is what is looked at
    except ValueError as exc:
        found = stream._without_frames(exc)
    assert found.__traceback__ is None
    assert found.__context__.__traceback__ is None


def test_a_file_s_name_that_the_locale_can_not_write_is_named_with_what_helps(monkeypatch):
    monkeypatch.setattr(stream, "kernel_file", lambda jit: "/home/x/caf\udce9.py")
    error = stream.refusal(kernels.add_launch(), "first line\nsecond line")
    assert type(error) is EnvironmentFault
    assert "under an ASCII locale (first line)" in str(error)
    assert "set PYTHONUTF8=1" in str(error)


def test_the_text_that_a_job_had_is_remembered_with_its_error(monkeypatch):
    launch = kernels.add_launch()
    lowered = [
        SimpleNamespace(request=SimpleNamespace(launch=launch), job=SimpleNamespace(ext=ext, ir="module {}"))
        for ext in ("ttir", "ttgir")
    ]
    first, other = (stream._of_job(one, "it crashed") for one in lowered)
    assert first.ttir_sha256 == hashlib.sha256(strip_locations("module {}").encode()).hexdigest()
    assert not other.ttir_sha256
    assert type(stream._of_job(lowered[0], "it crashed", fault=True)) is EnvironmentFault


def scripted_run(monkeypatch, waits, ready=()):
    """A stream with one job; ``waits`` are the moments at which it waits: what happens then."""
    one, seen = stream.Compilations(SimpleNamespace()), []
    job, answers, moments = Future(), iter(ready), iter(waits)

    def submit(requests, run, patient):
        if "sent" not in seen:
            seen.append("sent")
            run.futures[job] = []
            run.unsearched.append(("request", job))
        return iter(())

    def finish(future, run):
        del run.futures[future]
        yield "launch", "result"

    monkeypatch.setattr(stream, "hashes_are_ready", lambda: next(answers))
    monkeypatch.setattr(stream, "_wait", lambda run: next(moments)(run, job))
    one._requests, one._submit, one._finish = lambda launches, run: [], submit, finish
    one._take_back = lambda run: seen.append("taken back") or run.unsearched.clear()
    return one, seen, job


def nothing(run, job):
    pass


def end(run, job):
    job.set_result(None)


def test_a_stream_waits_for_its_jobs_and_takes_back_what_is_known_once(monkeypatch):
    one, seen, _ = scripted_run(monkeypatch, [nothing, nothing, nothing, end], [False, True])
    assert list(one.stream([])) == [("launch", "result")]
    assert seen == ["sent", "taken back"]


def test_a_stream_that_is_stopped_cancels_its_jobs(monkeypatch):
    one, _, job = scripted_run(monkeypatch, [lambda run, job: run.stopped.set_result(None)], [False])
    assert list(one.stream([], stopped=Future())) == []
    assert job.cancelled()


@pytest.mark.parametrize("unsearched", [True, False])
def test_what_a_stream_waits_for(monkeypatch, unsearched):
    waited, run, hashes, job = [], stream._Run(Future()), Future(), Future()
    monkeypatch.setattr(stream, "wait", lambda futures, return_when: waited.append((futures, return_when)))
    monkeypatch.setattr(stream, "prepare_hashes", lambda: hashes)
    run.futures[job] = []
    if unsearched:
        run.unsearched.append(("request", job))
    stream._wait(run)
    assert waited == [({job, run.stopped, *([hashes] if unsearched else [])}, "FIRST_COMPLETED")]


class Front:
    """A lowered request, of which equal ones are told by their name."""

    def __init__(self, name, launch="launch"):
        self.name, self.job, self.shape = name, f"job {name}", f"shape {name}"
        self.request = SimpleNamespace(launch=launch)

    def identity(self):
        return self.name


def finished(monkeypatch, outcome, count=2):
    """What comes of a job of so many equal requests."""
    one = stream.Compilations(SimpleNamespace())
    monkeypatch.setattr(stream, "_of_job", lambda lowered, why, fault=False: (why, fault))
    one._instead = lambda reason, equal: iter([("instead", reason, len(equal))])
    one._kept = lambda lowered, done: ("kept", done, lowered.name)
    run, job, equal = stream._Run(Future()), Future(), [Front("a") for _ in range(count)]
    job.set_result(outcome)
    run.futures[job] = run.equals["a"] = equal
    seen = list(one._finish(job, run))
    assert (run.futures, run.equals) == ({}, {})
    return seen


def test_a_job_that_no_process_took_is_done_here(monkeypatch):
    assert finished(monkeypatch, NotStarted("closed")) == [("instead", "closed", 2)]
    refused = CompileFailed("it can't be sent", refused=True)
    assert finished(monkeypatch, JobOutcome(refused, "")) == [("instead", "it can't be sent", 2)]


def test_a_job_that_is_done_answers_all_equal_ones(monkeypatch, capsys):
    done = Done({}, b"", [])
    assert finished(monkeypatch, JobOutcome(done, "a remark\n")) == [("kept", done, "a")] * 2
    assert capsys.readouterr().err == "a remark\n"


@pytest.mark.parametrize(
    ("answer", "passing"),
    [(CompileFailed("its words"), False), (Died("its words"), False), (CompileFailed("its words", passing=True), True)],
    ids=["failed", "died", "passing"],
)
def test_a_failure_is_that_of_all_equal_ones(monkeypatch, answer, passing):
    seen = finished(monkeypatch, JobOutcome(answer, "noise\nerror: x"))
    assert seen == [("launch", ("its words\n  error: x", passing))] * 2


def test_the_last_words_of_a_process_that_died_are_told_and_not_those_of_a_failure(monkeypatch):
    for answer, text in ((Died("x"), "x\n  noise"), (CompileFailed("x"), "x")):
        assert finished(monkeypatch, JobOutcome(answer, "noise"), 1) == [("launch", (text, False))]


def lowering(monkeypatch, in_process=""):
    jobs = []
    farm = SimpleNamespace(submit=lambda job, shape: jobs.append((job, shape)) or Future())
    one = stream.Compilations(farm)
    one._here = lambda request: jobs.append("here")
    one._is_stored = lambda request: jobs.append("looked at")
    monkeypatch.setattr(stream, "why_in_process", lambda launch: in_process)
    monkeypatch.setattr(stream, "lower", lambda request: jobs.append("lowered") or Front("a"))
    return one, jobs


def test_equal_requests_are_one_job(monkeypatch):
    one, jobs = lowering(monkeypatch)
    run, request = stream._Run(Future()), SimpleNamespace(launch="launch")
    first = one._lower(request, run)
    assert one._lower(request, run, Front("a")) is None
    other = one._lower(request, run, Front("b"))
    assert jobs == ["lowered", ("job a", "shape a"), ("job b", "shape b")]
    assert list(run.futures) == [first, other]
    assert [len(equal) for equal in run.futures.values()] == [2, 1]
    assert run.futures[first] is run.equals["a"]


def test_what_only_this_process_can_compile_is_looked_at_first(monkeypatch):
    one, jobs = lowering(monkeypatch, in_process="a setting")
    assert one._lower(SimpleNamespace(launch="launch"), stream._Run(Future())) is None
    assert jobs == ["looked at", "here"]


def test_a_crash_of_a_copy_is_the_error_of_its_request(monkeypatch):
    one, jobs = lowering(monkeypatch)
    with pytest.raises(CompileError, match="SIGSEGV"):
        one._lower(SimpleNamespace(launch="launch"), stream._Run(Future()), Crashed("SIGSEGV"))
    assert jobs == []


def test_a_kernel_is_stored_and_told_to_listeners(monkeypatch):
    one, done = stream.Compilations(SimpleNamespace()), []
    one._store = SimpleNamespace(put=lambda lowered, found: done.append("stored") or "files")
    monkeypatch.setattr(stream, "made_of", lambda lowered, found, stored: ("made", found, stored))
    monkeypatch.setattr(stream, "notify_listeners", lambda made, found: done.append(("told", made, found)))
    lowered = Front("a")
    lowered.request.source = SimpleNamespace(hash=lambda: done.append("hashed"))
    assert one._kept(lowered, "done") == ("launch", ("made", "done", "files"))
    assert done == ["hashed", "stored", ("told", ("made", "done", "files"), "done")]


def test_a_kernel_that_triton_refuses_to_hash_is_an_error(monkeypatch):
    one = stream.Compilations(SimpleNamespace())
    lowered = Front("a", kernels.add_launch())
    lowered.request.source = SimpleNamespace(hash=raising(RuntimeError("what it names may change")))
    _, error = one._kept(lowered, "done")
    assert "what it names may change" in str(error)


def test_an_entry_is_looked_at_for_damage_once(monkeypatch):
    one, looked = stream.Compilations(SimpleNamespace()), []
    stored, damage = {"x": True, "y": True, "z": False}, {"x": "", "y": "it is cut off"}
    monkeypatch.setattr(stream, "is_stored", lambda request: stored[request.hash])
    monkeypatch.setattr(stream, "take_damage", lambda request: looked.append(request.hash) or damage[request.hash])
    launch = SimpleNamespace(name="add", jit=kernels.add)
    requests = {name: SimpleNamespace(hash=name, launch=launch) for name in "xyz"}
    found = [one._is_stored(requests[name]) for name in "xxyyz"]
    assert found == [True, True, False, False, False]
    assert looked == ["x", "y", "y"]
    assert one._damage == [f"kernel add ({kernels.__file__}): it is cut off"] * 2


def test_what_can_not_be_searched_for_needs_no_compiler_of_the_farm():
    def unhashed(request):
        raise RuntimeError("no hash")

    one = stream.Compilations(SimpleNamespace())
    one._is_stored = unhashed
    assert one._needs_no_compiler("request")
    run = stream._Run(Future())
    assert one._is_known(SimpleNamespace(launch=kernels.add_launch()), run)
    ((_, error),) = run.finished
    assert "no hash" in str(error)
    one._is_stored = lambda request: False
    assert not one._needs_no_compiler("request")
    assert not one._is_known("request", run)
    one._is_stored = lambda request: True
    one._here = lambda request: request
    assert one._is_known("request", run)
    assert run.finished[1:] == ["request"]


def test_errors_of_this_machine_pass(monkeypatch):
    plain, caused, other = CompileError("x"), CompileError("x"), CompileError("x")
    caused.__cause__, other.__cause__ = OSError(28, "No space left on device"), ValueError("x")
    assert [is_passing(error) for error in (plain, caused, other, EnvironmentFault("x"))] == [False, True, False, True]


def test_ending_stops_what_is_under_way_and_the_processes():
    steps = []
    made = stream.Compilations(SimpleNamespace(end=lambda: steps.append("end")))
    under_way = [Future(), Future()]
    made._stops.update(under_way)
    made.end()
    made.end()
    assert ([one.done() for one in under_way], steps) == ([True, True], ["end"] * 2)


def test_warming_starts_processes_and_the_search_of_the_cache(monkeypatch):
    steps = []
    monkeypatch.setattr(stream, "prepare_hashes", lambda: steps.append("hashes"))
    made = stream.Compilations(SimpleNamespace(warm=lambda jobs: steps.append(jobs)))
    made.warm(7)
    compiler = Compiler.__new__(Compiler)
    compiler._compilations = made
    compiler.warm(8)
    assert steps == [7, "hashes", 8, "hashes"]


@pytest.mark.parametrize("what", ["a job", "stopped", "the cache"])
def test_a_run_waits_for_the_first_of_its_ends(what, monkeypatch):
    ends = {name: Future() for name in ("a job", "stopped", "the cache")}
    monkeypatch.setattr(stream, "prepare_hashes", lambda: ends["the cache"])
    run = SimpleNamespace(futures={ends["a job"]: 1}, stopped=ends["stopped"], unsearched=[1])
    waiting = threading.Thread(target=stream._wait, args=[run], daemon=True)
    waiting.start()
    waiting.join(0.02)
    assert waiting.is_alive()
    ends[what].set_result(None)
    waiting.join(30)
    assert not waiting.is_alive()


@pytest.mark.parametrize(("total", "told"), [(1, "compiling k"), (2, "compiling k, 1 of 2")])
def test_what_is_compiled_is_told_with_its_number_among_several(total, told):
    assert compiler_module._progress(SimpleNamespace(name="k"), 1, total) == told


@pytest.mark.parametrize(
    ("forks", "why", "forked"), [(0, "", False), (1, "", False), (2, "", True), (3, "", True), (3, "a hook", False)]
)
def test_two_copies_are_worth_forking(monkeypatch, forks, why, forked):
    """Where each of the requests can be lowered in a copy."""
    requests = [SimpleNamespace(launch=i) for i in range(3)]
    seen = []
    monkeypatch.setattr(stream, "fork_count", lambda count: seen.append(count) or forks)
    monkeypatch.setattr(stream, "why_in_process", lambda launch: why if launch == 2 else "")
    monkeypatch.setattr(stream, "lower_in_forks", lambda given, count: seen.append((given, count)) or "forked")
    found = stream.Compilations._lowered_in_forks(requests)
    assert found == "forked" if forked else list(found) == [(request, None) for request in requests]
    assert seen == [3, *([(requests, forks)] if forked else [])]
