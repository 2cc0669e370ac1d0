"""The memory accesses of a kernel, and operations of TTIR and TTGIR by their use of an address."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which pointer-like parameters' memory a kernel reads and writes.

    Numbers count pointers and tensor descriptors only, in the order of the parameters that are left after
    specialization (constexprs and ``None`` removed): match them with the k-th ``*`` or ``tensordesc`` entry of the
    signature. Names in TTIR can't be used: ``p = a`` in a kernel's body renames the parameter.

    If ``unknown`` isn't empty, the sets hold everything that the kernel could reach: more than the truth, never less.
    ``float_atomics``: it may add floats atomically, so two runs may differ in the last bits. ``follows``: it may touch
    memory that no parameter points to, through an address that it loads or computes from an integer. ``beyond`` is the
    reason why it may even write there.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    atomics: frozenset[int]
    float_atomics: bool
    unknown: tuple[str, ...]
    pointer_count: int
    follows: bool = False
    beyond: tuple[str, ...] = ()

    @classmethod
    def everything(
        cls, pointer_count: int, unknown: Iterable[str], *, follows: bool, beyond: Iterable[str] = ()
    ) -> Access:
        """The safe assumption for a kernel that can't be analysed: each argument is read, written and updated
        atomically."""
        every, why, more = frozenset(range(pointer_count)), tuple(dict.fromkeys(unknown)), tuple(dict.fromkeys(beyond))
        return cls(every, every, every, True, why, pointer_count, follows or bool(more), more)


def _named(**dialects: str) -> frozenset[str]:
    """Operations by dialect, words with a space between."""
    return frozenset(f"{dialect}.{name}" for dialect, names in dialects.items() for name in names.split())


WRITERS = _named(
    tt="store atomic_store atomic_rmw atomic_cas descriptor_store descriptor_scatter descriptor_reduce",
    ttng="async_tma_copy_local_to_global async_tma_reduce async_tma_scatter tensormap_create",
    amdg="async_copy_local_to_global async_tdm_copy_local_to_global async_tdm_scatter "
    "buffer_atomic_cas buffer_atomic_rmw buffer_store masked_store",
)
READERS = _named(
    tt="load atomic_load atomic_poll atomic_rmw atomic_cas descriptor_load descriptor_gather descriptor_reduce",
    ttg="async_copy_global_to_local",
    ttng="async_tma_copy_global_to_local async_tma_gather async_tma_reduce",
    amdg="async_tdm_copy_global_to_local async_tdm_fused_copy_global_to_local async_tdm_gather "
    "buffer_atomic_cas buffer_atomic_rmw buffer_load buffer_load_to_local bypass_lds_load "
    "masked_load tdm_prefetch",
)
PURE_READERS = READERS - WRITERS
ATOMICS = _named(
    tt="atomic_rmw atomic_cas descriptor_reduce",
    ttng="async_tma_reduce",
    amdg="buffer_atomic_cas buffer_atomic_rmw",
)

ADDRESS_FIRST = ("tt.", "ttng.tensormap_create")
"""Operations on memory whose address is operand 0: other addresses are data that they store (the memory that a tensor
map describes, for one). Of all others, each operand that is an address counts: their order differs, also by version."""

ADDRESS_ONLY = _named(
    tt="addptr advance assert bitcast broadcast cat expand_dims join make_tensor_descriptor "
    "make_tensor_ptr print reshape return splat split trans unsplat",
    arith="select",
    gluon="set_auto_layout",
    ttg="convert_layout warp_yield",
    ttng="tensormap_fenceproxy_acquire",
    amdg="concat extract_slice update_tensor_descriptor",
)
"""Operations that compute with addresses and touch no memory. Any other operation on an address makes an access
unknown."""

ON_CHIP = _named(
    tt="gather histogram map_elementwise map_elementwise.return mulhiui reduce reduce.return scan scan.return",
    ttg="async_commit_group async_wait barrier fp4_to_fp local_alloc local_atomic_scatter_rmw local_barrier "
    "local_dealloc local_gather local_load local_scatter local_store mask mask.return memdesc_index "
    "memdesc_reinterpret memdesc_reshape memdesc_subslice memdesc_trans predicate_stage warp_id warp_return",
    ttng="arrive_barrier async_copy_mbarrier_arrive async_shared_store async_tma_store_wait barrier_expect "
    "clc_get_program_id clc_is_canceled clc_load_result clc_try_cancel clc_try_cancel_sync cluster_arrive "
    "cluster_barrier cluster_wait fence_async_shared fence_mbarrier_init_release_cluster init_barrier "
    "inval_barrier packed_arith tc_gen5_commit tc_gen5_mma tc_gen5_mma_scaled tmem_alloc tmem_copy tmem_load "
    "tmem_store tmem_subslice tmem_wait wait_barrier warp_group_dot warp_group_dot_wait",
    amdg="arrive_barrier async_copy_mbarrier_arrive async_tdm_intrinsic_wait async_tdm_wait async_wait "
    "cluster_barrier_arrive cluster_barrier_wait cond_barrier in_thread_transpose init_barrier "
    "local_load_packed_transposed local_load_packed_tranposed memory_counter_wait wait_barrier",
    llvm="intr.assume",
)
"""Operations on registers, shared and tensor memory that may take 64-bit words (a barrier is one). Any other operation
outside of :data:`PURE_DIALECTS` that takes a word may reach memory through it."""

PURE_DIALECTS = ("arith.", "math.", "ub.")

CONTROL = ("scf.", "cf.", "builtin.", "tt.func", "tt.call", "ttg.warp_specialize")
ENDS = ("scf.yield", "scf.condition", "scf.reduce", "ttg.warp_yield")
"""What the blocks of such regions end with."""

PARTITIONS = "ttg.warp_specialize.partitions"
"""Inside of ``ttg.warp_specialize``: a region for each partition of warps."""

FROM_MEMORY = "reinterpret_tensor_descriptor"
"""An operation whose operand points to a descriptor, which holds the address (in the dialects of several backends)."""

SCRATCH, TENSOR_MAP = "ttg.global_scratch_alloc", "ttng.tensormap_create"
"""Memory of the launch's own, where a kernel makes tensor maps: ``tensormap_create(place, address, ...)``."""

OUTSIDE_CODE = frozenset({"tt.elementwise_inline_asm", "tt.extern_elementwise", "ttg.inline_asm"})

LOADS = frozenset({
    "tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.atomic_rmw", "tt.atomic_cas", "ttg.local_load",
    "ttng.tmem_load", "amdg.buffer_load", "amdg.buffer_atomic_rmw",
})  # fmt: skip
"""Operations whose results come out of memory; in Gluon also by way of shared and tensor memory."""

BY_NUMBERS = ("tt.addptr", "tt.descriptor_", "ttng.async_tma_", "amdg.async_tdm_", "amdg.buffer_")
"""Operations whose operands that are no floating-point data say where, or whether."""
