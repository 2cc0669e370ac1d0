"""``kerntune.descend(kernel, call)``: from the winner of a call through its neighbours, now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kerntune.base.config import Config
from kerntune.capture.site import config_of
from kerntune.errors import UsageError
from kerntune.search.declared_descent import TRIALS, descent_limits
from kerntune.tuning.api.autotuner import Autotuner
from kerntune.tuning.api.descent_options import DescentOptions


@dataclass(frozen=True)
class Descended:
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
) -> tuple[Descended, ...]:
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
    outer, kernel.descent = kernel.descent, DescentOptions(trials, all_directions, descent_limits(limits), frozen)
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
    return tuple(Descended(k, known.get(k), config_of(v, name)) for k, v in found.items())


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
