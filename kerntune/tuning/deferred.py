"""Configs that a first call did not wait for: they are compiled meanwhile, and a later call tries them."""

from __future__ import annotations

import contextlib
import copy
import time
import warnings
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerntune.base.config import Config
from kerntune.capture import Capture, Site
from kerntune.errors import MeasurementError
from kerntune.tuning.agreement import note_chosen
from kerntune.tuning.candidates import Batch
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.stored_winners import Winners
from kerntune.tuning.tune_call import compile_late, settle_call
from kerntune.tuning.tune_options import TuneOptions
from kerntune.tuning.tuning_result import TuningResult, merged_timings, tell_failed, tell_tuned, timings_of, warn_of

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
            text = f"kernel {tuner.base_fn.__name__}: {len(late.configs)} configs could not be tried later: {exc}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        if tuned is not None:
            warn_of(site, tuned)


def _next_step(
    tuner: Any, key: CallKey, late: LateConfigs, capture: Capture, site: Site, winners: Winners, options: TuneOptions
) -> TuningResult | None:
    """What came of trying them, if they were."""
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
