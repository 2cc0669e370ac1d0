"""A kernel of CuTe DSL that brings tiles in by the tensor memory accelerator (TMA), doubles them and stores them."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
import cutlass.utils as utils
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack

TILE = 64
THREADS = 32


class Doubled:
    """``target = 2 * source`` for float32 matrices whose sides are multiples of 64; one warp a tile."""

    @cute.jit
    def __call__(self, source: cute.Tensor, target: cute.Tensor):
        layout = cute.make_layout((TILE, TILE), stride=(TILE, 1))

        @cute.struct
        class Shared:
            barrier: cute.struct.MemRange[cutlass.Int64, 1]
            tile: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, TILE * TILE], 1024]

        self.shared = Shared
        load = cpasync.CopyBulkTensorTileG2SOp()
        atom, view = cpasync.make_tiled_tma_atom(load, source, layout, (TILE, TILE))
        grid = cute.ceil_div((*target.layout.shape, 1), (TILE, TILE))
        self.kernel(atom, view, target, layout).launch(grid=grid, block=(THREADS, 1, 1), smem=32 * 1024)

    @cute.kernel
    def kernel(self, atom: cute.CopyAtom, view: cute.Tensor, target: cute.Tensor, layout: cute.Layout):
        row, column, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        storage = utils.SmemAllocator().allocate(self.shared)
        barrier = storage.barrier.data_ptr()
        with cute.arch.elect_one():
            cute.arch.mbarrier_init(barrier, 1)
            cute.arch.mbarrier_expect_tx(barrier, TILE * TILE * 4)
        cute.arch.mbarrier_init_fence()
        cute.arch.barrier()
        shared = storage.tile.get_tensor(layout)
        tiles = cute.local_tile(view, (TILE, TILE), (None, None))
        to, of = cpasync.tma_partition(
            atom, 0, cute.make_layout(1), cute.group_modes(shared, 0, 2), cute.group_modes(tiles, 0, 2)
        )
        cute.copy(atom, of[(None, row, column)], to, tma_bar_ptr=barrier)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(barrier)
        cute.arch.mbarrier_wait(barrier, 0)
        out = cute.local_tile(target, (TILE, TILE), (row, column))
        for i in cutlass.range(TILE):
            for j in cutlass.range(TILE // THREADS):
                out[i, thread + THREADS * j] = shared[i, thread + THREADS * j] * 2.0


def doubled(source: Any, target: Any) -> Any:
    """Compile for these tensors; what is returned launches on them when called."""
    tensors = [from_dlpack(t, assumed_align=16) for t in (source, target)]
    compiled = cute.compile(Doubled(), *tensors)
    return lambda: compiled(*tensors)
