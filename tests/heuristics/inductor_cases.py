"""Every case of the comparison with torch's heuristics, enumerated by family."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from kerntune.config import Config
from kerntune.device import TYPICAL_DEVICES, DeviceSpec, Target
from kerntune.errors import HintError
from kerntune.heuristics import pointwise
from kerntune.hints import AutotuneHint, KernelHints, Modes, TileHint

Case = tuple[str, KernelHints, DeviceSpec]
Proposal = Callable[[KernelHints, DeviceSpec], tuple[Config, ...]]

XPU = DeviceSpec(Target("xpu", "pvc"), "Intel Max 1550", 128)
H100, B200, MI300, RX7900 = (TYPICAL_DEVICES[t] for t in ("cuda:90", "cuda:100", "hip:gfx942", "hip:gfx1100"))
DEVICES = (*TYPICAL_DEVICES.values(), XPU)
KINDS = (H100, MI300, RX7900, XPU)

X_SIZES = [1 << i for i in range(45)]
YZ_SIZES = [1 << i for i in range(28)]
BOOLS = (False, True)
ONE_EACH = (AutotuneHint.ONE_ELEMENT_PER_THREAD,)
TUNED = Modes(max_autotune=True)
UNTUNED = Modes(autotune_pointwise=False)

PROPOSALS: dict[str, Proposal] = {"pointwise": pointwise}


def ours(family: str, hints: KernelHints, device: DeviceSpec) -> tuple[Config, ...] | None:
    """Our ordered configs, or None if the heuristic refuses."""
    try:
        return PROPOSALS[family](hints, device)
    except HintError:
        return None


def pointwise_cases() -> Iterator[Case]:
    modes = (Modes(), TUNED, UNTUNED)
    for x, least, tuned, mode, atomic, device in itertools.product(
        X_SIZES, (0, 2, 4, 32), ((), ONE_EACH), modes, BOOLS, KINDS
    ):
        yield (
            "pointwise",
            KernelHints(sizes={"x": x}, min_elements_per_thread=least, autotune=tuned, modes=mode, atomic_add=atomic),
            device,
        )
    for x, y, tile, mode, least, device in itertools.product(X_SIZES, YZ_SIZES, TileHint, modes, (0, 4), KINDS):
        tuned = ONE_EACH if (x ^ y).bit_length() % 2 else ()
        yield (
            "pointwise",
            KernelHints(sizes={"y": y, "x": x}, tile=tile, modes=mode, autotune=tuned, min_elements_per_thread=least),
            device,
        )
    for x, y, z, mode, device in itertools.product(X_SIZES[::2], YZ_SIZES[::3], YZ_SIZES[::3], modes[:2], KINDS):
        yield "pointwise", KernelHints(sizes={"z": z, "y": y, "x": x}, modes=mode, autotune=ONE_EACH), device
    for x, y, block, device in itertools.product(X_SIZES[:16], YZ_SIZES[:12], (4, 16, 64), KINDS):
        yield "pointwise", KernelHints(sizes={"x": x, "y": y}, tma_minimums={"x": block, "y": 4}), device


CASES: dict[str, Callable[[], Iterator[Case]]] = {"pointwise": pointwise_cases}
