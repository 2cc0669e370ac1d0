"""Counts from PTX, held against the machine code's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kerntune.base.device import Target, typical_device
from kerntune.static.metrics import metrics_of
from kerntune.static.ptx import bits, ptx_classes

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
