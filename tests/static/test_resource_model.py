"""The order in which the resource model puts configs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.base.recording import Binary
from kerntune.compiling.binary.elf import kernel_symbol
from kerntune.errors import TargetError
from kerntune.static.metrics import metrics_of
from kerntune.static.resource_model import (
    WARP_MMA_SHARE,
    ModelledConfig,
    _tensor,
    cost,
    quick_candidate,
)

A100, H100 = TYPICAL_DEVICES["cuda:80"], TYPICAL_DEVICES["cuda:90"]

COPY = ModelledConfig(
    registers=32,
    shared_bytes=0,
    threads=128,
    blocks=132 * 16 * 8,
    instructions={"total": 60, "global_load": 2, "global_load_128": 2, "global_store": 2, "global_store_128": 2},
)
MATMUL = ModelledConfig(
    registers=168,
    shared_bytes=98304,
    threads=256,
    blocks=132 * 8,
    instructions={"total": 700, "async_copy": 24, "async_copy_128": 24, "tensor_core": 4, "tensor_core_macs": 524288},
    stages=3,
)

CANDIDATES = st.builds(
    ModelledConfig,
    registers=st.integers(16, 255),
    shared_bytes=st.integers(0, 300_000),
    threads=st.sampled_from([32, 64, 128, 256, 512, 1024]),
    blocks=st.integers(1, 10**7),
    instructions=st.dictionaries(
        st.sampled_from(["total", "global_load_128", "global_load_32", "async_copy_128", "tensor_core", "barrier"]),
        st.integers(1, 5000),
    ),
    spill_bytes=st.integers(0, 10_000),
    stages=st.integers(0, 6),
)


def with_(candidate: ModelledConfig, **changes: Any) -> ModelledConfig:
    return msgspec.structs.replace(candidate, **changes)


def better(first: ModelledConfig, second: ModelledConfig) -> bool:
    return cost(first, H100) < cost(second, H100)


@given(CANDIDATES)
def test_a_cost_is_a_number_or_infinite(candidate: ModelledConfig) -> None:
    found = cost(candidate, H100)
    assert found >= 0
    assert not math.isnan(found)


@given(CANDIDATES, st.integers(1, 4000))
def test_spills_never_help(candidate: ModelledConfig, more: int) -> None:
    spilling = with_(candidate, spill_bytes=candidate.spill_bytes + more)
    assert cost(spilling, H100) >= cost(candidate, H100)


def test_what_does_not_fit_costs_infinitely_much() -> None:
    assert cost(with_(MATMUL, shared_bytes=300_000), H100) == math.inf


def test_spills_narrow_loads_and_more_instructions_are_worse() -> None:
    assert better(MATMUL, with_(MATMUL, spill_bytes=256))
    assert better(COPY, with_(COPY, spill_bytes=64))
    narrow = {"total": 60, "global_load": 2, "global_load_32": 2, "global_store": 2, "global_store_32": 2}
    assert better(COPY, with_(COPY, instructions=narrow))
    assert better(COPY, with_(COPY, instructions={**COPY.instructions, "total": 6000}))


def test_a_last_wave_that_is_nearly_empty_is_worse() -> None:
    slots = 132 * 16  # blocks of 128 threads and 32 registers that are resident at once
    assert cost(with_(COPY, blocks=slots), H100) < cost(with_(COPY, blocks=slots + 1), H100)
    assert cost(with_(COPY, blocks=slots + 1), H100) / cost(with_(COPY, blocks=slots), H100) == pytest.approx(
        2, rel=0.01
    )
    many = cost(with_(COPY, blocks=100 * slots + 1), H100) / cost(with_(COPY, blocks=100 * slots), H100)
    assert many == pytest.approx(1.01, rel=0.001)


def test_too_little_in_flight_is_worse() -> None:
    """Little's law: two stages leave one ahead, of the same buffers two of three are."""
    assert better(with_(MATMUL, shared_bytes=24576), with_(MATMUL, shared_bytes=16384, stages=2))
    few = {"total": 60, "global_load": 1, "global_load_32": 1, "global_store": 1, "global_store_32": 1}
    lonely = with_(COPY, threads=32, registers=255, instructions=few)
    assert better(with_(lonely, registers=32), lonely)


def test_a_larger_block_of_a_matrix_product_reads_less_for_it() -> None:
    small = {**MATMUL.instructions, "tensor_core_macs": 131072, "tensor_core": 1}
    assert better(MATMUL, with_(MATMUL, instructions=small, shared_bytes=49152, blocks=132 * 32))


@pytest.mark.parametrize("name", ["softmax", "matmul"])
def test_a_quick_look_at_a_binary_agrees_with_the_disassembler(name: str, compiled: Callable[..., Any]) -> None:
    given, _ = compiled(name, "cuda:90")
    binary = Binary(
        kind="cubin", arch=given.arch, symbol=kernel_symbol(given.data), sha256="", ttir_sha256="", code="", text="",
        triton="", assembler="", options={}, constexprs={}, num_warps=given.num_warps, shared=given.shared_bytes,
    )  # fmt: skip
    quick = quick_candidate(binary, given.data, given.asm, (7, 2, 1), stages=3)
    (metrics,) = metrics_of([given], H100)
    spilled = metrics.spill_store_bytes + metrics.spill_load_bytes
    known = (metrics.registers, metrics.shared_bytes, metrics.threads, 14, {}, spilled, 3)
    assert msgspec.structs.astuple(with_(quick, instructions={})) == known
    moved = ("global_load_", "global_store_", "async_copy_", "tensor_core_macs")
    for key in {k for k in (*quick.instructions, *metrics.instructions) if k.startswith(moved)}:
        assert quick.instructions[key] == metrics.instructions[key]


def test_other_makers_gpus_are_refused() -> None:
    with pytest.raises(TargetError, match="hip:gfx942"):
        cost(COPY, TYPICAL_DEVICES["hip:gfx942"])


def test_products_of_one_warp_are_slower_where_groups_of_warps_multiply() -> None:
    """``mma.sync`` reaches a part of what ``wgmma`` does, and all that there is on an A100."""
    alone = {"tensor_core": 4, "tensor_core_macs": 4 * 16 * 8 * 16}
    grouped = {"tensor_core": 4, "tensor_core_macs": 4 * 64 * 128 * 16}
    assert _tensor(alone, H100) == pytest.approx(_tensor(grouped, H100) / WARP_MMA_SHARE)
    assert _tensor(alone, A100) == _tensor(grouped, A100)
