"""Makes first launches of candidates in another process, on copies of the call's own bytes, between guard zones.

A candidate that faults, hangs, aborts, runs out of memory or writes beside its tensors costs a process and one trial.
The config that a captured call launches runs there first, too, before it runs on the user's tensors.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kerntune.base.child_process import ChildEnded
from kerntune.base.failed_candidates import FIRST_LAUNCH, is_fault
from kerntune.base.recording import Artifacts, Recording
from kerntune.capture import Capture, Pending, Probe
from kerntune.capture.memory_plan import Plan
from kerntune.capture.recorder import make_launch
from kerntune.compiling.compiler import Compiled
from kerntune.compiling.worker_process import FROM_OUTSIDE
from kerntune.errors import BackendError, LaunchFault, LaunchTimeout, MeasurementError, OutOfResourcesError, PeerTimeout
from kerntune.gpu.base import Buffer
from kerntune.gpu.guards import BASE_ALIGN, GuardDamage, damage_text, guards_bytes
from kerntune.gpu.memory import Memory, Source, copies_allowed, used_storages
from kerntune.gpu.staging import STAGING_BYTES, batches, staged_bytes
from kerntune.timing.worker.requests import (
    ChangedGuard,
    FirstLaunchesRequest,
    FirstLaunchFailed,
    FirstLaunchReply,
    FirstLaunchRequest,
    RequestFailed,
    StageRequest,
)
from kerntune.tuning.isolation import STAGE_LIMIT_S, FirstLaunchProcess, Isolate, Isolation, IsolationError, unsaid
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.verification import storage_name

CONTEXT_BYTES = 600 << 20
"""What a second context takes on the device: 523 MiB on an H200 (driver 580), and some modules."""

LEAST_LIMIT_S, LIMIT_FACTOR = 3.0, 50.0
"""A first launch is given up after this many seconds, or so many times what the slowest one took that ended, whichever
is more. Loading, copying and looking at guard zones count, so the least limit is far above what launches take."""

LIMIT_FIRST_S = 10.0
"""The same while none has ended."""

CALL_LIMIT_S = 60.0
"""All launches of a call together: they have ended in the captured run."""

TRIES = 2
"""Of a launch whose process others have ended."""


class FirstLaunches:
    """The first launches of one tuning, of a kernel on a memory's first contents."""

    def __init__(self, isolation: Isolation, kernel: str, memory: Memory) -> None:
        self._isolation, self._kernel, self._memory = isolation, kernel, memory
        self._held: dict[int, Buffer] = {}
        """Which content of a storage the process has."""

        self._holder: FirstLaunchProcess | None = None
        self._slowest_s: float | None = None
        self._ahead: dict[int, tuple[Recording, float | Exception]] = {}
        """What came of the recordings that ran ahead, by identity: nanoseconds, or what :meth:`run` raises."""

        self.why_not = ""
        """Why some launches ran in this process without an earlier one elsewhere; empty if none did."""

    def notes(self) -> tuple[str, ...]:
        """The same for messages, or why no process can be had. What the device's setting takes away is among
        them once a process, not with each kernel."""
        isolation, why = self._isolation, self.why_not
        if not why and not isolation.gpu.unprotected():
            why = isolation.why_not
        here = [f"kernel {self._kernel}: first launches ran in this process: {why}"] if why else []
        return (*unsaid(isolation.gpu), *here)

    @property
    def active(self) -> bool:
        """Whether launches run elsewhere first."""
        return self._isolation.wanted and not self.why_not

    def limit_s(self) -> float:
        """Seconds after which a launch is given up."""
        if self._slowest_s is None:
            return LIMIT_FIRST_S
        return max(LEAST_LIMIT_S, LIMIT_FACTOR * self._slowest_s)

    def run(self, recording: Recording, artifacts: Artifacts, first: Mapping[int, Source | None]) -> float | None:
        """Run a recording of one launch in the other process; nanoseconds, or None where it can't run there.

        ``first`` has contents of storages that are this launch's own. Raises :class:`LaunchFault` (a
        :class:`LaunchTimeout` if it did not end) and :class:`OutOfResourcesError`.
        """
        _, known = self._ahead.pop(id(recording), (recording, None))
        if isinstance(known, Exception):
            raise known
        if known is not None or not self.active:
            return known
        why, fault = self.cannot(recording), None
        for _ in range(0 if why else TRIES):
            try:
                process, request = self._staged(recording, first), _first_launch(recording, artifacts)
                return self._reply_judged(recording, partial(process.ask, request, self.limit_s()))
            except _EndedFromOutside as exc:
                why, fault = str(exc), exc.fault
            except MeasurementError as exc:
                why, fault = str(exc), None
                break
        if fault is not None:
            raise fault
        self.why_not = why  # from now on launches run in this process alone
        self._isolation.drop()
        if self._isolation.mode is Isolate.ALWAYS:
            text = f"first launches can't run in a process of their own: {why} (isolate=always)"
            raise IsolationError(f"kernel {self._kernel}: {text}")
        return None

    def run_ahead(
        self, recordings: Sequence[tuple[Recording, Mapping[int, Source | None]]], artifacts: Artifacts
    ) -> None:
        """Run several recordings, each with its ``first``, without a pause between them; :meth:`run` knows what came of
        each. Those after a fault, and those that find other contents than the first one, are left to :meth:`run`.
        :class:`IsolationError` as there."""
        self._ahead.clear()
        recording, first = recordings[0]
        if not self.active or self.cannot(recording):
            return
        try:
            process = self._staged(recording, first)
        except IsolationError:
            raise
        except (MeasurementError, _EndedFromOutside):  # as run() will find, and say
            return
        possible = [(one, its) for one, its in recordings if not self.cannot(one)]
        alike = [one for one, its in possible if not self._missing(self._wanted(one, its))]
        request = FirstLaunchesRequest(tuple(_first_launch(one, artifacts) for one in alike))
        with contextlib.closing(process.ask_each(request, self.limit_s)) as replies:
            for one in alike:
                try:
                    self._ahead[id(one)] = one, self._reply_judged(one, partial(next, replies))
                except (LaunchFault, OutOfResourcesError) as exc:
                    self._ahead[id(one)] = one, exc
                except IsolationError:
                    raise
                except (_EndedFromOutside, MeasurementError):
                    return
                if not self._isolation.has(process):  # one that the next launch has ended says so
                    return

    def whole_call(self, recording: Recording, artifacts: Artifacts) -> tuple[ChangedGuard, ...]:
        """Run all launches of a call in order in the other process, on the memory's first contents; the guard zones
        that they have changed. :class:`MeasurementError` where they can't run there, or don't end well there."""
        if why := self.cannot(recording) if self.active else "first launches run in this process":
            raise MeasurementError(why)
        try:
            reply = self._staged(recording, {}).ask(_first_launch(recording, artifacts), CALL_LIMIT_S)
        except (PeerTimeout, ChildEnded, _EndedFromOutside) as exc:
            self._isolation.drop()
            raise MeasurementError(str(exc)) from exc
        if isinstance(reply, FirstLaunchFailed) and reply.spoiled:
            self._isolation.drop()
        if not isinstance(reply, FirstLaunchReply):
            raise MeasurementError(str(getattr(reply, "reason", None) or getattr(reply, "message", reply)))
        return reply.guards

    def close(self) -> None:
        """Free what the process holds of this tuning."""
        self._isolation.forget()
        self._held.clear()
        self._ahead.clear()

    def cannot(self, recording: Recording) -> str:
        """Why a recording can't run elsewhere; empty if it can."""
        if recording.hidden_pointers:
            return "it follows addresses, which lead somewhere else in another process"
        if self._holder is not None:
            return ""
        used = sum(2 * recording.storages[i].nbytes + guards_bytes() for i in used_storages(recording))
        need = (0 if self._isolation.ready else CONTEXT_BYTES) + STAGING_BYTES + used
        allowed = copies_allowed(self._isolation.gpu, self._memory.inputs, held=0)
        if need > allowed:
            most = f"of which tuning may take {allowed >> 20} MiB"
            return f"it needs {need >> 20} MiB more of device memory, {most}"
        return ""

    def _reply_judged(self, recording: Recording, receive: Callable[[], object]) -> float:
        """Nanoseconds of a launch whose reply is received so, or what it has done."""
        begin, limit = time.monotonic(), self.limit_s()
        try:
            reply = receive()
        except PeerTimeout as exc:
            self._isolation.renew()
            others = "" if self._slowest_s is None else f", others took {self._slowest_s * 1e3:.0f} ms at most"
            raise LaunchTimeout(f"{FIRST_LAUNCH} did not end within {limit:.1f} s{others}") from exc
        except ChildEnded as exc:
            self._isolation.renew()
            fault = LaunchFault(f"{FIRST_LAUNCH} failed: {exc}")
            if exc.signal in FROM_OUTSIDE:
                fault.passing = True
                raise _EndedFromOutside(str(exc), fault) from exc
            raise fault from exc
        return self._judged(recording, reply, time.monotonic() - begin)

    def _judged(self, recording: Recording, reply: object, seconds: float) -> float:
        if isinstance(reply, FirstLaunchFailed):
            if reply.spoiled:
                self._isolation.renew()
            if reply.resources:
                raise OutOfResourcesError(reply.reason)
            fault = LaunchFault(f"{FIRST_LAUNCH} failed: {reply.reason}")
            fault.passing = reply.no_memory
            raise fault
        if not isinstance(reply, FirstLaunchReply):
            raise MeasurementError(f"a process for first launches answered {getattr(reply, 'message', reply)}")
        if reply.guards:
            self._isolation.renew()  # who knows what else it has written
            found = reply.guards[0]
            damage = GuardDamage(found.storage, found.first, found.last, found.count)
            name, nbytes = storage_name(recording, found.storage), recording.storages[found.storage].nbytes
            text = damage_text(damage, name, nbytes)
            raise LaunchFault(f"{FIRST_LAUNCH} wrote outside of its tensors: {text}")
        self._slowest_s = max(seconds, self._slowest_s or 0.0)
        return reply.ns

    # the call's bytes

    def _staged(self, recording: Recording, first: Mapping[int, Source | None]) -> FirstLaunchProcess:
        """A process with the contents that a launch finds: it never sees the memory itself.
        :class:`_EndedFromOutside`, :class:`MeasurementError`."""
        process = self._isolation.process()
        if process is not self._holder:
            self._held.clear()
            self._holder = process
        wanted = self._wanted(recording, first)
        missing = self._missing(wanted)
        if not missing:
            return process
        try:
            sent = self._sent(process, wanted, missing)
            if not sent and self._isolation.without_ipc():
                sent = self._sent(process, wanted, missing)
        except (BackendError, OSError) as exc:
            self._isolation.gpu.synchronize()  # raises where this process has lost its device
            raise MeasurementError(f"its memory could not be copied to another process: {exc}") from exc
        if not sent:
            raise MeasurementError("its memory could not be copied to another process")
        self._held.update({i: wanted[i] for i in missing})
        return process

    def _wanted(self, recording: Recording, first: Mapping[int, Source | None]) -> dict[int, Buffer]:
        sources = self._memory.sources
        return {i: (first.get(i) or sources[i]).pristine for i in used_storages(recording)}

    def _missing(self, wanted: Mapping[int, Buffer]) -> list[int]:
        return [i for i, buffer in wanted.items() if self._held.get(i) is not buffer]

    def _sent(self, process: FirstLaunchProcess, wanted: Mapping[int, Buffer], missing: Sequence[int]) -> bool:
        layout = {i: (wanted[i].nbytes, self._residue(i)) for i in missing}
        sizes = {i: wanted[i].nbytes for i in missing}
        gpu, staging = self._isolation.gpu, self._isolation.staging(staged_bytes(sizes.values()))
        for batch in [*batches(sizes)] or [[]]:
            for piece in batch:
                staging.put(gpu.part(wanted[piece.storage], piece.offset, piece.nbytes), piece.at)
            staging.flush()
            try:
                reply = process.ask(StageRequest(staging.kind, staging.handle, layout, tuple(batch)), STAGE_LIMIT_S)
            except (ChildEnded, PeerTimeout) as exc:
                self._isolation.drop()
                raise _EndedFromOutside(f"copying its memory: {exc}") from exc
            if isinstance(reply, RequestFailed):
                return False
        return True

    def _residue(self, storage: int) -> int:
        source = self._memory.sources[storage]
        return (source.home or source.pristine).address % BASE_ALIGN


class _EndedFromOutside(Exception):
    """The process is gone, and no launch is to blame; the second time ``fault`` is raised, and not remembered."""

    def __init__(self, why: str, fault: LaunchFault | None = None) -> None:
        super().__init__(why)
        self.fault = fault


def _first_launch(recording: Recording, artifacts: Artifacts) -> FirstLaunchRequest:
    return FirstLaunchRequest(recording, {b.sha256: artifacts[b.sha256] for b in recording.binaries})


def before_captured_launch(
    isolation: Isolation, trials: Trials, capture: Capture, pending: Pending, compiled: Compiled
) -> None:
    """Launch elsewhere first what is about to be launched with an open config
    (:attr:`kerntune.capture.Capture.before_launch`), unless an earlier run has launched it. :class:`LaunchFault` if it
    faults there, or has faulted before: then it must not be launched."""
    site, launch = pending.site, pending.specialized
    assert site is not None
    if site.chosen == site.proven:
        return
    probe = Probe(launch, pending.grid)
    known = trials.at(site).known({site.chosen: probe})
    failed = known.failed.get(site.chosen)
    if failed is not None and is_fault(failed.failure):
        fault = LaunchFault(failed.failure)
        fault.remembered = True
        raise fault
    if site.chosen not in known.ran and isolation.wanted:
        launch_elsewhere(isolation, capture.plan, probe, compiled)


def launch_elsewhere(isolation: Isolation, plan: Plan, probe: Probe, compiled: Compiled) -> str:
    """Launch it in the other process on what its tensors hold now; why that can't be, empty if it was done.
    :class:`LaunchFault`, and :class:`OutOfResourcesError`, as of a candidate."""
    recording, gpu = recording_of(plan, probe, compiled), isolation.gpu
    sources = [Source(gpu.borrow(tensor), shared=True) for tensor in plan.tensors()]
    first = FirstLaunches(isolation, probe.specialized.name, Memory(gpu, recording.storages, sources))
    try:
        first.run(recording, {compiled.binary.sha256: compiled.data}, {})
        return first.why_not
    finally:
        first.close()


def recording_of(plan: Plan, probe: Probe, compiled: Compiled) -> Recording:
    """The one launch as data, on the plan's storages."""
    made = make_launch(plan, probe.specialized, compiled, probe.grid)
    storages = plan.storages(set(made.reads), set(made.writes))
    target = probe.specialized.target
    return Recording(target, (made,), (compiled.binary,), storages, plan.views, plan.hides_pointers(made.params))
