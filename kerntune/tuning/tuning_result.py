"""The result of tuning one launch, and where it is shown: warnings, a listener, a log.

A tuning ends in a winner and the candidates' times, or in an error with every reason. The user sees what Triton shows:
times by config, a listener, a printed line. ``KERNTUNE_LOG`` names a file that gets a line of JSON for each config.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeVar

import msgspec

from kerntune.base.config import by_text, configs_text
from kerntune.base.failed_candidates import FailedTrial, failures_line
from kerntune.base.formatting import visible
from kerntune.base.recording import Recording
from kerntune.base.stats import quantile
from kerntune.base.warn import warn
from kerntune.capture import Capture, Site
from kerntune.errors import NoGpuError, TrialError, TuningError
from kerntune.kernels.compat import launcher, tuners
from kerntune.kernels.source import kernel_file
from kerntune.static.occupancy import Violation
from kerntune.tuning.cache.entries import append
from kerntune.tuning.candidates import Batch
from kerntune.tuning.race import DROP_FIRST, Trial
from kerntune.tuning.stored_winners import NearestWinner, exact_arguments


@dataclass(frozen=True)
class TuningResult:
    """The outcome for one launch: the winner's index among the site's candidates, times by index, failures.

    ``remembered`` are the candidates that were not tried again because earlier runs had; their times and failures are
    among the others.
    """

    winner: int
    recording: Recording
    times_ns: dict[int, float]
    failures: tuple[FailedTrial, ...]
    remembered: frozenset[int] = frozenset()
    slots_ns: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """Each slot's time of the candidates that were raced."""

    stragglers: Batch | None = None
    """Candidates that were not waited for."""

    left_out: dict[int, str] = field(default_factory=dict)
    """Why candidates were not run, for what their static figures say."""

    unraced: str = ""
    """Why nothing was timed, where nothing was: ``winner`` is the config to launch then, and has no time."""

    partly: bool = False
    """Whether some of what the winner writes was not compared."""

    notes: tuple[str, ...] = ()
    """For users: arguments that were not compared, configs that no other one confirms."""


def nothing_left(site: Site, failures: Sequence[FailedTrial]) -> TuningError:
    """The error of a site none of whose candidates can be used. Equal reasons stand there once; one that all share, a
    call's own mistake mostly, beside the kernel."""
    head = f"kernel {site.kernel}: none of its {len(site.candidates)} configs can be used"
    reasons = {f.reason for f in failures}
    if len(failures) > len(reasons) == 1:
        (reason,) = reasons
        return TuningError(f"{head}: {reason}", failures)
    told = [f"  {configs_text(configs)}: {text}" for configs, text in by_text((f.config, f.reason) for f in failures)]
    return TuningError("\n".join([head, *told]), failures)


Timings = dict[Any, list[float]]
"""Per ``triton.Config`` milliseconds at the quantiles 0.5, 0.2 and 0.8."""

Launcher = TypeVar("Launcher", bound=Callable[..., Any])


def naming_missing_gpu(run: Launcher) -> Launcher:
    """``run(tuner, ...)``, whose error is :class:`NoGpuError` where Triton raises its own for want of a driver."""

    @functools.wraps(run)
    def named(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return run(tuner, *args, **kwargs)
        except RuntimeError as exc:
            missing = launcher.missing_driver()
            if not missing or str(exc) != missing:
                raise
            fn = tuner.base_fn
            raise NoGpuError(
                f"kernel {fn.__name__} ({fn.__code__.co_filename}:{fn.__code__.co_firstlineno}) can't be launched: "
                f"Triton finds no GPU here ({missing}). Run it where there is one; without, `pytest --kerntune "
                "--kerntune-target=cuda:90` compiles what tests launch and gates its figures, and `pytest "
                "--kerntune-interpret` computes its numbers (in a script: TRITON_INTERPRET=1)"
            ) from exc

    return named  # type: ignore[return-value]


def timings_of(site: Site, tuned: TuningResult) -> Timings:
    """What Triton's benchmark gives, of each config.

    Candidates with an estimate alone, or with an earlier run's time, have one figure three times; failed ones are
    infinite; those that are still to be tried have none. A config whose code another one has stands under that one.
    """
    out: Timings = {}
    failed = {f.config for f in tuned.failures}
    for i, original in enumerate(site.originals):
        if site.candidates[i].config in failed:
            out[original] = [math.inf] * 3  # a wrong one has been timed, too
        elif i in tuned.times_ns:
            times = tuned.slots_ns.get(i) or (tuned.times_ns[i],)
            out[original] = [ns / 1e6 for ns in (tuned.times_ns[i], quantile(times, 0.2), quantile(times, 0.8))]
    return out


def merged_timings(before: Mapping[Any, list[float]], late: Timings, winner: Any) -> Timings:
    """Earlier times and those of late configs, brought to the same clocks by the earlier ``winner``, which has both."""
    both = winner in before and winner in late and math.isfinite(late[winner][0])
    factor = before[winner][0] / late[winner][0] if both else 1.0
    return {**{config: [factor * ms for ms in times] for config, times in late.items()}, **before}


def warn_of(site: Site, tuned: TuningResult) -> None:
    """RuntimeWarnings for configs whose results are wrong, and for what could not be compared."""
    wrong = [f for f in tuned.failures if f.wrong]
    for text in (*([failures_line(wrong, len(site.candidates))] if wrong else []), *tuned.notes):
        warn(text)


def tell_failed(capture: Capture, site: Site, failures: Sequence[FailedTrial]) -> None:
    """Call a user's ``post_hook`` for each config that can't be launched, as ``triton.autotune`` does."""
    capture.tell_failed(site, {f.config: launch_error(f.reason) for f in failures if not f.wrong})


def launch_error(reason: str) -> Exception:
    """What Triton would raise for a config that fails for a ``reason`` of ours: its ``OutOfResources`` where the device
    lacks something, else our :class:`TrialError`."""
    lack = Violation.from_text(reason)
    return TrialError(reason) if lack is None else tuners.out_of_resources(lack.needed, lack.limit, lack.resource)


def tell_tuned(tuner: Any, site: Site, key: tuple[Any, ...], seconds: float | None, late: int = 0) -> None:
    """Report a tuning as Triton does: to its listener, and on standard output where ``TRITON_PRINT_AUTOTUNING`` is set.

    ``seconds`` is None where nothing was tuned; ``late`` the number of configs that are still to be tried.
    """
    best = tuner.cache[key]
    tuner.best_config = best
    listener = tuners.tuning_listener()
    if listener is not None and len(site.candidates) > 1:
        told = {"fn": site.jit, "key": key, "best_config": best, "duration": seconds, "cache_hit": seconds is None}
        listener(**told, configs_timings=getattr(tuner, "configs_timings", {}))
    if tuners.prints_tuning() and seconds is not None:
        rest = f", {late} configs are still being compiled" if late else ""
        print(f"kerntune: {site.kernel}, key {key}: tuned in {seconds:.2f} s, best config {best}{rest}")


def tell_nearest(site: Site, key: tuple[Any, ...], near: NearestWinner | None) -> None:
    """Say which call's winner an untuned one is launched with; once a key, since it is kept then."""
    where = f"kernel {site.kernel} ({kernel_file(site.jit)}), key {key}: has no stored winner"
    what = "no tuned call is near, so the first config that can be launched is" if near is None else f"{near} is"
    warn(visible(f"{where}; {what} used untuned (tune=nearest)"))


def tell_unfit(tuner: Any, config: Any, error: Exception) -> None:
    """Say that the nearest call's winner can't be launched, and the tuner's own first config is."""
    fn = tuner.base_fn
    what = f"kernel {fn.__name__} ({fn.__code__.co_filename}): {config}, the winner of the nearest tuned call"
    warn(f"{what}, can't be launched here ({error}); the first config that can be is used")


def tell_unraced(tuner: Any, site: Site, tuned: TuningResult) -> None:
    """Warn that a call runs untuned, and why."""
    tuner.configs_timings = {}
    config = site.candidates[tuned.winner].config
    warn(f"kernel {site.kernel} is not tuned, and launched with {config}: {tuned.unraced}")


LOG = "KERNTUNE_LOG"

SCHEMA = "kerntune.log/1"

SHORT_HASH = 12
"""Characters of the hash that tells a kernel's calls apart."""

_warned: set[str] = set()


def log_path() -> str:
    """The file of ``KERNTUNE_LOG``; empty where nothing is logged."""
    return os.environ.get(LOG, "")


def log_config(site: Site, event: str, index: int | None = None, why: str = "", **figures: object) -> None:
    """Append a line: what happened to candidate ``index`` of a site (to the site itself if None), and why.

    ``figures`` are times in nanoseconds, seconds, or ratios (1.25 is 25 % slower than the best). One write to a file
    that is open for appending: lines of several processes don't mix. A file that can't be written costs a warning.
    """
    path = log_path()
    if not path:
        return
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "time": datetime.now(timezone.utc).isoformat(timespec="microseconds"),
        "pid": os.getpid(),
        "event": event,
        "kernel": site.kernel,
        "call": call_hash(site),
    }
    if index is not None:
        found["config"] = site.candidates[index].config
    found |= {"why": why} if why else {}
    found |= {name: _rounded(value) for name, value in figures.items() if value is not None}
    _append(path, msgspec.json.encode(found) + b"\n")


def call_hash(site: Site) -> str:
    """Equal for calls of a kernel with equal arguments, in every process."""
    return hashlib.sha256(exact_arguments(site).encode()).hexdigest()[:SHORT_HASH]


def log_begin(site: Site, device: str) -> None:
    """A tuning begins: with which arguments, and how many configs."""
    if log_path():
        log_config(site, "begin", arguments=exact_arguments(site), configs=len(site.candidates), device=device)


def log_race(site: Site, alive: Sequence[Trial], finalists: Sequence[Trial], best: Trial) -> None:
    """What the race says of each: raced to the end, or dropped before and by how much."""
    if not log_path():
        return
    least = min((t.estimate for t in alive), default=0.0)
    for trial in alive:
        ratio = ratio_to(trial.time_ns, best.time_ns)
        figures = {"time_ns": trial.time_ns, "estimate_ns": trial.estimate, "ratio": ratio}
        if trial in finalists:
            event, why = "raced", "" if trial is best else "slower in turn with the best, or tied with it"
        elif trial.estimate > least * DROP_FIRST:
            event, why = "dropped", f"its estimate is above {DROP_FIRST} of the best"
        else:
            event, why = "dropped", "slower in first rounds"
        for index in trial.same:
            log_config(site, event, index, why, rounds=len(trial.times), **figures)


def log_end(
    site: Site, winner: int, times_ns: Mapping[int, float], left_out: Mapping[int, str], seconds: float
) -> None:
    """A tuning ends: the winner, and what was left out unrun."""
    if not log_path():
        return
    for index, why in left_out.items():
        log_config(site, "left out", index, why)
    log_config(site, "won", winner, time_ns=times_ns.get(winner), seconds=seconds, configs=len(site.candidates))


def ratio_to(value: float, best: float) -> float | None:
    """How many times the best a time is; None while there is no best."""
    return value / best if 0 < best < float("inf") else None


def _rounded(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _append(path: str, line: bytes) -> None:
    try:
        append(path, line)
    except OSError as exc:
        if path not in _warned:
            _warned.add(path)
            warn(f"{LOG}: {path} can't be written: {exc.strerror}")
