"""What a call of any of Triton's autotuners does under kerntune: launch the winner, which is found first if need be."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kerntune import capture as captures
from kerntune.base.policy import TuneMode
from kerntune.capture import Capture, Site
from kerntune.errors import CacheMissError, MeasurementError, TuningError
from kerntune.gpu.base import Gpu
from kerntune.gpu.probe import captures_graph
from kerntune.kernels import compat
from kerntune.kernels.dispatch import Ran
from kerntune.kernels.dispatch.observers import ObservedLaunch
from kerntune.kernels.source import is_kernel
from kerntune.tuning import context
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.deferred import go_on, late_of, leave
from kerntune.tuning.notify import naming_missing_gpu, tell, tell_failed, tell_unraced, timings_of, warn_of
from kerntune.tuning.observing import observed, watch_environment
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.stored_winners import Winners
from kerntune.tuning.tune_call import tune_call, unraced_call
from kerntune.tuning.tune_options import TuneOptions, options_of
from kerntune.tuning.tuning_log import log_config
from kerntune.tuning.tuning_result import Tuned
from kerntune.tuning.untuned import LAUNCHES_NOTHING, launches_nothing

_TUNING = threading.RLock()
"""One thread tunes at a time: a capture stands in for Triton's entry points, and the device measures one at a time."""


@naming_missing_gpu
def run_tuned(tuner: Any, args: Sequence[Any], kwargs: dict[str, Any], *, keep: bool, plain: Callable[..., Any]) -> Ran:
    """``tuner.run(*args, **kwargs)`` of any of Triton's autotuners, with this engine, the long way.

    ``keep`` reads and writes the cache on disk; ``plain`` is Triton's own ``run``, for where nothing can be measured.
    """
    recording = captures.current()
    if recording is not None:
        return Ran(recording.tuned_run(tuner, args, kwargs))
    watch_environment()
    call = _Call(tuner, args, kwargs, keep)
    config = call.known()
    if config is None:
        with _TUNING:
            config = call.known()
            if config is None:
                return Ran(call.tune(plain))
    if (late := late_of(tuner, call.key)) is None:
        return Ran(call.launch(config), config)
    if late.due and not kwargs.get("warmup"):
        config = call.try_late() or config
    result = call.launch(config)
    return Ran(result, None if late.due and late_of(tuner, call.key) is late else config)


@dataclass
class _Call:
    """A tuner that was called with these arguments; ``keep`` as in :func:`run_tuned`."""

    tuner: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]
    keep: bool

    def __post_init__(self) -> None:
        self.named = dict(zip(self.tuner.arg_names, self.args, strict=False))
        self.key = compat.autotuner_key(self.tuner, self.named, self.kwargs)

    @cached_property
    def options(self) -> TuneOptions:
        """How to tune, as of now; not asked where the winner is known."""
        return options_of(self.tuner, keep=self.keep)

    def known(self) -> Any:
        """The config that won before for such arguments, in this process."""
        return self.tuner.cache.get(self.key) if len(self.tuner.configs) > 1 else self.tuner.configs[0]

    def launch(self, config: Any) -> Any:
        """The one plain launch that the caller asked for."""
        tuner, words = self.tuner, config.all_kwargs()
        tuner.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**self.named, **self.kwargs, **words})

        seen = ObservedLaunch(tuner, self.key, config, self.args, self.kwargs)

        def run() -> Any:
            return observed(seen, lambda: tuner.fn.run(*self.args, **self.kwargs, **words))

        if not os.environ.get("KERNTUNE_DUMP"):
            return run()
        from kerntune.tuning.launch_dumps import dumping  # not loaded by programs that don't ask for it

        return dumping(tuner, self.key, config, self.args, self.kwargs, run)

    def tune(self, plain: Callable[..., Any]) -> Any:
        """Find the winner, in the cache or by a race, and launch with it."""
        if compat.interprets():
            return self._launch_interpreted()
        backend = context.this_gpu()
        if backend is None or backend.gpu is None or not is_kernel(self.tuner):
            return plain(self.tuner, *self.args, **self.kwargs)
        begin, options = time.perf_counter(), self.options
        winners = self._winners(backend.gpu)
        capture = Capture(backend, context.COMPILER, thread=threading.get_ident())
        site = self._site(capture)
        try:
            found = winners.find(site, unfinished=options.patience is not None)
        except CacheMissError:
            with capture.active():
                idle = launches_nothing(capture, site)
            if idle:
                return self.launch(site.originals[0])
            if captures_graph() or (tuned := unraced_call(capture, site)) is None:
                raise
            self._settle_unraced(site, tuned)
            return self._launch_first(site, tuned.winner, time.perf_counter() - begin)
        if found is None:
            _refuse_graph_capture(site.kernel)
            with backend.gpu.lock():
                found = winners.find(
                    site, unfinished=options.patience is not None
                )  # of a process that held the lock before
                winner = self._race(capture, site, winners) if found is None else found
            if found is None:
                return self._launch_first(site, winner, time.perf_counter() - begin)
        self._reuse(site, found, winners)
        tell(self.tuner, site, self.key, None)
        return self.launch(site.originals[found])

    def _site(self, capture: Capture) -> Site:
        """The call's site. Where the user's pruning leaves nothing, Triton's own error, as without us."""
        try:
            return capture.site_of(self.tuner, self.args, self.kwargs)
        except compat.autotuner_errors() as exc:
            raise exc.__cause__ or exc from None

    def _launch_first(self, site: Site, winner: int, seconds: float) -> Any:
        """Launch with a winner that was just found, in so many seconds."""
        tuner, late, config = self.tuner, late_of(self.tuner, self.key), site.originals[winner]
        tuner.bench_time = seconds
        if self.key not in tuner.cache:  # an empty grid: nothing was tuned, and the next call may have work
            return self.launch(config)
        tell(tuner, site, self.key, seconds, len(late.configs) if late else 0)
        words = {**self.named, **self.kwargs, **config.all_kwargs()}
        tuner.pre_hook(words, reset_only=True)  # as Triton's does after it has tuned
        return self.launch(config)

    def _launch_interpreted(self) -> Any:
        """Triton's interpreter has no times worth comparing, and needs no GPU: with the first config that the user's
        pruning leaves."""
        self.tuner.nargs = self.named
        try:
            first = compat.prune_configs(self.tuner, self.kwargs)[0]
        finally:
            self.tuner.nargs = None
        self.tuner.cache[self.key] = first
        self.tuner.pre_hook({**self.named, **self.kwargs, **first.all_kwargs()}, reset_only=True)
        return self.launch(first)

    def _winners(self, gpu: Gpu) -> Winners:
        mode = context.tune_mode() if self.keep else TuneMode.FORCE
        return Winners(WinnerCache(), mode, gpu, self.options.verification.lax)

    def _reuse(self, site: Site, index: int, winners: Winners) -> None:
        site.settle(index)
        stored = winners.stored(site)
        if stored is None:
            return
        log_config(site, "stored winner", index, time_ns=stored.time_ns)
        self.tuner.configs_timings = {site.originals[index]: [stored.time_ns / 1e6] * 3}
        late = [i for i, c in enumerate(site.candidates) if c.config in stored.untried]
        if late and winners.mode is not TuneMode.FROZEN:
            leave(self.tuner, self.key, site, index, late)

    def _race(self, capture: Capture, site: Site, winners: Winners) -> int:
        """Find a site's winner, tell its tuner, and keep it; its index. The call itself is still to be launched."""
        tuner = self.tuner
        try:
            tuned = tune_call(
                capture,
                site,
                self.options,
                incumbent=winners.incumbent(site),
                trials=Trials(winners) if self.keep else None,
            )
        except TuningError as exc:
            tell_failed(capture, site, exc.failures)
            raise
        tell_failed(capture, site, tuned.failures)
        if tuned.unraced:
            self._settle_unraced(site, tuned)
            return tuned.winner
        tuner.configs_timings = timings_of(site, tuned)
        tuner.left_out = {site.originals[i]: why for i, why in tuned.left_out.items()}
        late = tuned.stragglers.indices if tuned.stragglers else ()
        winner = tuned.winner
        if self.keep:
            standing = winners.keep(site, winner, tuned.times_ns[winner], untried=late)
            winner = standing if standing in tuned.times_ns else winner
        site.settle(winner)
        if late:
            leave(tuner, self.key, site, winner, late, tuned.stragglers)
        warn_of(site, tuned)
        return winner

    def _settle_unraced(self, site: Site, tuned: Tuned) -> None:
        """Go on with a config that was not raced, and say why; the next call of an empty grid may have work."""
        if tuned.unraced != LAUNCHES_NOTHING:
            site.settle(tuned.winner)
            tell_unraced(self.tuner, site, tuned)

    def try_late(self) -> Any:
        """The config to launch, if what was due for late ones could be done now: not while a CUDA graph is captured,
        nor while another thread tunes, nor where tuning is frozen."""
        frozen = self.keep and context.tune_mode() is TuneMode.FROZEN
        if frozen or captures_graph() or not _TUNING.acquire(blocking=False):
            return None
        try:
            backend = context.this_gpu()
            if backend is not None and backend.gpu is not None:
                go_on(
                    self.tuner,
                    self.key,
                    self.args,
                    self.kwargs,
                    backend=backend,
                    compiler=context.COMPILER,
                    winners=self._winners(backend.gpu),
                    options=self.options,
                )
        finally:
            _TUNING.release()
        return self.tuner.cache.get(self.key)


def _refuse_graph_capture(kernel: str) -> None:
    if captures_graph():
        raise MeasurementError(
            f"kernel {kernel} has no winner yet for these arguments, and tuning can't run while a CUDA graph is being "
            "captured; call it once before the capture"
        )
