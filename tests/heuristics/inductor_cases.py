"""Every case of the comparison with torch's heuristics, enumerated by family."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec, Target
from kerntune.errors import HintError
from kerntune.heuristics import (
    INDUCTOR_2_13,
    Preset,
    cooperative_reduction,
    persistent_reduction,
    pointwise,
    reduction,
    split_scan,
)
from kerntune.heuristics.hints import AutotuneHint, KernelHints, Modes, ReductionHint, TileHint

Case = tuple[str, KernelHints, DeviceSpec]
Proposal = Callable[[KernelHints, DeviceSpec, Preset], tuple[Config, ...]]

XPU = DeviceSpec(Target("xpu", "pvc"), "Intel Max 1550", 128)
T4, H100, B200, MI300, RX7900 = (
    TYPICAL_DEVICES[t] for t in ("cuda:75", "cuda:90", "cuda:100", "hip:gfx942", "hip:gfx1100")
)
B300 = msgspec.structs.replace(B200, target=Target("cuda", "103"))
DEVICES = (*TYPICAL_DEVICES.values(), XPU)
KINDS = (H100, MI300, RX7900, XPU)

X_SIZES = [1 << i for i in range(45)]
YZ_SIZES = [1 << i for i in range(28)]
BOOLS = (False, True)
SCALAR = (AutotuneHint.SCALAR_ACCUMULATORS,)
ONE_EACH = (AutotuneHint.ONE_ELEMENT_PER_THREAD,)
TUNED = Modes(max_autotune=True)
UNTUNED = Modes(autotune_pointwise=False)

R_SIZES = [1 << i for i in range(32)]
PERSISTENT_SIZES = [1 << i for i in range(18)]
SPLITS = (16, 32, 64, 128, 256, 512, 1024)
MODES = (Modes(), TUNED, Modes(deterministic=True))
ALL_MODES = (*MODES, Modes(max_autotune=True, deterministic=True), Modes(batch_invariant=True))

PROPOSALS: dict[str, Proposal] = {
    "pointwise": pointwise,
    "reduction": reduction,
    "persistent_reduction": persistent_reduction,
    "cooperative_reduction": cooperative_reduction,
    "cooperative_persistent": functools.partial(cooperative_reduction, persistent=True),
    "split_scan": split_scan,
}


def ours(
    family: str, hints: KernelHints, device: DeviceSpec, preset: Preset = INDUCTOR_2_13
) -> tuple[Config, ...] | None:
    """Our ordered configs, or None if the heuristic refuses."""
    try:
        return PROPOSALS[family](hints, device, preset)
    except HintError:
        return None


def pointwise_cases() -> Iterator[Case]:
    modes = (Modes(), TUNED, UNTUNED)
    for x, least, tuned, mode, atomic, device in itertools.product(
        X_SIZES, (0, 2, 4, 32), ((), ONE_EACH), modes, BOOLS, KINDS
    ):
        hints = KernelHints(
            sizes={"x": x}, min_elements_per_thread=least, autotune=tuned, modes=mode, atomic_add=atomic
        )
        yield "pointwise", hints, device
    for x, y, tile, mode, least, device in itertools.product(X_SIZES, YZ_SIZES, TileHint, modes, (0, 4), KINDS):
        tuned = ONE_EACH if (x ^ y).bit_length() % 2 else ()
        hints = KernelHints(
            sizes={"y": y, "x": x}, tile=tile, modes=mode, autotune=tuned, min_elements_per_thread=least
        )
        yield "pointwise", hints, device
    for x, y, z, mode, device in itertools.product(X_SIZES[::2], YZ_SIZES[::3], YZ_SIZES[::3], modes[:2], KINDS):
        yield "pointwise", KernelHints(sizes={"z": z, "y": y, "x": x}, modes=mode, autotune=ONE_EACH), device
    for x, y, block, device in itertools.product(X_SIZES[:16], YZ_SIZES[:12], (4, 16, 64), KINDS):
        yield "pointwise", KernelHints(sizes={"x": x, "y": y}, tma_minimums={"x": block, "y": 4}), device


# Loads and reductions around every threshold: 2 to 4 loads, 8 to 10 in all.
COUNTS = ((1, 1), (2, 1), (3, 1), (4, 1), (3, 5), (7, 1), (8, 1), (8, 2), (4, 6))


def reduction_cases() -> Iterator[Case]:
    for (x, r), hint, mode, (loads, reds) in itertools.product(
        itertools.product(X_SIZES, R_SIZES), ReductionHint, MODES, COUNTS[::2]
    ):
        case = KernelHints(sizes={"x": x, "r0": r}, reduction=hint, modes=mode, loads=loads, reductions=reds)
        yield "reduction", case, DEVICES[(x.bit_length() + r.bit_length() * 3 + loads) % len(DEVICES)]
    for x, r, dynamic, (loads, reds), added, device in itertools.product(
        X_SIZES[8:28], R_SIZES[:18], (0, 1, 2), COUNTS, BOOLS, (H100, MI300)
    ):
        hints = KernelHints(
            sizes={"x": x, "r0": r},
            reduction=ReductionHint.OUTER,
            dynamic_sizes=dynamic,
            loads=loads,
            reductions=reds,
            add_persistent_rblock=added,
        )
        yield "reduction", hints, device
    for x, r0, r1, hint, device in itertools.product(
        X_SIZES[::3], R_SIZES[:20:2], R_SIZES[:20:2], ReductionHint, (H100, MI300)
    ):
        yield "reduction", KernelHints(sizes={"x": x, "r0": r0, "r1": r1}, reduction=hint, modes=TUNED), device
    yield from _tiled_cases("reduction")
    yield from _minimum_cases("reduction")


ORDERS = tuple(itertools.permutations(("x", "y", "r0")))
# All equal, all zero, ties of two, a tie that halving makes (8 against 4), and numbers of no simple ratio.
SCORES = ((1, 1, 1), (0, 0, 0), (8, 8, 1), (8, 4, 1), (4, 8, 8), (0, 3, 100), (4097, 4096, 3))


def tiling_scores() -> Iterator[dict[str, float]]:
    """No scores, and every set of them in every order of the axes: ties must not depend on what torch ignores."""
    yield {}
    for values, order in itertools.product(SCORES, ORDERS):
        score = dict(zip(("x", "y", "r0"), values, strict=True))
        yield {axis: score[axis] for axis in order}


def _tiled_cases(family: str) -> Iterator[Case]:
    places = itertools.product(X_SIZES[:42:3], YZ_SIZES[::4], R_SIZES[:16:2])
    for (x, y, r), score in itertools.product(places, tiling_scores()):
        order = ORDERS[(x.bit_length() + r.bit_length()) % len(ORDERS)]
        sizes = {"x": x, "y": y, "r0": r}
        which = x.bit_length() + y.bit_length() + r.bit_length() + len(score)
        hints = KernelHints(
            sizes={axis: sizes[axis] for axis in order},
            tiling_scores=score,
            modes=MODES[which % len(MODES)],
            loads=6,
            reductions=4,
        )
        yield family, hints, (H100, MI300, RX7900)[which // 3 % 3]


def _minimum_cases(family: str) -> Iterator[Case]:
    for x, r, least_x, least_r, hint, mode, device in itertools.product(
        X_SIZES[:12:2], R_SIZES[:15:2], (None, 4, 64), (None, 16, 512), ReductionHint, MODES, (H100, MI300)
    ):
        sizes = {"x": x, "r0": r}
        hints = KernelHints(sizes=sizes, min_x_block=least_x, min_r_block=least_r, reduction=hint, modes=mode)
        yield family, hints, device
        if least_x and least_r:
            hints = KernelHints(
                sizes=sizes,
                tma_minimums={"x": least_x, "r0": least_r},
                reduction=hint,
                modes=mode,
                contiguous_reduction_access=False,
            )
            yield family, hints, device
    for x, r, row, mode in itertools.product(X_SIZES[:12], R_SIZES[:12], (64, 1024), MODES):
        yield family, KernelHints(sizes={"x": x, "r0": r}, max_persistent_rblock=row, modes=mode), MI300
        yield family, KernelHints(sizes={"x": x, "r0": r}, no_x_block=True, modes=mode), H100


def persistent_cases() -> Iterator[Case]:
    for x, r, hint, mode, device in itertools.product(
        X_SIZES, PERSISTENT_SIZES, ReductionHint, ALL_MODES, (H100, MI300, RX7900, XPU)
    ):
        loads = 2 + (x.bit_length() + r.bit_length()) % 5
        hints = KernelHints(sizes={"x": x, "r0": r}, reduction=hint, modes=mode, loads=loads, stores=1)
        yield "persistent_reduction", hints, device
    for x, r0, r1, hint in itertools.product(X_SIZES[:30:2], R_SIZES[:18], R_SIZES[:18], ReductionHint):
        yield "persistent_reduction", KernelHints(sizes={"x": x, "r0": r0, "r1": r1}, reduction=hint), H100
    yield from _tiled_cases("persistent_reduction")
    yield from _minimum_cases("persistent_reduction")


def mix_order_cases() -> Iterator[Case]:
    for x, r, split, hint, mode, staged, least, device in itertools.product(
        X_SIZES[:32:3], PERSISTENT_SIZES, SPLITS, ReductionHint, (*MODES, TUNED), BOOLS, (None, 8), (H100, MI300)
    ):
        modes = Modes(max_autotune=mode.max_autotune, deterministic=mode.deterministic, multi_stage_mix_order=staged)
        hints = KernelHints(
            sizes={"x": x, "r0": r},
            rsplit_size=split,
            reduction=hint,
            modes=modes,
            tma_minimums={"x": least} if least else {},
        )
        yield "persistent_reduction", hints, device
    for (x, y, r), score, split in itertools.product(
        itertools.product(X_SIZES[4:14:4], YZ_SIZES[2:12:4], R_SIZES[2:12:3]), tiling_scores(), SPLITS[::3]
    ):
        sizes = {"x": x, "y": y, "r0": r}
        yield "persistent_reduction", KernelHints(sizes=sizes, rsplit_size=split, tiling_scores=score), H100


def _cooperative(family: str) -> Iterator[Case]:
    for x, r, hint, mode, sms in itertools.product(
        X_SIZES[:24], R_SIZES, ReductionHint, MODES, (16, 40, 64, 108, 132, 304)
    ):
        base = (H100, MI300, XPU)[(x.bit_length() + r.bit_length()) % 3]
        device = msgspec.structs.replace(base, sm_count=sms)
        yield family, KernelHints(sizes={"x": x, "r0": r}, reduction=hint, modes=mode, loads=3), device
    yield from _minimum_cases(family)


def cooperative_cases() -> Iterator[Case]:
    yield from _cooperative("cooperative_reduction")


def cooperative_persistent_cases() -> Iterator[Case]:
    yield from _cooperative("cooperative_persistent")


def split_scan_cases() -> Iterator[Case]:
    for x, r, hint, mode, least, device in itertools.product(
        X_SIZES[:32:2], R_SIZES, ReductionHint, MODES, (64, 256, 1024), (H100, MI300, XPU)
    ):
        no_x = x == 1
        hints = KernelHints(sizes={"x": x, "r0": r}, reduction=hint, modes=mode, min_scan_rblock=least, no_x_block=no_x)
        yield "split_scan", hints, device
    yield from _minimum_cases("split_scan")


def matmul_cases() -> Iterator[Case]:
    for x, y, r, batch, family in itertools.product(
        X_SIZES[:20:2], YZ_SIZES[:14:2], PERSISTENT_SIZES, (None, 4), ("reduction", "persistent_reduction")
    ):
        sizes = {"x": x, "y": y, "r0": r} if batch is None else {"z": batch, "x": x, "y": y, "r0": r}
        for rblock, mode in itertools.product((None, 4096), MODES[:2]):
            yield family, KernelHints(sizes=sizes, native_matmul=True, native_matmul_rblock=rblock, modes=mode), H100


def newer_cases() -> Iterator[Case]:
    """Hints that only releases after 2.13 use; earlier ones must give the same result as without them."""
    devices = (H100, B300, MI300, RX7900, XPU)
    sizes = ({}, {"y": 64})
    for x, r, more, hint, mode, device, tuned in itertools.product(
        X_SIZES[::3], R_SIZES[1:21:2], sizes, ReductionHint, MODES[:2], devices, ((), SCALAR, (*ONE_EACH, *SCALAR))
    ):
        loads = 10 if (x ^ r).bit_length() % 3 == 0 else 2
        hints = KernelHints(sizes={"x": x, **more, "r0": r}, reduction=hint, modes=mode, autotune=tuned, loads=loads)
        yield (
            ("reduction", "split_scan", "cooperative_reduction")[(x * r).bit_length() % 3] if not more else "reduction",
            hints,
            device,
        )
    for r, split, least, makes, mode, device in itertools.product(
        R_SIZES[2:18:3], (1, 2, 3, 24, 48, 64, 96, 100, 480, 1000, 1024), (None, 2, 8, 16, 32), BOOLS, MODES[:2], KINDS
    ):
        hints = KernelHints(
            sizes={"x": 4096, "r0": r},
            rsplit_size=split,
            makes_descriptors=makes,
            modes=mode,
            tma_minimums={"x": least} if least else {},
        )
        yield "persistent_reduction", hints, device


CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "pointwise": pointwise_cases,
    "reduction": reduction_cases,
    "persistent_reduction": persistent_cases,
    "mix_order": mix_order_cases,
    "cooperative_reduction": cooperative_cases,
    "cooperative_persistent": cooperative_persistent_cases,
    "split_scan": split_scan_cases,
    "matmul": matmul_cases,
    "newer_hints": newer_cases,
}
