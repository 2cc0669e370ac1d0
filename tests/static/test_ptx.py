"""Counts from PTX, held against the machine code's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kerntune.base.device import Target, typical_device
from kerntune.kernels.compat.versions import triton_series
from kerntune.static.metrics import metrics_of
from kerntune.static.ptx import ProductLoops, bits, loop_counts, operand_counts, product_loops, ptx_classes

PTX = """
.visible .entry kernel(
	.param .u64 kernel_param_0
)
{
	.reg .pred 	%p<3>;
	mov.u32 	%r1, %tid.x;
$L__BB0_1:
	@%p1 ld.global.L1::evict_last.v4.b32 { %r2, %r3, %r4, %r5 }, [ %rd1 + 0 ];
	@!%p1 ld.global.b16 { %rs1 }, [ %rd1 + 0 ];
	st.global.v2.b64 [ %rd1 + 0 ], { %rd4, %rd5 };
	cp.async.cg.shared.global [ %r6 + 0 ], [ %rd2 + 0 ], 0x10, %r7;
	cp.async.commit_group;
	wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1}, %rd6, %rd7, p, 1, 1;
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f3};
	atom.global.gpu.acq_rel.add.f32 %f1, [%rd8], %f2;
	bar.sync 	0;
	@%p2 bra 	$L__BB0_1;
	ret;
}
"""


LOAD = "ld.global.b32 { %r2 }, [ %rd1 + 0 ];\n"
ADD = "red.global.gpu.relaxed.add.v4.f32 [ %rd4 + 0 ], { %r5, %r6, %r7, %r8 };\n"
COPY = "cp.async.cg.shared.global [ %r6 + 0 ], [ %rd2 + 0 ], 0x10, %r7;\ncp.async.commit_group;\n"
WAIT = "cp.async.wait_group {};\n"


def loop_of(text: str) -> str:
    return f"$L__BB0_1:\n{text}@%p2 bra \t$L__BB0_1;\n"


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        pytest.param(LOAD, {"straight_line": 1}, id="no loop"),
        pytest.param(f"@%p1 bra $L__BB0_2;\n{LOAD}$L__BB0_2:\n", {"straight_line": 1}, id="a branch ahead"),
        pytest.param(loop_of(LOAD), {}, id="a loop"),
        pytest.param(f"@%p3 {ADD}{ADD}", {"straight_line": 1, "repeated_atomics": 2}, id="atomics without a loop"),
        pytest.param(loop_of(LOAD) + ADD, {"repeated_atomics": 0}, id="atomics after the loop"),
        pytest.param(loop_of(ADD) + ADD, {"repeated_atomics": 1}, id="atomics in the loop"),
        pytest.param(loop_of("atom.add.u32 %r1, [%rd1], 1;\n"), {"repeated_atomics": 1}, id="of any address"),
        pytest.param(loop_of("atom.relaxed.sys.shared.add.u32 %r1, [%r2], 1;\n"), {"repeated_atomics": 0},
                     id="in shared memory"),
        pytest.param(loop_of("st.shared.b32 [%r1], %r2;\n"), {}, id="shared is no reduction"),
        pytest.param(COPY + loop_of(COPY + WAIT.format(1)), {"copying_loops": 1, "copying_ahead": 1}, id="ahead"),
        pytest.param(COPY + loop_of(WAIT.format(0) + COPY), {"copying_loops": 1, "copying_ahead": 1},
                     id="asked for at the end of a round"),
        pytest.param(COPY + loop_of(COPY + WAIT.format(0)), {"copying_loops": 1, "copying_ahead": 0}, id="waits"),
        pytest.param(COPY + loop_of(f"{COPY}{WAIT.format(1)}mma.sync.aligned.m16n8k16 {{%f1}};\n"), {},
                     id="with products"),
        pytest.param(COPY + WAIT.format(0), {"straight_line": 1}, id="copies without a loop"),
    ],
)  # fmt: skip
def test_what_a_text_repeats(text: str, counts: dict[str, int]) -> None:
    assert loop_counts(text) == counts


def test_each_class_of_a_text() -> None:
    assert ptx_classes(PTX) == {
        "async_copy": 1,
        "async_copy_128": 1,
        "atomic": 1,
        "barrier": 1,
        "global_load": 2,
        "global_load_128": 1,
        "global_load_16": 1,
        "global_store": 1,
        "global_store_128": 1,
        "tensor_core": 2,
        "tensor_core_macs": 64 * 128 * 16 + 16 * 8 * 16,
        "total": 12,
    }


def test_an_empty_text() -> None:
    assert ptx_classes("") == {}


@pytest.mark.parametrize("where", ["cuda:80", "cuda:90"])
@pytest.mark.parametrize("name", ["add", "add_whole", "softmax", "matmul"])
def test_memory_and_matrix_instructions_equal_the_machine_codes(
    name: str, where: str, compiled: Callable[..., Any]
) -> None:
    binary, _ = compiled(name, where)
    (machine,) = metrics_of([binary], typical_device(Target.parse(where)))
    found = ptx_classes(binary.asm)
    for kind in ("global_load", "global_store", "async_copy", "tensor_core_macs"):
        theirs = {k: v for k, v in machine.instructions.items() if k.startswith(kind)}
        assert {k: v for k, v in found.items() if k.startswith(kind)} == theirs
    assert 0.4 < found["total"] / machine.instructions["total"] < 2.5


@pytest.mark.parametrize(
    ("opcode", "width"),
    [("ld.global", 32), ("ld.global.b16", 16), ("st.global.v2.b64", 128), ("ld.global.v4.f32", 128)],
)
def test_bits_of_an_access(opcode: str, width: int) -> None:
    assert bits(opcode) == width


# what a loop of products has in flight, read from PTX


WGMMA = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1}, %rd6, %rd7, p, 1, 1;"
COMMIT = "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned {};"
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f3};"
COPY = "cp.async.cg.shared.global [ %r6 + 0 ], [ %rd2 + 0 ], 0x10, %r7;"
COPIED = "cp.async.commit_group;"
COPIES = "cp.async.wait_group {};"
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 32768;"
BULK = "@%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];"
BULK_WAIT = "mbarrier.try_wait.parity.shared::cta.b64 complete, [%r12], %r13;"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd44, {%r47, %r48}], [%r49];"
PLAIN = "ld.global.v4.b32 { %r2, %r3, %r4, %r5 }, [ %rd1 + 0 ];"
SCALE = "ld.global.b32 { %r2 }, [ %rd1 + 0 ];"
STAGE = [COPY, COPY, COPIED]


def loop(*body: str, label: str = "$L__BB0_1") -> list[str]:
    return [f"{label}:", *body, f"@%p2 bra \t{label};"]


def of(*lines: str) -> ProductLoops | None:
    return product_loops("\n".join(lines))


def found(*lines: str) -> ProductLoops:
    loops = of(*lines)
    assert loops is not None
    return loops


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_copies_in_flight_are_counted_in_rounds(stages: int) -> None:
    body = [COPIES.format(stages - 2), MMA, *STAGE]
    assert found(*STAGE * (stages - 1), *loop(*body)) == ProductLoops(loading=1, ahead=1, rounds=stages - 1)


@pytest.mark.parametrize("stages", [2, 3])
def test_bulk_copies_in_flight_are_counted_in_rounds(stages: int) -> None:
    stage = [EXPECT, BULK, BULK]
    loops = found(*stage * (stages - 1), *loop(BULK_WAIT, MMA, *stage), BULK_WAIT)
    assert loops == ProductLoops(loading=1, ahead=1, rounds=stages - 1)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([PLAIN, MMA], id="ordinary loads"),
        pytest.param([*STAGE, COPIES.format(0), MMA], id="cp.async"),
        pytest.param([COPY, COPIED, "cp.async.wait_all;", MMA], id="cp.async, all"),
        pytest.param([EXPECT, BULK, BULK_WAIT, MMA], id="TMA"),
    ],
)
def test_a_round_that_waits_for_its_own_loads_has_nothing_ahead(body: list[str]) -> None:
    loops = found(*loop(*body))
    assert (loops.loading, loops.ahead, loops.rounds, loops.waiting) == (1, 0, 0.0, 1)


def test_a_tile_that_was_waited_for_before_the_loop_is_not_ahead() -> None:
    """Queries are loaded once, by TMA too."""
    assert found(EXPECT, BULK, BULK_WAIT, *loop(EXPECT, BULK, BULK_WAIT, MMA)).ahead == 0


def test_a_loop_that_reorders_its_own_copies_is_ahead() -> None:
    """A hand-written one that waits for the copies of the round before, then issues its own."""
    assert found(*loop(BULK_WAIT, MMA, EXPECT, BULK)).ahead == 1


def test_copies_that_products_cover_are_ahead() -> None:
    """As Triton makes of two stages for sm_80: the next operands are in registers when the round ends."""
    assert found(*STAGE, COPIES.format(0), *loop(*STAGE, MMA, COPIES.format(0))).ahead == 1


def test_what_an_earlier_loop_left_is_not_ahead_of_the_next() -> None:
    first = [*[EXPECT, BULK] * 2, *loop(BULK_WAIT, MMA, EXPECT, BULK)]
    assert found(*first, *loop(PLAIN, MMA, label="$L__BB0_2")) == ProductLoops(loading=2, ahead=1, rounds=2)


def test_a_scale_is_no_operand() -> None:
    assert found(*loop(SCALE, MMA)) == ProductLoops()


def test_ordinary_loads_beside_copies_are_told() -> None:
    loops = found(*STAGE, *loop(COPIES.format(0), MMA, PLAIN, PLAIN, *STAGE))
    assert (loops.ahead, loops.plain_bytes) == (1, 32)


def test_loads_of_a_loop_around_are_not_its_own() -> None:
    inner = loop(MMA, label="$L__BB0_2")
    assert found(*loop(PLAIN, *inner)).loading == 0


def test_a_loop_that_begins_anew_before_an_inner_one_is_not_that_one() -> None:
    inner = loop(MMA, label="$L__BB0_2")
    assert found(*loop(PLAIN, "@%p3 bra \t$L__BB0_1;", *inner)).loading == 0


def test_without_a_loop_of_products_there_is_nothing() -> None:
    assert of(MMA, *loop(PLAIN)) is None
    assert of(*loop(PLAIN)) is None


def test_a_store_by_tma_is_no_load() -> None:
    assert found(*loop(MMA, STORE)).loading == 0


@pytest.mark.parametrize(
    ("body", "overlapped"),
    [
        ([WGMMA, COMMIT, WAIT.format(0)], 0),
        ([WGMMA, COMMIT, WAIT.format(1)], 1),
        ([WAIT.format(0), WGMMA, COMMIT], 1),
        ([WGMMA, COMMIT, WGMMA, COMMIT, WAIT.format(1), WAIT.format(0)], 0),
    ],
)
def test_products_that_are_in_flight_when_a_round_begins(body: list[str], overlapped: int) -> None:
    loops = found(*loop(*body))
    assert (loops.grouped, loops.overlapped, loops.types) == (1, overlapped, ("f32.f16.f16",))


def test_products_of_single_warps_have_no_groups() -> None:
    loops = found(*loop(MMA))
    assert (loops.grouped, loops.types) == (0, ())


@pytest.mark.parametrize(
    ("line", "counted"),
    [
        (WGMMA, {"tensor_core_16": 1}),
        (WGMMA.replace("f16.f16", "bf16.bf16"), {"tensor_core_16": 1}),
        (WGMMA.replace("k16.f32.f16.f16", "k8.f32.tf32.tf32"), {"tensor_core_32": 1}),
        (WGMMA.replace("k16.f32.f16.f16", "k32.f32.e4m3.e5m2"), {"tensor_core_8": 1}),
        (WGMMA.replace("k16.f32.f16.f16", "k32.s32.s8.s8"), {"tensor_core_8": 1}),
        (MMA, {"tensor_core_16": 1}),
        (MMA.replace("f32.f16.f16.f32", "f32.tf32.tf32.f32"), {"tensor_core_32": 1}),
        (MMA.replace("f32.f16.f16.f32", "f64.f64.f64.f64"), {"tensor_core_64": 1}),
        (MMA.replace("row.col.f32.f16.f16.f32", "row.col.satfinite.s32.u8.u8.s32"), {"tensor_core_8": 1}),
        ("@%p1 tcgen05.mma.cta_group::1.kind::tf32 [ %r1 + 0 ], %rd1, %rd2, %r3, %p1;", {"tensor_core_32": 1}),
        ("tcgen05.mma.cta_group::1.kind::f16 [ %r1 + 0 ], %rd1, %rd2, %r3, %p1;", {"tensor_core_16": 1}),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%rd1];", {}),
        (PLAIN, {}),
    ],
)
def test_operands_by_their_bits(line: str, counted: dict[str, int]) -> None:
    assert operand_counts(line) == counted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("matmul", "cuda:80"),
        ("matmul", "cuda:90"),
        ("matmul", "cuda:100"),
        ("descriptor_matmul", "cuda:90"),
        ("descriptor_matmul", "cuda:100"),
    ],
)
def test_stages_of_compiled_kernels(name: str, where: str, compiled: Callable[..., Any]) -> None:
    """Triton's own code is read as it is meant: three stages load two rounds ahead, one none."""
    rounds = {}
    for stages in (1, 3):
        binary, _ = compiled(name, where, aligned=True, num_stages=stages)
        loops = product_loops(binary.asm)
        assert loops is not None
        rounds[stages] = (loops.loading, loops.ahead, loops.rounds)
    # from Triton 3.8 on, the first of the two rounds is in registers when a loop of mma.sync begins
    in_registers = "ldmatrix" in binary.asm.partition("Inner Loop Header")[0]
    assert in_registers == (where == "cuda:80" and triton_series() not in ("3.6", "3.7"))
    assert rounds == {1: (1, 0, 0.0), 3: (1, 1, 1.0 if in_registers else 2.0)}


def test_other_gpus_have_none(compiled: Callable[..., Any]) -> None:
    binary, _ = compiled("matmul", "hip:gfx942")
    assert product_loops(binary.asm) is None


@pytest.mark.parametrize(
    ("kind", "bits"),
    [(kind, 8) for kind in ("f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")] + [("f16", 16), ("tf32", 32)],
)
def test_kinds_of_tensor_memory_products_by_their_bits(kind: str, bits: int) -> None:
    line = f"tcgen05.mma.cta_group::1.kind::{kind} [ %r1 + 0 ], %rd1, %rd2, %r3, %p1;"
    assert operand_counts(line) == {f"tensor_core_{bits}": 1}


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [*((name, 8) for name in ("e4m3", "e5m2", "s8", "u8", "e2m1", "e2m3", "e3m2")), ("f16", 16), ("bf16", 16),
     ("tf32", 32), ("f64", 64)],
)  # fmt: skip
def test_types_of_warps_products_by_their_bits(dtype: str, bits: int) -> None:
    line = f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 {{%f1}}, {{%r1}}, {{%r2}}, {{%f1}};"
    assert operand_counts(line) == {f"tensor_core_{bits}": 1}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("tcgen05.mma.cta_group::1.kind::f16 [ %r1 ], %rd1, %rd2, %r3, %p1;", {"tensor_core": 1, "total": 1}),
        ("cp.async.ca.shared.global [ %r6 ], [ %rd2 ], 8;", {"async_copy": 1, "async_copy_64": 1, "total": 1}),
        ("cp.async.cg.shared.global [ %r6 ], [ %rd2 ], 0x10", {"async_copy": 1, "async_copy_128": 1}),
        ("cp.async.cg.shared.global [ %r6 ], [ %rd2 ], n;\nadd.s32 %r1, %r2, 16;", {"total": 2}),
        (f"{COPY}\n{COPY}", {"async_copy": 2, "async_copy_128": 2, "total": 2}),
        ("red.global.add.f32 [%rd1], %f1;\nbarrier.cta.sync 0;", {"atomic": 1, "barrier": 1, "total": 2}),
        ("cp.async.bulk.tensor.2d.shared::cta.global [%r1], [%rd1];", {"tma": 1, "total": 1}),
        ("st.global.b8 [%rd1], %rs1;\nst.shared.b32 [%r1], %r2;", {"global_store": 1, "global_store_8": 1, "total": 2}),
        ("\tld.global.nc.v2.f32 {%f1, %f2}, [%rd1];", {"global_load": 1, "global_load_64": 1, "total": 1}),
        ("add.s32 %r1, %r2, %r3", {}),
        (".reg .b32 %r<4>;\n$L:\n", {}),
    ],
)
def test_classes_of_single_instructions(text: str, counts: dict[str, int]) -> None:
    assert ptx_classes(text) == counts


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            loop(PLAIN, PLAIN, SCALE, MMA), ProductLoops(loading=1), id="ordinary loads alone"
        ),
        pytest.param(loop(SCALE, SCALE, SCALE, MMA), ProductLoops(), id="12 bytes"),
        pytest.param(loop(SCALE, SCALE, SCALE, SCALE, MMA), ProductLoops(loading=1), id="16 bytes"),
        pytest.param([COPIED, *loop(COPIES.format(0), MMA, *STAGE)], ProductLoops(loading=1, ahead=1, rounds=1.0),
                     id="an empty group"),
        pytest.param([*STAGE, *loop(COPIES.format(1), MMA, *STAGE, *STAGE)],
                     ProductLoops(loading=1, ahead=1, rounds=0.5), id="half of what a round copies"),
        pytest.param([*STAGE * 2, *loop(COPIES.format(0), MMA, *STAGE, *STAGE, *STAGE)],
                     ProductLoops(loading=1, ahead=1, rounds=0.67), id="two of three"),
        pytest.param([*STAGE, *loop(MMA, COPY)], ProductLoops(loading=1, ahead=1, rounds=1.0), id="without a group"),
        pytest.param([*STAGE * 2, COPIES.format(3), *loop(COPIES.format(1), MMA, *STAGE)],
                     ProductLoops(loading=1, ahead=1, rounds=2.0), id="a wait for none"),
        pytest.param([*STAGE, MMA, COPIES.format(0), COPIED, *loop(*STAGE, COPIES.format(0), MMA)],
                     ProductLoops(loading=1), id="covered before the loop"),
        pytest.param([EXPECT, BULK, *loop(BULK_WAIT, MMA, COPY, COPIED, EXPECT, BULK, COPIES.format(0))],
                     ProductLoops(loading=1, ahead=1, rounds=1.0), id="one of two kinds"),
        pytest.param([*loop(WGMMA, COMMIT, WAIT.format(0)), *loop(WGMMA, COMMIT, WAIT.format(1), label="$L__BB0_2")],
                     ProductLoops(grouped=2, overlapped=1, types=("f32.f16.f16",)), id="two loops of groups"),
        pytest.param(
            [*loop(WGMMA.replace("f32.f16", "f16.f16"), COMMIT, WAIT.format(0)),
             *loop(WGMMA, COMMIT, WAIT.format(0), label="$L__BB0_2")],
            ProductLoops(grouped=2, types=("f16.f16.f16", "f32.f16.f16")), id="of two types"),
        pytest.param([*STAGE * 3, *loop(COPIES.format(2), MMA, *STAGE), COPIES.format(0), *STAGE,
                      *loop(COPIES.format(0), MMA, PLAIN, *STAGE, label="$L__BB0_2")],
                     ProductLoops(loading=2, ahead=2, rounds=1.0, plain_bytes=16), id="the least of two"),
    ],
)  # fmt: skip
def test_loops_by_hand(lines: list[str], expected: ProductLoops) -> None:
    assert found(*lines) == expected


def test_the_innermost_loop_around_a_product_counts() -> None:
    """Its end is the last branch back; one to a label that comes later is none."""
    inner = loop(MMA, PLAIN, label="$L__BB0_2")
    assert found(*loop(COPY, COPIED, *inner)) == ProductLoops(loading=1)
    assert of(f"@%p1 bra \t{'$L__BB0_3'};", MMA, "$L__BB0_3:") is None
    assert found("$L__BB0_1:", MMA, "@%p1 bra $L__BB0_1;", PLAIN, "bra.uni $L__BB0_1;") == ProductLoops(loading=1)
    assert ProductLoops(loading=3, ahead=1).waiting == 2
