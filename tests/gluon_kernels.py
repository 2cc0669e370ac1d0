"""Ten kernels in Gluon, each with a call on CUDA tensors, which needn't exist: their tests are about what is compiled.

Names that Triton 3.6 to 3.8 has otherwise are looked up here; a kernel's body is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna3 import buffer_load, buffer_store
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    tcgen05_commit,
    tcgen05_mma,
)
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

copy_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global

ROWS, COLUMNS, TILE = 512, 256, 64


@gluon.jit
def scale_kernel(x_ptr, y_ptr, n, factor: gl.constexpr, BLOCK: gl.constexpr, WIDTH: gl.constexpr, LANES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([WIDTH], [LANES], [gl.num_warps()], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + i, gl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@gluon.jit
def softmax_kernel(x_ptr, y_ptr, stride, COLUMNS: gl.constexpr, LANES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0])
    i = gl.program_id(0) * stride + gl.arange(0, COLUMNS, layout=layout)
    x = gl.load(x_ptr + i)
    e = gl.exp(x - gl.max(x, 0))
    gl.store(y_ptr + i, e / gl.sum(e, 0))


@gluon.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: gl.constexpr):
    """Through shared memory, asynchronously."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    buffer = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [BLOCK], shared)
    copy_async(buffer, x_ptr + i, mask=i < n)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(y_ptr + i, buffer.load(layout), mask=i < n)


@gluon.jit
def tma_copy_kernel(x_desc, y_desc, SIZE: gl.constexpr):
    row, column = gl.program_id(0) * SIZE, gl.program_id(1) * SIZE
    buffer = gl.allocate_shared_memory(x_desc.dtype, [SIZE, SIZE], x_desc.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x_desc.block_type.nbytes)
    tma_load(x_desc, [row, column], bar, buffer)
    mbarrier.wait(bar, phase=0)
    mbarrier.invalidate(bar)
    tma_store(y_desc, [row, column], buffer)
    tma.store_wait(pendings=0)


@gluon.jit
def _rows_and_columns(start_m, start_n, BM: gl.constexpr, BN: gl.constexpr, layout: gl.constexpr):
    m = start_m + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
    n = start_n + gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
    return gl.expand_dims(m, 1), gl.expand_dims(n, 0)


@gluon.jit
def mma_kernel(a_ptr, b_ptr, c_ptr, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [gl.num_warps(), 1], [1, 0])
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [gl.num_warps(), 1], [16, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, acc_layout, 2)
    right: gl.constexpr = gl.DotOperandLayout(1, acc_layout, 2)
    start_m, start_n = gl.program_id(0) * BM, gl.program_id(1) * BN
    am, ak = _rows_and_columns(start_m, 0, BM, BK, blocked)
    bk, bn = _rows_and_columns(0, start_n, BK, BN, blocked)
    acc = gl.zeros([BM, BN], gl.float32, acc_layout)
    for k in range(0, K, BK):
        a = gl.convert_layout(gl.load(a_ptr + am * K + ak + k), left)
        b = gl.convert_layout(gl.load(b_ptr + (bk + k) * N + bn), right)
        acc = mma_v2(a, b, acc)
    m, n = _rows_and_columns(start_m, start_n, BM, BN, acc_layout)
    gl.store(c_ptr + m * N + n, acc.to(c_ptr.dtype.element_ty))


@gluon.jit
def wgmma_kernel(a_desc, b_desc, c_desc, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    start_m, start_n = gl.program_id(0) * BM, gl.program_id(1) * BN
    a = gl.allocate_shared_memory(a_desc.dtype, [BM, BK], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [BK, BN], b_desc.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BN, 16])
    acc = gl.zeros([BM, BN], gl.float32, acc_layout)
    phase = 0
    for k in range(0, K, BK):
        mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        tma_load(a_desc, [start_m, k], bar, a)
        tma_load(b_desc, [k, start_n], bar, b)
        mbarrier.wait(bar, phase)
        phase ^= 1
        acc = warpgroup_mma(a, b, acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    mbarrier.invalidate(bar)
    c = gl.allocate_shared_memory(c_desc.dtype, [BM, BN], c_desc.layout)
    c.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma_store(c_desc, [start_m, start_n], c)
    tma.store_wait(pendings=0)


@gluon.jit
def total_kernel(x_ptr, total_ptr, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.atomic_add(total_ptr, gl.sum(gl.load(x_ptr + i, mask=i < n, other=0.0), 0))


@triton.autotune([triton.Config({"BLOCK": b, "WIDTH": 4}, num_warps=w) for b, w in ((256, 2), (1024, 4))], key=["n"])
@gluon.jit
def tuned_scale_kernel(x_ptr, y_ptr, n, factor: gl.constexpr, BLOCK: gl.constexpr, WIDTH: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([WIDTH], [32], [gl.num_warps()], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + i, gl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@gluon.jit
def tensor_memory_kernel(a_desc, b_desc, c_desc, SIZE: gl.constexpr, WIDTH: gl.constexpr):
    """A product of two tiles by ``tcgen05``, whose accumulator is in tensor memory."""
    a = gl.allocate_shared_memory(a_desc.dtype, [SIZE, SIZE], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [SIZE, WIDTH], b_desc.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
    tma_load(a_desc, [0, 0], bar, a)
    tma_load(b_desc, [0, 0], bar, b)
    mbarrier.wait(bar, phase=0)
    mbarrier.invalidate(bar)
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(done, count=1)
    memory: gl.constexpr = TensorMemoryLayout([SIZE, WIDTH], col_stride=1)
    acc = allocate_tensor_memory(gl.float32, [SIZE, WIDTH], memory)
    tcgen05_mma(a, b, acc, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, phase=0)
    mbarrier.invalidate(done)
    rows: gl.constexpr = gl.BlockedLayout([1, WIDTH], [32, 1], [gl.num_warps(), 1], [0, 1])
    c = gl.allocate_shared_memory(c_desc.dtype, [SIZE, WIDTH], c_desc.layout)
    c.store(acc.load(rows).to(c_desc.dtype))
    fence_async_shared()
    tma_store(c_desc, [0, 0], c)
    tma.store_wait(pendings=0)


@gluon.jit
def buffer_kernel(x_ptr, y_ptr, n, BLOCK: gl.constexpr):
    """AMD's loads and stores through a buffer resource."""
    layout: gl.constexpr = gl.BlockedLayout([4], [64], [gl.num_warps()], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    x = buffer_load(x_ptr, i, mask=i < n)
    buffer_store(x + 1.0, y_ptr, i, mask=i < n)


@gluon.jit
def _add_one(y_ptr, buffer, bar, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    mbarrier.wait(bar, phase=0)
    gl.store(y_ptr + gl.arange(0, BLOCK, layout=layout), buffer.load(layout) + 1.0)


@gluon.jit
def _fetch(x_ptr, buffer, bar, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    copy_async(buffer, x_ptr + gl.arange(0, BLOCK, layout=layout))
    async_copy.commit_group()
    async_copy.wait_group(0)
    mbarrier.arrive(bar, count=1)


@gluon.jit
def partitions_kernel(x_ptr, y_ptr, z_ptr, BLOCK: gl.constexpr):
    """One warp loads, the others store; all then add to ``z_ptr``."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    buffer = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    gl.warp_specialize([(_add_one, (y_ptr, buffer, bar, BLOCK)), (_fetch, (x_ptr, buffer, bar, BLOCK))], [1], [24])
    gl.atomic_add(z_ptr + gl.arange(0, BLOCK, layout=layout), gl.full([BLOCK], 1, gl.int32, layout=layout))


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device="cuda")


def tiles(rows: int, columns: int, block: tuple[int, int] = (TILE, TILE)) -> TensorDescriptor:
    """A descriptor of a half-precision matrix in blocks."""
    layout = gl.NVMMASharedLayout.get_default_for(list(block), gl.float16)
    return TensorDescriptor.from_tensor(floats(rows, columns, dtype=torch.float16), list(block), layout)


N = 4096


def scale(block: int = 1024, width: int = 4, factor: float = 2.0, lanes: int = 32) -> None:
    scale_kernel[(N // block,)](floats(N), floats(N), N, factor, block, width, lanes)


def softmax(warps: int = 4, lanes: int = 32) -> None:
    softmax_kernel[(ROWS,)](floats(ROWS, 1024), floats(ROWS, 1024), 1024, 1024, lanes, num_warps=warps)


def copy(block: int = 1024) -> None:
    copy_kernel[(N // block,)](floats(N), floats(N), N, block)


def tma_copy(size: int = TILE) -> None:
    block = (size, size)
    tma_copy_kernel[(ROWS // size, COLUMNS // size)](tiles(ROWS, COLUMNS, block), tiles(ROWS, COLUMNS, block), size)


def mma(bk: int = 32) -> None:
    a, b, c = (floats(256, 256, dtype=torch.float16) for _ in range(3))
    mma_kernel[(4, 4)](a, b, c, 256, 256, 64, 64, bk)


def wgmma(bk: int = TILE) -> None:
    a, b, c = tiles(ROWS, COLUMNS, (64, bk)), tiles(COLUMNS, ROWS, (bk, 64)), tiles(ROWS, ROWS)
    wgmma_kernel[(ROWS // 64, ROWS // 64)](a, b, c, COLUMNS, 64, 64, bk)


def total(block: int = 1024) -> None:
    total_kernel[(N // block,)](floats(N), floats(1), N, block)


def tuned_scale(factor: float = 2.0) -> None:
    tuned_scale_kernel[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](floats(N), floats(N), N, factor)


def tensor_memory(width: int = 128) -> None:
    a, b, c = (tiles(128, columns, (128, columns)) for columns in (128, width, width))
    tensor_memory_kernel[(1,)](a, b, c, 128, width)


def buffer(block: int = 1024) -> None:
    buffer_kernel[(N // block,)](floats(N), floats(N), N, block)


def partitions() -> None:
    partitions_kernel[(1,)](floats(256), floats(256), floats(256, dtype=torch.int32), 256)


@dataclass(frozen=True)
class GluonCase:
    """A call of one kernel, an edit of it and what is told of that, where it compiles, and the pointers that it reads,
    writes and updates."""

    call: Callable[..., None]
    edit: dict[str, Any]
    told: str
    targets: tuple[str, ...]
    reads: frozenset[int]
    writes: frozenset[int]
    atomics: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        return self.call.__name__

    def needs(self, target: str) -> dict[str, int]:
        """Arguments of the call that the target asks for: AMD's warps are wider."""
        return {"lanes": 64} if target.startswith("hip") and self.call is not buffer else {}


NVIDIA = ("cuda:80", "cuda:90", "cuda:100")
FIRST, SECOND, THIRD = (frozenset({i}) for i in range(3))

CASES = (
    GluonCase(scale, {"width": 1}, "WIDTH 4 -> 1", (*NVIDIA, "hip:gfx942"), FIRST, SECOND),
    GluonCase(softmax, {"warps": 8}, "num_warps 4 -> 8", (*NVIDIA, "hip:gfx942"), FIRST, SECOND),
    GluonCase(copy, {"block": 512}, "BLOCK 1024 -> 512", NVIDIA, FIRST, SECOND),
    GluonCase(tma_copy, {"size": 32}, "SIZE 64 -> 32", ("cuda:90", "cuda:100"), FIRST, SECOND),
    GluonCase(mma, {"bk": 16}, "BK 32 -> 16", NVIDIA, FIRST | SECOND, THIRD),
    GluonCase(wgmma, {"bk": 32}, "BK 64 -> 32", ("cuda:90",), FIRST | SECOND, THIRD),
    GluonCase(total, {"block": 512}, "BLOCK 1024 -> 512", NVIDIA, FIRST | SECOND, SECOND, SECOND),
    GluonCase(tuned_scale, {"factor": 3.0}, "factor 2.0 -> 3.0", NVIDIA, FIRST, SECOND),
    GluonCase(tensor_memory, {"width": 64}, "WIDTH 128 -> 64", ("cuda:100",), FIRST | SECOND, THIRD),
    GluonCase(buffer, {"block": 512}, "BLOCK 1024 -> 512", ("hip:gfx942",), FIRST, SECOND),
)
