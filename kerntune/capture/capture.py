"""Records what a call launches, by standing in for Triton's entry points while the call runs."""

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kerntune.base.config import COMPILE_FIELDS, Config, by_text, configs_text
from kerntune.base.device import Target
from kerntune.capture.entry_points import EntryPoints, OneHolder, Suspension, name_of
from kerntune.capture.inductor.compiled_calls import CompiledCalls
from kerntune.capture.launch import Pending, Probe, RecordedChoices, bind, launch_device, probe_of, refuse_second_device
from kerntune.capture.memory_plan import Plan
from kerntune.capture.operators import CallOperators
from kerntune.capture.site import Candidate, Site, in_doubt, is_hopeless, site_of_given, site_of_tuner, spread
from kerntune.compiling.compiler import Compiled, Compiler
from kerntune.errors import (
    CaptureError,
    CompileError,
    ConfigError,
    EnvironmentFault,
    GridError,
    LaunchFault,
    LaunchTimeout,
    OutOfResourcesError,
    TrialError,
    TuningError,
    UsageError,
)
from kerntune.gpu.base import Backend
from kerntune.kernels import compat
from kerntune.kernels.source import kernel_file, kernel_name
from kerntune.kernels.specialize import Specialized, tensor_of

SeenLaunch = Callable[[Target], Probe]
"""What a launch would be for a target; raises what specializing raises."""


@dataclass(frozen=True)
class _Trying:
    """A candidate of ``site`` is launched: the launches of this thread are its. With ``any_fit`` also one that the
    device would refuse."""

    site: Site
    any_fit: bool = False


@dataclass(frozen=True)
class _Probing:
    """It is found out what would be launched: this thread launches nothing, and what it would is ``seen``."""

    seen: list[SeenLaunch] = field(default_factory=list)


class _Thread(threading.local):
    """What is done in a thread; None where the user's own launches are recorded as they come."""

    doing: _Trying | _Probing | None = None
    pauses: int = 0


@dataclass
class Capture:
    """One call's launches. Use :meth:`active` around the call, then :attr:`launches` and :attr:`plan`.

    ``prefer(site)`` gives the order in which candidates are tried for the captured run itself: the first that
    launches is used. ``given`` holds candidates for bare kernels by kernel name.
    """

    backend: Backend
    compiler: Compiler
    given: Mapping[str, tuple[Config, ...]] = field(default_factory=dict)
    prefer: Callable[[Site], Sequence[int]] = lambda site: range(len(site.candidates))
    thread: int | None = None
    """Only this thread's launches are captured (its ``threading.get_ident()``); all threads' if None."""

    on_device: Callable[[Backend], None] = lambda backend: None
    """Called before the first launch if that is on another GPU than ``backend``'s, with the one of that GPU."""

    before_launch: Callable[[Capture, Pending, Compiled], None] | None = None
    """Called where something runs, before a launch whose config was open. One for which it raises :class:`LaunchFault`
    is not launched, and the next candidate is tried."""

    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Where nothing runs, the tensors that hold what kernels compute, by kernel and argument."""

    launches: list[Pending] = field(default_factory=list)
    latest: Pending | None = None
    """The launch that was begun last, which may not have come to an end."""

    def __post_init__(self) -> None:
        self.plan = Plan(self.backend)
        self._thread = _Thread()
        self._lock = threading.RLock()
        self.compiled = CompiledCalls(self.launches, self.records)
        self.operators = CallOperators(self.launches, self.records, self.backend.tensors.is_tensor)
        """What the call runs beside its launches, where it is watched."""

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
        entries = EntryPoints(self._on_launch, self._on_tuned, self.records_launch)
        try:
            if not _ACTIVE.take(entries):
                raise CaptureError("autotune(...) was called inside the function that another autotune(...) call runs")
            self._entries, _last = entries, weakref.ref(self)  # weak, for it holds users' tensors
            self._stand_in(instead_of=None)
            yield
        except KeyboardInterrupt:
            self.compiler.end()  # busy ones would take the processors from all that follows
            raise
        finally:
            self._stand_back(entries)

    def _stand_in(self, instead_of: Suspension | None) -> None:
        self._set_current(self)
        self._entries.replace(instead_of)

    def _stand_back(self, entries: EntryPoints) -> None:
        """Also after an interrupt, wherever it came."""
        if _ACTIVE.holder is entries:
            self._set_current(None)
        entries.restore()
        if (left := self._suspension) is not None and self._entries is entries:
            left.end()
            self._over(left)
        _ACTIVE.let_go(entries)

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
        begun = self._suspension = _suspension = Suspension(self.missed)
        begun.begin(instead_of=self._entries)
        self._set_current(None)
        _ACTIVE.let_go(self._entries)

    def _end_suspension(self) -> None:
        """Also one that an interrupt has kept from beginning."""
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
        return self.concerns_me() and not self._thread.pauses and self._suspension is None

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
        self._thread.pauses += 1
        try:
            yield
        finally:
            self._thread.pauses -= 1

    def tuned_run(self, tuner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """For tuners of our own, whose ``run`` isn't Triton's."""
        return self._on_tuned(tuner, args, kwargs)

    # launches

    def _on_launch(self, jit: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        doing = self._thread.doing
        if isinstance(doing, _Probing):
            doing.seen.append(lambda target: probe_of(self.backend, jit, args, kwargs, target))
            return None
        if kwargs.get("warmup"):
            return self._entries.run_jit(jit, *args, **kwargs)
        if doing is None and kernel_name(jit) in self.given:
            return self._on_given(jit, args, kwargs)
        with self._lock:
            self._settle_device(kernel_name(jit), {**dict(zip(jit.arg_names, args, strict=False)), **kwargs})
            return self._record(jit, args, kwargs, doing)

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

    def _record(self, jit: Any, args: Sequence[Any], kwargs: dict[str, Any], trying: _Trying | None) -> Any:
        pending = bind(self.backend, jit, args, kwargs, None if trying is None else trying.site)
        return self._run_recorded(pending, lambda: self._entries.run_jit(jit, *args, **kwargs), trying)

    def _run_recorded(self, pending: Pending, run: Callable[[], Any], trying: _Trying | None) -> Any:
        """Note a launch, and make it by ``run()``."""
        if self.backend.gpu is not None and 0 not in pending.grid:
            first = pending.specialized[self.backend.targets[0]]
            if isinstance(first, TrialError):
                raise first
            compiled = self.compiler.compile(first)
            self.plan.observe(compiled, first)
            if self.before_launch is not None and pending.site is not None:
                self.before_launch(self, pending, compiled)
        elif (
            trying is not None
            and not trying.any_fit
            and isinstance(launch := pending.specialized[self.backend.targets[0]], Specialized)
        ):
            self._refuse_misfit(self.compiler.compile(launch))
        self.latest = pending
        result = run()
        self.launches.append(pending)
        if pending.kernel in self.values:
            self._supply(pending, self.values[pending.kernel])
        return result

    def _supply(self, pending: Pending, values: Mapping[str, Any]) -> None:
        """Have a launch's arguments hold given values where nothing runs; :class:`UsageError` if they can't."""
        bound = next(x.bound for x in pending.specialized.values() if isinstance(x, Specialized))
        for argument, given in values.items():
            where = f"values of {pending.kernel}.{argument} ({kernel_file(pending.jit)})"
            tensor = tensor_of(bound.get(argument))
            if not self.backend.tensors.is_tensor(tensor):
                tensors = [name for name, x in bound.items() if self.backend.tensors.is_tensor(tensor_of(x))]
                raise UsageError(f"{where}: the kernel has no such tensor; it has {', '.join(tensors) or 'none'}")
            if self.backend.gpu is not None:
                continue
            try:
                self.backend.tensors.supply(tensor, given)
            except UsageError as exc:
                raise UsageError(f"{where} {exc}") from None

    def launch_other(self, probe: Callable[[Target], Probe], pending: Pending, run: Callable[[], Any]) -> Any:
        """Record a launch that reaches none of Triton's entry points: ``pending``, made by ``run()``. While it is only
        found out what would be launched, ``probe`` says so and nothing runs."""
        doing = self._thread.doing
        if isinstance(doing, _Probing):
            doing.seen.append(probe)
            return None
        with self._lock:
            bound = [x.bound for x in pending.specialized.values() if isinstance(x, Specialized)]
            self._settle_device(pending.kernel, bound[0] if bound else {})
            return self._run_recorded(pending, run, doing)

    def _refuse_misfit(self, compiled: Compiled) -> None:
        """Where nothing runs: a candidate that the device would refuse gives way to the next, as it would there."""
        need, have = compiled.binary.shared, self.backend.spec.shared_memory_per_block
        if need > have:
            raise OutOfResourcesError(f"needs {need} B shared memory a block, {self.backend.spec.name} has {have} B")

    # tuned launches

    def site_of(self, tuner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Site:
        """A tuner's call as a site: its candidates after pruning. Launches nothing."""
        return site_of_tuner(tuner, args, kwargs, self._options())

    def _on_tuned(self, tuner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        site = self.site_of(tuner, args, kwargs)
        if isinstance(self._thread.doing, _Probing) or kwargs.get("warmup") or not self.records_launch(tuner):
            return site.run(site.candidates[0].words())
        self._settle_device(site.kernel, site.arguments)
        return self.launch(site)

    def _on_given(self, jit: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        site = site_of_given(jit, args, kwargs, self.given[kernel_name(jit)], self._options())
        self._settle_device(site.kernel, site.arguments)
        return self.launch(site)

    def _options(self) -> Sequence[str]:
        """What configs may set of the compiler's options."""
        return compat.option_names(self.backend.targets[0])

    def launch(self, site: Site) -> Any:
        """Launch a site with the first preferred candidate that can be. :class:`TuningError` if none can;
        :class:`GridError` if that is so for the grid of each; :class:`EnvironmentFault` if no compiler can work."""
        failures: list[tuple[Config, str]] = []
        misfits, grids, faults = [], [], []
        for index in self._in_order(site):
            site.chosen = index
            try:
                return self._launch_candidate(site)
            except (CompileError, OutOfResourcesError, GridError, LaunchFault) as exc:
                if isinstance(exc, LaunchFault) and not exc.remembered:
                    site.faults[index] = exc
                if isinstance(exc, EnvironmentFault):
                    if self.backend.gpu is None:
                        raise  # the next candidate would be taken for a change of config
                    faults.append(exc)
                failures.append((site.candidates[index].config, str(exc)))
                misfits += [index] if isinstance(exc, OutOfResourcesError) else []
                grids += [exc] if isinstance(exc, GridError) else []
        if grids and len(grids) == len(failures):
            raise grids[0]
        if faults and len(faults) == len(failures):
            raise faults[0]
        if misfits and self.backend.gpu is None:
            site.chosen = misfits[0]  # nothing runs and none fits: the static gate says what it lacks
            return self._launch_candidate(site, any_fit=True)
        blame = ", so the call is to blame, and nothing was remembered" if site.faults else ""
        told = [f"  {configs_text(configs)}: {text}" for configs, text in by_text(failures)]
        raise TuningError("\n".join([f"kernel {site.kernel}: no candidate can be launched{blame}", *told]))

    def _in_order(self, site: Site) -> Iterator[int]:
        """The preferred order; others from all over the list once many have faulted; none once most have: then the call
        is to blame."""
        waiting, doubt = list(self.prefer(site)), False
        while waiting:
            yield waiting.pop(0)
            failed = len(site.faults), sum(isinstance(f, LaunchTimeout) for f in site.faults.values())
            if is_hopeless(*failed, len(site.candidates)):
                return
            if not doubt and in_doubt(*failed):
                waiting, doubt = spread(waiting), True

    def _launch_candidate(self, site: Site, any_fit: bool = False) -> Any:
        from triton.runtime.errors import OutOfResources

        candidate = site.candidates[site.chosen]
        if site.tuner is not None:
            site.tuner.best_config = site.originals[site.chosen]  # there is code that reads it after the launch
        try:
            with self._doing(_Trying(site, any_fit)):
                if candidate.hook is not None:
                    candidate.hook({**site.arguments, **candidate.words()})
                return site.run(candidate.words())
        except OutOfResources as exc:
            raise OutOfResourcesError(str(exc)) from exc

    @contextlib.contextmanager
    def _doing(self, what: _Trying | _Probing) -> Iterator[None]:
        outer, self._thread.doing = self._thread.doing, what
        try:
            yield
        finally:
            self._thread.doing = outer

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """Bare kernels that a marker gave candidates for run with their winners meanwhile."""
        from triton.runtime.jit import JITFunction

        sites = [p.site for p in self.launches if p.site is not None and p.site.tuner is None]
        winners = {s.kernel: s.candidates[s.chosen].config.all_kwargs() for s in sites}
        original = JITFunction.run

        def run(jit: Any, /, *args: Any, **kwargs: Any) -> Any:
            words = winners.get(kernel_name(jit))
            if words is None:
                return original(jit, *args, **kwargs)
            named = dict(zip([p.name for p in jit.params], args, strict=False))
            return original(jit, **{**named, **kwargs, **words})

        JITFunction.run = run
        try:
            yield
        finally:
            JITFunction.run = original

    def stage(self, site: Site, index: int, probe: Probe, compiled: Compiled) -> None:
        """Note a site's launch with candidate ``index``, ``compiled``, as :meth:`launch` does, but launch nothing.

        First content is what the candidate's hooks leave, which they do on a copy: the user's tensors stay as they are.
        """
        self._settle_device(site.kernel, site.arguments)
        site.chosen = index
        launch = probe.specialized
        hooked = site.writes_arguments or site.candidates[index].hook is not None
        if self.backend.gpu is not None and hooked:
            with self._undoing(site, [site.candidates[index]]), self.trying(site, index, launch.target):
                self.plan.observe(compiled, launch)
        elif self.backend.gpu is not None and compiled.access.follows:
            self.plan.look_ahead(compiled, launch)
        self.launches.append(Pending(launch.jit, {launch.target: launch}, probe.grid, site, ran=False))

    def probe(self, site: Site, index: int, target: Target | None = None) -> Probe:
        """What candidate ``index`` of a site would launch; nothing runs but its hook, whose writes are undone.

        For ``target``, else for the backend's first. Only inside :meth:`active`. Raises what specializing raises.
        """
        with self._undoing(site, [site.candidates[index]]), self.trying(site, index, target) as probe:
            return probe

    def probe_all(self, site: Site, among: Collection[int] | None = None) -> dict[int, Probe | Exception]:
        """:meth:`probe` of each candidate (each ``among`` these), or why it can't be launched. What hooks write is
        undone at the end. :class:`GridError` if no candidate's grid will do."""
        found: dict[int, Probe | Exception] = {}
        chosen = {i: c for i, c in enumerate(site.candidates) if among is None or i in among}
        with self._undoing(site, list(chosen.values())):
            for i in chosen:
                try:
                    with self.trying(site, i) as probe:
                        found[i] = probe
                except (TrialError, ConfigError, GridError) as exc:
                    found[i] = exc
        grids = [exc for exc in found.values() if isinstance(exc, GridError)]
        if grids and len(grids) == len(site.candidates):
            raise grids[0]
        return found

    @contextlib.contextmanager
    def trying(self, site: Site, index: int, target: Target | None = None) -> Iterator[Probe]:
        """What candidate ``index`` would launch, between the hooks that run before and after a launch with it: inside
        of it the call's own tensors hold what the first ones leave. Nothing is launched, and nothing undone. Raises
        what specializing raises."""
        candidate = site.candidates[index]
        try:
            probe = self._probe(site, candidate, target or self.backend.targets[0])
        except (TrialError, ConfigError, GridError) as exc:
            self._run_last(site, candidate, exc)
            raise
        try:
            yield probe
        finally:
            self._run_last(site, candidate, None)

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

    def _undoing(self, site: Site, candidates: Sequence[Candidate]) -> contextlib.AbstractContextManager[None]:
        hooked = site.writes_arguments or any(c.hook is not None for c in candidates)
        return self.plan.preserving(site.arguments.values() if hooked else ())

    def _probe(self, site: Site, candidate: Candidate, target: Target) -> Probe:
        return self._run_first(site, candidate)(target)

    def _run_first(self, site: Site, candidate: Candidate) -> SeenLaunch:
        """Run what runs before a launch with a candidate; what would be launched."""
        probing = _Probing()
        with self._doing(probing):
            if candidate.hook is not None:
                candidate.hook({**site.arguments, **candidate.words()})
            site.run(candidate.words(), trial=True)
        return probing.seen[-1]

    @staticmethod
    def _run_last(site: Site, candidate: Candidate, exception: Exception | None) -> None:
        if site.post_hook is not None:
            site.told |= set() if exception is None else {candidate.config}
            site.post_hook(candidate.words(), exception)

    @staticmethod
    def add_candidate(site: Site, like: int, config: Config) -> int:
        """One candidate more, with the hook of ``like``; its index."""
        site.candidates += (replace(site.candidates[like], config=config),)
        site.added += 1
        if site.originals:
            original = copy.copy(site.originals[like])
            original.kwargs = {**config.kwargs, **site.candidates[like].objects}
            for name in COMPILE_FIELDS:
                setattr(original, name, getattr(config, name))
            site.originals.append(original)
        return len(site.candidates) - 1


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
