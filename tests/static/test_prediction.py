"""What is foreseen of compiled candidates, and what isn't."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec, Target
from kerntune.base.recording import Binary
from kerntune.compiling.binary.elf import cubin_resources, kernel_symbol
from kerntune.compiling.compiler import Compiled
from kerntune.kernels.access import Access
from kerntune.static.metrics import metrics_of
from kerntune.static.occupancy import cuda_occupancy
from kerntune.static.prediction import Figures, Predictions, figures_of
from kerntune.static.resource_model import ModelledConfig, cost

H100 = TYPICAL_DEVICES["cuda:90"]
GRID = (4096, 1, 1)
NOTHING = Access(frozenset(), frozenset(), frozenset(), False, (), 0)


@pytest.fixture
def softmax(compiled: Callable[..., Any]) -> Compiled:
    given, _ = compiled("softmax", "cuda:90")
    binary = Binary(
        kind="cubin", arch=given.arch, symbol=kernel_symbol(given.data), sha256="", ttir_sha256="", code="", text="",
        triton="", assembler="", options={"num_stages": 3}, constexprs={}, num_warps=given.num_warps,
        shared=given.shared_bytes,
    )  # fmt: skip
    return Compiled(binary, given.data, "", given.asm, NOTHING, {}, {})


def test_the_figures_of_a_kernel_are_the_disassemblers(softmax: Compiled, compiled: Callable[..., Any]) -> None:
    given, _ = compiled("softmax", "cuda:90")
    (metrics,) = metrics_of([given], H100)
    found = figures_of(softmax, GRID, H100)
    assert found is not None
    assert (found.spill_bytes, found.occupancy) == (0, metrics.occupancy)
    whole = ModelledConfig(
        metrics.registers, metrics.shared_bytes, metrics.threads, math.prod(GRID), metrics.instructions, stages=3
    )
    assert found.cost == pytest.approx(cost(whole, H100), rel=0.3), "totals differ"


def test_a_wave_that_is_nearly_empty_is_foreseen(softmax: Compiled) -> None:
    predictions = Predictions(H100)
    threads, registers = softmax.binary.num_warps * 32, cubin_resources(softmax.data).registers
    slots = (
        H100.sm_count
        * cuda_occupancy(H100, registers=registers, shared_bytes=softmax.binary.shared, threads=threads).blocks
    )
    predictions.add(0, softmax, (slots + 1, 1, 1))
    predictions.add(1, softmax, (slots, 1, 1))
    assert predictions.cost(1) < predictions.cost(0)
    assert (predictions.rank(1), predictions.rank(0)) == (1, 2)


def test_an_empty_grid_costs_something_finite(softmax: Compiled) -> None:
    found = figures_of(softmax, (0, 1, 1), H100)
    assert found is not None
    assert math.isfinite(found.cost)


@pytest.mark.parametrize(
    "spec", [TYPICAL_DEVICES["hip:gfx942"], DeviceSpec(Target("cuda", "999"), "newer than our tables", 1)], ids=str
)
def test_nothing_is_foreseen_for_devices_that_are_not_known(softmax: Compiled, spec: DeviceSpec) -> None:
    predictions = Predictions(spec)
    predictions.add(0, softmax, GRID)
    assert (predictions.cost(0), predictions.rank(0), predictions.figures) == (math.inf, None, {})


@given(st.integers(0, 4000))
def test_a_damaged_binary_is_not_fatal(cut: int) -> None:
    data = b"\x7fELF\x02\x01" + bytes(cut)
    binary = Binary(
        kind="cubin", arch="sm_90a", symbol="kernel", sha256="", ttir_sha256="", code="", text="", triton="",
        assembler="", options={}, constexprs={}, num_warps=4,
    )  # fmt: skip
    assert figures_of(Compiled(binary, data, "", "no PTX at all", NOTHING, {}, {}), GRID, H100) is None


@given(st.lists(st.floats(0, 1e9) | st.just(math.inf), min_size=1, max_size=20))
def test_ranks_are_places_in_the_order_of_costs(costs: list[float]) -> None:
    predictions = Predictions(H100)
    predictions.figures = {i: Figures(c, 0, 1.0) for i, c in enumerate(costs)}
    ranks = [predictions.rank(i) for i in range(len(costs))]
    assert ranks == [1 + sorted(costs).index(c) for c in costs]
    assert predictions.rank(len(costs)) is None
