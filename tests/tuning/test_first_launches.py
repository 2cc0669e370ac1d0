"""First launches with processes that are scripted as well: what is asked, what is made of each reply, what is kept."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from doubles import raising
from samples import artifacts_of, recording

from kerntune.base.child_process import ChildEnded
from kerntune.base.device import Target, typical_device
from kerntune.base.failed_candidates import FIRST_LAUNCH
from kerntune.base.recording import Recording, Storage, Zeros
from kerntune.capture import Probe
from kerntune.errors import BackendError, LaunchFault, LaunchTimeout, MeasurementError, OutOfResourcesError, PeerTimeout
from kerntune.gpu import staging
from kerntune.gpu.guards import guards_bytes
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.gpu.staging import StagedPiece
from kerntune.kernels.specialize import Specialized
from kerntune.timing.worker.requests import (
    ChangedGuard,
    FirstLaunchesRequest,
    FirstLaunchFailed,
    FirstLaunchReply,
    FirstLaunchRequest,
    ForgetRequest,
    RequestFailed,
    Staged,
    StageRequest,
)
from kerntune.tuning import first_launches as launches_module
from kerntune.tuning import isolation as isolation_module
from kerntune.tuning.first_launches import FirstLaunches, before_captured_launch
from kerntune.tuning.isolation import Isolate, Isolation, IsolationError

ARTIFACTS = artifacts_of()
DONE = FirstLaunchReply(1234.0)


class Process:
    """Gives replies one after the other: to looks; what is staged arrives unless ``refuses`` says so."""

    made: list[Process] = []
    replies: list[Any] = []
    starts: list[Exception | None] = []
    refuses: list[str] = []

    def __init__(self, device: Any, file: int) -> None:
        if type(self).starts and (why := type(self).starts.pop(0)) is not None:
            raise why
        self.alive, self.asked, self.closed, self.behind = True, 0, 0, 0
        self.requests: list[tuple[Any, float]] = []
        self.made.append(self)

    def wait(self) -> None:
        pass

    def ask(self, request: Any, limit_s: float) -> Any:
        self.asked += 1
        self.requests.append((request, limit_s))
        if isinstance(request, StageRequest):
            return RequestFailed("no") if request.kind in self.refuses else Staged()
        return self._next() if isinstance(request, FirstLaunchRequest) else Staged()

    def ask_each(self, request: FirstLaunchesRequest, limit_s: Any) -> Iterator[Any]:
        self.asked += 1
        self.requests.append((request, limit_s()))
        for _ in request.requests:
            yield self._next()

    def _next(self) -> Any:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            self.alive = False
            raise reply
        return reply

    def end(self, wait: bool = True) -> None:
        self.alive, self.closed, self.behind = False, self.closed + wait, self.behind + (not wait)


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("made", "replies", "starts", "refuses"):
        monkeypatch.setattr(Process, name, [])
    monkeypatch.setattr(isolation_module, "FirstLaunchProcess", Process)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    found = FakeGpu(typical_device(Target.parse("cuda:90")), Script())
    monkeypatch.setattr(found, "first_launch_arguments", lambda: ("scripted",))
    monkeypatch.setattr(found, "unprotected", lambda: ())
    return found


@pytest.fixture
def isolation(gpu: FakeGpu) -> Iterator[Isolation]:
    one = Isolation(gpu)
    yield one
    one.close()


@pytest.fixture
def looks(gpu: FakeGpu, isolation: Isolation) -> FirstLaunches:
    return launches_of(gpu, isolation)


def launches_of(gpu: FakeGpu, isolation: Isolation, inputs: int = 8192) -> FirstLaunches:
    sources = [SimpleNamespace(pristine=gpu.allocate(4096), home=None) for _ in range(2)]
    memory: Any = SimpleNamespace(sources=sources, inputs=inputs)
    return FirstLaunches(isolation, "add_kernel", memory)


def run(looks: FirstLaunches, *replies: Any, plan: Recording | None = None) -> float | None:
    Process.replies.extend(replies)
    return looks.run(plan or recording(), ARTIFACTS, {})


def asked(process: Process) -> list[str]:
    return [type(request).__name__ for request, _ in process.requests]


def test_contents_are_staged_once_and_each_launch_is_asked_for(looks: FirstLaunches, gpu: FakeGpu) -> None:
    plan = recording()
    assert run(looks, DONE, plan=plan) == 1234.0
    assert run(looks, DONE, plan=plan) == 1234.0
    (process,) = Process.made
    assert asked(process) == ["StageRequest", "FirstLaunchRequest", "FirstLaunchRequest"]
    (staged, limit), (look, first_limit), _ = process.requests
    assert (staged.kind, staged.handle, limit) == ("host", b"", 60.0)
    addresses = [source.pristine.address % 512 for source in looks._memory.sources]
    assert staged.layout == {0: (4096, addresses[0]), 1: (4096, addresses[1])}
    assert staged.pieces == (StagedPiece(0, 0, 0, 4096), StagedPiece(1, 0, 4096, 4096))
    assert look == FirstLaunchRequest(plan, {plan.binaries[0].sha256: ARTIFACTS[plan.binaries[0].sha256]})
    assert first_limit == 10.0, "seconds, while none has ended"


def test_a_storage_that_has_a_home_keeps_that_address(looks: FirstLaunches) -> None:
    looks._memory.sources[1].home = SimpleNamespace(address=7 * 512 + 24)  # type: ignore[misc,assignment]
    run(looks, DONE)
    assert Process.made[0].requests[0][0].layout[1] == (4096, 24)


def test_other_first_contents_are_staged_too(looks: FirstLaunches, gpu: FakeGpu) -> None:
    run(looks, DONE)
    own: Any = SimpleNamespace(pristine=gpu.allocate(4096))
    Process.replies.extend([DONE, DONE])
    looks.run(recording(), ARTIFACTS, {1: own})
    assert [*Process.made[0].requests[2][0].layout] == [1]
    looks.run(recording(), ARTIFACTS, {1: own, 0: None})
    assert asked(Process.made[0]).count("StageRequest") == 2


@pytest.mark.parametrize(("slowest", "limit"), [(None, 10.0), (0.01, 3.0), (0.06, 3.0), (0.07, 3.5), (2.0, 100.0)])
def test_a_launch_is_given_up_after_fifty_times_the_slowest(
    looks: FirstLaunches, slowest: float | None, limit: float
) -> None:
    looks._slowest_s = slowest
    assert looks.limit_s() == pytest.approx(limit)


def test_the_slowest_that_ended_counts(looks: FirstLaunches, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 10.5, 20.0, 20.25, 30.0, 31.0])
    monkeypatch.setattr(launches_module.time, "monotonic", lambda: next(now))
    seen = []
    for _ in range(3):
        run(looks, DONE)
        seen.append(looks._slowest_s)
    assert seen == [0.5, 0.5, 1.0]


def test_a_late_one_costs_its_process_and_says_how_long_others_took(looks: FirstLaunches, isolation: Isolation) -> None:
    with pytest.raises(LaunchTimeout, match=r"did not end within 10\.0 s$"):
        run(looks, PeerTimeout("late"))
    assert (Process.made[0].closed, len(Process.made)) == (1, 2)
    looks._slowest_s = 0.125
    with pytest.raises(LaunchTimeout, match=r"did not end within 6\.2 s, others took 125 ms at most$"):
        run(looks, PeerTimeout("late"))
    assert asked(Process.made[1])[0] == "StageRequest", "the new process has nothing yet"


def test_one_that_ends_its_process_is_a_fault(looks: FirstLaunches) -> None:
    with pytest.raises(LaunchFault, match="failed: its process ended with exit code 3") as told:
        run(looks, ChildEnded("its process ended with exit code 3"))
    assert not told.value.passing
    assert (Process.made[0].closed, len(Process.made)) == (1, 2)


def test_one_whose_process_others_end_runs_twice_at_most(looks: FirstLaunches) -> None:
    killed = ChildEnded("ended by SIGKILL", -int(signal.SIGKILL))
    assert run(looks, killed, DONE) == 1234.0
    with pytest.raises(LaunchFault, match="failed: ended by SIGKILL") as told:
        run(looks, killed, killed, DONE)
    assert told.value.passing
    assert Process.replies == [DONE]


@pytest.mark.parametrize(
    ("reply", "error", "text", "passing", "renewed"),
    [
        (FirstLaunchFailed("refused", False, True), OutOfResourcesError, "refused", None, False),
        (FirstLaunchFailed("refused", True, True), OutOfResourcesError, "refused", None, True),
        (FirstLaunchFailed("illegal"), LaunchFault, "failed: illegal", False, True),
        (FirstLaunchFailed("no room", False, no_memory=True), LaunchFault, "failed: no room", True, False),
        (
            FirstLaunchReply(1.0, (ChangedGuard(0, 1, 4096, 4099, 4), ChangedGuard(0, 0, -4, -1, 4))), LaunchFault,
            r"wrote outside of its tensors: 4 bytes from byte 0 behind the end of y \(4,096 bytes\)", False, True,
        ),
    ],
    ids=["resources", "resources and spoiled", "fault", "memory", "guards"],
)  # fmt: skip
def test_what_a_reply_says(
    looks: FirstLaunches, reply: Any, error: Any, text: str, passing: Any, renewed: bool
) -> None:
    with pytest.raises(error, match=text) as told:
        run(looks, reply)
    assert getattr(told.value, "passing", None) is passing
    assert (Process.made[0].closed, len(Process.made)) == ((1, 2) if renewed else (0, 1))
    assert looks._slowest_s is None, "only good ones say how long one takes"


@pytest.mark.parametrize(
    ("reply", "said"), [(RequestFailed("out of order"), "answered out of order"), (Staged(), "answered Staged")]
)
def test_another_answer_keeps_launches_here_and_is_said(looks: FirstLaunches, reply: Any, said: str) -> None:
    assert run(looks, reply) is None
    assert said in looks.why_not
    assert not looks.active
    assert [one.closed for one in Process.made] == [1]
    assert looks.notes() == (f"kernel add_kernel: first launches ran in this process: {looks.why_not}",)
    assert run(looks) is None, "and nothing is asked any more"


def test_always_means_that_an_answer_is_needed(gpu: FakeGpu) -> None:
    looks = launches_of(gpu, Isolation(gpu, Isolate.ALWAYS))
    with pytest.raises(IsolationError, match=r"kernel add_kernel: first launches can't run .* \(isolate=always\)"):
        run(looks, Staged())


def test_always_means_that_several_need_a_process_too(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    Process.starts.append(OSError("none to be had"))
    with pytest.raises(IsolationError, match=r"none to be had \(isolate=always\)"):
        ahead(launches_of(gpu, Isolation(gpu, Isolate.ALWAYS)), [recording()])
    Process.starts.extend([None, OSError("no more processes")])
    with pytest.raises(IsolationError, match=r"no more processes \(isolate=always\)"):
        ahead(launches_of(gpu, Isolation(gpu, Isolate.ALWAYS)), [recording()], ChildEnded("exit code 1"))

    monkeypatch.setattr(Process, "wait", raising(MeasurementError("no device for it")))
    looks = launches_of(gpu, Isolation(gpu, Isolate.ALWAYS))
    ahead(looks, [recording()])
    with pytest.raises(IsolationError, match=r"no device for it \(isolate=always\)"):
        ahead(looks, [recording()])


def test_bytes_go_through_the_host_where_the_device_s_memory_can_not_be_had(
    looks: FirstLaunches, isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[int] = []
    near = SimpleNamespace(kind="ipc", handle=b"h", put=lambda source, at: put.append(at), flush=lambda: put.append(-1))
    sizes: list[int] = []
    monkeypatch.setattr(isolation_module, "device_staging", lambda gpu, nbytes: sizes.append(nbytes) or near)
    Process.refuses.append("ipc")
    assert run(looks, DONE) == 1234.0
    assert [request.kind for request, _ in Process.made[0].requests[:2]] == ["ipc", "host"]
    assert (put, sizes, isolation.kind) == ([0, 4096, -1], [8192], "host")
    assert not isolation.without_ipc(), "not new"


def test_bytes_that_do_not_arrive_at_all_keep_launches_here(looks: FirstLaunches) -> None:
    Process.refuses.extend(["ipc", "host"])
    assert run(looks) is None
    assert looks.why_not == "its memory could not be copied to another process"


def test_a_device_that_refuses_a_copy_keeps_launches_here(
    looks: FirstLaunches, isolation: Isolation, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(gpu, "read", raising(BackendError("no such memory")))
    monkeypatch.setattr(gpu, "synchronize", lambda: waited.append(1))
    assert run(looks) is None
    assert looks.why_not == "its memory could not be copied to another process: no such memory"
    assert waited == [1]


def test_what_is_too_large_goes_in_pieces(looks: FirstLaunches, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = staging.batches
    monkeypatch.setattr(launches_module, "batches", lambda sizes: batches(sizes, 6144))
    run(looks, DONE)
    assert [request.pieces for request, _ in Process.made[0].requests[:2]] == [
        (StagedPiece(0, 0, 0, 4096), StagedPiece(1, 0, 4096, 2048)), (StagedPiece(1, 2048, 0, 2048),),
    ]  # fmt: skip


# what can't run elsewhere


def test_addresses_lead_nowhere_in_another_process(looks: FirstLaunches) -> None:
    plan: Any = SimpleNamespace(hidden_pointers=True)
    assert looks.cannot(plan) == "it follows addresses, which lead somewhere else in another process"


@pytest.mark.parametrize("more", [-1, 0])
def test_room_is_needed_for_a_context_the_staging_and_two_of_each(
    gpu: FakeGpu, isolation: Isolation, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    plan = recording(storages=(Storage(5 << 20, "float32", Zeros()), Storage(3 << 20, "float32", Zeros())))
    need = (600 << 20) + (64 << 20) + 2 * (8 << 20) + 2 * guards_bytes()
    allowed: list[Any] = []
    monkeypatch.setattr(
        launches_module, "copies_allowed", lambda *given, held: allowed.append((*given, held)) or need + more
    )
    looks = launches_of(gpu, isolation, inputs=77)
    expected = "" if more == 0 else (
        f"it needs {need >> 20} MiB more of device memory, of which tuning may take {(need + more) >> 20} MiB"
    )  # fmt: skip
    assert looks.cannot(plan) == expected
    assert allowed == [(gpu, 77, 0)]


def test_a_process_that_has_its_context_needs_no_room_for_it(
    gpu: FakeGpu, isolation: Isolation, looks: FirstLaunches, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(looks, DONE)
    assert isolation.ready
    room = (64 << 20) + 2 * 8192 + 2 * guards_bytes()
    monkeypatch.setattr(launches_module, "copies_allowed", lambda *given, held: room)
    assert launches_of(gpu, isolation).cannot(recording()) == ""
    monkeypatch.setattr(launches_module, "copies_allowed", lambda *given, held: 0)
    assert looks.cannot(recording()) == "", "it holds its memory already"
    assert launches_of(gpu, isolation).cannot(recording()) != ""


# several without a pause


def ahead(looks: FirstLaunches, plans: list[Recording], *replies: Any) -> None:
    Process.replies.extend(replies)
    looks.run_ahead([(plan, {}) for plan in plans], ARTIFACTS)


def test_several_go_in_one_request_and_are_known_then(looks: FirstLaunches) -> None:
    plans = [recording() for _ in range(3)]
    ahead(looks, plans, FirstLaunchReply(1.0), FirstLaunchFailed("refused", False, True), FirstLaunchReply(3.0))
    assert asked(Process.made[0]) == ["StageRequest", "FirstLaunchesRequest"]
    assert looks.run(plans[0], ARTIFACTS, {}) == 1.0
    with pytest.raises(OutOfResourcesError, match="refused"):
        looks.run(plans[1], ARTIFACTS, {})
    assert looks.run(plans[2], ARTIFACTS, {}) == 3.0
    assert asked(Process.made[0]) == ["StageRequest", "FirstLaunchesRequest"], "nothing was asked again"
    assert run(looks, DONE, plan=plans[0]) == 1234.0, "each is known once"


def test_those_after_a_fault_are_asked_for_alone(looks: FirstLaunches) -> None:
    plans = [recording() for _ in range(3)]
    ahead(looks, plans, FirstLaunchReply(1.0), ChildEnded("exit code 1"))
    assert looks.run(plans[0], ARTIFACTS, {}) == 1.0
    with pytest.raises(LaunchFault, match="exit code 1"):
        looks.run(plans[1], ARTIFACTS, {})
    assert run(looks, DONE, plan=plans[2]) == 1234.0
    assert len(Process.made) == 2


def test_one_that_ends_the_process_while_the_reply_before_it_is_read_is_known(
    looks: FirstLaunches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def each(self: Process, request: FirstLaunchesRequest, limit_s: Any) -> Iterator[Any]:
        self.alive = False
        yield FirstLaunchReply(1.0)
        raise ChildEnded("ended by SIGABRT")

    monkeypatch.setattr(Process, "ask_each", each)
    plans = [recording() for _ in range(2)]
    ahead(looks, plans)
    assert looks.run(plans[0], ARTIFACTS, {}) == 1.0
    with pytest.raises(LaunchFault, match="SIGABRT"):
        looks.run(plans[1], ARTIFACTS, {})
    assert "FirstLaunchRequest" not in [one for process in Process.made for one in asked(process)]


def test_one_that_others_end_is_not_known(looks: FirstLaunches) -> None:
    plans = [recording() for _ in range(2)]
    ahead(looks, plans, ChildEnded("ended by SIGTERM", -int(signal.SIGTERM)))
    assert [run(looks, DONE, plan=plan) for plan in plans] == [1234.0, 1234.0]


def test_those_that_find_other_contents_are_left(looks: FirstLaunches, gpu: FakeGpu) -> None:
    one, other = recording(), recording()
    own: Any = SimpleNamespace(pristine=gpu.allocate(4096))
    Process.replies.extend([FirstLaunchReply(1.0)])
    looks.run_ahead([(one, {}), (other, {1: own})], ARTIFACTS)
    assert len(Process.made[0].requests[1][0].requests) == 1
    assert looks.run(one, ARTIFACTS, {}) == 1.0
    assert run(looks, DONE, plan=other) == 1234.0


def test_nothing_runs_ahead_where_nothing_runs_elsewhere(looks: FirstLaunches) -> None:
    looks.why_not = "a test says so"
    ahead(looks, [recording()])
    assert Process.made == []


def test_contents_that_can_not_be_staged_are_told_by_the_run(looks: FirstLaunches) -> None:
    Process.refuses.extend(["ipc", "host"])
    ahead(looks, [recording()])
    assert looks.active
    assert "FirstLaunchesRequest" not in asked(Process.made[0])


# a whole call


def test_a_whole_call_gives_the_zones_that_it_has_changed(looks: FirstLaunches) -> None:
    zones = (ChangedGuard(0, 1, 4096, 4099, 4),)
    Process.replies.append(FirstLaunchReply(1.0, zones))
    assert looks.whole_call(recording(), ARTIFACTS) == zones
    assert Process.made[0].requests[-1][1] == 60.0


@pytest.mark.parametrize(
    ("reply", "said", "closed"),
    [
        (FirstLaunchFailed("illegal"), "illegal", 1),
        (FirstLaunchFailed("no room", False), "no room", 0),
        (RequestFailed("out of order"), "out of order", 0),
        (PeerTimeout("no answer within 60.0 s"), "no answer within", 1),
        (ChildEnded("exit code 1"), "exit code 1", 1),
    ],
    ids=["spoiled", "not spoiled", "refused", "late", "ended"],
)
def test_a_whole_call_that_does_not_end_well_is_an_error(
    looks: FirstLaunches, reply: Any, said: str, closed: int
) -> None:
    Process.replies.append(reply)
    with pytest.raises(MeasurementError, match=said):
        looks.whole_call(recording(), ARTIFACTS)
    assert (Process.made[0].closed, len(Process.made)) == (closed, 1)


def test_a_whole_call_needs_a_process(looks: FirstLaunches) -> None:
    looks.why_not = "a test says so"
    with pytest.raises(MeasurementError, match="first launches run in this process"):
        looks.whole_call(recording(), ARTIFACTS)


# the process


def test_a_tuning_that_is_over_frees_the_memory_of_its_process(looks: FirstLaunches, isolation: Isolation) -> None:
    isolation.forget()
    assert Process.made == []
    run(looks, DONE)
    looks.close()
    assert (asked(Process.made[0])[-1], Process.made[0].requests[-1][1]) == ("ForgetRequest", 60.0)
    assert isinstance(Process.made[0].requests[-1][0], ForgetRequest)
    run(looks, DONE)
    assert asked(Process.made[0])[-2:] == ["StageRequest", "FirstLaunchRequest"], "nothing is held any more"


def test_a_single_tuning_s_process_is_asked_for_nothing_at_its_end(gpu: FakeGpu) -> None:
    isolation = Isolation(gpu, single=True)
    run(launches_of(gpu, isolation), DONE)
    isolation.forget()
    assert asked(Process.made[0])[-1] == "FirstLaunchRequest"
    isolation.close()
    isolation.close()
    assert (Process.made[0].behind, Process.made[0].closed) == (1, 0)
    assert isolation._host is None


def test_a_process_that_does_not_free_its_memory_goes(
    looks: FirstLaunches, isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(looks, DONE)

    monkeypatch.setattr(Process.made[0], "ask", raising(PeerTimeout("late")))
    isolation.forget()
    assert (Process.made[0].closed, isolation._process) == (1, None)


def test_a_process_that_was_ended_has_nothing_to_forget(looks: FirstLaunches, isolation: Isolation) -> None:
    """As after Ctrl-C: neither asked nor waited for."""
    run(looks, DONE)
    Process.made[0].alive = False
    isolation.forget()
    assert (asked(Process.made[0])[-1], Process.made[0].closed) == ("FirstLaunchRequest", 0)


def test_a_process_that_is_gone_is_replaced(isolation: Isolation) -> None:
    isolation.begin()
    isolation.begin()
    (first,) = Process.made
    assert not isolation.ready, "it has not been asked"
    assert isolation.process() is first
    first.alive = False
    assert isolation.process() is not first
    assert first.closed == 1


def test_after_two_failed_starts_no_further_process_is_started(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails(Process):
        def wait(self) -> None:
            raise MeasurementError("no device for it")

    monkeypatch.setattr(isolation_module, "FirstLaunchProcess", Fails)
    for wanted in (True, False):
        with pytest.raises(MeasurementError, match="no device for it"):
            isolation.process()
        assert isolation.wanted is wanted
    assert isolation.why_not == "no device for it"
    assert [one.closed for one in Process.made] == [1, 1]
    with pytest.raises(MeasurementError, match="no device for it"):
        isolation.process()
    assert len(Process.made) == 2


@pytest.mark.parametrize("error", [OSError("no more processes"), RuntimeError("can't start new thread")])
def test_where_no_process_can_start_that_is_the_reason(isolation: Isolation, error: Exception) -> None:
    Process.starts.append(error)
    with pytest.raises(MeasurementError, match=f"a process can't be started: {error}"):
        isolation.process()
    assert isolation.why_not == f"a process can't be started: {error}"
    assert not isolation.wanted


def test_a_device_that_has_none_is_used_here_unless_it_must_not(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "first_launch_arguments", lambda: ())
    assert not Isolation(gpu).wanted
    assert Isolation(gpu).why_not == ""
    with pytest.raises(IsolationError, match=r"this device's backend starts none \(isolate=always\)"):
        Isolation(gpu, Isolate.ALWAYS)

    monkeypatch.setattr(gpu, "first_launch_arguments", raising(BackendError("MIG")))
    assert Isolation(gpu).why_not == "MIG"
    assert Isolation(gpu, Isolate.OFF).why_not == ""


def test_what_a_device_does_not_protect_is_said_once(
    gpu: FakeGpu, isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "unprotected", lambda: ("one fault ends all",))
    looks = launches_of(gpu, isolation)
    isolation.why_not = "it starts none"
    assert looks.notes() == ("one fault ends all",)
    assert looks.notes() == ()
    monkeypatch.setattr(gpu, "unprotected", lambda: ())
    assert looks.notes() == ("kernel add_kernel: first launches ran in this process: it starts none",)


def test_one_that_can_not_run_elsewhere_runs_here_and_says_why(
    looks: FirstLaunches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launches_module, "copies_allowed", lambda *given, held: 0)
    assert run(looks) is None
    assert looks.why_not.startswith("it needs 668 MiB more of device memory, of which tuning may take 0 MiB")
    assert Process.made == []
    assert run(looks) is None, "and isn't looked at again"


def test_a_call_that_can_not_run_elsewhere_is_an_error(looks: FirstLaunches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches_module, "copies_allowed", lambda *given, held: 0)
    with pytest.raises(MeasurementError, match="it needs 668 MiB more"):
        looks.whole_call(recording(), ARTIFACTS)


def test_nothing_runs_ahead_that_can_not_run_elsewhere(looks: FirstLaunches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches_module, "copies_allowed", lambda *given, held: 0)
    ahead(looks, [recording()])
    assert Process.made == []
    assert looks.active


@pytest.mark.parametrize("error", [PeerTimeout("no answer"), ChildEnded("exit code 1")])
def test_a_process_that_does_not_take_the_contents_is_replaced_once(
    looks: FirstLaunches, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    ask, errors = Process.ask, [error]

    def once(self: Process, request: Any, limit_s: float) -> Any:
        if isinstance(request, StageRequest) and errors:
            raise errors.pop()
        return ask(self, request, limit_s)

    monkeypatch.setattr(Process, "ask", once)
    assert run(looks, DONE) == 1234.0
    assert [one.closed for one in Process.made] == [1, 0]
    run(looks, ChildEnded("x", -9), DONE)
    errors.extend([error, error])
    looks._held.clear()
    assert run(looks) is None
    assert looks.why_not == f"copying its memory: {error}"


# a captured launch with an open config


class Known:
    """What earlier runs know of candidate 1."""

    def __init__(self, ran: bool = False, failure: str = "") -> None:
        self.ran = {1: None} if ran else {}
        self.failed = {1: SimpleNamespace(failure=failure)} if failure else {}
        self.probes: dict[int, Any] = {}

    def at(self, site: Any) -> Known:
        return self

    def known(self, probes: dict[int, Any]) -> Known:
        self.probes = probes
        return self


@pytest.mark.parametrize(
    ("proven", "known", "wanted", "launched"),
    [
        pytest.param(None, Known(), True, True, id="open"),
        pytest.param(0, Known(), True, True, id="another was proven"),
        pytest.param(1, Known(), True, False, id="proven"),
        pytest.param(None, Known(ran=True), True, False, id="that ran before"),
        pytest.param(None, Known(failure="it needs too much"), True, True, id="that failed otherwise"),
        pytest.param(None, Known(), False, False, id="nothing runs elsewhere"),
    ],
)
def test_an_open_config_is_launched_elsewhere_before_the_call_is(
    proven: int | None, known: Any, wanted: bool, launched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(launches_module, "launch_elsewhere", lambda *words: seen.append(words))
    specialized = Specialized.__new__(Specialized)
    site = SimpleNamespace(chosen=1, proven=proven)
    pending: Any = SimpleNamespace(site=site, specialized=specialized, grid=(4, 1, 1))
    capture: Any = SimpleNamespace(plan="the plan")
    isolation, compiled = SimpleNamespace(wanted=wanted), SimpleNamespace()
    before_captured_launch(isolation, known, capture, pending, compiled)  # type: ignore[arg-type]
    probe = Probe(specialized, (4, 1, 1))
    assert seen == [(isolation, "the plan", probe, compiled)] * launched
    assert known.probes == ({} if proven == 1 else {1: probe})


def test_a_config_that_has_faulted_before_is_not_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = f"{FIRST_LAUNCH} it faulted"
    monkeypatch.setattr(launches_module, "launch_elsewhere", lambda *words: pytest.fail("launched"))
    pending: Any = SimpleNamespace(
        site=SimpleNamespace(chosen=1, proven=None), specialized=Specialized.__new__(Specialized), grid=(1, 1, 1)
    )
    capture: Any = SimpleNamespace(plan=None)
    nothing: Any = SimpleNamespace(wanted=True)
    known: Any = Known(failure=reason)
    with pytest.raises(LaunchFault, match=reason) as caught:
        before_captured_launch(nothing, known, capture, pending, nothing)
    assert caught.value.remembered


@pytest.mark.parametrize("fails", [False, True])
def test_what_ran_elsewhere_frees_its_memory(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []

    class Launches:
        why_not = "no room"

        def __init__(self, isolation: Any, kernel: str, memory: Any) -> None:
            did.append((kernel, memory))

        def run(self, recording: Any, artifacts: Any, first: Any) -> None:
            did.append((recording, artifacts, first))
            if fails:
                raise LaunchFault("it faulted")

        def close(self) -> None:
            did.append("closed")

    monkeypatch.setattr(launches_module, "recording_of", lambda plan, probe, compiled: SimpleNamespace(storages="both"))
    monkeypatch.setattr(launches_module, "FirstLaunches", Launches)
    monkeypatch.setattr(launches_module, "Memory", lambda gpu, storages, sources: (gpu, storages, len(sources)))
    gpu = SimpleNamespace(borrow=lambda tensor: tensor)
    isolation: Any = SimpleNamespace(gpu=gpu)
    plan: Any = SimpleNamespace(tensors=lambda: [1, 2, 3])
    probe: Any = SimpleNamespace(specialized=SimpleNamespace(name="k"))
    compiled: Any = SimpleNamespace(binary=SimpleNamespace(sha256="sha"), data=b"code")
    if fails:
        with pytest.raises(LaunchFault, match="it faulted"):
            launches_module.launch_elsewhere(isolation, plan, probe, compiled)
    else:
        assert launches_module.launch_elsewhere(isolation, plan, probe, compiled) == "no room"
    assert did[0] == ("k", (gpu, "both", 3))
    assert did[1][1:] == ({"sha": b"code"}, {})
    assert did[2:] == ["closed"]
