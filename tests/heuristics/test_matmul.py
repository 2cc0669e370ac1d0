"""Native matrix products."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec
from kerntune.errors import HintError
from kerntune.heuristics import MEASURED_2026, persistent_reduction, reduction
from kerntune.heuristics.hints import KernelHints, is_power_of_two
from kerntune.heuristics.matmul import NEWER_TILES, TILES, least_shared_bytes, products_by_size
from kerntune.heuristics.presets import measured_on
from kerntune.heuristics.sizing import ceil_pow2

MAX_TENSOR_NUMEL = 1 << 20
MIN_DOT_BLOCK = 16


H100 = TYPICAL_DEVICES["cuda:90"]


def hints(r: int, **fields: object) -> KernelHints:
    return KernelHints(sizes={"x": 1024, "y": 512, "r0": r}, native_matmul=True, **fields)  # type: ignore[arg-type]


def test_nineteen_tiles_and_sixteen_without_the_loop() -> None:
    assert len(reduction(hints(256), H100)) == 19
    assert len(persistent_reduction(hints(16), H100)) == 16


def test_batches_have_z_blocks_of_one() -> None:
    batched = KernelHints(sizes={"x": 64, "y": 64, "z": 8, "r0": 64}, native_matmul=True)
    assert {c.kwargs["ZBLOCK"] for c in (*reduction(batched, H100), *persistent_reduction(batched, H100))} == {1}


@pytest.mark.parametrize("r", [16, 128, 512, 1024, 4096])
def test_a_whole_product_fits_one_tensor(r: int) -> None:
    for config in persistent_reduction(hints(r), H100):
        x, y = config.kwargs["XBLOCK"], config.kwargs["YBLOCK"]
        assert isinstance(x, int)
        assert isinstance(y, int)
        assert x * y * r <= MAX_TENSOR_NUMEL
        assert min(x, y) >= 16


def test_nothing_fits_a_very_long_product() -> None:
    with pytest.raises(HintError, match="no config fits"):
        persistent_reduction(hints(8192), H100)
    assert persistent_reduction(hints(8192, native_matmul_rblock=64), H100)


def test_short_products_are_padded_to_a_dot() -> None:
    assert persistent_reduction(hints(1), H100) == persistent_reduction(hints(16), H100)


def test_other_axes_are_refused() -> None:
    with pytest.raises(HintError, match="native matmul takes size hints for x y r0 or x y z r0"):
        reduction(KernelHints(sizes={"x": 64, "r0": 64}, native_matmul=True), H100)


def sized(x: int, y: int, r0: int, device: DeviceSpec = H100, **fields: object) -> tuple[Config, ...]:
    told = KernelHints(sizes={"x": x, "y": y, "r0": r0}, native_matmul=True, **fields)  # type: ignore[arg-type]
    return reduction(told, device, MEASURED_2026)


@given(
    st.tuples(*[st.integers(1, 4096)] * 3), st.sampled_from([0, 1, 2, 4]),
    st.sampled_from([d for d in TYPICAL_DEVICES.values() if measured_on(d, MEASURED_2026)]),
)  # fmt: skip
def test_products_are_within_their_sizes(sizes: tuple[int, int, int], width: int, device: DeviceSpec) -> None:
    """No block is longer than its axis, no warp has less than a 16 x 16 tile, nothing is there twice."""
    found = sized(*sizes, device, operand_bytes=width)
    assert found
    assert len(set(found)) == len(found)
    for config in found:
        blocks = [config.kwargs[name] for name in ("XBLOCK", "YBLOCK", "R0_BLOCK")]
        for block, size in zip(blocks, sizes, strict=True):
            assert isinstance(block, int)
            assert 16 <= block <= max(ceil_pow2(size), 32 if width == 1 else 16)
        assert blocks[0] * blocks[1] >= 256 * config.num_warps  # type: ignore[operator]


def test_a_product_of_16_rows_has_few_tiles() -> None:
    """19 tiles of up to 128 rows and two of newer torch become 18 of 16 rows, with two warps or four as a rule."""
    assert len(sized(1024, 16, 1024, operand_bytes=2)) == 18
    assert {c.kwargs["YBLOCK"] for c in sized(1024, 16, 1024)} == {16}


def test_blocks_and_warps_are_those_of_torchs_templates() -> None:
    """Its own list, at sizes around the blocks."""
    pytest.importorskip("torch", minversion="2.13.0.dev0")
    import sympy
    import torch
    from torch._inductor.graph import GraphLowering
    from torch._inductor.template_heuristics.triton import CUDAMMTemplateConfigHeuristic
    from torch._inductor.virtualized import V

    templates = CUDAMMTemplateConfigHeuristic()
    listed = [
        Config(
            kwargs={"XBLOCK": c.block_m, "YBLOCK": c.block_n, "R0_BLOCK": c.block_k},
            num_warps=c.num_warps,
            num_stages=c.num_stages,
        )
        for c in templates.mm_configs
    ]
    ours = {(x, y, r0, warps, stages) for x, y, r0, warps, stages in TILES}
    theirs = {(*c.kwargs.values(), c.num_warps, c.num_stages) for c in listed}
    newer = {(y, x, r0, warps, stages) for x, y, r0, warps, stages in NEWER_TILES}
    assert ours | newer == theirs
    with V.set_graph_handler(GraphLowering(torch.fx.symbolic_trace(lambda x: x))):
        for sizes in itertools.product((1, 17, 32, 100, 128, 5000), repeat=3):
            found = templates.preprocess_mm_configs(*map(sympy.Integer, sizes), configs=templates.mm_configs)
            wanted = [
                (c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"], c.kwargs["BLOCK_K"], c.num_warps, c.num_stages)
                for c in found
            ]
            told = KernelHints(sizes=dict(zip(("x", "y", "r0"), sizes, strict=True)), native_matmul=True)
            mine = [(*c.kwargs.values(), c.num_warps, c.num_stages) for c in products_by_size(listed, told, H100)]
            assert mine == wanted, sizes


def test_tiles_that_cannot_fit_are_left_out() -> None:
    a10 = TYPICAL_DEVICES["cuda:86"]
    halves = sized(4096, 4096, 4096, a10, operand_bytes=2)
    floats = sized(4096, 4096, 4096, a10, operand_bytes=4)
    assert len(floats) < len(halves) < len(sized(4096, 4096, 4096, a10))
    for config in floats:
        assert least_shared_bytes(config, hints(64, operand_bytes=4), a10) <= a10.shared_memory_per_block
    spilling = Config(kwargs={"XBLOCK": 256, "YBLOCK": 256, "R0_BLOCK": 16}, num_warps=4, num_stages=1)
    assert products_by_size([spilling, floats[0]], hints(64), a10) == (floats[0],)
    assert products_by_size([spilling], hints(64), a10) != (), "one has to stay"


@pytest.mark.parametrize("name", ["heuristic_sweep.json", "heuristic_sweep_held_out.json"])
def test_the_bytes_of_a_tile_are_what_was_compiled_at_least(name: str) -> None:
    """930 tiles that were compiled for an H200: none took less, nine of ten exactly as much."""
    result = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / name).read_text())
    rows = [r for kernel in result["kernels"] if kernel["family"] == "matmul" for r in kernel["configs"]]
    found = []
    for row in rows:
        words = dict(part.split("=") for part in row["config"].split())
        config = Config(
            kwargs={"XBLOCK": int(words["XBLOCK"]), "YBLOCK": int(words["YBLOCK"]), "R0_BLOCK": int(words["RBLOCK"])},
            num_warps=int(words["num_warps"]),
            num_stages=int(words["num_stages"]),
        )
        found.append((least_shared_bytes(config, hints(64, operand_bytes=2), H100), row["shared_bytes"]))
    assert all(least <= compiled for least, compiled in found)
    assert sum(least == compiled for least, compiled in found) > 0.9 * len(found) > 300


def test_tensor_cores_and_tl_arange_take_every_tile() -> None:
    """``tl.arange`` refuses what is no power of two, and ``tl.dot`` blocks below 16."""
    for x, y, r0, warps, stages in (*TILES, *NEWER_TILES):
        assert all(is_power_of_two(n) for n in (x, y, r0, warps))
        assert min(x, y, r0) >= MIN_DOT_BLOCK
        assert stages >= 1


def test_a_tile_may_take_all_of_the_shared_memory() -> None:
    tile = Config(kwargs={"XBLOCK": 128, "YBLOCK": 128, "R0_BLOCK": 64}, num_warps=8, num_stages=4)
    small = Config(kwargs={"XBLOCK": 32, "YBLOCK": 32, "R0_BLOCK": 16}, num_warps=2, num_stages=1)
    needs, product = least_shared_bytes(tile, hints(256, operand_bytes=2), H100), hints(256, operand_bytes=2)
    assert needs == (128 + 128) * 64 * 2 * 4
    for room, taken in ((needs, (tile, small)), (needs - 1, (small,))):
        device = msgspec.structs.replace(H100, shared_memory_per_block=room)
        assert products_by_size([tile, small], product, device) == taken
