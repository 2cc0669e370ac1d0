"""Runs each implementation of a choice for the first time.

A kernel that nothing tunes is launched in another process first.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kerntune.base.recording import Recording
from kerntune.capture import Probe
from kerntune.capture.entry_points import BareLaunches
from kerntune.capture.launch import launch_device, probe_of
from kerntune.capture.memory_plan import Plan
from kerntune.compiling.compiler import Compiled
from kerntune.errors import KerntuneError, LaunchFault, LaunchTimeout, TrialError, UsageError
from kerntune.gpu.base import Backend
from kerntune.gpu.probe import captures_graph
from kerntune.kernels.compat.torch_private import runs_backward
from kerntune.kernels.source import kernel_name, named_arguments
from kerntune.tuning import context
from kerntune.tuning.choices.stored_choices import BareLaunch, LaunchFaults
from kerntune.tuning.first_launches import launch_elsewhere, recording_of
from kerntune.tuning.isolation import KEPT_ISOLATION, Isolate, Isolation, IsolationError, device_of, unsaid

FOLLOWS = "it follows addresses, which lead somewhere else in another process"

_launched: set[tuple[object, BareLaunch]] = set()
"""What this process has launched elsewhere, on which device: it isn't again."""


@dataclass
class ImplementationRuns:
    """Those of one decision. Before a launch of this thread, or of a backward function, that isn't known, the same is
    launched elsewhere on what the tensors hold then. Of launches that are alike (:func:`like`) one is.

    One that fails there is not made here: :class:`LaunchFault` with the kernel's name, also if the implementation has
    caught it.
    """

    choice: str
    backend: Backend
    mode: Isolate
    faults: LaunchFaults
    notes: list[str] = field(default_factory=list)
    """Which kernels ran in this process without an earlier launch elsewhere, and why."""

    def __post_init__(self) -> None:
        self._thread, self._lock = threading.get_ident(), threading.RLock()
        self.launches = BareLaunches(self._before)
        self._last: tuple[Any, Sequence[Any], Mapping[str, Any]] | None = None
        self._like: set[object] = set()
        self._failed: dict[BareLaunch, LaunchFault] = {}
        self._to_keep: dict[BareLaunch, str] = {}
        self._refused: Exception | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """One implementation's first run."""
        self._refused = None
        if self.mode is Isolate.OFF:
            yield
            return
        _watching.runs.append(self)
        try:
            self.launches.begin()
            yield
        except Exception as exc:
            self._refuse(exc)
            raise
        finally:
            _watching.runs.remove(self)
            self.launches.end()
            self._last = None
        self._refuse(None)

    def _refuse(self, raised: Exception | None) -> None:
        """Raise what a launch was refused with, whatever the implementation has made of it."""
        if self._refused is not None and self._refused is not raised:
            raise self._refused from raised

    def keep_faults(self) -> None:
        """Store the faults: another implementation has run, so that the call isn't to blame."""
        for launch, reason in self._to_keep.items():
            self.faults.keep(launch, reason)
        self._to_keep.clear()

    # a launch

    def _before(self, jit: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        mine = threading.get_ident() == self._thread or runs_backward()  # this thread waits for backward functions
        if not mine or captures_graph():
            return
        with self._lock:
            if _same(self._last, (jit, args, kwargs)):
                return
            try:
                self._seen(jit, args, kwargs)
            except (LaunchFault, IsolationError) as exc:
                self._refused = exc
                raise
            self._last = jit, args, kwargs

    def _seen(self, jit: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """What can't be launched at all is left to the launch itself, which says why."""
        kernel, named = kernel_name(jit), named_arguments(jit, args, kwargs)
        try:
            device = launch_device(self.backend, kernel, named)
            backend = self.backend if device == self.backend.ordinal else self.backend.on(device)
            probe = probe_of(backend, jit, args, kwargs)
            why = self._why_not_elsewhere(backend, probe) if 0 not in probe.grid else ""
        except (LaunchFault, IsolationError):
            raise
        except (TrialError, UsageError):
            return
        except KerntuneError as exc:
            why = str(exc)
        if why:
            self._say(kernel, why)

    def _why_not_elsewhere(self, backend: Backend, probe: Probe) -> str:
        """Launch it there, if it isn't known; why that can't be."""
        gpu = backend.gpu
        assert gpu is not None
        with KEPT_ISOLATION.lent(gpu, self.mode) as isolation:
            self.notes += unsaid(gpu)
            if not isolation.wanted:
                return "" if gpu.unprotected() else isolation.why_not
            isolation.begin()  # it starts while the kernel is compiled
            compiled, plan = context.COMPILER.compile(probe.specialized), Plan(backend)
            if compiled.access.follows:
                return FOLLOWS
            recording = recording_of(plan, probe, compiled)
            alike = device_of(gpu), like(recording)
            if alike in self._like:
                return ""
            launch = BareLaunch.of(probe, recording, gpu.spec.name)
            found, why = self._found(isolation, plan, probe, compiled, launch)
            if found is None and not why:
                self._like.add(alike)
        if found is not None:
            raise named_fault(kernel_name(probe.specialized.jit), found) from found
        return why

    def _found(
        self, isolation: Isolation, plan: Plan, probe: Probe, compiled: Compiled, launch: BareLaunch
    ) -> tuple[LaunchFault | None, str]:
        device = device_of(isolation.gpu)
        if (device, launch) in _launched:
            return None, ""
        known = self._failed.get(launch) or self.faults.of(launch)
        if known is not None:
            return known, ""
        isolation.gpu.synchronize()  # other streams may still write what it reads
        try:
            why = _launch_again_if_late(lambda: launch_elsewhere(isolation, plan, probe, compiled))
        except LaunchFault as exc:
            self._failed[launch] = exc
            if not exc.passing:
                self._to_keep[launch] = str(exc)
            return exc, ""
        if not why:
            _launched.add((device, launch))
        return None, why

    def _say(self, kernel: str, why: str) -> None:
        """It runs in this process first. :class:`IsolationError` where that must not be."""
        if self.mode is Isolate.ALWAYS:
            text = f"its first launch can't be made in a process of its own: {why} (isolate=always)"
            raise IsolationError(f"kernel {kernel}: {text}")
        note = f"choice {self.choice}: kernel {kernel} ran first in this process: {why}"
        if note not in self.notes:
            self.notes.append(note)


class _Watching(threading.local):
    def __init__(self) -> None:
        self.runs: list[ImplementationRuns] = []


_watching = _Watching()


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """While a decision is timed, nothing of those that it is made for lies between the launches of this thread."""
    runs = list(_watching.runs)
    for one in runs:
        one.launches.end()
    try:
        yield
    finally:
        for one in runs:
            one.launches.begin()


def like(recording: Recording) -> tuple[object, ...]:
    """Equal for launches of one binary whose sizes, grids and integers have the same number of binary digits, over
    storages that its arguments share in the same way. What floats are makes no difference."""
    (launch,), views = recording.launches, recording.views
    found: list[object] = [recording.binary_of(launch).sha256, *(n.bit_length() for n in launch.grid)]
    for param in launch.params:
        if param.view is not None:
            storage = views[param.view].storage
            found.append((storage, recording.storages[storage].nbytes.bit_length()))
        elif isinstance(param.value, int):
            found.append((param.value < 0, param.value.bit_length()))
        elif not isinstance(param.value, float):
            found.append(param.value)
    return tuple(found)


def named_fault(kernel: str, fault: LaunchFault) -> LaunchFault:
    """The same, with the kernel's name."""
    before = "an earlier run found that " if fault.remembered else ""
    after = " (KERNTUNE_TUNE=force tries it again)" if fault.remembered else ""
    found = LaunchFault(f"kernel {kernel}: {before}{fault}{after}")
    found.remembered, found.passing = fault.remembered, fault.passing
    return found


def _launch_again_if_late(launch: Callable[[], str]) -> str:
    """A machine may be busy: only what doesn't end twice doesn't end."""
    try:
        return launch()
    except LaunchTimeout:
        return launch()


def _same(last: tuple[Any, Sequence[Any], Mapping[str, Any]] | None, now: tuple[Any, Any, Any]) -> bool:
    """Whether a launch is made again with the very same objects, as benchmarks do: that has to be quick."""
    if last is None or last[0] is not now[0] or len(last[1]) != len(now[1]) or last[2].keys() != now[2].keys():
        return False
    words = now[2]
    same = all(a is b for a, b in zip(last[1], now[1], strict=True))
    return same and all(v is words[k] for k, v in last[2].items())
