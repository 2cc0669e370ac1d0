"""``@kerntune.autotune``: takes what ``triton.autotune`` takes, tunes with kerntune's engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from triton.runtime.autotuner import Autotuner as TritonAutotuner

from kerntune.dispatch import LaunchPath, Ran
from kerntune.dispatch.parts import Needs
from kerntune.engine import run_tuned
from kerntune.errors import ConfigError, UsageError
from kerntune.late import Late
from kerntune.patience import checked_patience
from kerntune.policy import StaticPrune
from kerntune.verify import Verification, names_of


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
