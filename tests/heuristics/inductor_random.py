"""Random cases for the comparison with torch's heuristics: every hint at once, on devices that are not typical.

The enumeration of ``inductor_cases`` goes along chosen axes; this draws all of them together, valid and not: compute
capabilities 7.0 to 12.1, ten AMD and three Intel GPUs, odd numbers of SMs, sizes of up to 2**45 of any value, scores
and minimums of any axes, axes that no kernel has. :func:`difference` tells a case on which we are meant to differ.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from kerntune.base.device import DeviceSpec, Target
from kerntune.errors import HintError
from kerntune.heuristics.hints import AutotuneHint, KernelHints, Modes, ReductionHint, TileHint

from .inductor_cases import PROPOSALS, Case

CUDA = ("70", "72", "75", "80", "86", "87", "89", "90", "100", "101", "103", "110", "120", "121")
WAVE64 = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950")
WAVE32 = ("gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1201")
INTEL = ("pvc", "bmg", "arl")
TARGETS = (
    *(Target("cuda", arch) for arch in CUDA),
    *(Target("hip", arch, 64) for arch in WAVE64),
    *(Target("hip", arch) for arch in WAVE32),
    *(Target("xpu", arch) for arch in INTEL),
)
AXES_OF = {
    "pointwise": (("x",), ("x", "y"), ("x", "y", "z")),
    "reduction": (("x", "r0"), ("x", "r0", "r1"), ("x", "y", "r0"), ("x", "y", "r0", "r1")),
    "cooperative": (("x", "r0"),),
}
ODD_AXES = (("x", "z", "r0"), ("r0",), ("y", "r0"), ("x", "z"), ("x",), ("x", "y", "z", "r0"))
SCORES = (0, 1, 1, 2, 3, 8, 8.0, 100, 4096, 1 << 30, 0.5)
BLOCKS = (1, 2, 4, 8, 16, 64, 256, 1024)


def random_cases(seed: int) -> Iterator[Case]:
    """Endless."""
    rng = random.Random(seed)
    for family in itertools.cycle(PROPOSALS):
        axes = rng.choice(ODD_AXES) if rng.random() < 0.02 else rng.choice(_usual_axes(family))
        device = DeviceSpec(rng.choice(TARGETS), "random", rng.choice((rng.randint(1, 320), 132, 148, 304)))
        yield family, _hints(rng, family, axes), device


def _usual_axes(family: str) -> tuple[tuple[str, ...], ...]:
    if family == "pointwise":
        return AXES_OF["pointwise"]
    return AXES_OF["cooperative" if family.startswith(("cooperative", "split")) else "reduction"]


def _hints(rng: random.Random, family: str, axes: tuple[str, ...]) -> KernelHints:
    order = rng.sample(axes, len(axes))
    least, most = (0, 17) if "persistent" in family else (0, 31)
    sizes = {axis: _size(rng, (least, most) if axis[0] == "r" else (0, 44 if axis == "x" else 27)) for axis in order}
    loads, reductions = rng.randint(0, 12), rng.randint(0, 4)
    fields: dict[str, Any] = {"loads": loads, "reductions": reductions, "stores": rng.randint(0, 4)}
    for name, draw in _optional(rng, order).items():
        if rng.random() < 0.2:
            fields[name] = draw()
    if family == "persistent_reduction" and rng.random() < 0.3:
        fields["rsplit_size"] = rng.choice((1, 2, 16, 32, 48, 64, 100, 128, 500, 1024))
    if "reduction" in family and rng.random() < 0.1:
        fields["native_matmul"] = True
        fields["native_matmul_rblock"] = rng.choice((None, 16, 512, 4096))
    return KernelHints(sizes=sizes, modes=_modes(rng), **fields)


def _optional(rng: random.Random, axes: list[str]) -> dict[str, Callable[[], Any]]:
    """How each optional hint is drawn."""

    def some(values: tuple[float, ...], share: float) -> dict[str, float]:
        return {axis: rng.choice(values) for axis in rng.sample(axes, len(axes)) if rng.random() < share}

    return {
        "reduction": lambda: rng.choice(list(ReductionHint)),
        "tile": lambda: TileHint.SQUARE,
        "dynamic_sizes": lambda: rng.randint(1, 3),
        "min_elements_per_thread": lambda: rng.choice((1, 2, 4, 8, 16, 32)),
        "autotune": lambda: tuple(rng.sample(list(AutotuneHint), rng.randint(1, 2))),
        "atomic_add": lambda: True,
        "no_x_block": lambda: True,
        "contiguous_reduction_access": lambda: False,
        "tiling_scores": lambda: some(SCORES, 0.97),
        "tma_minimums": lambda: some(BLOCKS, 0.5),
        "makes_descriptors": lambda: True,
        "min_x_block": lambda: rng.choice(BLOCKS),
        "min_r_block": lambda: rng.choice(BLOCKS),
        "add_persistent_rblock": lambda: True,
        "max_persistent_rblock": lambda: rng.choice(BLOCKS),
        "min_scan_rblock": lambda: rng.choice(BLOCKS),
    }


def _size(rng: random.Random, bits: tuple[int, int]) -> int:
    """A power of two, its neighbour, or any number of that length."""
    power = 1 << rng.randint(*bits)
    kind = rng.random()
    if kind < 0.5:
        return power
    return max(1, power + rng.choice((-1, 1))) if kind < 0.75 else rng.randint(1, power)


def _modes(rng: random.Random) -> Modes:
    flags = [f for f in Modes.__struct_fields__ if not f.startswith("descent")]
    return Modes(**{flag: not getattr(Modes(), flag) for flag in flags if rng.random() < 0.15})


def difference(kind: str, hints: KernelHints, device: DeviceSpec, mine: Any, theirs: Any) -> str:
    """The name of the deliberate difference that a case is of; empty if none explains it."""
    checks = {
        "reduction_axes_are_checked": mine is None and _odd_axes(kind, hints),
        "native_matmul_axes_are_checked": mine is None and hints.native_matmul and _odd_matmul_axes(hints),
        "tiled_grids_are_checked": mine is None and "y" in hints.sizes and _says(kind, hints, device, "too long"),
        "batch_invariance_without_an_x_block": hints.modes.batch_invariant and hints.no_x_block,
    }
    return next((name for name, holds in checks.items() if holds), "")


def _odd_axes(kind: str, hints: KernelHints) -> bool:
    return kind != "pointwise" and set(hints.sizes) not in [set(axes) for axes in AXES_OF["reduction"]]


def _odd_matmul_axes(hints: KernelHints) -> bool:
    return set(hints.sizes) not in ({"x", "y", "r0"}, {"x", "y", "z", "r0"})


def _says(kind: str, hints: KernelHints, device: DeviceSpec, words: str) -> bool:
    from kerntune.heuristics import INDUCTOR_2_13

    try:
        PROPOSALS[kind](hints, device, INDUCTOR_2_13)
    except HintError as error:
        return words in str(error)
    return False
