"""The order in which the resource model puts configs."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec, Target
from kerntune.base.policy import StaticPrune
from kerntune.base.recording import Binary
from kerntune.compiling.binary.elf import cubin_resources, kernel_symbol
from kerntune.compiling.compiler import Compiled
from kerntune.errors import TargetError, UsageError
from kerntune.kernels.access import Access
from kerntune.static import resource_model
from kerntune.static.metrics import metrics_of
from kerntune.static.occupancy import cuda_occupancy
from kerntune.static.resource_model import (
    Figures,
    ModelledConfig,
    _filled,
    _tensor,
    _terms,
    cost,
    figures_of,
    left_out,
    quick_candidate,
)

LOW_OCCUPANCY = 0.1
MODEL_LIMIT = 3.0
WARP_MMA_SHARE = 0.62


A100, H100 = TYPICAL_DEVICES["cuda:80"], TYPICAL_DEVICES["cuda:90"]

COPY = ModelledConfig(
    registers=32,
    shared_bytes=0,
    threads=128,
    blocks=132 * 16 * 8,
    instructions={"total": 60, "global_load": 2, "global_load_128": 2, "global_store": 2, "global_store_128": 2},
    spill_bytes=0,
    stages=0,
)
MATMUL = ModelledConfig(
    registers=168,
    shared_bytes=98304,
    threads=256,
    blocks=132 * 8,
    instructions={"total": 700, "async_copy": 24, "async_copy_128": 24, "tensor_core": 4, "tensor_core_macs": 524288},
    spill_bytes=0,
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


# what is foreseen of compiled candidates, and what isn't


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
        metrics.registers, metrics.shared_bytes, metrics.threads, math.prod(GRID), metrics.instructions, 0, 3
    )
    assert found.cost == pytest.approx(cost(whole, H100), rel=0.3), "totals differ"


def test_a_wave_that_is_nearly_empty_is_foreseen(softmax: Compiled) -> None:
    threads, registers = softmax.binary.num_warps * 32, cubin_resources(softmax.data).registers
    slots = (
        H100.sm_count
        * cuda_occupancy(H100, registers=registers, shared_bytes=softmax.binary.shared, threads=threads).blocks
    )
    one_more, full = (figures_of(softmax, (count, 1, 1), H100) for count in (slots + 1, slots))
    assert one_more is not None
    assert full is not None
    assert full.cost < one_more.cost


def test_an_empty_grid_costs_something_finite(softmax: Compiled) -> None:
    found = figures_of(softmax, (0, 1, 1), H100)
    assert found is not None
    assert math.isfinite(found.cost)


@pytest.mark.parametrize(
    "spec", [TYPICAL_DEVICES["hip:gfx942"], DeviceSpec(Target("cuda", "999"), "newer than our tables", 1)], ids=str
)
def test_nothing_is_foreseen_for_devices_that_are_not_known(softmax: Compiled, spec: DeviceSpec) -> None:
    assert figures_of(softmax, GRID, spec) is None


@given(st.integers(0, 4000))
def test_a_damaged_binary_is_not_fatal(cut: int) -> None:
    data = b"\x7fELF\x02\x01" + bytes(cut)
    binary = Binary(
        kind="cubin", arch="sm_90a", symbol="kernel", sha256="", ttir_sha256="", code="", text="", triton="",
        assembler="", options={}, constexprs={}, num_warps=4,
    )  # fmt: skip
    assert figures_of(Compiled(binary, data, "", "no PTX at all", NOTHING, {}, {}), GRID, H100) is None


# the candidates that are left out by static figures, and that one is always left


FIGURES = st.dictionaries(
    st.integers(0, 40),
    st.builds(
        Figures,
        cost=st.floats(0, 1e6) | st.just(math.inf),
        spill_bytes=st.sampled_from([0, 0, 8, 4096]),
        occupancy=st.floats(0.01, 1),
    ),
    max_size=15,
)
RULES = st.builds(
    StaticPrune, st.booleans(), st.booleans(), st.booleans(), st.none() | st.floats(0, 1, exclude_min=True)
)


@given(FIGURES, RULES, st.sets(st.integers(0, 40)))
def test_somebody_is_always_left_and_the_protected_are(
    figures: dict[int, Figures], rules: StaticPrune, protected: set[int]
) -> None:
    out = left_out(figures, rules, protected)
    assert out.keys() <= figures.keys() - protected
    assert all(out.values())
    launchable = {i for i, f in figures.items() if math.isfinite(f.cost)}
    assert out.keys() < launchable if launchable else not out


@given(FIGURES, RULES, st.floats(0, 1, exclude_min=True), st.floats(0, 1, exclude_min=True))
def test_a_larger_share_keeps_all_that_a_smaller_one_keeps(
    figures: dict[int, Figures], rules: StaticPrune, one: float, other: float
) -> None:
    small, large = (
        left_out(figures, msgspec.structs.replace(rules, share=share)) for share in (min(one, other), max(one, other))
    )
    assert large.keys() <= small.keys()


@given(FIGURES)
def test_no_rule_leaves_nobody_out(figures: dict[int, Figures]) -> None:
    assert left_out(figures, StaticPrune()) == {}
    assert left_out(figures, StaticPrune(share=1.0)) == {}


@given(FIGURES)
def test_the_cheapest_that_does_not_spill_stays(figures: dict[int, Figures]) -> None:
    clean = {i: f.cost for i, f in figures.items() if math.isfinite(f.cost) and not f.spill_bytes}
    if clean:
        assert min(clean, key=lambda i: clean[i]) not in left_out(figures, StaticPrune(spills=True, model=True))


def figures(*costs: float, spills: tuple[int, ...] = (), occupancy: tuple[float, ...] = ()) -> dict[int, Figures]:
    several = zip(costs, (*spills, *[0] * len(costs)), (*occupancy, *[1.0] * len(costs)), strict=False)
    return {i: Figures(*each) for i, each in enumerate(several)}


def test_each_rule_names_its_reason() -> None:
    assert left_out(figures(1, 1, spills=(0, 4096)), StaticPrune(spills=True)) == {
        1: "spills 4,096 bytes a thread, others none"
    }
    assert left_out(figures(1, 1, occupancy=(1.0, 0.0625)), StaticPrune(occupancy=True)) == {
        1: "occupancy 6%, others have up to 100%"
    }
    assert left_out(figures(1, 3.5, 2.9), StaticPrune(model=True)) == {
        1: "predicted to cost more than 3 times what the best does"
    }
    assert left_out(figures(3, 1, 2, 4), StaticPrune(share=0.5)) == {
        0: "predicted to be number 3 of 4, the first 2 are tried",
        3: "predicted to be number 4 of 4, the first 2 are tried",
    }


def test_the_limits_themselves_stay() -> None:
    assert left_out(figures(1, MODEL_LIMIT), StaticPrune(model=True)) == {}
    assert left_out(figures(1, 1, occupancy=(1.0, LOW_OCCUPANCY)), StaticPrune(occupancy=True)) == {}


def test_where_all_spill_none_is_left_out_for_it() -> None:
    assert left_out(figures(1, 2, spills=(8, 4096)), StaticPrune(spills=True)) == {}


def test_a_share_counts_all_that_can_be_launched() -> None:
    """A half of four: two of them spill, so the two others stay; what can't be launched counts for nothing."""
    given = figures(1, 2, 3, 4, math.inf, spills=(8, 8, 0, 0, 0))
    assert left_out(given, StaticPrune(spills=True, share=0.5)).keys() == {0, 1}


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("spills", StaticPrune(spills=True)),
        ("spills model", StaticPrune(spills=True, model=True)),
        ("occupancy, 33%", StaticPrune(occupancy=True, share=0.33)),
        (0.25, StaticPrune(share=0.25)),
        (1, StaticPrune(share=1.0)),
        (["spills", 0.5], StaticPrune(spills=True, share=0.5)),
        (("model",), StaticPrune(model=True)),
        ("off", StaticPrune()),
        ("", StaticPrune()),
        ([], StaticPrune()),
    ],
)
def test_what_people_write(text: object, rules: StaticPrune) -> None:
    assert StaticPrune.parse(text, "here") == rules
    assert bool(rules) == (rules != StaticPrune())


@pytest.mark.parametrize("text", ["spill", "0", 0, -0.5, 1.5, "150%", "nan", "%", True, ["off", "spills"], None, {}])
def test_what_people_write_wrongly(text: object) -> None:
    if text == {}:
        text = {"spills": True}
    with pytest.raises(UsageError, match=r"^here: .* is none of spills, occupancy, model, a share above 0"):
        StaticPrune.parse(text, "here")


# the terms by hand: a thread of COPY loads and stores 32 bytes each, so 8,192 bytes a block of 128 threads

MADE = 8 * 524288 / 4
"""Multiply-adds of a block of MATMUL: 8 warps, each with a quarter of its group's."""


@pytest.mark.parametrize(
    ("candidate", "resident", "terms"),
    [
        (COPY, 16, (60 / 8192, 0, 1 / 14, 0)),
        (COPY, 4, (60 / 8192, 0, 1 / 14, 0)),
        (COPY, 2, (2 * 60 / 8192, 0, 700 / 8192, 0)),
        (COPY, 1, (4 * 60 / 8192, 0, 700 / 4096, 0)),
        (with_(COPY, spill_bytes=64), 16, (60 / 8192, 0, 1 / 14, 1 / 32)),
        (with_(COPY, instructions={**COPY.instructions, "atomic": 2, "barrier": 3}), 1,
         (4 * 60 / 8192, 0, (700 + 2 * 2000 + 3 * 30) / 4096, 0)),
        (with_(COPY, instructions={"total": 10}, threads=32, spill_bytes=4), 8, (5, 0, 0, 4)),
        (with_(COPY, instructions={"total": 8, "async_copy": 2, "async_copy_128": 2}, stages=2, shared_bytes=8192), 1,
         (4 * 8 / 2048, 0, 700 / 4096, 0)),
        (MATMUL, 2, (0.3 * 700 * 8 / MADE / 4, 1 / 2048, 32768 / MADE / 32, 0)),
        (with_(MATMUL, shared_bytes=16384, stages=4), 1, (0.6 * 700 * 8 / MADE / 4, 1 / 2048, 700 / 3 / MADE, 0)),
        (with_(MATMUL, shared_bytes=8192, stages=1), 1, (0.6 * 700 * 8 / MADE / 4, 1 / 2048, 700 / MADE, 0)),
        (with_(MATMUL, shared_bytes=8192, stages=0), 1, (0.6 * 700 * 8 / MADE / 4, 1 / 2048, 700 / MADE, 0)),
        (with_(COPY, instructions={"total": 8, "async_copy": 2, "async_copy_128": 2}, stages=1, shared_bytes=8192), 1,
         (4 * 8 / 4096, 0, 700 / 8192, 0)),
        (with_(COPY, instructions={"total": 8, "async_copy": 2, "async_copy_128": 2}, stages=0, shared_bytes=8192), 1,
         (4 * 8 / 4096, 0, 700 / 8192, 0)),
        (with_(MATMUL, instructions={**MATMUL.instructions, "barrier": 9}, spill_bytes=64), 2,
         (0.3 * 700 * 8 / MADE / 4, 1 / 2048, 32768 / MADE / 32, 64 * 256 / MADE / 32)),
    ],
)  # fmt: skip
def test_the_terms_by_hand(candidate: ModelledConfig, resident: int, terms: tuple[float, ...]) -> None:
    """Issue, tensor cores, memory, spills. Up to 16 warps wait for their own instructions; below 9,800 bytes in flight
    (14 a cycle for 700 cycles; 22,400 from L2) memory waits, too."""
    assert _terms(candidate, H100, resident) == pytest.approx(terms)


def test_the_largest_term_counts_whole_and_half_of_the_others() -> None:
    assert cost(COPY, H100) == pytest.approx(1 / 14 + 60 / 8192 / 2)
    assert cost(with_(COPY, spill_bytes=64), H100) == pytest.approx(1 / 14 + (60 / 8192 + 1 / 32) / 2)


@pytest.mark.parametrize(
    ("blocks", "share"),
    [(0, 1), (1, 1 / 132), (132, 1), (133, 133 / 264), (264, 1), (265, 265 / 528), (528, 1), (660, 660 / 792)],
)
def test_the_share_of_the_last_wave(blocks: int, share: float) -> None:
    """132 multiprocessors with 2 blocks each."""
    assert _filled(blocks, 132, 2) == pytest.approx(share)


@pytest.mark.parametrize(
    ("arch", "rate", "dram"),
    [("75", 1024, 10), ("80", 1024, 10), ("89", 1024, 10), ("90", 2048, 14), ("120", 4096, 30)],
)
def test_rates_are_those_of_the_newest_known_architecture(arch: str, rate: float, dram: float) -> None:
    spec = DeviceSpec(Target("cuda", arch), "a GPU", 100)
    assert resource_model._bandwidth(COPY, spec, 1000) == dram
    grouped = {"tensor_core": 1, "tensor_core_macs": 16 * 8 * 32 + 1}
    assert 1 / _tensor(grouped, spec) == rate
    alone = {"tensor_core": 1, "tensor_core_macs": 16 * 8 * 32}
    assert 1 / _tensor(alone, spec) == pytest.approx(rate * (1 if arch == "80" else WARP_MMA_SHARE))


def test_blocks_of_a_cluster_are_blocks_and_what_is_not_told_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    resources = SimpleNamespace(registers=40, frame_bytes=24)
    monkeypatch.setattr(resource_model, "cubin_resources", lambda data, symbol: resources)
    binary: Any = SimpleNamespace(symbol="k", shared=64, num_warps=8, warp_size=32, num_ctas=2, options={})
    found = quick_candidate(binary, b"", "ret;", (7, 2, 3))
    assert found == ModelledConfig(40, 64, 256, 84, {"total": 1}, 48, 0)


@pytest.mark.parametrize(("stages", "taken"), [(3, 3), (None, 0), ("3", 0)])
def test_the_stages_of_a_candidate_are_its_options(stages: Any, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def quick(*given: Any, stages: int) -> ModelledConfig:
        seen.append(stages)
        return COPY

    monkeypatch.setattr(resource_model, "quick_candidate", quick)
    compiled: Any = SimpleNamespace(binary=SimpleNamespace(options={"num_stages": stages}), data=b"", asm="")
    found = figures_of(compiled, GRID, H100)
    assert found == Figures(cost(COPY, H100), 0, 1.0)
    assert seen == [taken]


@pytest.mark.parametrize(
    ("instructions", "resident", "rate"),
    [
        ({"total": 60, "global_store_128": 4}, 1, 14.0),
        ({"total": 60, "global_store_128": 4, "tensor_core": 1}, 1, 32.0),
        ({"global_load_128": 4}, 1, 64 * 128 / 700),
        ({"global_load_128": 4}, 2, 14.0),
        ({"global_load_128": 4, "async_copy": 1}, 1, 98304 / 2 / 700),
    ],
)
def test_what_is_in_flight_bounds_the_bandwidth(instructions: dict[str, int], resident: int, rate: float) -> None:
    """Where nothing is loaded, stores wait for nothing."""
    shared = 98304 if "async_copy" in instructions else 0
    found = with_(COPY, instructions=instructions, shared_bytes=shared, stages=2)
    assert resource_model._bandwidth(found, H100, resident) == pytest.approx(min(rate, 32.0 if rate == 32 else 14.0))


@pytest.mark.parametrize(
    ("counts", "kind", "nbytes"),
    [
        ({"global_load_128": 2, "global_load_8": 3, "global_load": 5, "global_load_x": 7}, "global_load", 35),
        ({"global_load_64": 1}, "global_store", 0),
        ({}, "global_load", 0),
    ],
)
def test_bytes_by_the_widths_of_a_class(counts: dict[str, int], kind: str, nbytes: int) -> None:
    assert resource_model._bytes(counts, kind) == nbytes


@pytest.mark.parametrize(("warps", "factor"), [(1, 16.0), (8, 2.0), (16, 1.0), (17, 1.0)])
def test_few_warps_wait_for_their_own_instructions(warps: int, factor: float) -> None:
    assert resource_model._unhidden(warps) == factor
