"""What a tuner tells: of a tuning, as Triton does (times by config, a listener, a printed line), and of no GPU."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kerntune.base.case_result import FailedTrial, failures_line
from kerntune.base.formatting import visible
from kerntune.base.stats import quantile
from kerntune.capture import Capture, Site
from kerntune.errors import NoGpuError, TrialError
from kerntune.kernels import compat
from kerntune.kernels.source import kernel_file
from kerntune.static.launch_limits import Violation
from kerntune.tuning.nearest import Near
from kerntune.tuning.tuning_result import Tuned

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
            missing = compat.missing_driver()
            if not missing or str(exc) != missing:
                raise
            raise _no_gpu(tuner, missing) from exc

    return named  # type: ignore[return-value]


def _no_gpu(tuner: Any, why: str) -> NoGpuError:
    fn = tuner.base_fn
    kernel = f"kernel {fn.__name__} ({fn.__code__.co_filename}:{fn.__code__.co_firstlineno})"
    return NoGpuError(
        f"{kernel} can't be launched: Triton finds no GPU here ({why}). Run it where there is one; without, `pytest "
        "--kerntune --kerntune-target=cuda:90` compiles what tests launch and gates its figures, and `pytest "
        "--kerntune-interpret` computes its numbers (in a script: TRITON_INTERPRET=1)"
    )


def timings_of(site: Site, tuned: Tuned) -> Timings:
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


def merged(before: Mapping[Any, list[float]], late: Timings, winner: Any) -> Timings:
    """Earlier times and those of late configs, brought to the same clocks by the earlier ``winner``, which has both."""
    both = winner in before and winner in late and math.isfinite(late[winner][0])
    factor = before[winner][0] / late[winner][0] if both else 1.0
    return {**{config: [factor * ms for ms in times] for config, times in late.items()}, **before}


def warn_of(site: Site, tuned: Tuned) -> None:
    """RuntimeWarnings for configs whose results are wrong, and for what could not be compared."""
    wrong = [f for f in tuned.failures if f.wrong]
    texts = [*([failures_line(wrong, len(site.candidates))] if wrong else []), *tuned.notes]
    for text in texts:
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def tell_failed(capture: Capture, site: Site, failures: Sequence[FailedTrial]) -> None:
    """Call a user's ``post_hook`` for each config that can't be launched, as ``triton.autotune`` does."""
    capture.tell_failed(site, {f.config: launch_error(f.reason) for f in failures if not f.wrong})


def launch_error(reason: str) -> Exception:
    """What Triton would raise for a config that fails for a ``reason`` of ours: its ``OutOfResources`` where the device
    lacks something, else our :class:`TrialError`."""
    lack = Violation.from_text(reason)
    return TrialError(reason) if lack is None else compat.out_of_resources(lack.needed, lack.limit, lack.resource)


def tell(tuner: Any, site: Site, key: tuple[Any, ...], seconds: float | None, late: int = 0) -> None:
    """Report a tuning as Triton does: to its listener, and on standard output where ``TRITON_PRINT_AUTOTUNING`` is set.

    ``seconds`` is None where nothing was tuned; ``late`` the number of configs that are still to be tried.
    """
    best = tuner.cache[key]
    tuner.best_config = best
    listener = compat.tuning_listener()
    if listener is not None and len(site.candidates) > 1:
        timings = getattr(tuner, "configs_timings", {})
        listener(
            fn=site.jit, key=key, best_config=best, configs_timings=timings, duration=seconds, cache_hit=seconds is None
        )
    if compat.prints_tuning() and seconds is not None:
        rest = f", {late} configs are still being compiled" if late else ""
        print(f"kerntune: {site.kernel}, key {key}: tuned in {seconds:.2f} s, best config {best}{rest}")


def tell_nearest(site: Site, key: tuple[Any, ...], near: Near | None) -> None:
    """Say which call's winner an untuned one is launched with; once a key, since it is kept then."""
    where = f"kernel {site.kernel} ({kernel_file(site.jit)}), key {key}: has no stored winner"
    what = "no tuned call is near, so the first config that can be launched is" if near is None else f"{near} is"
    warnings.warn(visible(f"{where}; {what} used untuned (tune=nearest)"), RuntimeWarning, stacklevel=2)


def tell_unfit(tuner: Any, config: Any, error: Exception) -> None:
    """Say that the nearest call's winner can't be launched, and the tuner's own first config is."""
    fn = tuner.base_fn
    warnings.warn(
        f"kernel {fn.__name__} ({fn.__code__.co_filename}): {config}, the winner of the nearest tuned call, can't be "
        f"launched here ({error}); the first config that can be is used",
        RuntimeWarning,
        stacklevel=2,
    )


def tell_unraced(tuner: Any, site: Site, tuned: Tuned) -> None:
    """Warn that a call runs untuned, and why."""
    tuner.configs_timings = {}
    config = site.candidates[tuned.winner].config
    text = f"kernel {site.kernel} is not tuned, and launched with {config}: {tuned.unraced}"
    warnings.warn(text, RuntimeWarning, stacklevel=2)
