"""Counts from TTIR text, as Triton 3.9 prints it."""

from __future__ import annotations

from kerntune.heuristics import TtirCounts, count_ttir
from kerntune.heuristics.hints import KernelHints

SOFTMAX = """
#loc = loc("kernel.py":8:1)
#loc25 = loc("tt.load"(#loc1))
module {
  tt.func public @softmax(%x_ptr: !tt.ptr<f8E5M2> loc("x_ptr"(#loc)), %n: i32 loc("n"(#loc))) {
    %x_6 = tt.fp_to_fp %x, rounding = rtne : f32 -> f8E5M2 loc(#loc25)
    %x_8 = tt.load %x_5, %x_1, %x_7 : tensor<1024x!tt.ptr<f8E5M2>> loc(#loc25)
    %x_9 = tt.fp_to_fp %x_8 : tensor<1024xf8E5M2> -> tensor<1024xf32> loc(#loc25)
    %m:2 = "tt.reduce"(%x_9, %i) <{axis = 0 : i32}> ({
    ^bb0(%m_12: f32 loc(callsite(#loc10 at #loc31)), %m_13: f32 loc(callsite(#loc10 at #loc31))):
      %m_14 = arith.maxnumf %m_12, %m_13 : f32 loc(#loc39)
      tt.reduce.return %m_14 : f32 loc(#loc35)
    }) : (tensor<1024xf32>) -> f32 loc(#loc35)
    %s = "tt.reduce"(%e_11) <{axis = 0 : i32}> ({
      tt.reduce.return %s_14 : f32 loc(#loc37)
    }) : (tensor<1024xf32>) -> f32 loc(#loc37)
    %1 = tt.atomic_rmw fadd, acq_rel, gpu, %0, %s, %true : (!tt.ptr<f32>, f32, i1) -> f32 loc(#loc2)
    %7 = tt.descriptor_load %desc[%a, %b] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16> loc(#loc2)
    tt.store %4, %6, %x_1 : tensor<1024x!tt.ptr<f32>> loc(#loc20)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""


def test_counts_of_a_kernel() -> None:
    assert count_ttir(SOFTMAX) == TtirCounts(
        loads=2, stores=1, reductions=2, atomic_add=True, min_elements_per_thread=4
    )


def test_other_atomics_are_no_atomic_add() -> None:
    assert not count_ttir(SOFTMAX.replace("fadd", "max")).atomic_add
    assert count_ttir(SOFTMAX.replace("fadd", "add")).atomic_add


def test_e4m3_needs_two_elements_and_fp16_none() -> None:
    assert count_ttir(SOFTMAX.replace("f8E5M2", "f8E4M3FN")).min_elements_per_thread == 2
    assert count_ttir(SOFTMAX.replace("f8E5M2", "f16")).min_elements_per_thread == 0


def test_text_without_operations_counts_nothing() -> None:
    assert count_ttir("") == count_ttir('#loc1 = loc("tt.store"(#loc))') == TtirCounts()


def test_counts_become_hints() -> None:
    hints = count_ttir(SOFTMAX).apply(KernelHints(sizes={"x": 8}, dynamic_sizes=1))
    assert (hints.loads_and_reductions, hints.stores, hints.dynamic_sizes) == (4, 1, 1)
    assert hints.atomic_add


GLUON = """
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32} {
    %0 = ttg.async_copy_global_to_local %4, %buffer mask %5 : tensor<64x!tt.ptr<f32>, #blocked> -> <64xf32, #shared>
    ttng.async_tma_copy_global_to_local %x_desc[%7, %15] %buffer, %bar, %true : !tt.tensordesc<64x64xf16, #shared>
    %1 = amdg.buffer_load %x_ptr[%i], %mask : tensor<1024xf32, #blocked>
    ttng.async_tma_copy_local_to_global %y_desc[%7, %15] %buffer : !tt.tensordesc<64x64xf16, #shared>
    amdg.buffer_store %2, %y_ptr[%i], %mask : tensor<1024xf32, #blocked>
    %3 = amdg.buffer_atomic_rmw fadd, acq_rel, gpu, %2, %y_ptr[%i] : tensor<1024xf32, #blocked>
}
"""


def test_what_a_gluon_kernel_copies_is_loaded_and_stored() -> None:
    assert count_ttir(GLUON) == TtirCounts(loads=3, stores=2, atomic_add=True)
