"""``@kerntune.autotune``: takes what ``triton.autotune`` takes, tunes with kerntune's engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from triton.runtime.autotuner import Autotuner as TritonAutotuner

from kerntune import capture as captures
from kerntune import compat
from kerntune.backend.base import Backend
from kerntune.cache import WinnerCache
from kerntune.capture import Capture, Site
from kerntune.compile import Compiler
from kerntune.errors import BackendError, MeasurementError
from kerntune.launch import Loader
from kerntune.policy import TuneMode
from kerntune.recorder import record
from kerntune.trials import Trials
from kerntune.tuner import tune
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
) -> Callable[[Any], Autotuner]:
    """Tune a ``@triton.jit`` kernel over ``configs`` (``triton.Config``) whenever an argument in ``key`` is new.

    The arguments are those of ``triton.autotune`` and mean the same, with these differences: times are always of the
    kernel alone (``warmup``, ``rep``, ``use_cuda_graph`` and ``do_bench`` are accepted and not needed); what the kernel
    writes is found from its code, saved and restored, so ``restore_value`` is not needed; winners are kept on disk
    unless ``cache_results`` is False. Hooks run outside every timed window.
    """

    def decorate(fn: Any) -> Autotuner:
        names = fn.arg_names
        return Autotuner(
            fn, names, configs, key, reset_to_zero, restore_value, pre_hook=pre_hook, post_hook=post_hook,
            prune_configs_by=prune_configs_by, warmup=warmup, rep=rep, use_cuda_graph=use_cuda_graph,
            do_bench=do_bench, cache_results=cache_results,
        )  # fmt: skip

    return decorate


class Autotuner(TritonAutotuner):  # type: ignore[misc]  # Triton has no types here
    """Triton's autotuner with another engine: same attributes, same calls."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tuning = threading.RLock()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the winner for these arguments; find it first if it isn't known.

        :class:`MeasurementError` if that would happen while a CUDA graph is being captured.
        """
        recording = captures.current()
        if recording is not None:
            return recording.tuned_run(self, args, kwargs)
        named = dict(zip(self.arg_names, args, strict=False))
        key = compat.autotuner_key(self, named, kwargs)
        if len(self.configs) > 1 and key not in self.cache:
            with self._tuning:
                if key not in self.cache:
                    return self._tune(named, args, kwargs)
        self.best_config = self.cache.get(key, self.configs[0])
        return self._launch(named, args, kwargs)

    def _launch(self, named: dict[str, Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        words = self.best_config.all_kwargs()
        if self.best_config.pre_hook is not None:
            self.best_config.pre_hook({**named, **kwargs, **words})
        return self.fn.run(*args, **kwargs, **words)

    def _tune(self, named: dict[str, Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        backend = _backend()
        if backend is None or backend.gpu is None:
            return super().run(*args, **kwargs)
        _refuse_graph_capture(self.base_fn.__name__)
        cache = WinnerCache()
        winners = Winners(cache, TuneMode.AUTO if self.cache_results else TuneMode.FORCE, backend.gpu)
        capture = Capture(backend, _COMPILER, prefer=_preference(winners))
        with backend.gpu.lock():
            with capture.active():
                result = capture.tuned_run(self, args, kwargs)
            backend.gpu.synchronize()
            self._settle(capture, winners, backend)
        return result

    def _settle(self, capture: Capture, winners: Winners, backend: Backend) -> None:
        for index, pending in enumerate(capture.launches):
            site = pending.site
            if site is None or site.tuner is not self:
                continue
            stored = winners.find(site)
            if stored is not None and stored == site.chosen:
                site.settle(stored)
                continue
            assert backend.gpu is not None
            loader = Loader(backend.gpu)
            try:
                with capture.active():
                    recorded = record(capture, backend.targets[0])
                    trials = Trials(winners) if self.cache_results else None
                    tuned = tune(capture, recorded, index, loader, incumbent=stored, trials=trials)
            finally:
                loader.close()
            site.settle(tuned.winner)
            self.configs_timings = {self.configs_of(site)[i]: ns / 1e6 for i, ns in tuned.times_ns.items()}
            if self.cache_results:
                winners.keep(site, tuned.winner, tuned.times_ns[tuned.winner])

    @staticmethod
    def configs_of(site: Site) -> Sequence[Any]:
        """The ``triton.Config`` of each candidate."""
        return site.originals


_COMPILER = Compiler()


def _preference(winners: Winners) -> Callable[[Site], Sequence[int]]:
    def prefer(site: Site) -> Sequence[int]:
        found = winners.find(site)
        rest = [i for i in range(len(site.candidates)) if i != found]
        return rest if found is None else [found, *rest]

    return prefer


def _backend() -> Backend | None:
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
