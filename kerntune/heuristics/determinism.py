"""One config for a reduction, so that the order of its additions never depends on a race."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kerntune.base.config import Config
from kerntune.errors import HintError
from kerntune.heuristics.hints import KernelHints
from kerntune.heuristics.sizing import block_of, in_order

TOO_SMALL_R_BLOCK = 4
"""A reduction block this short is never fast."""


def one_config(configs: Iterable[Config], hints: KernelHints) -> tuple[Config, ...]:
    """The configs, each once; in deterministic and batch-invariant modes only the one with medium blocks.

    Left out first are R0 blocks up to 4, then X blocks of 1 in kernels without contiguous access along r (each only if
    something remains). Then the second-largest R0, warps and X decide, in that order: extreme configs are most often
    slow. Raises :class:`HintError` if there is no config to begin with.
    """
    found = in_order(configs)
    if not found:
        raise HintError(f"{hints.where}no config fits these sizes: {hints.sizes}")
    if not hints.modes.one_reduction or len(found) == 1:
        return found
    found = _unless_empty(found, lambda c: not _short_r(c))
    if not hints.contiguous_reduction_access:
        found = _unless_empty(found, lambda c: c.kwargs["XBLOCK"] != 1)
    for value in (_r0, _warps, _x):
        if len(found) > 1:
            found = _second_largest(found, value)
    return found[:1]


def _unless_empty(configs: tuple[Config, ...], keep: Callable[[Config], bool]) -> tuple[Config, ...]:
    return tuple(c for c in configs if keep(c)) or configs


def _second_largest(configs: Sequence[Config], value: Callable[[Config], int]) -> tuple[Config, ...]:
    """Those with the second-largest value, from the smallest up; all of them, sorted, if they have one value."""
    values = sorted({value(c) for c in configs})
    if len(values) == 1:
        return tuple(configs)
    return tuple(c for c in configs if value(c) == values[-2])


def _short_r(config: Config) -> bool:
    return "R0_BLOCK" in config.kwargs and _r0(config) <= TOO_SMALL_R_BLOCK


def _r0(config: Config) -> int:
    return block_of(config, "r0", -1)


def _x(config: Config) -> int:
    return block_of(config, "x", -1)


def _warps(config: Config) -> int:
    return config.num_warps
