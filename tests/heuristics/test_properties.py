"""Properties of every proposal, for all hints."""

from __future__ import annotations

import contextlib
import copy
import functools
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec
from kerntune.errors import HintError
from kerntune.heuristics import (
    PRESETS,
    Preset,
    cooperative_reduction,
    persistent_reduction,
    pointwise,
    reduction,
    split_scan,
)
from kerntune.heuristics.hints import BLOCK_NAMES, MAX_BLOCK, AutotuneHint, KernelHints, Modes, ReductionHint, TileHint

from .inductor_free import XPU

MAX_BLOCK_X_HIP = 8192


Propose = Callable[[KernelHints, DeviceSpec, Preset], tuple[Config, ...]]

FAMILIES: dict[str, tuple[Propose, tuple[tuple[str, ...], ...]]] = {
    "pointwise": (pointwise, (("x",), ("x", "y"), ("x", "y", "z"))),
    "reduction": (reduction, (("x", "r0"), ("x", "r0", "r1"), ("x", "y", "r0"))),
    "persistent": (persistent_reduction, (("x", "r0"), ("x", "r0", "r1"), ("x", "y", "r0"))),
    "cooperative": (cooperative_reduction, (("x", "r0"),)),
    "cooperative_persistent": (functools.partial(cooperative_reduction, persistent=True), (("x", "r0"),)),
    "split_scan": (split_scan, (("x", "r0"),)),
}

LOGS = {"x": 44, "y": 27, "z": 27, "r0": 31, "r1": 16}
DEVICES = st.sampled_from([*TYPICAL_DEVICES.values(), XPU])
MODES = st.builds(
    Modes,
    max_autotune=st.booleans(),
    autotune_pointwise=st.booleans(),
    deterministic=st.booleans(),
    single_reduction_config=st.booleans(),
    batch_invariant=st.booleans(),
    multi_stage_mix_order=st.booleans(),
)


@st.composite
def hints_of(draw: st.DrawFn, axes: tuple[tuple[str, ...], ...]) -> KernelHints:
    sizes = {axis: 1 << draw(st.integers(0, LOGS[axis])) for axis in draw(st.sampled_from(axes))}
    return KernelHints(
        sizes=sizes,
        reduction=draw(st.sampled_from(ReductionHint)),
        tile=draw(st.sampled_from(TileHint)),
        loads=draw(st.integers(0, 12)),
        stores=draw(st.integers(0, 4)),
        reductions=draw(st.integers(0, 4)),
        dynamic_sizes=draw(st.integers(0, 3)),
        min_elements_per_thread=draw(st.sampled_from([0, 0, 2, 4, 32])),
        autotune=draw(st.sampled_from([(), (AutotuneHint.ONE_ELEMENT_PER_THREAD,)])),
        contiguous_reduction_access=draw(st.booleans()),
        tiling_scores={axis: draw(st.sampled_from([0.0, 1.0, 7.5])) for axis in sizes},
        tma_minimums=draw(st.sampled_from([{}, {}, {"x": 16}])),
        rsplit_size=draw(st.sampled_from([None, None, 64])),
        add_persistent_rblock=draw(st.booleans()),
        modes=draw(MODES),
    )


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data(), device=DEVICES, preset=st.sampled_from(list(PRESETS.values())))
def test_proposals_are_legal(family: str, data: st.DataObject, device: DeviceSpec, preset: Preset) -> None:
    propose, axes = FAMILIES[family]
    hints = data.draw(hints_of(axes))
    before = copy.deepcopy(hints)
    try:
        configs = propose(hints, device, preset)
    except HintError as error:
        configs = ()
        refused = str(error)
    assert hints == before, "the hints were changed"
    if not configs:
        assert refused
        return
    assert len({c.key() for c in configs}) == len(configs), "a config is there twice"
    assert propose(hints, device, preset) == configs, "a proposal must not depend on earlier ones"
    for config in configs:
        check_legal(config, hints, device, family)


def check_legal(config: Config, hints: KernelHints, device: DeviceSpec, family: str) -> None:
    """Blocks are powers of two within their limits; warps are powers of two that a block can have."""
    limits = {**MAX_BLOCK, "x": MAX_BLOCK_X_HIP} if device.target.backend == "hip" else MAX_BLOCK
    for axis, name in BLOCK_NAMES.items():
        if name in config.kwargs:
            block = config.kwargs[name]
            assert isinstance(block, int)
            assert block & (block - 1) == 0 < block <= limits[axis]
    assert config.num_warps & (config.num_warps - 1) == 0 < config.num_warps
    assert config.num_warps * device.warp_size <= device.max_threads_per_block
    if "persistent" in family:
        assert not {"R0_BLOCK", "R1_BLOCK"} & config.kwargs.keys()


@pytest.mark.parametrize("family", list(FAMILIES)[1:])
@given(data=st.data(), device=DEVICES)
def test_deterministic_reductions_get_one_config(family: str, data: st.DataObject, device: DeviceSpec) -> None:
    propose, axes = FAMILIES[family]
    hints = data.draw(hints_of(axes))
    strict = msgspec.structs.replace(hints, modes=Modes(deterministic=True))
    with contextlib.suppress(HintError):
        assert len(propose(strict, device, PRESETS["inductor-2.13"])) == 1


def test_importing_the_heuristics_imports_neither_torch_nor_triton() -> None:
    code = "import sys, kerntune.heuristics; print(sorted({'torch', 'triton'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_everything_public_is_there() -> None:
    import kerntune.heuristics as room

    assert sorted(room.__all__) == sorted(set(room.__all__))
    assert [name for name in room.__all__ if not hasattr(room, name)] == []
