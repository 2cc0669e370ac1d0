"""Tunes the one open launch of a call that has not run yet: the user's tensors are read, and stay as they are.

Configs that a first call did not wait for are compiled meanwhile, and a later call tries them.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kerntune.base.config import Config
from kerntune.base.failed_candidates import FailedTrial
from kerntune.base.warn import warn
from kerntune.capture import Capture, Site
from kerntune.capture.recorder import Recorded, record
from kerntune.compiling.compiler import Compiled
from kerntune.errors import CaptureError, MeasurementError, TuningError
from kerntune.gpu.base import Gpu
from kerntune.gpu.program import Loader
from kerntune.kernels.compat import launcher
from kerntune.kernels.dispatch import compile_front
from kerntune.kernels.specialize import Specialized
from kerntune.tuning.admission import LAUNCHES_NOTHING, all_empty, unraced
from kerntune.tuning.agreement import note_chosen
from kerntune.tuning.candidates import Batch, CandidatePool, pool_of
from kerntune.tuning.isolation import KEPT_ISOLATION
from kerntune.tuning.stored_trials import KnownTrials, Trials
from kerntune.tuning.stored_winners import Winners
from kerntune.tuning.tune_options import DEFAULTS, QUICK_SWITCHES, TuneOptions
from kerntune.tuning.tuner import tune
from kerntune.tuning.tuning_result import (
    TuningResult,
    merged_timings,
    nothing_left,
    tell_failed,
    tell_tuned,
    timings_of,
    warn_of,
)
from kerntune.tuning.verification import TOLERANCE


def tune_call(
    capture: Capture,
    site: Site,
    options: TuneOptions = DEFAULTS,
    *,
    incumbent: int | None = None,
    trials: Trials | None = None,
) -> TuningResult:
    """The winner of a site that has not been launched; nothing is launched on the user's tensors.

    Call inside the GPU's lock, outside ``capture.active()``. A call whose memory is too large for a second copy is
    tuned in its own memory, from which the first content moves to the host meanwhile. A call that launches nothing, or
    changes what can't be put back, is not timed: the outcome says why (:attr:`TuningResult.unraced`).
    :class:`TuningError` as :func:`kerntune.tuning.tuner.tune`.
    """
    known = trials is not None and trials.any(site)
    with _loading(capture) as loader, KEPT_ISOLATION.lent(_gpu_of(capture), options.isolate) as isolation:
        if not known:
            isolation.begin()  # before compiling processes start: each step of this one waits for its turn then
        capture.compiler.warm(1 if known else len(site.candidates))
        stored = trials.at(site) if trials is not None else None
        pool = pool_of(capture, site, stored)
        with contextlib.closing(pool):
            if all_empty(pool):
                return unraced(capture, pool, incumbent, LAUNCHES_NOTHING)
            pool.begin(next(pool.stages()))
            with _launch_prepared(capture, pool) as prepare:
                if pool.to_compile():
                    _prepare_verifying(capture, site, lambda: pool.has_results)
                return _tuned(capture, pool, loader, options, ahead=prepare, incumbent=incumbent, isolation=isolation)


def settle_call(
    capture: Capture,
    site: Site,
    winner: int,
    late: Collection[int],
    options: TuneOptions,
    *,
    trials: Trials | None,
) -> TuningResult | None:
    """As :func:`tune_call`, of the ``winner`` of an earlier one and the candidates that came too ``late`` for it: a few
    milliseconds if an estimate of each shows that it is much slower.

    None, and nothing was done, if something isn't compiled for arguments like this call's (another alignment, say), or
    if the call launches nothing. :class:`MeasurementError` if what it writes can't be put back."""
    stored = trials.at(site) if trials is not None else None
    with _loading(capture) as loader, KEPT_ISOLATION.lent(_gpu_of(capture), options.isolate) as isolation:
        pool = pool_of(capture, site, stored, among={winner, *late})
        pool.known = KnownTrials(bad=pool.known.bad)
        if pool.to_compile() or any(0 in probe.grid for probe in pool.probes.values()):
            return None
        with contextlib.closing(pool):
            options = replace(options, patience=None)
            tuned = _tuned(capture, pool, loader, options, proven=True, incumbent=winner, isolation=isolation)
    if tuned.unraced:
        raise MeasurementError(tuned.unraced)
    return tuned


def compile_late(capture: Capture, site: Site, late: Collection[int]) -> Batch:
    """Have candidates compiled that an earlier process did not wait for, while the caller goes on."""
    with capture.active():
        pool = pool_of(capture, site, among=late)
        return pool.compile_behind()


@contextlib.contextmanager
def _loading(capture: Capture) -> Iterator[Loader]:
    """Inside of it the capture is active, and at its end everything is unloaded."""
    loader = Loader(_gpu_of(capture))
    with QUICK_SWITCHES, contextlib.closing(loader), capture.active():
        yield loader


def _gpu_of(capture: Capture) -> Gpu:
    assert capture.backend.gpu is not None
    return capture.backend.gpu


def unraced_call(capture: Capture, site: Site) -> TuningResult | None:
    """The first candidate, for a call that can't be raced: no winner is ever stored of such a call. None for any other,
    and where that candidate can't be used. No other one is compiled."""
    with _loading(capture), contextlib.closing(pool_of(capture, site, None, among={0})) as pool:
        try:
            found = _recorded(capture, pool, None)
        except TuningError:
            return None
        return found if isinstance(found, TuningResult) else None


def _tuned(
    capture: Capture, pool: CandidatePool, loader: Loader, options: TuneOptions, *, incumbent: int | None, **words: Any
) -> TuningResult:
    found = _recorded(capture, pool, incumbent)
    if isinstance(found, TuningResult):
        return found
    index = len(capture.launches) - 1
    return tune(capture, found, index, loader, options, pool=pool, incumbent=incumbent, **words)


def _recorded(capture: Capture, pool: CandidatePool, incumbent: int | None) -> Recorded | TuningResult:
    try:
        _stage_first(capture, pool)
        recorded = record(capture)
    except CaptureError as exc:  # an argument whose memory only Triton and its driver know
        return unraced(capture, pool, incumbent, str(exc))
    return unraced(capture, pool, incumbent, recorded.unsaved) if recorded.unsaved else recorded


def _stage_first(capture: Capture, pool: CandidatePool) -> None:
    """Take the first candidate that compiles for what the call launches: which memory, through which views."""
    site, failures = pool.site, []
    for stage in pool.stages():
        for i, found in pool.first_compiled(stage):
            if isinstance(found, Compiled):
                capture.stage(site, i, pool.probes[i], found)
                return
            failures.append(FailedTrial(site.kernel, site.candidates[i].config, str(found)))
    refused = [FailedTrial(site.kernel, site.candidates[i].config, why) for i, why in pool.refused.items()]
    raise nothing_left(site, [*refused, *failures])


@contextlib.contextmanager
def _launch_prepared(capture: Capture, pool: CandidatePool) -> Iterator[Callable[[int], None]]:
    """Have built what launches the winner (by Triton, and then by ourselves: 0.3 to 0.9 s of a C compiler each where
    it isn't built yet) while we race. Triton's part is there at the end: a launch would not wait for it, but
    build it once more. What is given takes a candidate that may win, whose tensor descriptors may need another."""
    if capture.backend.name != "cuda" or not pool.probes:
        yield lambda index: None
        return
    begun = build_beside(next(iter(pool.probes.values())).specialized)

    def ahead(index: int) -> None:
        launch = pool.probes[index].specialized
        descriptors = capture.compiler.compile(launch).metadata.get("tensordesc_meta")
        if descriptors:
            begun.append(_begin("launcher", launcher.prepare_launcher, *_work(launch), descriptors))

    yield ahead
    for thread in begun:
        thread.join()


def build_beside(launch: Specialized) -> list[threading.Thread]:
    """Have a C compiler build what launches like this one need, in threads of their own: those that Triton needs.

    A program that ends meanwhile waits for them: Python would remove the folder that the compiler writes to, and the
    linker would complain on the program's stderr. So they are no daemons. What is built serves the next process.
    """
    _begin("front", compile_front)
    return [_begin("driver", launcher.prepare_driver), _begin("launcher", launcher.prepare_launcher, *_work(launch))]


def _work(launch: Specialized) -> tuple[Any, ...]:
    return launch.jit, launch.signature, launch.constexprs, launch.attrs


def _begin(name: str, work: Callable[..., object], *given: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=given, name=f"kerntune-{name}")
    thread.start()
    return thread


SMALL = 1 << 16
"""Bytes that are compared for practice."""

_practised: weakref.WeakKeyDictionary[Gpu, set[str]] = weakref.WeakKeyDictionary()
"""Of each GPU, the dtypes for which that has been done: what is loaded once stays."""


def _prepare_verifying(capture: Capture, site: Site, busy: Callable[[], bool]) -> None:
    """Have whatever compares what candidates write loaded on the device (torch does so kernel by kernel, 0.1 s in all)
    while the first candidate is compiled, and no longer: once ``busy``, the rest is left. A help, no need."""
    gpu, tensors = _gpu_of(capture), capture.backend.tensors
    dtypes = {str(v.dtype).removeprefix("torch.") for v in site.arguments.values() if tensors.is_tensor(v)}
    done = _practised.setdefault(gpu, set())
    todo = sorted((dtypes & TOLERANCE.keys()) - done)
    if not todo:
        return
    with contextlib.suppress(Exception):
        zeros, others = gpu.allocate(SMALL), gpu.allocate(SMALL)
        gpu.fill(zeros, 0)
        gpu.fill(others, 1)
        for dtype in todo:
            for other in (zeros, others):  # what agrees needs fewer kinds of torch's operations
                if busy():
                    return
                gpu.compare(zeros, other, dtype, TOLERANCE[dtype])
            done.add(dtype)


CallKey = tuple[Any, ...]


@dataclass
class LateConfigs:
    """Of one key: ``configs`` that are still to be tried, as the user wrote them, and the config that has ``won``
    without them.

    ``stragglers`` are their compilations; None while none is under way, where an earlier process ended before.
    """

    configs: list[Any]
    wanted: frozenset[Config]
    won: Config
    stragglers: Batch | None = None

    @property
    def ready(self) -> bool:
        """Whether all of them have been compiled, or failed to."""
        return self.stragglers is not None and self.stragglers.coming.done.done()

    @property
    def due(self) -> bool:
        """Whether the next call has something to do for them."""
        return self.stragglers is None or self.ready


def late_of(tuner: Any, key: CallKey) -> LateConfigs | None:
    """What a tuner still has to try for a key."""
    untried: dict[CallKey, LateConfigs] = tuner.__dict__.get("untried", {})
    return untried.get(key)


def leave_for_later(
    tuner: Any, key: CallKey, site: Site, winner: int, late: Collection[int], stragglers: Batch | None = None
) -> None:
    """Remember candidates to be tried later, in the tuner's ``untried``; ``winner`` is in its cache by now."""
    configs = [site.candidates[i].config for i in sorted(late)]
    originals = [site.originals[i] for i in sorted(late)]
    found = LateConfigs(originals, frozenset(configs), site.candidates[winner].config)
    tuner.__dict__.setdefault("untried", {})[key] = found
    if stragglers is not None:
        _watch(tuner, key, found, stragglers)


def _watch(tuner: Any, key: CallKey, late: LateConfigs, stragglers: Batch) -> None:
    """Once all are compiled, let calls of the key take the slow path: prepared launches count only while the tuner's
    cache holds the very config that they were made for, so it gets a copy."""
    late.stragglers, known = stragglers, weakref.ref(tuner)

    def arrived(_: object) -> None:
        its = known()
        if its is not None and late_of(its, key) is late and key in its.cache:
            its.cache[key] = copy.copy(its.cache[key])

    stragglers.coming.done.add_done_callback(arrived)


def try_late_configs(
    tuner: Any,
    key: CallKey,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    capture: Capture,
    winners: Winners,
    options: TuneOptions,
) -> None:
    """What is due for a key, before a call of it is launched: have its late configs compiled, or compare them with the
    winner and take over a faster one.

    Another process that measures on the device is not waited for. What goes wrong becomes a warning, and is not tried
    again in this process: the call has a winner.
    """
    late, gpu = late_of(tuner, key), capture.backend.gpu
    if late is None or gpu is None or not late.due:
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(gpu.lock(0.0))
        except MeasurementError:
            return
        tuned = None
        try:
            site = capture.site_of(tuner, args, dict(kwargs))
            tuned = _next_step(tuner, key, late, capture, site, winners, options)
        except Exception as exc:  # also of the user's own pruning and hooks
            tuner.untried.pop(key, None)
            warn(f"kernel {tuner.base_fn.__name__}: {len(late.configs)} configs could not be tried later: {exc}")
        if tuned is not None:
            warn_of(site, tuned)


def _next_step(
    tuner: Any, key: CallKey, late: LateConfigs, capture: Capture, site: Site, winners: Winners, options: TuneOptions
) -> TuningResult | None:
    begin = time.perf_counter()
    configs = [c.config for c in site.candidates]
    indices = [i for i, config in enumerate(configs) if config in late.wanted]
    winner, tuned = configs.index(late.won) if late.won in configs else -1, None
    if winner < 0 or not indices or site.ambiguous() & {winner, *indices}:
        tuner.untried.pop(key, None)  # this call's pruning leaves nothing to compare, or not by configs alone
        return None
    if late.stragglers is not None:
        trials = Trials(winners) if options.keep else None
        tuned = settle_call(capture, site, winner, indices, options, trials=trials)
    if tuned is None:
        _watch(tuner, key, late, compile_late(capture, site, {winner, *indices}))
        return None
    tuner.untried.pop(key, None)
    tell_failed(capture, site, tuned.failures)
    site.settle(tuned.winner)
    if options.keep:
        winners.keep(site, tuned.winner, tuned.times_ns[tuned.winner])
        note_chosen(winners.key(site), site.candidates[tuned.winner].config)
    before = getattr(tuner, "configs_timings", {})
    tuner.left_out = {**getattr(tuner, "left_out", {}), **{site.originals[i]: why for i, why in tuned.left_out.items()}}
    tuner.configs_timings = merged_timings(before, timings_of(site, tuned), site.originals[winner])
    tell_tuned(tuner, site, key, time.perf_counter() - begin)
    return tuned
