"""The tile of an outer reduction: neighbouring threads take neighbouring outputs and walk r side by side."""

from __future__ import annotations

from typing import NamedTuple

from kerntune.heuristics.hints import KernelHints
from kerntune.heuristics.sizing import ceil_pow2

FEW_OUTPUTS = 1024
SOME_OUTPUTS = 8 * 4096
"""Up to 1024 outputs small X blocks keep all SMs busy; below 9 times 4096 blocks of 16 do."""

VECTOR_X = 64
MAX_X = 256
TILE = 512
HEAVY_LOADS = 4
HEAVY_DYNAMIC_LOADS = 3
SHORT_R = 128
LONG_R = 2048


class OuterTile(NamedTuple):
    """Wanted blocks of x and r, and warps if they are fixed."""

    x: int
    r: int
    warps: int | None = None


def outer_tile(hints: KernelHints, r: int, dynamic: int) -> OuterTile:
    """The wanted tile for ``r`` reduced elements and ``dynamic`` sizes that are only known at launch.

    Index arithmetic with dynamic sizes needs registers: with one dynamic size steps along r are short, with several
    they are long, because each step then computes much.
    """
    x = hints.sizes["x"]
    if x <= FEW_OUTPUTS:
        return OuterTile(max(min(x // 128, 8), 2), min(r, 64))
    if x // 4096 <= SOME_OUTPUTS // 4096:
        return OuterTile(16, TILE // 16)
    if dynamic > 1:
        return OuterTile(VECTOR_X, max(min(r // 64, 64), 8))
    if dynamic == 1:
        return OuterTile(VECTOR_X, 1 if hints.loads >= HEAVY_DYNAMIC_LOADS else min(ceil_pow2(max(r, 128) // 128), 8))
    return _static_tile(x, r, hints.loads)


def _static_tile(x: int, r: int, loads: int) -> OuterTile:
    wide = max(min(MAX_X, ceil_pow2(x // 4096)), VECTOR_X)
    if loads < HEAVY_LOADS or r <= SHORT_R:
        return OuterTile(wide, TILE // wide)
    return OuterTile(min(wide, 32), 64 if r >= LONG_R else 32, 4)
