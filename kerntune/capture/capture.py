"""Records what a call launches, by standing in for Triton's entry points while the call runs."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerntune.base.config import Config
from kerntune.capture.candidate_launches import CandidateLaunches, Probing, Trying
from kerntune.capture.entry_points import EntryPoints, OneHolder, Suspension, name_of
from kerntune.capture.inductor.compiled_calls import CompiledCalls
from kerntune.capture.launch import (
    MadeWith,
    Pending,
    Probe,
    RecordedChoices,
    Site,
    launch_device,
    probe_of,
    refuse_second_device,
    site_of_given,
    site_of_tuner,
)
from kerntune.capture.memory_plan import Plan
from kerntune.capture.operators import CallOperators
from kerntune.compiling.compiler import Compiled, Compiler
from kerntune.errors import CaptureError, KerntuneError, OutOfResourcesError, UsageError
from kerntune.gpu.base import Backend
from kerntune.kernels.compat import launch_environment, triton_compiler
from kerntune.kernels.source import kernel_file, kernel_name, named_arguments
from kerntune.kernels.specialize import Specialized, tensor_of


@dataclass
class Capture(CandidateLaunches):
    """One call's launches. Use :meth:`active` around the call, then :attr:`launches` and :attr:`plan`.

    ``given`` holds candidates for bare kernels by kernel name.
    """

    compiler: Compiler
    given: Mapping[str, tuple[Config, ...]] = field(default_factory=dict)
    thread: int | None = None
    """Only this thread's launches are captured (its ``threading.get_ident()``); all threads' if None."""

    on_device: Callable[[Backend], None] = lambda backend: None
    """Called before the first launch if that is on another GPU than ``backend``'s, with the one of that GPU."""

    before_launch: Callable[[Capture, Pending, Compiled], None] | None = None
    """Called where something runs, before a launch whose config was open. One for which it raises :class:`LaunchFault`
    is not launched, and the next candidate is tried."""

    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Where nothing runs, the tensors that hold what kernels compute, by kernel and argument."""

    root: Path = Path()
    """The project's folder, to which lines of code are named relative."""

    at_once: bool = False
    """Whether launches are compiled and their arguments read when they are made, as on a GPU: what changes behind them
    doesn't count, be it a kernel's text, what that names, settings or a descriptor."""

    latest: Pending | None = None
    """The launch that was begun last, which may not have come to an end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._lock = threading.RLock()
        self.compiled = CompiledCalls(self.launches, self.records, root=self.root)
        is_tensor, asks = self.backend.tensors.is_tensor, self.thread is not None
        self.operators = CallOperators(self.launches, self.records, is_tensor, self.root, asks=asks)
        """What the call runs beside its launches, where it is watched."""

        self._compiled_for: dict[Any, Compiled] = {}
        self.guesses: tuple[str, ...] = ()
        self.choices = RecordedChoices()
        """Which implementations the call's choices went to."""

        self._suspending, self._suspended_by = threading.Lock(), set[object]()
        self._suspension: Suspension | None = None
        self.missed: list[str] = []
        """Kernels that other threads have launched unrecorded while the capture was suspended."""

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Stand in for Triton's entry points, process-wide: backward passes run on other threads. At Ctrl-C what is
        compiled for the call ends."""
        global _last
        entries = EntryPoints(self._on_launch, self.tuned_run, self.records_launch)
        try:
            if not _ACTIVE.take(entries):
                where = "inside the function that another autotune(...) call runs"
                raise CaptureError(f"autotune(...) was called {where}")
            self._entries, _last = entries, weakref.ref(self)  # weak, for it holds users' tensors
            self._stand_in(instead_of=None)
            yield
        except KeyboardInterrupt:
            self.compiler.end()  # busy ones would take the processors from all that follows
            raise
        finally:
            # The entry points become Triton's own again, also after an interrupt, wherever it came.
            if _ACTIVE.holder is entries:
                self._set_current(None)
            entries.end()
            if (left := self._suspension) is not None and self._entries is entries:
                left.end()
                self._over(left)
            _ACTIVE.let_go(entries)

    def _stand_in(self, instead_of: Suspension | None) -> None:
        self._set_current(self)
        self._entries.begin(instead_of)

    @staticmethod
    def _set_current(capture: Capture | None) -> None:
        global _current
        _current = capture

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Inside of :meth:`active`: Triton's entry points are its own meanwhile. What this thread launches, and those
        that it starts, isn't the call's, and other captures may take place; launches of other threads wait."""
        user = object()
        try:
            with self._suspending:
                self._suspended_by.add(user)
                if self._suspension is None:
                    self._begin_suspension()
            yield
        finally:
            with self._suspending:
                self._suspended_by.discard(user)
                if not self._suspended_by:
                    self._end_suspension()

    def _begin_suspension(self) -> None:
        global _suspension
        self.operators.asks = True
        begun = self._suspension = _suspension = Suspension(self.missed)
        begun.begin(instead_of=self._entries)
        self._set_current(None)
        _ACTIVE.let_go(self._entries)

    def _end_suspension(self) -> None:
        """The suspension ends, also one that an interrupt has kept from beginning."""
        if (ended := self._suspension) is not None:
            _ACTIVE.wait_for(self._entries)
            self._stand_in(instead_of=ended)
            self._over(ended)

    def _over(self, ended: Suspension) -> None:
        global _suspension
        _suspension = None if _suspension is ended else _suspension
        self._suspension = None
        ended.release()

    def in_users_code(self) -> bool:
        """Whether the calling thread runs the captured function itself: nothing of ours, and nothing of Inductor's."""
        return self.records() and self._thread.doing is None

    @contextlib.contextmanager
    def compiled_functions(self) -> Iterator[None]:
        """Inside of :meth:`active`: capture what functions launch that ``torch.compile`` has compiled. They are
        compiled anew; :attr:`compiled` has what else they do, :attr:`guesses` what only a time could have decided."""
        with self.backend.tensors.compiling(self._install_inductor) as guesses:
            try:
                yield
            finally:
                self.guesses = tuple(guesses)

    def operators_watched(self) -> contextlib.AbstractContextManager[None]:
        """Inside of :meth:`active`: :attr:`operators` notes the operators of torch that the call runs."""
        return self.backend.tensors.watching(self.operators)

    def _install_inductor(self, stack: contextlib.ExitStack) -> None:
        from kerntune.capture.inductor.launches import install_inductor  # where functions are compiled

        install_inductor(stack, capture=self, calls=self.compiled)

    def concerns_me(self) -> bool:
        """Whether launches of the calling thread belong to this capture."""
        return self.thread in (None, threading.get_ident())

    def records(self) -> bool:
        """Whether what the calling thread launches now is the call's."""
        return self._suspension is None and not self._thread.pauses and (self.thread is None or self.concerns_me())

    def records_launch(self, kernel: Any) -> bool:
        """Whether a launch of a kernel, or of what has this name, is the call's; while another thread decides, it
        waits. Each answer is of one look at the suspension, for the next may begin at any moment."""
        while self.concerns_me() and not self._thread.pauses:
            if (suspension := self._suspension) is None:
                return True
            if not suspension.wait(name_of(kernel)):
                return False
        return False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What the calling thread launches meanwhile isn't the call's: it runs, and nothing of it is recorded."""
        self.operators.asks = True
        self._thread.pauses += 1
        try:
            yield
        finally:
            self._thread.pauses -= 1

    # launches

    def _on_launch(self, jit: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        doing = self._thread.doing
        if isinstance(doing, Probing):
            doing.seen.append(lambda: probe_of(self.backend, jit, args, kwargs))
            return None
        if kwargs.get("warmup"):
            return self._entries.run_jit(jit, *args, **kwargs)
        if doing is None and kernel_name(jit) in self.given:
            site = site_of_given(jit, args, kwargs, self.given[kernel_name(jit)], self._options())
            self._settle_device(site.kernel, site.arguments)
            return self.launch(site)
        with self._lock:
            self._settle_device(kernel_name(jit), named_arguments(jit, args, kwargs))
            probe = probe_of(self.backend, jit, args, kwargs)
            pending = Pending(jit, probe.specialized, probe.grid, None if doing is None else doing.site)
            return self._run_recorded(pending, lambda: self._entries.run_jit(jit, *args, **kwargs), doing)

    def _settle_device(self, kernel: str, arguments: Mapping[str, Any]) -> None:
        """Go on where the first launch is; :class:`CaptureError` if a later one is elsewhere, or mixes devices."""
        if self.backend.gpu is None:
            return
        device = launch_device(self.backend, kernel, arguments)
        if self.latest is not None:
            refuse_second_device(kernel, device, self.latest.kernel, self.backend.ordinal)
        elif device != self.backend.ordinal:
            self.backend = self.backend.on(device)
            self.plan = Plan(self.backend)
            self.on_device(self.backend)

    def _run_recorded(self, pending: Pending, run: Callable[[], Any], trying: Trying | None) -> Any:
        if self.backend.gpu is not None and 0 not in pending.grid:
            compiled = self.compiler.compile(pending.specialized)
            self.plan.observe(compiled, pending.specialized)
            if self.before_launch is not None and pending.site is not None:
                self.before_launch(self, pending, compiled)
        elif trying is not None and not trying.any_fit:
            self._refuse_misfit(self.compiler.compile(pending.specialized))
        if self.at_once:
            pending.made = self._made(pending.specialized)
        self.latest = pending
        result = run()
        self.launches.append(pending)
        if pending.kernel in self.values:
            self._supply(pending, self.values[pending.kernel])
        return result

    def _made(self, launch: Specialized) -> MadeWith | KerntuneError:
        """What is launched; or why that isn't known, for users' code may go on without the launch."""
        try:
            compiled = self._compiled_as_triton_does(launch)
            return MadeWith(compiled, self.plan.params_of(launch, compiled))
        except KerntuneError as exc:
            return exc

    def _compiled_as_triton_does(self, launch: Specialized) -> Compiled:
        """A kernel is compiled once for constants that are equal, as 1, 1.0 and True are, and 0.0 and -0.0, and isn't
        launched again once a global that it names has changed."""
        key = launch.cached_by()
        try:
            found = self._compiled_for.get(key)
        except TypeError:  # a constant has no hash
            return self.compiler.compile(launch)
        if found is None:
            found = self._compiled_for[key] = self.compiler.compile(launch)
        elif not launch_environment.globals_kept(launch.jit):
            why = "a global that it names has changed since it was compiled: Triton refuses to launch it"
            raise CaptureError(f"kernel {launch.name}: {why}")
        return found

    def _supply(self, pending: Pending, values: Mapping[str, Any]) -> None:
        """Have a launch's arguments hold given values where nothing runs; :class:`UsageError` if they can't."""
        bound = pending.specialized.bound
        for argument, given in values.items():
            where = f"values of {pending.kernel}.{argument} ({kernel_file(pending.jit)})"
            tensor = tensor_of(bound.get(argument))
            if not self.backend.tensors.is_tensor(tensor):
                tensors = [name for name, x in bound.items() if self.backend.tensors.is_tensor(tensor_of(x))]
                names = ", ".join(tensors) or "none"
                raise UsageError(f"{where}: the kernel has no such tensor; it has {names}")
            if self.backend.gpu is not None:
                continue
            try:
                self.backend.tensors.supply(tensor, given)
            except UsageError as exc:
                raise UsageError(f"{where} {exc}") from None

    def launch_other(self, probe: Callable[[], Probe], pending: Pending, run: Callable[[], Any]) -> Any:
        """Record a launch that reaches none of Triton's entry points: ``pending``, made by ``run()``. While it is only
        found out what would be launched, ``probe`` says so and nothing runs."""
        doing = self._thread.doing
        if isinstance(doing, Probing):
            doing.seen.append(probe)
            return None
        with self._lock:
            self._settle_device(pending.kernel, pending.specialized.bound)
            return self._run_recorded(pending, run, doing)

    def _refuse_misfit(self, compiled: Compiled) -> None:
        """Where nothing runs: a candidate that the device would refuse gives way to the next, as it would there."""
        need, have = compiled.binary.shared, self.backend.spec.shared_memory_per_block
        if need > have:
            device = self.backend.spec.name
            raise OutOfResourcesError(f"needs {need} B shared memory a block, {device} has {have} B")

    # tuned launches

    def site_of(self, tuner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Site:
        """A tuner's call as a site: its candidates after pruning. Launches nothing."""
        return site_of_tuner(tuner, args, kwargs, self._options())

    def tuned_run(self, tuner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A tuner's call; those of our own tuners, whose ``run`` isn't Triton's, come here by themselves."""
        site = self.site_of(tuner, args, kwargs)
        if isinstance(self._thread.doing, Probing) or kwargs.get("warmup") or not self.records_launch(tuner):
            return site.run(site.candidates[0].words())
        self._settle_device(site.kernel, site.arguments)
        return self.launch(site)

    def _options(self) -> Sequence[str]:
        return triton_compiler.option_names(self.backend.spec.target)

    def stage(self, site: Site, index: int, probe: Probe, compiled: Compiled) -> None:
        """Note a site's launch with candidate ``index``, ``compiled``, as :meth:`launch` does, but launch nothing.

        First content is what the candidate's hooks leave, which they do on a copy: the user's tensors stay as they are.
        """
        self._settle_device(site.kernel, site.arguments)
        site.chosen = index
        launch = probe.specialized
        hooked = site.writes_arguments or site.candidates[index].hook is not None
        if self.backend.gpu is not None and hooked:
            with self._undoing(site, [site.candidates[index]]), self.trying(site, index):
                self.plan.observe(compiled, launch)
        elif self.backend.gpu is not None and compiled.access.follows:
            self.plan.look_ahead(compiled, launch)
        self.launches.append(Pending(launch.jit, launch, probe.grid, site, ran=False))

    def tell_failed(self, site: Site, failed: Mapping[Config, Exception]) -> None:
        """Call the user's hooks as ``triton.autotune`` does for configs that can't be launched: those that run before a
        launch, then ``post_hook`` with the exception. What they write is undone. No hook is called for
        configs that aren't the user's."""
        chosen = [c for c in site.listed if c.config in failed.keys() - site.told]
        if site.post_hook is None or not chosen:
            return
        with self.active() if current() is None else contextlib.nullcontext(), self._undoing(site, chosen):
            for candidate in chosen:
                self._run_first(site, candidate)
                self._run_last(site, candidate, failed[candidate.config])


_ACTIVE = OneHolder()
_current: Capture | None = None
_last: weakref.ref[Capture] | None = None
_suspension: Suspension | None = None


def current() -> Capture | None:
    """The capture that the calling thread's launches belong to, if any."""
    capture = _current
    return capture if capture is not None and capture.concerns_me() else None


def wait_while_suspended(name: str) -> Capture | None:
    """Where another thread of the captured function decides a choice, wait until it has; ``name`` is what is about to
    be called. A call of ours that doesn't come to Triton's entry points, or only in the end, asks this first.

    Returns what :func:`current` would then; asked later, that may say None, for the next decision has begun."""
    while (found := current()) is None and (suspension := _suspension) is not None:  # which may end at any moment
        if not suspension.wait(name):
            break
    return current() if found is None else found


def last_capture() -> weakref.ref[Capture] | None:
    """The capture that was active last in this process, or is; while an error is handled, its frames keep it alive."""
    return _last
