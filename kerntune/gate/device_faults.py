"""A GPU that runs nothing any more in this process, and launches that write outside of their tensors.

The first is found out, and said once, with what was launched last. The second is found between guard zones in a
process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kerntune.base.case_result import OutsideWrite
from kerntune.base.policy import Update
from kerntune.base.recording import Recording
from kerntune.capture import Capture
from kerntune.capture.capture import last_capture
from kerntune.capture.launch import Pending
from kerntune.capture.recorder import Recorded
from kerntune.errors import DeviceFault, MeasurementError, UsageError
from kerntune.gpu.base import Executor
from kerntune.gpu.guards import GuardDamage, damage_text
from kerntune.gpu.memory import Memory
from kerntune.kernels.source import text_of
from kerntune.timing.worker.requests import ChangedGuard
from kerntune.tuning.first_launches import FirstLaunches
from kerntune.tuning.isolation import Isolation
from kerntune.tuning.verification import storage_name

MAX_LAUNCHES = 8
"""Launches that a message names; the last ones. A fault is reported by a later call of the driver, so each of a call's
launches may be the one."""

ADVICE = (
    "A fault of a kernel (illegal address, trap, failed assertion) ends everything that its process does on the GPU. "
    "`compute-sanitizer pytest ...` says where it is; tests under `pytest -n1` (pytest-xdist) go on in a new process"
)


def lost(gpu: Executor | None) -> str:
    """Why ``gpu`` no longer answers; empty while it does, and where there is none.

    What was enqueued is waited for: so a fault of it shows. The driver gives its error to every later call.
    """
    if gpu is None:
        return ""
    try:
        gpu.synchronize()
    except Exception as exc:
        return str(exc)
    return ""


class Fault:
    """What is known of a GPU that runs nothing any more."""

    def __init__(self, gpu: Executor | None) -> None:
        self._gpus, self._known = [] if gpu is None else [gpu], ""

    def watch(self, gpu: Executor) -> None:
        """Ask this one, too: a process may use several."""
        if gpu not in self._gpus:
            self._gpus.append(gpu)

    def _lost(self) -> str:
        return next(filter(None, map(lost, self._gpus)), "")

    def known(self, ask: bool) -> str:
        """The first reason, from the device itself if nothing was known; empty while it answers."""
        if ask and not self._known:
            self._known = self._lost()
        return self._known

    @contextmanager
    def named(self, case: object) -> Iterator[None]:
        """Whatever is raised while the GPU stops answering becomes one :class:`DeviceFault` that names ``case`` and
        what it launched. Errors on a device that answers stay what they are."""
        before = last_capture()
        try:
            yield
        except Exception as exc:
            why = self._lost()
            if not why:
                raise
            last = last_capture()
            mine = last() if last is not None and last is not before else None
            reason = f"{launched_text(mine)} ({why})"
            self._known = self._known or reason
            raise DeviceFault(f"{case}: the GPU runs nothing any more {reason}. {ADVICE}") from exc


def launched_text(capture: Capture | None) -> str:
    """``after kernel add with BLOCK=64 num_warps=4 on grid (16, 1, 1)``: a call's launches, the last ones of many."""
    launches = [] if capture is None else [p for p in capture.launches if p.ran]
    latest = None if capture is None else capture.latest  # which is kept only when it is over
    # by identity: equality would compare the tensors of two launches, on a device that answers no more
    if latest is not None and not any(p is latest for p in launches):
        launches.append(latest)
    if capture is None or not launches:
        return "before a kernel was launched in this call: a kernel of an earlier one, or what else the process ran"
    shown = [f"kernel {p.kernel} with {_config(p)} on grid {p.grid}" for p in launches[-MAX_LAUNCHES:]]
    if len(launches) == 1:
        return f"after {shown[0]}"
    more = f"{len(launches) - len(shown)} others and " if len(launches) > len(shown) else ""
    return f"after {more}one of: {'; '.join(shown)}"


def _config(launch: Pending) -> str:
    """The candidate that was launched; of a launch with fixed parameters these, and the compiler's options."""
    if launch.site is not None:
        return str(launch.site.candidates[launch.site.chosen].config)
    found = launch.specialized
    fixed = {p.name: found.bound.get(p.name) for p in found.jit.params if p.is_constexpr}
    words = {**fixed, "num_warps": found.options.num_warps, "num_stages": getattr(found.options, "num_stages", None)}
    return " ".join(f"{n}={text_of(value)}" for n, value in words.items() if value is not None)


def beside_verdict(otherwise: str, step: Callable[[], object], gpu: Executor | None) -> list[str]:
    """Do something beside a verdict, which stands whatever comes of it: why it could not be done, as a warning. Raises
    where the device is lost, and for what the user asked wrongly."""
    try:
        step()
    except UsageError:
        raise
    except Exception as exc:
        if gpu is not None:
            gpu.synchronize()
        return [f"{otherwise}: {type(exc).__name__}: {exc}"]
    return []


FLOATS = ("*fp", "*bf")
"""How the types of pointers to numbers begin that are no integers: addresses are hardly ever computed from these."""


class OutsideWrites(NamedTuple):
    """What a look at a case's launches came to. ``why_not`` says why it could not be finished."""

    found: tuple[OutsideWrite, ...] = ()
    why_not: str = ""

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence for each write that decides the verdict."""
        return tuple(outside_text(w) for w in self.found if w.certain)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences beside a verdict."""
        doubt = (
            "; that decides nothing, for the call may have changed what an earlier launch wrote and this one reads. It "
            "becomes no baseline, which would end the search for it, unless --kerntune-update=all asks for that"
        )
        unsure = [outside_text(w) + doubt for w in self.found if not w.certain]
        why = [f"not looked for writes outside of tensors: {self.why_not}"] if self.why_not else []
        return (*unsure, *why)

    def may_be_baseline(self, update: Update) -> bool:
        """Whether the case's baseline may be written: later runs look at equal work no more. No update accepts a
        certain write, and only one that rewrites every baseline an uncertain one."""
        return not self.found or (not self.failures and update is Update.ALL)


NOT_LOOKED = OutsideWrites()


def has_fixed(capture: Capture) -> bool:
    """Whether a call launches something that isn't a candidate: these have been launched between guard zones already,
    each before it ran anywhere else."""
    return any(0 not in p.grid and (p.site is None or len(p.site.candidates) < 2) for p in capture.launches)


def look_for(isolation: Isolation, recorded: Recorded) -> OutsideWrites:
    """Run a case's launches in order in a process of their own, on the contents that they found. Nothing is said where
    they can't run there: addresses in memory or integers lead somewhere else, or there is no room for copies."""
    recording = recorded.recording
    memory = Memory(isolation.gpu, recording.storages, recorded.sources)
    elsewhere = FirstLaunches(isolation, recording.working[0].kernel, memory)
    try:
        if elsewhere.cannot(recording):
            return NOT_LOOKED
        changed = elsewhere.whole_call(recording, recorded.artifacts)
    except MeasurementError as exc:
        return OutsideWrites(why_not=str(exc))
    finally:
        memory.give_back()
        elsewhere.close()
    return OutsideWrites(tuple(_write(recording, x) for x in changed))


def outside_text(write: OutsideWrite) -> str:
    """``launch 0 (kernel add) wrote outside of its tensors: 4 bytes from byte 0 behind the end of y (4,096 bytes)``."""
    damage = GuardDamage(0, write.offset, write.last, write.count)
    where = damage_text(damage, write.argument, write.nbytes)
    return f"launch {write.launch} (kernel {write.kernel}) wrote outside of its tensors: {where}"


def _write(recording: Recording, changed: ChangedGuard) -> OutsideWrite:
    launch = recording.working[changed.launch]
    single = recording.but(launches=(launch,))
    name, nbytes = storage_name(single, changed.storage), single.storages[changed.storage].nbytes
    # certain: it found the integers that it reads as they are when only launches are run. No earlier one uses their
    # storage, so what the call itself does to it came before the first content.
    earlier = {i for x in recording.working[: changed.launch] for i in (*x.reads, *x.writes)}
    views = [p.view for p in launch.params if p.view is not None and not p.type.startswith(FLOATS)]
    certain = not earlier & ({recording.views[v].storage for v in views} & set(launch.reads))
    return OutsideWrite(
        launch.kernel, changed.launch, name, changed.first, changed.last, changed.count, nbytes, certain
    )
