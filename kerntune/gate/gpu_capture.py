"""What the capture of a call asks for on the GPU where the call launches, and what a session keeps for that GPU.

A capture asks for its side of the device's lock, and for the choices that the case's baseline has. A session keeps
processes for replays and for first launches, and numbers its decisions.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kerntune.base.case_result import CaseId
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.policy import Update
from kerntune.capture import Capture, Pending, Site, current
from kerntune.capture.inductor.baseline_choices import BaselineChoices, InductorChoices
from kerntune.compiling.compiler import Compiled, Compiler
from kerntune.errors import StoreError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Argument, TimeBaseline, fingerprint_of
from kerntune.gate.call import Call, Settings
from kerntune.gate.call_capture import winner_first
from kerntune.gate.case_identity import Renames, tensor_leaves
from kerntune.gate.stores import Stores
from kerntune.gpu.base import Backend, Gpu
from kerntune.gpu.cuda import CudaGpu
from kerntune.gpu.host_gpus import gpu_name
from kerntune.timing.worker.pool import LocalPairs, Pairs, WorkerPool
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.choices.choice_place import ChoicePlace, forget_prepared
from kerntune.tuning.first_launches import before_captured_launch
from kerntune.tuning.isolation import Isolate, Isolation
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.stored_winners import Winners


class GpuRun(NamedTuple):
    """What the calls of a run on GPUs share. ``watch`` gets each GPU on which one launches; ``next_decision`` numbers
    their decisions, sharing the run's error."""

    stores: Stores
    settings: Settings
    cache: WinnerCache
    gpus: MeasuredGpus
    watch: Callable[[Gpu], None]
    next_decision: Callable[[], int]

    def winners(self, call: Call, gpu: Gpu) -> Winners:
        """Winners of earlier tuning, for a call's launches on a GPU."""
        return Winners(self.cache, self.settings.tune, gpu, call.options.verification.lax)

    def isolation(self, call: Call, backend: Backend) -> Isolation:
        """Where a call's configs are launched first."""
        return self.gpus.of(backend).isolation(call.options.isolate)

    def baseline(self, call: Call, arguments: tuple[Argument, ...], backend: Backend) -> TimeBaseline | None:
        """A case's baseline, as far as it is known before the call is captured."""
        stores, update = self.stores, self.settings.update
        return known_baseline(stores.reference, backend.spec, call.case, arguments, update, stores.renames)

    def choice_place(
        self,
        call: Call,
        arguments: tuple[Argument, ...],
        here: Backend,
        apart: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> ChoicePlace:
        """Where choices are decided that a call meets; ``apart`` as that of the place."""

        def stored() -> Mapping[str, str]:
            baseline = self.baseline(call, arguments, here)
            return {} if baseline is None else baseline.recording.choices

        verify = call.policy.verify or None, call.policy.verify_ignore
        return ChoicePlace(here, self.cache, self.settings.tune, apart, *verify, stored)


class GpuCapture:
    """One call's capture, on the GPU where the call launches: that is known once it does, and ``backend`` until
    then."""

    def __init__(
        self, run: GpuRun, call: Call, arguments: tuple[Argument, ...], share: CaptureShare, backend: Backend
    ) -> None:
        self._run, self._call, self._arguments, self._share = run, call, arguments, share
        self.backend = backend

    def capture(self, compiler: Compiler) -> Capture:
        """Inductor's choices follow those of the case's baseline."""
        call = self._call
        made = Capture(
            self.backend,
            compiler,
            call.candidates,
            prefer=self.prefer,
            before_launch=self.before_launch,
            on_device=self.move,
            values=call.values,
        )
        made.compiled.choices = InductorChoices(
            lambda: choices_of(self._run.baseline(call, self._arguments, self.backend)),
            recorded=self._run.settings.update in (Update.IMPROVED, Update.REGRESSED),
        )
        return made

    def call(self) -> Call:
        """The call. Its reference may tune kernels, for which the device is needed alone: what the capture holds of it
        is let go of meanwhile."""
        reference = self._call.reference
        return self._call if reference is None else replace(self._call, reference=lambda: self._beside(reference))

    def _beside(self, reference: Callable[[], Any]) -> Any:
        gpu = self._gpu()
        with self._share.given_up(gpu), gpu.lock_suspendable():
            return reference()

    def move(self, backend: Backend) -> None:
        """Go on there."""
        self.backend = backend
        self._share.move(self._gpu())
        self._run.watch(self._gpu())

    @contextmanager
    def apart(self) -> Iterator[None]:
        """While a choice is decided that the call has met: the device is held alone, and nothing is recorded."""
        capture = current()
        assert capture is not None
        with self._share.given_up(self._gpu()), capture.suspended():
            try:
                yield
            finally:
                forget_prepared()

    def prefer(self, site: Site) -> Sequence[int]:
        """The order of a site's candidates."""
        isolation = self._run.isolation(self._call, self.backend)
        return winner_first(self._run.winners(self._call, self._gpu()), isolation.begin)(site)

    def before_launch(self, capture: Capture, pending: Pending, compiled: Compiled) -> None:
        """Also where nothing is launched elsewhere, for what has faulted is remembered."""
        trials = Trials(self._run.winners(self._call, self._gpu()))
        before_captured_launch(self._run.isolation(self._call, self.backend), trials, capture, pending, compiled)

    def _gpu(self) -> Gpu:
        assert self.backend.gpu is not None
        return self.backend.gpu


CALL_FACTOR = 2
"""Bytes that a captured call may need for each byte of its tensors: its results, and copies of what it overwrites."""


def call_bytes(backend: Backend, tree: Any) -> int:
    """Bytes of the storages of the tensors in a call's arguments, each once."""
    tensors, address = tensor_leaves(backend, tree), backend.tensors.storage_address
    return sum({address(t): int(t.untyped_storage().nbytes()) for t in tensors}.values())


class CaptureShare:
    """Held while a call is captured. The GPU is the call's only once it launches: :meth:`move` lets go of the one that
    was expected first, since who holds one and waits for another can be waited for by its holder."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._stack = ExitStack()

    def __enter__(self) -> CaptureShare:
        return self

    def move(self, gpu: Gpu) -> None:
        """Share this GPU from now on; :class:`~kerntune.errors.MeasurementError` if others measure there for too
        long."""
        self._stack.close()
        fits = gpu.free_bytes() >= CALL_FACTOR * self._nbytes
        self._stack.enter_context(gpu.lock_shared() if fits else gpu.lock())

    @contextmanager
    def given_up(self, gpu: Gpu) -> Iterator[None]:
        """Let go of this GPU meanwhile, once what the call has enqueued is done; then share it again. An interrupt
        isn't held up by those that measure there: nothing more of the call runs."""
        gpu.synchronize()
        self._stack.close()
        try:
            yield
        except Exception:  # the call may catch it, and go on
            self.move(gpu)
            raise
        self.move(gpu)

    def __exit__(self, *exc: object) -> None:
        self._stack.close()


def known_baseline(
    store: BaselineStore,
    device: DeviceSpec,
    case: CaseId,
    arguments: tuple[Argument, ...],
    update: Update,
    renames: Renames | None = None,
) -> TimeBaseline | None:
    """The case's baseline on ``device``, or what may be its baseline under an old name, before the call is captured;
    None where there is none, where it can't be read (the case's check says so), and where everything is recorded
    anew."""
    layouts = {arguments} if arguments else store.known_arguments(device.target, case)
    if update is Update.ALL or len(layouts) != 1:
        return None
    fingerprint = fingerprint_of(layouts.pop())
    try:
        baseline = store.time(device, case, fingerprint)
    except StoreError:
        return None
    if baseline is None and renames is not None:
        return renames.timed_before(case, fingerprint, device)
    return baseline


def choices_of(baseline: TimeBaseline | None) -> BaselineChoices:
    """The configs of a baseline's launches, and the times by which its kernels were made."""
    if baseline is None:
        return BaselineChoices()
    configs: dict[tuple[str, str], list[Config]] = {}
    for launch in baseline.recording.launches:
        if launch.config is not None:
            configs.setdefault((launch.kernel, launch.source), []).append(launch.config)
    times = baseline.inductor_times
    return BaselineChoices(configs, {} if times is msgspec.UNSET else times)


def pairs_for(gpu: Gpu) -> Pairs:
    """Fresh processes on a real device; a scripted one answers itself."""
    return WorkerPool(gpu.ordinal) if isinstance(gpu, CudaGpu) else LocalPairs(gpu)


@dataclass
class MeasuredGpu:
    """One GPU of a session. Processes start when they are needed."""

    gpu: Gpu
    pairs: Pairs
    _isolations: dict[Isolate, Isolation] = field(default_factory=dict)

    def isolation(self, mode: Isolate) -> Isolation:
        """Where configs run first; one process for the whole run."""
        if mode not in self._isolations:
            self._isolations[mode] = Isolation(self.gpu, mode)
        return self._isolations[mode]

    def close(self) -> None:
        """End all processes."""
        self.pairs.close()
        for isolation in self._isolations.values():
            isolation.close()


class MeasuredGpus:
    """Those of a session, by number."""

    def __init__(self) -> None:
        self._known: dict[int, MeasuredGpu] = {}

    def of(self, backend: Backend) -> MeasuredGpu:
        """The GPU that a backend runs on."""
        assert backend.gpu is not None
        number = backend.ordinal
        if number not in self._known:
            self._known[number] = MeasuredGpu(backend.gpu, pairs_for(backend.gpu))
        return self._known[number]

    def close(self) -> None:
        """End all processes."""
        for one in self._known.values():
            one.close()


def naming(gpu: Gpu, progress: Callable[[str], None]) -> Callable[[str], None]:
    """Progress that says on which of several GPUs."""
    name = gpu_name(gpu.spec)
    return lambda text: progress(f"{text} on {name}")


def decision_numbers(index: int, count: int, claims: Path | None) -> Iterator[int]:
    """The numbers of a process's decisions, from 1. Processes that stand in for others that died count on in the same
    residues as those that live, and leave out what another has claimed by a file of that name."""
    for number in itertools.count(index % count + 1, count):
        if claims is not None:
            try:
                os.close(os.open(claims / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                continue
            except OSError:  # a worker on another host, which doesn't see the folder
                claims = None
        yield number
