"""``@kerntune.autotune``: takes what ``triton.autotune`` takes, tunes with kerntune's engine."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from triton.runtime.autotuner import Autotuner as TritonAutotuner

from kerntune import capture as captures
from kerntune import compat
from kerntune.backend.base import Backend
from kerntune.cache import Winner, WinnerCache
from kerntune.capture import Capture, Site
from kerntune.compile import Compiler
from kerntune.dispatch import LaunchPath, Ran
from kerntune.dispatch.parts import Needs
from kerntune.errors import BackendError, ConfigError, MeasurementError, UsageError
from kerntune.kernels.source import jit_of
from kerntune.policy import StaticPrune, TuneMode
from kerntune.trials import Trials
from kerntune.tune_call import tune_call
from kerntune.tuner import Tuned
from kerntune.verify import Verify, verify_mode
from kerntune.winners import Winners


def autotune(
    configs: Sequence[Any],
    key: Sequence[str],
    prune_configs_by: dict[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = True,
    verify: str | None = None,
    static_prune: Any = None,
) -> Callable[[Any], Autotuner]:
    """Tune a ``@triton.jit`` kernel over ``configs`` (``triton.Config``) whenever an argument in ``key`` is new.

    The arguments are those of ``triton.autotune`` and mean the same, with these differences: times are always of the
    kernel alone (``warmup``, ``rep``, ``use_cuda_graph`` and ``do_bench`` are accepted and not needed); what the kernel
    writes is found from its code, saved and restored, so ``restore_value`` is not needed; winners are kept on disk
    unless ``cache_results`` is False. Hooks run outside every timed window.

    ``verify`` says whose results are compared before one wins: ``winner`` (the default, or ``KERNTUNE_VERIFY``),
    ``finalists`` or ``all``. A config that writes something else than the first has failed.

    ``static_prune`` leaves configs out once they are compiled, unrun: ``"spills"`` those that spill while others don't,
    ``"occupancy"`` those whose occupancy is below a tenth of the highest, ``"model"`` those whose predicted cost is
    more than three times the lowest, a share (``0.33`` or ``"33%"``) all but the best by predicted cost; several in one
    text or list. By default (or as ``KERNTUNE_STATIC_PRUNE`` says) none. :class:`UsageError` for anything else.
    """

    if not configs:
        raise ConfigError("kerntune.autotune: the list of configs is empty; give at least one triton.Config")

    mode = verify_mode(verify) if verify else None
    prune = None if static_prune is None else StaticPrune.parse(static_prune, "kerntune.autotune, static_prune")

    def decorate(fn: Any) -> Autotuner:
        names = fn.arg_names
        tuner = Autotuner(
            fn, names, configs, key, reset_to_zero, restore_value, pre_hook=pre_hook, post_hook=post_hook,
            prune_configs_by=prune_configs_by, warmup=warmup, rep=rep, use_cuda_graph=use_cuda_graph,
            do_bench=do_bench, cache_results=cache_results,
        )  # fmt: skip
        tuner.verify, tuner.static_prune = mode, prune
        return tuner

    return decorate


class Autotuner(TritonAutotuner):  # type: ignore[misc]  # Triton has no types here
    """Triton's autotuner with another engine: same attributes, same calls, from any thread."""

    verify: Verify | None = None
    """Whose results are compared; None leaves it to ``KERNTUNE_VERIFY``."""

    static_prune: StaticPrune | None = None
    """Which configs are left out unrun; None leaves it to ``KERNTUNE_STATIC_PRUNE``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._named = threading.local()
        super().__init__(*args, **kwargs)
        if not self.user_defined_pre_hook and (self.reset_to_zero or self.restore_value):
            self.pre_hook = self._reset
        if not self.user_defined_post_hook and self.restore_value:
            self.restore_copies: dict[str, Any] = {}
            self.post_hook = self._restore
        self._path = LaunchPath(self, self._run_slowly, self.needs())

    def __getitem__(self, grid: Any) -> Any:
        """``kernel[grid](...)``. A grid is a tuple, or a function of the arguments and the winner's meta-parameters."""
        if "run" in self.__dict__:
            return super().__getitem__(grid)
        return partial(self._path.front, grid)

    def __init_subclass__(cls, **words: Any) -> None:
        """A class with another ``run`` gets all its calls there, as with Triton's."""
        super().__init_subclass__(**words)
        if cls.run is not Autotuner.run and cls.__getitem__ is Autotuner.__getitem__:
            cls.__getitem__ = TritonAutotuner.__getitem__  # type: ignore[method-assign]

    def needs(self) -> Needs:
        """What a winner depends on beside the arguments' types."""
        return Needs(exact=frozenset(self.keys))

    @property
    def nargs(self) -> dict[str, Any] | None:
        """The call's positional arguments by name, while a call of this thread is under way."""
        return getattr(self._named, "nargs", None)

    @nargs.setter
    def nargs(self, value: dict[str, Any] | None) -> None:
        self._named.nargs = value

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the winner for these arguments; find it first if it isn't known.

        :class:`MeasurementError` if that would happen while a CUDA graph is being captured.
        """
        if kwargs.get("warmup") or "grid" not in kwargs:
            return self._run_slowly(args, kwargs).result
        kwargs.pop("warmup", None)
        return self._path.front(kwargs.pop("grid"), *args, **kwargs)

    def _run_slowly(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Ran:
        return run_tuned(self, args, kwargs, keep=self.cache_results, plain=type(self)._without_engine)

    def _without_engine(self, *args: Any, **kwargs: Any) -> Any:
        """Where kerntune can't time, Triton's own engine does what it does."""
        return plain_run()(self, *args, **kwargs)

    def _reset(self, named: dict[str, Any], reset_only: bool = False) -> None:
        """As Triton 3.9's own hook does: pointers that are None are left out (3.6 fails on them)."""
        for name in self.reset_to_zero:
            if named[name] is not None:
                named[name].zero_()
        if not reset_only:
            kept = [name for name in self.restore_value if named[name] is not None]
            self.restore_copies = {name: named[name].clone() for name in kept}

    def _restore(self, named: dict[str, Any], exception: BaseException | None) -> None:
        for name, copy in self.restore_copies.items():
            named[name].copy_(copy)
        self.restore_copies = {}


STANDS_FOR: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What ``install()`` put in the place of Triton's ``run``, and what was there: the way back for where nothing runs."""


def plain_run() -> Callable[..., Any]:
    """Triton's own ``Autotuner.run`` (the stand-ins', while they are active)."""
    run: Callable[..., Any] = TritonAutotuner.run
    return STANDS_FOR.get(run, run)


def run_tuned(tuner: Any, args: Sequence[Any], kwargs: dict[str, Any], *, keep: bool, plain: Callable[..., Any]) -> Ran:
    """``tuner.run(*args, **kwargs)`` of any of Triton's autotuners, with this engine, the long way.

    ``keep`` reads and writes the cache on disk; ``plain`` is Triton's own ``run``, for where nothing can be measured.
    """
    recording = captures.current()
    if recording is not None:
        return Ran(recording.tuned_run(tuner, args, kwargs))
    named = dict(zip(tuner.arg_names, args, strict=False))
    config = _known(tuner, compat.autotuner_key(tuner, named, kwargs))
    if config is None:
        with _TUNING:
            config = _known(tuner, compat.autotuner_key(tuner, named, kwargs))
            if config is None:
                return Ran(_tune(tuner, named, args, kwargs, keep, plain))
    return Ran(_launch(tuner, config, named, args, kwargs), config)


_TUNING = threading.RLock()
"""One thread tunes at a time: a capture stands in for Triton's entry points, and the device measures one at a time."""


def _known(tuner: Any, key: tuple[Any, ...]) -> Any:
    return tuner.cache.get(key) if len(tuner.configs) > 1 else tuner.configs[0]


def _launch(tuner: Any, config: Any, named: dict[str, Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    tuner.best_config = config
    words = config.all_kwargs()
    if config.pre_hook is not None:
        config.pre_hook({**named, **kwargs, **words})
    with compat.profiler_range(lambda: _range_name(tuner, config)):
        return tuner.fn.run(*args, **kwargs, **words)


def _range_name(tuner: Any, config: Any) -> str:
    """What a profile calls a launch: kernel, the start of its source's hash, config."""
    return f"{tuner.base_fn.__name__} [{jit_of(tuner).cache_key[:SHORT_HASH]}] {config}"


SHORT_HASH = 12


def _tune(
    tuner: Any,
    named: dict[str, Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    keep: bool,
    plain: Callable[..., Any],
) -> Any:
    backend = None if compat.interprets() else this_gpu()
    if backend is None or backend.gpu is None:
        return plain(tuner, *args, **kwargs)
    begin = time.perf_counter()
    winners = Winners(WinnerCache(), tune_mode() if keep else TuneMode.FORCE, backend.gpu)
    capture = Capture(backend, COMPILER, thread=threading.get_ident())
    site = capture.site_of(tuner, args, kwargs)
    if (found := winners.find(site)) is not None:
        _reuse(tuner, site, found, winners.stored(site))
        _tell(tuner, site, None, {**named, **kwargs})
        return _launch(tuner, site.originals[found], named, args, kwargs)
    _refuse_graph_capture(site.kernel)
    with backend.gpu.lock():
        winner = _settle(tuner, capture, site, winners, keep)
    tuner.bench_time = time.perf_counter() - begin
    _tell(tuner, site, tuner.bench_time, {**named, **kwargs})
    config = site.originals[winner]
    tuner.pre_hook({**named, **kwargs, **config.all_kwargs()}, reset_only=True)  # as Triton's does after it has tuned
    return _launch(tuner, config, named, args, kwargs)


def _reuse(tuner: Any, site: Site, index: int, stored: Winner | None) -> None:
    site.settle(index)
    if stored is not None:
        tuner.configs_timings = {site.originals[index]: [stored.time_ns / 1e6] * 3}


def _settle(tuner: Any, capture: Capture, site: Site, winners: Winners, keep: bool) -> int:
    """Find a site's winner, tell its tuner, and keep it; its index. The call itself is still to be launched."""
    trials = Trials(winners) if keep else None
    tuned = tune_call(
        capture,
        site,
        incumbent=winners.incumbent(site),
        trials=trials,
        verify=getattr(tuner, "verify", None),
        static_prune=getattr(tuner, "static_prune", None),
    )
    site.settle(tuned.winner)
    tuner.configs_timings = timings_of(site, tuned)
    if keep:
        winners.keep(site, tuned.winner, tuned.times_ns[tuned.winner])
    return tuned.winner


def tune_mode() -> TuneMode:
    """``KERNTUNE_TUNE``: ``auto`` (the default), ``frozen`` (no stored winner is an error) or ``force`` (tune anew).

    :class:`UsageError` for anything else.
    """
    text = os.environ.get("KERNTUNE_TUNE") or TuneMode.AUTO.value
    try:
        return TuneMode(text)
    except ValueError:
        raise UsageError(f"KERNTUNE_TUNE is {text!r}; it can be auto, frozen or force") from None


def timings_of(site: Site, tuned: Tuned) -> dict[Any, list[float]]:
    """Per ``triton.Config`` what Triton's benchmark gives: milliseconds at the quantiles 0.5, 0.2 and 0.8.

    Candidates that were looked at once, or by an earlier run, have one figure three times; failed ones are infinite.
    A config whose code another one has stands under that one.
    """
    out: dict[Any, list[float]] = {}
    failed = {f.config for f in tuned.failures}
    for i, original in enumerate(site.originals):
        if i in tuned.times_ns:
            times = tuned.slots_ns.get(i) or (tuned.times_ns[i],)
            out[original] = [float(ns) / 1e6 for ns in (tuned.times_ns[i], *np.quantile(times, (0.2, 0.8)))]
        elif site.candidates[i].config in failed:
            out[original] = [math.inf] * 3
    return out


def _tell(tuner: Any, site: Site, seconds: float | None, named: dict[str, Any]) -> None:
    """Tell those who asked Triton to be told: its listener, and whoever set ``TRITON_PRINT_AUTOTUNING``."""
    key = compat.autotuner_key(tuner, named, {})
    best = tuner.cache[key]
    tuner.best_config = best
    listener = compat.tuning_listener()
    if listener is not None and len(site.candidates) > 1:
        timings = getattr(tuner, "configs_timings", {})
        listener(
            fn=site.jit, key=key, best_config=best, configs_timings=timings, duration=seconds, cache_hit=seconds is None
        )
    if compat.prints_tuning() and seconds is not None:
        print(f"kerntune: {site.kernel}, key {key}: tuned in {seconds:.2f} s, best config {best}")


COMPILER = Compiler()
"""One for the whole process: what was compiled for one call, another needn't."""


def this_gpu() -> Backend | None:
    """torch's current GPU, if kerntune can time on it."""
    from kerntune.backend.probe import has_cuda

    if not has_cuda():
        return None
    from kerntune.backend.cuda import CudaBackend

    try:
        return CudaBackend()
    except BackendError:  # stand-ins answer that there is a GPU; there is no driver behind them
        return None


def _refuse_graph_capture(kernel: str) -> None:
    import torch

    if torch.cuda.is_current_stream_capturing():
        raise MeasurementError(
            f"kernel {kernel} has no winner yet for these arguments, and tuning can't run while a CUDA graph is being "
            "captured; call it once before the capture"
        )
