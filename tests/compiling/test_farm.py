"""A crash, a hang and a lack of memory cost one job; processes are replaced, and none is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from doubles import raising
from forked import until
from hypothesis import given
from hypothesis import strategies as st

from kerntune.compiling import farm as farm_module
from kerntune.compiling.farm import Deadline, Farm, NotStarted, load_per_core, memory_limit, worker_count
from kerntune.compiling.frontend import Shape, lower, request_of
from kerntune.compiling.protocol import CompileFailed, Done, current_environment
from kerntune.compiling.worker_process import Died, JobOutcome

from . import kernels

FLOOR_SECONDS = 30.0
GIB = 1 << 30
MAX_WORKERS = 16
SLOWEST_TIMES = 10.0


ADD = kernels.add_launch
HANG = (kernels.huge, kernels.HALVES, kernels.CUDA90)
ABORT = (kernels.abort, kernels.FLOATS, kernels.CUDA90)


def submit(farm, launch):
    lowered = lower(request_of(launch))
    return farm.submit(lowered.job, lowered.shape)


def answer(future):
    outcome = future.result(timeout=120)
    return outcome if isinstance(outcome, NotStarted) else outcome.answer


def gone(pid):
    """Neither running nor a zombie."""
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_an_abort_costs_one_job_and_its_process_is_replaced(farm):
    one = farm(workers=1)
    first = [submit(one, ADD()), submit(one, kernels.launch(*ABORT, B=128))]
    assert isinstance(answer(first[0]), Done)
    (before,) = one.pids
    aborted = first[1].result(timeout=120)
    assert aborted.answer == Died("the compiler process died (SIGABRT)")
    assert "LLVM ERROR: Cannot select: intrinsic %llvm.amdgcn.rcp" in aborted.output
    assert isinstance(answer(submit(one, ADD(block=256))), Done)
    assert gone(before)
    assert one.pids != [before]


@pytest.mark.slow
def test_a_hang_is_ended_with_its_children_and_costs_one_job(farm):
    one = farm(deadline=Deadline(floor=3))
    hang = submit(one, kernels.launch(*HANG, B=1024))
    rest = [submit(one, ADD(block=64 << i)) for i in range(4)]
    assert all(isinstance(answer(x), Done) for x in rest)
    died = answer(hang)
    assert isinstance(died, Died)
    assert "did not come back and was ended after" in died.reason


@pytest.mark.slow
def test_too_little_memory_costs_one_job(farm):
    probe = farm(workers=1)
    assert isinstance(answer(submit(probe, ADD())), Done)
    size = int(re.search(r"VmSize:\s+(\d+)", Path(f"/proc/{probe.pids[0]}/status").read_text())[1]) << 10
    one = farm(memory=size + (24 << 20), deadline=Deadline(floor=60))
    futures = [submit(one, kernels.launch(kernels.sort, kernels.INTS, kernels.CUDA90, B=1 << 13, num_warps=1))]
    futures += [submit(one, ADD(block=64 << i)) for i in range(4)]
    died, *rest = map(answer, futures)
    assert isinstance(died, Died)
    assert "a compiling process may use" in died.reason
    assert all(isinstance(x, Done) for x in rest)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_signal_while_compiling_costs_one_job(farm, number):
    one = farm(workers=1)
    one.warm(1)
    assert until(lambda: one.pids)
    hang, after = submit(one, kernels.launch(*HANG, B=1024)), submit(one, ADD())
    assert until(lambda: hang.running() and one.pids)
    time.sleep(0.3)
    (before,) = one.pids
    os.kill(before, number)
    assert isinstance(answer(hang), (Died, CompileFailed))  # MLIR catches some signals and makes failures of them
    assert isinstance(answer(after), Done)
    assert one.pids != [before]


@pytest.mark.slow
def test_a_signal_between_jobs_costs_none(farm):
    one = farm(workers=1)
    assert isinstance(answer(submit(one, ADD())), Done)
    os.kill(one.pids[0], signal.SIGKILL)
    time.sleep(0.2)
    assert isinstance(answer(submit(one, ADD())), Done)


def test_an_error_on_stderr_is_a_failure_even_if_the_compiler_goes_on(farm):
    launch = kernels.launch(kernels.float_asm, kernels.INTS, kernels.GFX942, B=128)
    outcome = submit(farm(), launch).result(timeout=120)
    assert isinstance(outcome.answer, (CompileFailed, Died))
    assert "allocate output register for constraint 'f'" in outcome.output


@pytest.mark.slow
def test_the_longest_expected_is_first(farm):
    one = farm(workers=1)
    ended = []
    for block in (64, 4096, 512):
        future = submit(one, kernels.launch(kernels.softmax, kernels.FLOATS, kernels.CUDA90, B=block))
        future.add_done_callback(lambda _, block=block: ended.append(block))
    assert until(lambda: len(ended) == 3)
    assert ended == [4096, 512, 64]


def test_no_more_processes_than_jobs_or_workers(farm):
    one = farm(workers=3)
    one.warm(2)
    assert until(lambda: len(one.pids) == 2)
    one.warm(9)
    assert until(lambda: len(one.pids) == 3)
    assert worker_count() == min(MAX_WORKERS, len(os.sched_getaffinity(0)))
    assert 4 * GIB <= memory_limit(16) <= memory_limit(1) <= 16 * GIB


def test_closing_leaves_no_process_and_answers_every_job(farm):
    one = farm()
    futures = [submit(one, kernels.launch(*HANG, B=1024, num_warps=w)) for w in (4, 8, 2)]
    assert until(lambda: sum(f.running() for f in futures) == 2)
    pids = one.pids
    one.close()
    outcomes = [answer(f) for f in futures]
    assert sum(isinstance(x, NotStarted) for x in outcomes) == 1
    ended = [x.reason for x in outcomes if isinstance(x, Died)]
    assert len(ended) == 2
    assert not any("did not come back" in reason for reason in ended), "they were waited for until their time limit"
    assert len(pids) == 2
    assert all(map(gone, pids))
    assert one.pids == []
    assert isinstance(answer(submit(one, ADD())), NotStarted)


@pytest.mark.slow
def test_idle_processes_end_and_come_back(farm):
    one = farm(workers=1, idle_seconds=0.1)
    assert isinstance(answer(submit(one, ADD())), Done)
    assert until(lambda: one.pids == [])
    assert isinstance(answer(submit(one, ADD())), Done)


def test_a_cancelled_job_is_not_compiled(farm):
    one = farm(workers=1)
    futures = [submit(one, ADD(block=64 << i)) for i in range(3)]
    assert futures[2].cancel()  # the last one: the first may have begun on a busy machine
    assert [isinstance(answer(f), Done) for f in futures[:2]] == [True, True]
    assert until(lambda: one._open == 0)


@pytest.mark.slow
def test_another_setting_reaches_the_processes(farm, monkeypatch):
    from triton import knobs

    one = farm(workers=1)
    with_lines = answer(submit(one, ADD())).stages["llir"]
    (before,) = one.pids
    monkeypatch.setattr(knobs.compilation, "disable_line_info", True)
    without = answer(submit(one, ADD())).stages["llir"]
    assert b"DILocation" in with_lines
    assert b"DILocation" not in without
    assert one.pids != [before]


def test_a_farm_that_can_not_start_says_so_at_once(farm, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    one = farm()
    for _ in range(2):
        outcome = answer(submit(one, ADD()))
        assert isinstance(outcome, NotStarted)
        assert "/nowhere/python" in outcome.reason


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # from Python 3.12 on
def test_a_forked_child_has_processes_of_its_own(farm):
    one = farm(workers=1)
    assert isinstance(answer(submit(one, ADD())), Done)
    (mine,) = one.pids
    child = os.fork()
    if child == 0:
        ok = isinstance(answer(submit(one, ADD())), Done) and one.pids not in ([], [mine])
        one.close()
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert one.pids == [mine]
    assert isinstance(answer(submit(one, ADD())), Done)


SCRIPT = """
import sys, time
from kerntune.compiling.farm import Farm
farm = Farm(workers=2)
farm.warm(2)
while len(farm.pids) < 2: time.sleep(0.01)
time.sleep({pause})
print(*farm.pids, flush=True)
{end}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pause", "end"),
    [
        (1, "sys.exit(3)"),
        (0, "raise KeyError"),
        (1, "import os; os._exit(3)"),
        (1, "import os; os.kill(os.getpid(), 9)"),
    ],
    ids=["exit", "exception", "hard exit", "killed"],
)
def test_no_process_outlives_its_parent(pause, end):
    root = Path(__file__).parents[2]
    script = SCRIPT.format(pause=pause, end=end)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])},
    )
    pids = done.stdout.split()
    assert done.returncode != 0
    assert len(pids) == 2
    assert until(lambda: all(map(gone, pids)))


@pytest.mark.slow
def test_workers_import_no_torch_and_nothing_of_the_user(farm, tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "farm").mkdir()
    (tmp_path / "farm" / "__init__.py").write_text("raise SystemExit('the tests were imported')")
    one = farm(workers=1)
    for target in kernels.TARGETS:
        assert isinstance(answer(submit(one, ADD(target))), Done)


def test_two_farms_do_not_share(farm):
    first, second = farm(workers=1), Farm(workers=1)
    assert isinstance(answer(submit(first, ADD())), Done)
    second.close()
    assert isinstance(answer(submit(first, ADD())), Done)


# the effect of an answer on its process


class EndedProcess:
    """A process that is or isn't ended."""

    killed = False

    def kill(self):
        self.killed = True


def done(address_space=0):
    return Done({}, b"{}", [], address_space)


@pytest.mark.parametrize(
    ("answer", "output", "memory", "killed"),
    [
        (done(), "", 4 * GIB, False),
        (done(2 * GIB), "", 4 * GIB, False),
        (done(2 * GIB + 1), "", 4 * GIB, True),  # what it has kept would count against the next job
        (done(100 * GIB), "", 0, False),  # no limit, no half of it
        (CompileFailed("RuntimeError: PassManager::run failed"), "", 0, True),  # MLIR prints this for a crash, too
        (CompileFailed("ValueError: x"), "", 0, False),
        (CompileFailed("RuntimeError: std::bad_alloc"), "", 0, True),
        (CompileFailed("RuntimeError: x"), "LLVM ERROR: out of memory", 0, True),
        (done(), "cannot allocate memory, went on without", 0, False),
        (Died("the compiler process died (SIGABRT)"), "", 0, False),
    ],
)
def test_who_may_go_on(farm, answer, output, memory, killed):
    one, process = farm(memory=memory), EndedProcess()
    one._judged(JobOutcome(answer, output), process, 1.0)
    assert process.killed is killed


def test_a_lack_of_memory_names_the_limit(farm):
    one = farm(memory=3 * GIB)
    told = one._judged(JobOutcome(CompileFailed("RuntimeError: bad_alloc"), "noise"), EndedProcess(), 1.0)
    assert told == JobOutcome(Died("RuntimeError: bad_alloc (a compiling process may use 3 GiB)"), "noise")


def test_a_kernel_beside_a_reported_error_is_none(farm):
    told = farm()._judged(JobOutcome(done(), "k.py:1:1: error: couldn't do it"), EndedProcess(), 1.0)
    assert told.answer == CompileFailed("the compiler reported an error and went on")


@pytest.mark.parametrize(
    ("answer", "seen"), [(done(), [9.0]), (CompileFailed("ValueError: x"), [9.0]), (Died("x"), [])]
)
def test_only_answers_say_how_long_a_job_takes(farm, monkeypatch, answer, seen):
    one, heard = farm(), []
    monkeypatch.setattr(one.deadline, "saw", heard.append)
    one._judged(JobOutcome(answer, ""), EndedProcess(), 9.0)
    assert heard == seen


# what a thread does for its process


def order_of():
    return farm_module._Order(0.0, 0, None, None, Future())


@pytest.mark.parametrize(
    ("reason", "told"), [("no process can be started", "no process can be started"), ("", "the compile farm is closed")]
)
def test_a_job_that_no_process_could_take_is_told_why(farm, reason, told):
    one = farm()
    one._open, order = 1, order_of()
    one._settle(order, None, reason)
    assert order.future.result(0) == NotStarted(told)
    assert one._open == 0


def test_a_thread_without_work_is_gone_before_another_job_can_come(farm):
    """Under the lock: a job that came then would count on it."""
    one = farm(idle_seconds=0.0)
    one._threads[threading.current_thread()] = None
    assert one._next() is None
    assert one._threads == {}


def test_a_thread_takes_what_is_there_and_ends_at_the_end(farm):
    one = farm(idle_seconds=0.0)
    order = order_of()
    one._orders.put(order)
    one._orders.put(farm_module._END)
    assert one._next() is None, "the end comes first"
    assert one._next() is order


def test_a_worker_s_share_of_memory_lies_within_its_bounds(monkeypatch):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 0}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    shares = []
    for gib in (8, 48, 1000):
        pages["SC_PHYS_PAGES"] = (gib << 30) // 4096
        shares.append(memory_limit(6))
    monkeypatch.undo()
    assert shares == [4 << 30, 8 << 30, 16 << 30]


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (16, 16), (17, 16)])
def test_a_worker_a_core_up_to_sixteen(monkeypatch, cores, workers):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert worker_count() == workers


def test_another_farm_like_it_has_its_limits(farm):
    one = farm(workers=3, memory=7 * GIB, deadline=Deadline(floor=4), idle_seconds=5.0)
    other = one.like()
    assert (other.workers, other.memory, other._idle) == (3, 7 * GIB, 5.0)
    assert other.deadline is one.deadline


def test_a_thread_that_serves_holds_up_no_end_of_the_process(farm, monkeypatch):
    one, seen, served = farm(), [], threading.Event()

    def serve(surroundings):
        seen.append((threading.current_thread() in one._threads, threading.current_thread().daemon, surroundings))
        served.set()

    monkeypatch.setattr(one, "_serve", serve)
    with one._lock:
        one._hire()
    assert served.wait(60)
    assert seen == [(True, True, current_environment())]
    one._threads.clear()


def test_the_last_thread_without_a_process_refuses_all_that_waits(farm):
    """Another one that runs may still do it."""
    one, waiting = farm(), order_of()
    other = threading.Thread()
    one._threads = {threading.current_thread(): None, other: None}
    one._orders.put(waiting)
    one._open = 1
    one._leave("no process can be started")
    assert (one._threads, one._unavailable, one.queued) == ({other: None}, "", 1)
    del one._threads[other]
    one._leave("")
    assert one._unavailable == ""
    one._leave("no process can be started")
    assert one._unavailable == "no process can be started"
    assert waiting.future.result(0) == NotStarted("no process can be started")
    assert (one.queued, one._open) == (0, 0)


def test_a_cancelled_job_is_not_answered_when_all_are_refused(farm):
    one, cancelled, waiting = farm(), order_of(), order_of()
    waiting.number = 1
    cancelled.future.cancel()
    for order in (cancelled, waiting, farm_module._END):
        one._orders.put(order)
    one._open = 2
    one._refuse_all("closed")
    assert cancelled.future.cancelled()
    assert waiting.future.result(0) == NotStarted("closed")
    assert (one.queued, one._open) == (0, 0), "the end of a thread is no job"


class Standing:
    """A process that has started under some settings."""

    def __init__(self, surroundings, alive=True):
        self.surroundings, self.alive, self.killed = surroundings, alive, 0

    def kill(self):
        self.killed += 1


@pytest.mark.parametrize(("alive", "same", "kept"), [(True, True, True), (False, True, False), (True, False, False)])
def test_a_process_serves_as_long_as_it_lives_and_the_settings_stay(farm, monkeypatch, alive, same, kept):
    one, process = farm(), Standing("these", alive)
    monkeypatch.setattr(one, "_start", lambda surroundings: (surroundings, "of a start"))
    wanted = "these" if same else "others"
    assert one._ready(process, wanted) == ((process, "") if kept else (wanted, "of a start"))
    assert process.killed == (0 if kept else 1)
    assert one._ready(None, "these") == ("these", "of a start")


@pytest.mark.parametrize(("reason", "found"), [("", "process"), ("no memory", None)])
def test_a_process_that_does_not_start_is_none(farm, monkeypatch, reason, found):
    one, made = farm(memory=7), []

    class Starting:
        def __init__(self, *given):
            made.append((self, given))

        def start(self):
            assert one._threads[threading.current_thread()] is self, "so that closing can interrupt it"
            return reason

    monkeypatch.setattr(farm_module, "Process", Starting)
    process, why = one._start("these")
    assert (process, why) == ((made[0][0] if found else None), reason)
    assert made[0][1] == ("these", 7, None)
    one._threads.clear()
    one._closed = True
    assert one._start("these") == (None, "")


def test_closing_interrupts_processes_and_waits_for_their_threads(farm):
    one, asked = farm(), []

    class Joined:
        def join(self):
            asked.append("joined")

    working = SimpleNamespace(interrupt=lambda: asked.append("interrupted"))
    one._threads = {Joined(): working, threading.current_thread(): None}
    one._fork_client = SimpleNamespace(
        end_start=lambda: asked.append("start ended"), close=lambda: asked.append("closed")
    )
    one.close()
    assert asked == ["start ended", "interrupted", "joined", "closed"]
    assert one._fork_client is None
    assert one.queued == 2, "an end for each thread"
    one._threads = {}


def test_what_is_closed_starts_nothing(farm):
    one = farm()
    one.close()
    one.warm(2)
    assert (one._threads, one._fork_client) == ({}, None)
    assert one.submit(None, Shape(1, 1, 1)).result(0) == NotStarted("the compile farm is closed")
    other = farm()
    other._unavailable = "no process"
    assert other.submit(None, Shape(1, 1, 1)).result(0) == NotStarted("no process")
    other.warm(2)
    assert other._threads == {}


@pytest.mark.parametrize(
    ("jobs", "hired", "may", "forks"),
    [(1, 0, True, True), (1, 0, False, False), (2, 0, False, False), (3, 0, False, True), (3, 1, False, False),
     (9, 0, False, True), (0, 0, True, False)],
)  # fmt: skip
def test_processes_are_forked_where_that_pays(farm, monkeypatch, jobs, hired, may, forks):
    one, made = farm(workers=4), []
    one._threads = dict.fromkeys(range(hired))
    monkeypatch.setattr(farm_module, "may_fork", lambda: may)
    monkeypatch.setattr(farm_module, "ForkClient", lambda where, own_fork: made.append(where) or "client")
    monkeypatch.setattr(one, "_hire", lambda: one._threads.update({len(one._threads): None}))
    one.warm(jobs)
    assert len(one._threads) == max(min(jobs, 4), hired)
    assert made == [current_environment()] * forks
    one.warm(jobs)
    assert len(made) == forks, "once"
    one._threads, one._fork_client = {}, None


@pytest.mark.parametrize(("workers", "began"), [(1, []), (2, [False])])
def test_processes_of_single_jobs_share_the_import_of_a_new_process(farm, monkeypatch, workers, began):
    """Jobs that come one by one, while this process has users' modules: it isn't forked for them."""
    one, made = farm(workers=workers), []
    monkeypatch.setattr(farm_module, "ForkClient", lambda where, own_fork: made.append(own_fork) or "client")
    monkeypatch.setattr(one, "_hire", lambda: one._threads.update({len(one._threads): None}))
    for _ in range(3):
        one.submit(None, Shape(1, 1, 1))
    assert (len(one._threads), made) == (workers, began)
    one._threads, one._fork_client = {}, None


def serving(monkeypatch, orders, reason=""):
    """A farm of which this thread is the only one, and what it does with these orders."""
    one, done = Farm(workers=1), []
    one._threads[threading.current_thread()] = None
    jobs = iter([*orders, None])
    process = SimpleNamespace(kill=lambda: done.append("killed"))
    monkeypatch.setattr(one, "_start", lambda surroundings: (None if reason else process, reason))
    monkeypatch.setattr(one, "_next", lambda: next(jobs))
    monkeypatch.setattr(one, "_ready", lambda process, surroundings: (process, ""))
    monkeypatch.setattr(one, "_settle", lambda order, process, reason: done.append(("settled", order.number)))
    monkeypatch.setattr(one, "_finished", lambda: done.append("finished"))
    monkeypatch.setattr(one, "_close_fork_client", lambda: done.append("client closed"))
    return one, done


def test_a_thread_serves_until_there_is_no_more_and_ends_its_process(monkeypatch):
    first, cancelled, last = order_of(), order_of(), order_of()
    last.number = 2
    cancelled.future.cancel()
    one, done = serving(monkeypatch, [first, cancelled, last])
    one._serve("settings")
    assert done == [("settled", 0), "finished", ("settled", 2), "killed", "client closed"]
    assert one._threads == {}
    assert one._unavailable == ""


def test_a_thread_whose_process_does_not_start_takes_no_job(monkeypatch):
    one, done = serving(monkeypatch, [order_of()], "no memory")
    other = threading.Thread()
    one._threads[other] = None
    one._serve("settings")
    assert (done, one._unavailable) == ([], "")
    one._threads = {threading.current_thread(): None}
    one._serve("settings")
    assert (done, one._unavailable) == (["client closed"], "no memory")


def test_jobs_hire_a_thread_each_up_to_the_farm_s_workers(farm, monkeypatch):
    one, told = farm(workers=2), []
    monkeypatch.setattr(farm_module, "tell_if_none", lambda: told.append(1))
    monkeypatch.setattr(one, "_hire", lambda: one._threads.update({len(one._threads): None}))
    seen = []
    for size in (1, 2, 3):
        one.submit(f"of size {size}", Shape(size, 1, 1))
        seen.append((len(one._threads), one._open, one.queued))
    assert seen == [(1, 1, 1), (2, 2, 2), (2, 3, 3)]
    assert len(told) == 3
    assert [one._orders.get_nowait().job[-1] for _ in range(3)] == ["3", "2", "1"], "the longest first"
    one._open = 0
    one.submit(None, Shape(1, 1, 1))
    assert len(one._threads) == 2, "one of them is free"
    one._threads = {}


def test_a_forked_copy_of_a_farm_has_nothing_of_it(farm):
    one = farm()
    one._threads, one._open, one._closed, one._pid = {object(): None}, 3, True, -1
    one._own()
    assert (one._threads, one._open, one._closed, one._unavailable, one._pid) == ({}, 0, False, "", os.getpid())
    before = one._lock
    one._own()
    assert one._lock is before


def test_processes_that_run_have_ids(farm):
    one = farm()
    one._threads = {1: None, 2: SimpleNamespace(pid=0), 3: SimpleNamespace(pid=77)}
    assert one.pids == [77]
    one._threads = {}


# how long a job may take follows what was seen


@given(st.lists(st.floats(0, 1e4)))
def test_it_is_ten_times_the_slowest_and_never_under_the_floor(seen):
    deadline = Deadline(load=lambda: 1.0)
    for seconds in seen:
        deadline.saw(seconds)
    assert deadline.seconds == max(FLOOR_SECONDS, SLOWEST_TIMES * max(seen, default=0.0))


def test_it_says_where_its_length_comes_from():
    deadline = Deadline(floor=2, load=lambda: 1.0)
    assert str(deadline) == "2 s"
    deadline.saw(1.5)
    assert str(deadline) == "15 s, 10 times the slowest so far"


def test_nothing_is_ended_before_half_a_minute_or_ten_times_the_slowest():
    deadline = Deadline(load=lambda: 1.0)
    assert (deadline.seconds, str(deadline)) == (30.0, "30 s")
    deadline.saw(3.0)
    assert (deadline.seconds, str(deadline)) == (30.0, "30 s")
    deadline.saw(4.0)
    deadline.saw(1.0)
    assert (deadline.seconds, str(deadline)) == (40.0, "40 s, 10 times the slowest so far")
    assert Deadline(floor=1.0, factor=2.0, load=lambda: 1.0).seconds == 1.0


def test_a_busy_machine_has_longer():
    deadline = Deadline(load=lambda: 4.0)
    assert (deadline.seconds, str(deadline)) == (120.0, "120 s")
    deadline.saw(13.0)
    assert (deadline.seconds, str(deadline)) == (130.0, "130 s, 10 times the slowest so far")


@pytest.mark.parametrize(("load", "expected"), [(0.1, 1.0), (8.0, 1.0), (20.0, 2.5), (800.0, 10.0)])
def test_the_load_of_a_core(monkeypatch, load, expected):
    monkeypatch.setattr(farm_module.os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(farm_module.os, "cpu_count", lambda: 8)
    assert load_per_core() == expected


def test_a_system_that_does_not_say_its_load(monkeypatch):
    monkeypatch.setattr(farm_module.os, "getloadavg", raising(OSError))
    assert load_per_core() == 1.0


class Watched:
    """A process that notes whether it was killed."""

    killed = False

    def kill(self) -> None:
        self.killed = True


def done(size: int = 0) -> Done:
    return Done({}, b"", [("ttir", 1)], size)


PASS, MEMORY = CompileFailed("ttgir: PassManager::run failed"), "LLVM ERROR: out of memory"
REPORTED = CompileFailed("the compiler reported an error and went on")


@pytest.mark.parametrize(
    ("answer", "output", "judged", "killed", "learns"),
    [
        (done(), "", done(), False, True),
        (done(500), "", done(500), False, True),
        (done(501), "", done(501), True, True),
        (done(), "a.py:1:1: error: no\n", REPORTED, False, True),
        (PASS, "", PASS, True, True),
        (CompileFailed("no"), "", CompileFailed("no"), False, True),
        (CompileFailed("std::bad_alloc"), "", Died("std::bad_alloc (a compiling process may use 9.31e-07 GiB)"), True,
         False),
        (Died("SIGABRT"), MEMORY, Died("SIGABRT (a compiling process may use 9.31e-07 GiB)"), True, False),
        (Died("SIGABRT"), "", Died("SIGABRT"), False, False),
        (done(), "out of memory", done(), False, True),
    ],
)  # fmt: skip
def test_what_an_answer_means(answer, output, judged, killed, learns):
    """A process that has kept half of its memory, or in which a pass failed, takes no more jobs."""
    one, process = Farm(1, memory=1000), Watched()
    assert one._judged(JobOutcome(answer, output), process, 50.0) == JobOutcome(judged, output)
    assert process.killed is killed
    assert one.deadline.seconds >= (500.0 if learns else 30.0)
    assert (one.deadline.seconds >= 500.0) is learns


def test_a_farm_has_a_process_for_each_core_that_ends_after_a_minute(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    one = Farm()
    assert (one.workers, one._idle, one.memory) == (16, 60.0, memory_limit(16))
    assert (Farm(3, 7)._idle, Farm(3, 7).memory) == (60.0, 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    assert worker_count() == 3
