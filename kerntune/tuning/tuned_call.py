"""Does one call of any of Triton's autotuners: the call launches the winner, which is found first if need be.

A winner is known to this process, or stored by an earlier run, or tuned now. In the warm-up of a CUDA graph the tuning
allocates outside of the graph's memory pool, and leaves nothing in it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from kerntune import capture as captures
from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.capture import Capture, Site
from kerntune.capture.entry_points import launching_tuned
from kerntune.capture.launch import site_of_given
from kerntune.errors import CacheMissError, MeasurementError, NoGpuError, TuningError, UsageError
from kerntune.gpu.base import Backend, Gpu
from kerntune.gpu.probe import captures_graph, current_thread_state, device_in_use, is_exporting
from kerntune.kernels.compat import torch_private, triton_compiler, tuners
from kerntune.kernels.dispatch import LaunchOutcome
from kerntune.kernels.dispatch.launch_path import ObservedLaunch
from kerntune.kernels.source import is_kernel, kernel_file
from kerntune.kernels.writes import content_use
from kerntune.tuning import context
from kerntune.tuning.admission import LAUNCHES_NOTHING, first_usable, launches_nothing
from kerntune.tuning.agreement import note_chosen, tuning_turn
from kerntune.tuning.cache import Winner, WinnerCache
from kerntune.tuning.cache.shared_store import with_store
from kerntune.tuning.choices.choice_place import current_place
from kerntune.tuning.context import launch_observed
from kerntune.tuning.many.shapes_file import note_call, noting
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.stored_winners import Winners, index_of
from kerntune.tuning.tune_call import late_of, leave_for_later, try_late_configs, tune_call, unraced_call
from kerntune.tuning.tune_options import ALL, TuneOptions, mode_of, options_of, watch_environment
from kerntune.tuning.tuning_result import (
    TuningResult,
    log_config,
    naming_missing_gpu,
    tell_failed,
    tell_nearest,
    tell_tuned,
    tell_unfit,
    tell_unraced,
    timings_of,
    warn_of,
)

STAYS = (TuneMode.FROZEN, TuneMode.NEAREST)
"""Modes in which no config is tried, late ones neither."""

TUNING_LOCK = threading.RLock()
"""One thread tunes at a time: a capture stands in for Triton's entry points, and the device measures one at a time."""


@naming_missing_gpu
def run_tuned(
    tuner: Any, args: Sequence[Any], kwargs: dict[str, Any], *, keep: bool, plain: Callable[..., Any]
) -> LaunchOutcome:
    """``tuner.run(*args, **kwargs)`` of any of Triton's autotuners, with this engine, the long way.

    ``keep`` reads and writes the cache on disk; ``plain`` is Triton's own ``run``, for where nothing can be measured.
    :class:`UsageError` where torch exports the function that calls, with fake tensors.
    """
    recording = captures.wait_while_suspended(tuner.base_fn.__name__)
    if recording is not None:
        return LaunchOutcome(recording.tuned_run(tuner, args, kwargs))
    if is_exporting():
        raise UsageError(
            f"kernel {tuner.base_fn.__name__} is launched on fake tensors: torch.export(strict=False) runs the "
            "function itself; launch it in a torch.library.triton_op through wrap_triton, or export with strict=True"
        )
    watch_environment()
    call = _Call(tuner, args, kwargs, keep)
    config = call.known()
    if config is None:
        tuned = outside_graph_pool(partial(_tune_in_turn, call, plain))
        if isinstance(tuned, LaunchOutcome):
            return tuned
        config = tuned
    if (late := late_of(tuner, call.key)) is None:
        return LaunchOutcome(call.launch(config), config)
    if late.due and not kwargs.get("warmup"):
        config = outside_graph_pool(call.try_late) or config
    result = call.launch(config)
    return LaunchOutcome(result, None if late.due and late_of(tuner, call.key) is late else config)


def _tune_in_turn(call: _Call, plain: Callable[..., Any]) -> Any:
    """What tuned and launched the call; or the config, if another thread has found it meanwhile."""
    with TUNING_LOCK:
        config = call.known()
        return LaunchOutcome(call.tune(plain)) if config is None else config


def site_and_winners(tuner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Site, Winners]:
    """A call's site, and where its winner is kept; nothing is launched. :class:`NoGpuError` without a GPU."""
    backend, gpu = _gpu_for(tuner.base_fn.__name__)
    call = _Call(tuner, args, kwargs, True)
    return call.site_in(context.open_capture(backend)), call.winners_on(gpu)


def _gpu_for(kernel: str) -> tuple[Backend, Gpu]:
    backend = context.this_gpu()
    if backend is None or backend.gpu is None:
        raise NoGpuError(f"kernel {kernel}: kerntune finds no GPU here to measure on")
    return backend, backend.gpu


def content_notes(site: Site, config: Config) -> tuple[str, ...]:
    """That a kernel's work depends on what its tensors hold, if it does: then times on made-up contents say little."""
    backend, index = context.this_gpu(), index_of(site, config)
    if backend is None or index is None:
        return ()
    capture = context.open_capture(backend)
    with capture.active():
        launch = capture.probe(site, index).specialized
    decided = content_use(context.COMPILER.compile(launch).ttir, launch.target)
    if not decided:
        return ()
    return (
        f"kernel {site.kernel} ({kernel_file(site.jit)}): what it loads decides {' and '.join(decided)}, and its "
        "tensors held random numbers and indices in range; if the winner matters, tune this key in the program itself",
    )


def tune_given(
    jit: Any, args: Sequence[Any], kwargs: dict[str, Any], configs: Sequence[Config], mode: TuneMode
) -> tuple[Site, Winner | None, bool]:
    """The site and winner among ``configs`` of a kernel that has no tuner, stored before or now, and whether it was
    tuned now; no winner where there is nothing to time. Nothing is launched on the call's own tensors."""
    backend, gpu = _gpu_for(jit.fn.__name__)
    options, capture = TuneOptions.now(patience=ALL), context.open_capture(backend)
    winners = Winners(with_store(WinnerCache()), mode, gpu, options.verification.lax)
    site = site_of_given(jit, args, kwargs, configs, triton_compiler.option_names(backend.spec.target))
    if winners.find(site) is not None:
        return site, winners.stored(site), False
    untuned = partial(first_usable, capture, site)
    with TUNING_LOCK, tuning_turn(winners, site, gpu, unfinished=False, untuned=untuned) as found:
        if found is not None:
            return site, winners.stored(site), False
        with gpu.lock():
            tuned = tune_call(capture, site, options, incumbent=winners.incumbent(site), trials=Trials(winners))
        if tuned.unraced:
            return site, None, False
        winners.keep(site, tuned.winner, tuned.times_ns[tuned.winner])
    warn_of(site, tuned)
    return site, Winners(WinnerCache(), TuneMode.AUTO, gpu, options.verification.lax).stored(site), True


@dataclass
class _Call:
    """A tuner that was called with these arguments; ``keep`` as in :func:`run_tuned`."""

    tuner: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]
    keep: bool

    def __post_init__(self) -> None:
        self.named = dict(zip(self.tuner.arg_names, self.args, strict=False))
        self.key = tuners.autotuner_key(self.tuner, self.named, self.kwargs)

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
            with launching_tuned():
                return launch_observed(seen, lambda: tuner.fn.run(*self.args, **self.kwargs, **words))

        if not os.environ.get("KERNTUNE_DUMP"):
            return run()

        from kerntune.tuning.launch_files import dumping  # not loaded by programs that don't ask for it

        return dumping(tuner, self.key, config, self.args, self.kwargs, run)

    def tune(self, plain: Callable[..., Any]) -> Any:
        """Find the winner, in the cache or by a race, and launch with it."""
        note_call(self.tuner, self.args, self.kwargs)
        if tuners.interprets():
            configs = tuners.prune_configs(self.tuner, self.args, self.kwargs)
            return self._launch_one_of(configs[:1])  # its times aren't worth comparing, and it needs no GPU
        backend = context.this_gpu()
        if backend is None or backend.gpu is None or not is_kernel(self.tuner):
            if noting():  # nothing may be tuned
                return self._launch_one_of(tuners.prune_configs(self.tuner, self.args, self.kwargs))
            return plain(self.tuner, *self.args, **self.kwargs)
        begin, options = time.perf_counter(), self.options
        winners = self.winners_on(backend.gpu)
        capture = context.open_capture(backend)
        site = self.site_in(capture)
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
        if found is None and (noting() or winners.mode is TuneMode.NEAREST):
            return self._launch_untuned(site, winners)
        if found is None:
            _refuse_graph_capture(site.kernel)
            unfinished, untuned = options.patience is not None, partial(first_usable, capture, site)
            with tuning_turn(winners, site, backend.gpu, unfinished=unfinished, untuned=untuned) as found:
                if found is None:
                    with backend.gpu.lock():
                        found = winners.arrived(site, unfinished, ask=False)  # of who held the lock before
                        winner = self._race(capture, site, winners) if found is None else found
            if found is None:
                return self._launch_first(site, winner, time.perf_counter() - begin)
        self._reuse(site, found, winners)
        tell_tuned(self.tuner, site, self.key, None)
        return self.launch(site.originals[found])

    def site_in(self, capture: Capture) -> Site:
        """The call's site. Where the user's pruning leaves nothing, Triton's own error, as without us."""
        try:
            return capture.site_of(self.tuner, self.args, self.kwargs)
        except tuners.autotuner_errors() as exc:
            raise exc.__cause__ or exc from None

    def _launch_first(self, site: Site, winner: int, seconds: float) -> Any:
        """Launch with a winner that was just found, in so many seconds."""
        tuner, late, config = self.tuner, late_of(self.tuner, self.key), site.originals[winner]
        tuner.bench_time = seconds
        if self.key not in tuner.cache:  # an empty grid: nothing was tuned, and the next call may have work
            return self.launch(config)
        tell_tuned(tuner, site, self.key, seconds, len(late.configs) if late else 0)
        return self._launch_reset(config)

    def _launch_reset(self, config: Any) -> Any:
        """Launch after what ``reset_to_zero`` and ``restore_value`` do, as Triton does after it has tuned."""
        words = {**self.named, **self.kwargs, **config.all_kwargs()}
        self.tuner.pre_hook(words, reset_only=True)
        return self.launch(config)

    def _launch_untuned(self, site: Site, winners: Winners) -> Any:
        """Launch with the nearest call's winner in that mode, else with the first config that can be; it stays."""
        near = winners.nearest(site) if winners.mode is TuneMode.NEAREST else None
        first = None if near is None else index_of(site, near.winner.config)
        if winners.mode is TuneMode.NEAREST:
            tell_nearest(site, self.key, near)
        order = sorted(range(len(site.originals)), key=lambda i: i != first)
        result = self._launch_one_of([site.originals[i] for i in order], near is not None)
        chosen = next(i for i in order if site.originals[i] is self.tuner.cache[self.key])
        note_chosen(winners.key(site), site.candidates[chosen].config)
        return result

    def _launch_one_of(self, configs: Sequence[Any], near: bool = False) -> Any:
        """Launch with the first of these that compiles and that the device takes, and keep it in this process. The
        last one's error if none can be. ``near``: the first is another call's winner, so its failure is said."""
        for config in configs:
            try:
                result = self._launch_reset(config)
            except tuners.launch_errors() as exc:
                if config is configs[-1]:
                    raise
                if near and config is configs[0]:
                    tell_unfit(self.tuner, config, exc)
                continue
            self.tuner.cache[self.key] = config
            return result
        raise AssertionError("a tuner has a config at least")

    def winners_on(self, gpu: Gpu) -> Winners:
        """Where its winner is kept, in the call's mode; while a gated test's choice is decided, in the gate's."""
        if self.keep and (place := current_place()) is not None:
            return Winners(place.cache, place.mode, gpu, self.options.verification.lax)
        mode = mode_of(self.tuner, keep=self.keep)
        if mode is TuneMode.FROZEN and noting():
            mode = TuneMode.AUTO  # what has no winner is what is noted
        cache = WinnerCache()
        return Winners(with_store(cache) if self.keep else cache, mode, gpu, self.options.verification.lax)

    def _reuse(self, site: Site, index: int, winners: Winners) -> None:
        site.settle(index)
        note_chosen(winners.key(site), site.candidates[index].config)
        stored = winners.stored(site)
        if stored is None:
            return
        log_config(site, "stored winner", index, time_ns=stored.time_ns)
        self.tuner.configs_timings = {site.originals[index]: [stored.time_ns / 1e6] * 3}
        late = [i for i, c in enumerate(site.candidates) if c.config in stored.untried]
        if late and winners.mode not in STAYS and not noting() and not winners.agrees:
            leave_for_later(self.tuner, self.key, site, index, late)

    def _race(self, capture: Capture, site: Site, winners: Winners) -> int:
        """Find a site's winner, tell its tuner, and keep it; its index. The call itself is still to be launched."""
        tuner, options = self.tuner, self.options
        trials = Trials(winners) if self.keep else None
        if self.keep and winners.settles(site):
            options = replace(options, patience=None)
        try:
            tuned = tune_call(capture, site, options, incumbent=winners.incumbent(site), trials=trials)
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
            winner = standing if winners.agrees or standing in tuned.times_ns else winner
            note_chosen(winners.key(site), site.candidates[winner].config)
        if trials is not None:
            trials.share(site)
        site.settle(winner)
        if late and not winners.agrees:
            leave_for_later(tuner, self.key, site, winner, late, tuned.stragglers)
        warn_of(site, tuned)
        return winner

    def _settle_unraced(self, site: Site, tuned: TuningResult) -> None:
        """Go on with a config that was not raced, and say why; the next call of an empty grid may have work."""
        if tuned.unraced != LAUNCHES_NOTHING:
            site.settle(tuned.winner)
            tell_unraced(self.tuner, site, tuned)

    def try_late(self) -> Any:
        """The config to launch, if what was due for late ones could be done now: not while a CUDA graph is captured,
        nor while another thread tunes, nor where tuning is frozen."""
        frozen = self.keep and mode_of(self.tuner) in STAYS
        if frozen or captures_graph() or not TUNING_LOCK.acquire(blocking=False):
            return None
        try:
            backend = context.this_gpu()
            if backend is not None and backend.gpu is not None:
                capture, winners = context.open_capture(backend), self.winners_on(backend.gpu)
                try_late_configs(self.tuner, self.key, self.args, self.kwargs, capture, winners, self.options)
        finally:
            TUNING_LOCK.release()
        return self.tuner.cache.get(self.key)


def _refuse_graph_capture(kernel: str) -> None:
    if captures_graph():
        raise MeasurementError(
            f"kernel {kernel} has no winner yet for these arguments, and tuning can't run while a CUDA graph is being "
            "captured; call it once before the capture"
        )


T = TypeVar("T")

_OUTSIDE = threading.local()
"""``active`` in a thread whose allocations are no graph's. Hooks tune in it, too: it holds the lock on tuning."""


def outside_graph_pool(work: Callable[[], T]) -> T:
    """What ``work`` returns. While ``mode="reduce-overhead"`` warms a CUDA graph up, torch gives this thread's
    allocations to the graph's private pool, where nothing of ours may stay: the work is done in another thread then, on
    the same device and stream."""
    device = None if hasattr(_OUTSIDE, "active") else device_in_use()
    if device is None or not torch_private.warms_up_for_graph(device):
        return work()
    state = current_thread_state()

    def run() -> T:
        _OUTSIDE.active = True
        with state():
            return work()

    with ThreadPoolExecutor(1, "kerntune-warm-up") as thread:
        return thread.submit(run).result()
