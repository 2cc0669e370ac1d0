"""Triton's autotuner with kerntune's engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from triton.runtime.autotuner import Autotuner as TritonAutotuner

from kerntune.base.config import Config
from kerntune.base.policy import StaticPrune, TuneMode
from kerntune.capture.site import config_of
from kerntune.kernels import compat
from kerntune.kernels.dispatch import LaunchPath, Ran
from kerntune.kernels.dispatch.argument_parts import Needs
from kerntune.search import ComboSearch, Descent, Search
from kerntune.search.register_scaling import RegisterScaling
from kerntune.tuning import context
from kerntune.tuning.api.descent_options import DescentOptions
from kerntune.tuning.autotuner_run import run_tuned
from kerntune.tuning.deferred import Late
from kerntune.tuning.dynamo_watch import watch_dynamo
from kerntune.tuning.isolation import Isolate
from kerntune.tuning.launch_paths import PlainPath, TunerEngine, find_engines_with
from kerntune.tuning.verification import Verify


class Autotuner(TritonAutotuner):  # type: ignore[misc]  # Triton has no types here
    """Triton's autotuner with another engine: same attributes, same calls, from any thread."""

    verify: Verify | str | None = None
    """Which configs' results are compared; None leaves it to ``KERNTUNE_VERIFY``."""

    verify_ignore: tuple[str, ...] | None = None
    """Arguments that are not compared; None for none."""

    isolate: Isolate | None = None
    """Where configs are launched first; None leaves it to ``KERNTUNE_ISOLATE``."""

    static_prune: StaticPrune | None = None
    """Which configs are left out unrun; None for none."""

    patience: float | str | None = None
    """Seconds to wait for stragglers, or ``all``; None leaves it to ``KERNTUNE_PATIENCE``."""

    tune_mode: TuneMode | None = None
    """How winners are found; None leaves it to ``KERNTUNE_TUNE``."""
    descent: DescentOptions | None = None
    """How the search goes on from the best of the configs; None for no further."""

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
        watch_dynamo()

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

    def engine(self) -> TunerEngine:
        """How it launches; a tuner with another ``run`` does so by that."""
        own = "run" in vars(self) or type(self).__getitem__ is not Autotuner.__getitem__
        return TunerEngine(PlainPath(self) if own else self._path, keep=bool(self.cache_results))

    def variety(self) -> list[Any] | None:
        """Configs that stand for all that may be launched, as far as what the kernel does with its arguments depends on
        them; None if there are too many."""
        return list(self.configs)

    def needs(self) -> Needs:
        """What a winner depends on beside the arguments' types."""
        return Needs(exact=frozenset(self.keys))

    @property
    def searches(self) -> bool:
        """Whether configs beyond the list may win."""
        return self.descent is not None

    def search_for(
        self, named: Mapping[str, Any], kwargs: Mapping[str, Any]
    ) -> Search | Descent | ComboSearch | RegisterScaling | None:
        """What chooses configs beyond the list for a call with these arguments by position and these by name."""
        if self.descent is None:
            return None
        found = self.descent.of(self.listed(named, kwargs), context.device_now(), self.kept_fields())
        prune = self.early_config_prune
        if prune is None:
            return found
        return found.among(lambda config: bool(prune([compat.triton_config(config)], dict(named), **kwargs)))

    def kept_fields(self) -> tuple[str, ...]:
        """Fields of configs that no descent may change, because the kernel would compute something else."""
        return ()

    def listed(self, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> tuple[Config, ...]:
        """The configs of a call's list, before pruning."""
        return tuple(config_of(config, f"kernel {self.base_fn.__name__}") for config in self.configs)

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


@find_engines_with
def _our_engine(tuner: Any) -> TunerEngine | None:
    return tuner.engine() if isinstance(tuner, Autotuner) else None


STANDS_FOR: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What ``install()`` put in the place of Triton's ``run``, and what was there: the way back for where nothing runs."""


def plain_run() -> Callable[..., Any]:
    """Triton's own ``Autotuner.run`` (the stand-ins', while they are active)."""
    run: Callable[..., Any] = TritonAutotuner.run
    return STANDS_FOR.get(run, run)
