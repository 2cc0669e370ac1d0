"""Has Triton's autotuner with kerntune's engine: over a list of configs, or with a search beyond the list.

A search descends from a winner through its neighbours: ``descend=True``, a number of trials, or options say how.
``kerntune.descend(kernel, call)`` descends at once from the winner of one call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from triton.runtime.autotuner import Autotuner as TritonAutotuner

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.policy import StaticPrune, TuneMode
from kerntune.capture.launch import config_of, is_plain
from kerntune.errors import ConfigError, UsageError
from kerntune.kernels.compat import tuners
from kerntune.kernels.dispatch import LaunchOutcome, LaunchPath
from kerntune.kernels.dispatch.codegen import Needs
from kerntune.kernels.source import function_of
from kerntune.search import AnySearch, Descent, Search
from kerntune.search.descent import TRIALS, descent_limits, with_neighbour
from kerntune.tuning import context
from kerntune.tuning.context import PlainPath, TunerEngine, find_engines_with
from kerntune.tuning.dynamo_watch import watch_dynamo
from kerntune.tuning.isolation import Isolate
from kerntune.tuning.tune_call import LateConfigs
from kerntune.tuning.tuned_call import run_tuned
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

    untried: dict[tuple[Any, ...], LateConfigs]
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
        return partial(self._path.launch, grid)

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

    def search_for(self, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> AnySearch | None:
        """What chooses configs beyond the list for a call with these arguments by position and these by name."""
        if self.descent is None:
            return None
        found = self.descent.of(self.listed(named, kwargs), context.device_now(), self.kept_fields())
        prune = self.early_config_prune
        if prune is None:
            return found
        return found.among(lambda config: bool(prune([tuners.triton_config(config)], dict(named), **kwargs)))

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
        return self._path.launch(kwargs.pop("grid"), *args, **kwargs)

    def _run_slowly(self, args: Sequence[Any], kwargs: dict[str, Any]) -> LaunchOutcome:
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


@dataclass(frozen=True)
class DescentOptions:
    """At most ``trials`` configs beyond the list; ``all_directions`` at once where neither one field nor two help;
    upper ``limits`` by field; fields that are ``frozen``."""

    trials: int = TRIALS
    all_directions: bool = False
    limits: tuple[tuple[str, int], ...] = ()
    frozen: tuple[str, ...] = ()

    @classmethod
    def given(cls, value: Any, where: str) -> DescentOptions | None:
        """What ``descend=`` says: None or False for none, True, a number of trials, or a dictionary of the fields
        above. :class:`UsageError` for anything else."""
        if value is None or value is False:
            return None
        if value is True:
            return cls()
        if isinstance(value, int) and value > 0:
            return cls(value)
        if isinstance(value, Mapping) and set(value) <= {"trials", "all_directions", "limits", "frozen"}:
            limits, frozen = descent_limits(value.get("limits")), tuple(value.get("frozen", ()))
            return cls(**{**value, "limits": limits, "frozen": frozen})
        raise UsageError(
            f"{where}, descend: {value!r}; it can be True, a number of trials, or a dictionary with trials, "
            "all_directions, limits and frozen"
        )

    def of(self, listed: tuple[Config, ...], device: DeviceSpec, kept: tuple[str, ...] = ()) -> Descent:
        """The descent from the best of a list; the fields that are ``kept`` stay, too."""
        frozen = tuple(dict.fromkeys((*self.frozen, *kept)))
        return Descent(listed, device, self.trials, self.all_directions, self.limits, frozen)


MAX_VARIETY = 4096
"""Points of a space that are gone through."""


class SearchTuner(Autotuner):
    """``configs`` are those of the list and what the search tries beside them whatever comes of it. A call's pruning
    is asked of each config by itself, and decides like a constraint of the space.

    A hook that all configs of the list share is that of the search's configs, too. Raises :class:`ConfigError` for a
    list with several hooks, and for configs that aren't of the space or hold what no space can (dtypes, functions).
    """

    def __init__(
        self, search: Search, fn: Any, arg_names: Sequence[str], configs: Sequence[Any], *args: Any, **kwargs: Any
    ) -> None:
        name = self._name = f"kernel {function_of(fn).__name__}"
        self.search, self._starts = search, [config_of(config, name) for config in configs]
        self._hook = _shared_hook(configs, name)
        outside = [config for config in self._starts if not search.has(config)]
        if outside:
            raise ConfigError(f"{name}: config ({outside[0]}) isn't of the search's space ({search})")
        first = search.begins_with(self._starts)
        if not first:
            raise ConfigError(f"{name}: no config of the search's space satisfies its constraints")
        super().__init__(fn, arg_names, [self._as_tritons(config) for config in first], *args, **kwargs)

    @property
    def searches(self) -> bool:
        """Always: the list is where the search begins."""
        return True

    def search_for(self, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> Search:
        """The search of a call with these arguments by position and these by name."""
        prune = self.early_config_prune
        if prune is None:
            return self.search
        return self.search.among(lambda config: bool(prune([self._as_tritons(config)], dict(named), **kwargs)))

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
        """What the search begins with for the call that is under way; :class:`ConfigError` if that is nothing."""
        first = self.search_for(self.nargs or {}, kwargs).begins_with(self._starts)
        if not first:
            why = "early_config_prune forbids the whole space"
            raise ConfigError(f"{self._name}: no configs are left to try: {why}")
        return [self._as_tritons(config) for config in first]

    def variety(self) -> list[Any] | None:
        """As in the base class, of the whole space."""
        space = self.search.space
        return None if space.size > MAX_VARIETY else [self._as_tritons(config) for config in space.configs()]

    def _as_tritons(self, config: Config) -> Any:
        found = tuners.triton_config(config)
        found.pre_hook = self._hook
        return found


def descent_list(configs: Sequence[Any], name: str) -> list[Any]:
    """A list to descend from: with a neighbour, if it has one config only; Triton's default config if it has none.
    :class:`ConfigError` as for a :class:`SearchTuner`."""
    hook = _shared_hook(configs, name)
    if len(configs) > 1:
        return list(configs)
    first = config_of(configs[0], name) if configs else Config()
    found = [tuners.triton_config(first), tuners.triton_config(with_neighbour(first))]
    for config in found:
        config.pre_hook = hook
    return found


def _shared_hook(configs: Sequence[Any], name: str) -> Any:
    hooks = list(dict.fromkeys(config.pre_hook for config in configs))
    if len(hooks) > 1:
        raise ConfigError(f"{name}: its configs have different hooks, so a search doesn't know which to use")
    for config in configs:  # of objects a space has the texts, and a kernel launched with a text is another one
        objects = [key for key, value in config.kwargs.items() if not is_plain(value)]
        if objects:
            raise ConfigError(
                f"{name}: config ({config}) sets {', '.join(objects)} to what a search can't vary; give numbers, texts "
                "or None, from which the kernel chooses, or list the configs"
            )
    return hooks[0] if hooks else None


@dataclass(frozen=True)
class DescentResult:
    """What a descent came to, for one ``key`` of the kernel's: the config ``before`` (None if the call had no winner
    in this process) and ``after`` it."""

    key: Any
    before: Config | None
    after: Config


def descend(
    kernel: Any,
    call: Callable[[], object],
    *,
    trials: int = TRIALS,
    all_directions: bool = False,
    limits: Mapping[str, int] | None = None,
    frozen: tuple[str, ...] = (),
) -> tuple[DescentResult, ...]:
    """Run ``call()``, which launches the tuned ``kernel``, and look for a better config beyond the kernel's list.

    The list is raced first, unless earlier runs have; then steps from the fastest few along one or two integer fields
    (``all_directions``: or all of them) are tried, those first that promise most; at most ``trials`` further configs.
    What is found is verified like any winner, and the kernel goes on with it in this process. Every trial is kept, so a
    descent that was broken off goes on where it was; a second one with more ``trials`` goes on from its end only where
    trials are kept.
    For later processes put the config into the list, or give the decorator ``descend=True``.

    :class:`UsageError` for a kernel that kerntune doesn't tune, that has one config only or a search of its own, and
    for a call that doesn't launch it.
    """
    _check(kernel)
    name, before = f"kernel {kernel.base_fn.__name__}", dict(kernel.cache)
    options = DescentOptions(trials, all_directions, descent_limits(limits), frozen)
    outer, kernel.descent = kernel.descent, options
    kernel.cache.clear()
    try:
        call()
    finally:
        kernel.descent = outer
        found = dict(kernel.cache)
        kernel.cache.update({k: v for k, v in before.items() if k not in found})
    if not found:
        raise UsageError(f"kerntune.descend: the call doesn't launch {name}, or its grid is empty")
    known = {k: config_of(v, name) for k, v in before.items() if k in found}
    return tuple(DescentResult(k, known.get(k), config_of(v, name)) for k, v in found.items())


def _check(kernel: Any) -> None:
    if not isinstance(kernel, Autotuner):
        raise UsageError(
            f"kerntune.descend: {kernel!r} is not tuned by kerntune; put kerntune.autotune or a heuristic's decorator "
            "on it"
        )
    if len(kernel.configs) < 2:
        raise UsageError("kerntune.descend: the kernel has one config only; give the decorator descend=True")
    if hasattr(kernel, "search"):
        raise UsageError("kerntune.descend: the kernel has a search of its own")
