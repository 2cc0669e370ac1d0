"""``@kerntune.autotune``: takes what ``triton.autotune`` takes, tunes with kerntune's engine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from triton.runtime.autotuner import Autotuner as TritonAutotuner

from kerntune import capture as captures
from kerntune import compat
from kerntune.backend.base import Backend, Gpu
from kerntune.cache import WinnerCache
from kerntune.capture import Capture, Site
from kerntune.compile import Compiler
from kerntune.dispatch import LaunchPath, Ran
from kerntune.dispatch.parts import Needs
from kerntune.errors import BackendError, CacheMissError, ConfigError, MeasurementError, UsageError
from kerntune.kernels.source import jit_of
from kerntune.late import Late, go_on, late_of, leave
from kerntune.patience import Patience, checked_patience, patience_now
from kerntune.policy import StaticPrune, TuneMode
from kerntune.telling import naming_missing_gpu, tell, tell_unraced, timings_of, warn_of
from kerntune.trials import Trials
from kerntune.tune_call import tune_call
from kerntune.unraced import LAUNCHES_NOTHING, launches_nothing
from kerntune.verify import Verification, names_of, verification_of
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
    patience: float | str | None = None,
    static_prune: Any = None,
    verify_ignore: Sequence[str] | str | None = None,
) -> Callable[[Any], Autotuner]:
    """Tune a ``@triton.jit`` kernel over ``configs`` (``triton.Config``) whenever an argument in ``key`` is new.

    The arguments are those of ``triton.autotune`` and mean the same, with these differences: times are always of the
    kernel alone (``warmup``, ``rep``, ``use_cuda_graph`` and ``do_bench`` are accepted and not needed); what the kernel
    writes is found from its code, saved and restored, so ``restore_value`` is not needed; winners are kept on disk
    unless ``cache_results`` is False. Hooks run outside every timed window.

    ``verify`` says whose results are compared before one wins: ``winner`` (the default, or ``KERNTUNE_VERIFY``),
    ``finalists``, ``all``, or ``off`` for nobody's. Of configs that write unlike results those fail that agree with
    fewer others. ``verify_ignore`` (and ``KERNTUNE_VERIFY_IGNORE``) names arguments that aren't compared, since what is
    written there rightly depends on the config or on chance.

    ``patience`` is for how many seconds a first call waits for configs that take far longer to compile than all others,
    once those have been raced; ``all`` waits for every one. The default, or ``KERNTUNE_PATIENCE``, is a tenth of what
    the call has taken so far. Those that are late go on compiling, are in ``kernel.untried``, and are held against the
    winner by a later call of the same key.

    ``static_prune`` leaves configs out once they are compiled, unrun: ``"spills"`` those that spill while others don't,
    ``"occupancy"`` those whose occupancy is below a tenth of the highest, ``"model"`` those whose predicted cost is
    more than three times the lowest, a share (``0.33`` or ``"33%"``) all but the best by predicted cost; several in one
    text or list. Those are in ``kernel.left_out``, with the reason. By default (or as ``KERNTUNE_STATIC_PRUNE`` says)
    there are none. :class:`UsageError` for anything else.
    """

    if not configs:
        raise ConfigError("kerntune.autotune: the list of configs is empty; give at least one triton.Config")

    ignore = None if verify_ignore is None else names_of(verify_ignore)
    check = Verification.asked(verify, ignore)
    wait = None if patience is None else checked_patience(patience)
    prune = None if static_prune is None else StaticPrune.parse(static_prune, "kerntune.autotune, static_prune")

    def decorate(fn: Any) -> Autotuner:
        names = fn.arg_names
        if unknown := [n for n in ignore or () if n.rpartition(".")[2] not in names]:
            raise UsageError(f"kerntune.autotune, verify_ignore: the kernel has no argument {', '.join(unknown)}")
        tuner = Autotuner(
            fn, names, configs, key, reset_to_zero, restore_value, pre_hook=pre_hook, post_hook=post_hook,
            prune_configs_by=prune_configs_by, warmup=warmup, rep=rep, use_cuda_graph=use_cuda_graph,
            do_bench=do_bench, cache_results=cache_results,
        )  # fmt: skip
        tuner.verify, tuner.patience, tuner.static_prune = check, wait, prune
        return tuner

    return decorate


class Autotuner(TritonAutotuner):  # type: ignore[misc]  # Triton has no types here
    """Triton's autotuner with another engine: same attributes, same calls, from any thread."""

    verify: Verification | None = None
    """Whose results are compared, and which; None leaves it to ``KERNTUNE_VERIFY`` and ``KERNTUNE_VERIFY_IGNORE``."""

    static_prune: StaticPrune | None = None
    """Which configs are left out unrun; None leaves it to ``KERNTUNE_STATIC_PRUNE``."""

    patience: float | str | None = None
    """Seconds to wait for stragglers, or ``all``; None leaves it to ``KERNTUNE_PATIENCE``."""

    left_out: dict[Any, str]
    """Configs that the last tuning did not run, with the reason: ``static_prune``."""

    untried: dict[tuple[Any, ...], Late]
    """By key of ``cache``: configs that are still being compiled. Empty once all have been tried."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._named, self.untried, self.left_out = threading.local(), {}, {}
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


@naming_missing_gpu
def run_tuned(tuner: Any, args: Sequence[Any], kwargs: dict[str, Any], *, keep: bool, plain: Callable[..., Any]) -> Ran:
    """``tuner.run(*args, **kwargs)`` of any of Triton's autotuners, with this engine, the long way.

    ``keep`` reads and writes the cache on disk; ``plain`` is Triton's own ``run``, for where nothing can be measured.
    """
    recording = captures.current()
    if recording is not None:
        return Ran(recording.tuned_run(tuner, args, kwargs))
    named = dict(zip(tuner.arg_names, args, strict=False))
    key = compat.autotuner_key(tuner, named, kwargs)
    config = _known(tuner, key)
    if config is None:
        with _TUNING:
            config = _known(tuner, key)
            if config is None:
                return Ran(_tune(tuner, key, named, args, kwargs, keep, plain))
    if (late := late_of(tuner, key)) is None:
        return Ran(_launch(tuner, config, named, args, kwargs), config)
    if late.due and not kwargs.get("warmup"):
        config = _go_on(tuner, key, args, kwargs, keep) or config
    result = _launch(tuner, config, named, args, kwargs)
    return Ran(result, None if late.due and late_of(tuner, key) is late else config)


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
    key: tuple[Any, ...],
    named: dict[str, Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    keep: bool,
    plain: Callable[..., Any],
) -> Any:
    backend = None if compat.interprets() else this_gpu()
    if backend is None or backend.gpu is None:
        return plain(tuner, *args, **kwargs)
    begin, patience = time.perf_counter(), patience_now(getattr(tuner, "patience", None))
    winners = _winners(tuner, backend.gpu, keep)
    capture = Capture(backend, COMPILER, thread=threading.get_ident())
    site = capture.site_of(tuner, args, kwargs)
    try:
        found = winners.find(site, unfinished=patience is not None)
    except CacheMissError:
        with capture.active():
            idle = launches_nothing(capture, site)
        if not idle:
            raise
        return _launch(tuner, site.originals[0], named, args, kwargs)
    if found is not None:
        _reuse(tuner, key, site, found, winners)
        tell(tuner, site, key, None)
        return _launch(tuner, site.originals[found], named, args, kwargs)
    _refuse_graph_capture(site.kernel)
    with backend.gpu.lock():
        winner = _settle(tuner, key, capture, site, winners, keep, patience)
    tuner.bench_time = time.perf_counter() - begin
    late, config = late_of(tuner, key), site.originals[winner]
    if key not in tuner.cache:  # an empty grid: nothing was tuned, and the next call may have work
        return _launch(tuner, config, named, args, kwargs)
    tell(tuner, site, key, tuner.bench_time, len(late.configs) if late else 0)
    tuner.pre_hook({**named, **kwargs, **config.all_kwargs()}, reset_only=True)  # as Triton's does after it has tuned
    return _launch(tuner, config, named, args, kwargs)


def _winners(tuner: Any, gpu: Gpu, keep: bool) -> Winners:
    lax = verification_of(getattr(tuner, "verify", None)).lax
    return Winners(WinnerCache(), tune_mode() if keep else TuneMode.FORCE, gpu, lax)


def _reuse(tuner: Any, key: tuple[Any, ...], site: Site, index: int, winners: Winners) -> None:
    site.settle(index)
    stored = winners.stored(site)
    if stored is None:
        return
    tuner.configs_timings = {site.originals[index]: [stored.time_ns / 1e6] * 3}
    late = [i for i, c in enumerate(site.candidates) if c.config in stored.untried]
    if late and winners.mode is not TuneMode.FROZEN:
        leave(tuner, key, site, index, late)


def _settle(
    tuner: Any,
    key: tuple[Any, ...],
    capture: Capture,
    site: Site,
    winners: Winners,
    keep: bool,
    patience: Patience | None,
) -> int:
    """Find a site's winner, tell its tuner, and keep it; its index. The call itself is still to be launched."""
    trials = Trials(winners) if keep else None
    tuned = tune_call(
        capture,
        site,
        incumbent=winners.incumbent(site),
        trials=trials,
        verify=getattr(tuner, "verify", None),
        patience=patience,
        static_prune=getattr(tuner, "static_prune", None),
    )
    if tuned.unraced == LAUNCHES_NOTHING:
        return tuned.winner
    site.settle(tuned.winner)
    if tuned.unraced:
        tell_unraced(tuner, site, tuned)
        return tuned.winner
    tuner.configs_timings = timings_of(site, tuned)
    tuner.left_out = {site.originals[i]: why for i, why in tuned.left_out.items()}
    late = tuned.stragglers.indices if tuned.stragglers else frozenset()
    if keep:
        winners.keep(site, tuned.winner, tuned.times_ns[tuned.winner], untried=late)
    if late:
        leave(tuner, key, site, tuned.winner, late, tuned.stragglers)
    warn_of(site, tuned)
    return tuned.winner


def _go_on(tuner: Any, key: tuple[Any, ...], args: Sequence[Any], kwargs: dict[str, Any], keep: bool) -> Any:
    """The config to launch, if what was due for late ones could be done now: not while a CUDA graph is captured, nor
    while another thread tunes, nor where tuning is frozen."""
    frozen = keep and tune_mode() is TuneMode.FROZEN
    if frozen or _captures_graph() or not _TUNING.acquire(blocking=False):
        return None
    try:
        backend = this_gpu()
        if backend is not None and backend.gpu is not None:
            winners = _winners(tuner, backend.gpu, keep)
            go_on(tuner, key, args, kwargs, backend=backend, compiler=COMPILER, winners=winners, keep=keep)
    finally:
        _TUNING.release()
    return tuner.cache.get(key)


def tune_mode() -> TuneMode:
    """``KERNTUNE_TUNE``: ``auto`` (the default), ``frozen`` (no stored winner is an error) or ``force`` (tune anew).

    :class:`UsageError` for anything else.
    """
    text = os.environ.get("KERNTUNE_TUNE") or TuneMode.AUTO.value
    try:
        return TuneMode(text)
    except ValueError:
        raise UsageError(f"KERNTUNE_TUNE is {text!r}; it can be auto, frozen or force") from None


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
    if _captures_graph():
        raise MeasurementError(
            f"kernel {kernel} has no winner yet for these arguments, and tuning can't run while a CUDA graph is being "
            "captured; call it once before the capture"
        )


def _captures_graph() -> bool:
    import torch

    return bool(torch.cuda.is_current_stream_capturing())
