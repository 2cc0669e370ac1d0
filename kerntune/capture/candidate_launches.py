"""Launches a site with one of its candidates, or finds out what a candidate would launch.

Where nothing is launched, what the candidate's hooks write is undone.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kerntune.base.changed_items import changed_items
from kerntune.base.config import COMPILE_FIELDS, Config, by_text, configs_text
from kerntune.capture.launch import Candidate, Pending, Probe, Site, in_doubt, is_hopeless, spread
from kerntune.capture.memory_plan import Plan
from kerntune.errors import (
    CompileError,
    ConfigError,
    EnvironmentFault,
    GridError,
    LaunchFault,
    LaunchTimeout,
    OutOfResourcesError,
    TrialError,
    TuningError,
)
from kerntune.gpu.base import Backend
from kerntune.kernels.source import kernel_name

SeenLaunch = Callable[[], Probe]
"""What a launch would be; raises what specializing raises."""


@dataclass(frozen=True)
class Trying:
    """This thread launches a candidate of ``site``. With ``any_fit`` the device may be one that would refuse it."""

    site: Site
    any_fit: bool = False


@dataclass(frozen=True)
class Probing:
    """This thread launches nothing. What it would launch is noted in ``seen``."""

    seen: list[SeenLaunch] = field(default_factory=list)


class ThreadState(threading.local):
    """What a capture does in the calling thread."""

    doing: Trying | Probing | None = None
    """None where the user's own launches are recorded as they come."""

    pauses: int = 0
    """How many users have paused the recording in this thread."""


@dataclass
class CandidateLaunches:
    """The part of a capture that launches a site with one of its candidates, or finds out what that would launch."""

    backend: Backend
    prefer: Callable[[Site], Sequence[int]] = field(default=lambda site: range(len(site.candidates)), kw_only=True)
    """The order in which candidates are tried for the captured run itself: the first that launches is used."""

    launches: list[Pending] = field(default_factory=list, kw_only=True)

    def __post_init__(self) -> None:
        self.plan = Plan(self.backend)
        self._thread = ThreadState()

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
            with self._doing(Trying(site, any_fit)):
                if candidate.hook is not None:
                    candidate.hook({**site.arguments, **candidate.words()})
                return site.run(candidate.words())
        except OutOfResources as exc:
            raise OutOfResourcesError(str(exc)) from exc

    def _doing(self, what: Trying | Probing) -> contextlib.AbstractContextManager[None]:
        return changed_items(vars(self._thread), {"doing": what})

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

    def probe(self, site: Site, index: int) -> Probe:
        """What candidate ``index`` of a site would launch; nothing runs but its hook, whose writes are undone.

        Only inside :meth:`active`. Raises what specializing raises.
        """
        with self._undoing(site, [site.candidates[index]]), self.trying(site, index) as probe:
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
    def trying(self, site: Site, index: int) -> Iterator[Probe]:
        """What candidate ``index`` would launch, between the hooks that run before and after a launch with it: inside
        of it the call's own tensors hold what the first ones leave. Nothing is launched, and nothing undone. Raises
        what specializing raises."""
        candidate = site.candidates[index]
        try:
            probe = self._run_first(site, candidate)()
        except (TrialError, ConfigError, GridError) as exc:
            self._run_last(site, candidate, exc)
            raise
        try:
            yield probe
        finally:
            self._run_last(site, candidate, None)

    def _undoing(self, site: Site, candidates: Sequence[Candidate]) -> contextlib.AbstractContextManager[None]:
        hooked = site.writes_arguments or any(c.hook is not None for c in candidates)
        return self.plan.preserving(site.arguments.values() if hooked else ())

    def _run_first(self, site: Site, candidate: Candidate) -> SeenLaunch:
        probing = Probing()
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
