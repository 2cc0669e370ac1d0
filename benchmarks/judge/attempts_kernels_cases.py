"""Attempts at kernels, memory, numbers and inputs, by another author with the judge's source at hand."""

from __future__ import annotations

R = "attempts_kernels_references.py"
VECTOR = "x: f32[1000]"
ADD = ("references.py::add", "x: f32[1000]; y: f32[1000]")
SUM = ("references.py::row_sum", "x: f32[20,300]")
RUNNING = ("held_out_references.py::cumsum", VECTOR)
TRIPLED = ("held_out_references.py::tripled", VECTOR)
WIDE_ROWS = "q: bf16[256,64] normal(0, 3); k: bf16[256,64] normal(0, 3); v: bf16[256,64]"
TRIPLE = ("held_out_references.py::tripled", "x: bf16[4096]")

_NUMBERS: tuple[tuple[str, str, str, tuple[str, str]], ...] = (
    ("biased_rounding", "bias", "biased_rounding", TRIPLE),
    ("cut_off", "bias", "cut_off", TRIPLE),
    ("scaled_result", "bias", "scaled_result", TRIPLE),
    ("fewer_small_zeros", "few elements wrong", "fewer_small_zeros",
     ("held_out_references.py::steep", "x: f32[1000] normal(0, 1)")),
    ("few_small_zeros", "few elements wrong", "few_small_zeros",
     ("held_out_references.py::steep", "x: f32[60] normal(0, 1)")),
    ("fewer_coarse", "few elements wrong", "fewer_coarse",
     ("held_out_references.py::reciprocal", "x: f32[262144] normal(0, 1)")),
    ("straight_exponential", "reference that rounds", "straight_exponential",
     (f"{R}::exp_of_forty", "x: bf16[4096] uniform(-1, 0)")),
    ("eight_bit_tiny", "small results", "eight_bit_tiny", (f"{R}::tiny", "x: f16[4096] normal(0, 1)")),
    ("no_clamp", "values not drawn", "no_clamp", (f"{R}::clamp_20", VECTOR)),
    ("no_replacement", "values not drawn", "no_replacement", (f"{R}::nan_to_num", VECTOR)),
    ("overflowing_softplus", "values not drawn", "overflowing_softplus", (f"{R}::softplus", VECTOR)),
    ("no_zero_guard", "values not drawn", "no_zero_guard", (f"{R}::sinc", VECTOR)),
    ("log_of_one_more", "values not drawn", "log_of_one_more", (f"{R}::log1p", "x: f32[4096] uniform(0, 1)")),
    ("tanh_for_erf", "reference that rounds", "tanh_for_erf", (f"{R}::gelu_written_out", "x: bf16[4096] normal(0, 1)")),
    ("no_bias_added", "declared content", "no_bias", (f"{R}::biased", "x: f32[1000]; b: f32[1000] zeros")),
    ("no_weight", "declared content", "no_weight", (f"{R}::scaled", "x: f32[1000]; w: f32[1000] normal(1, 0)")),
    ("twin", "declared content", "twin",
     ("references.py::add", "projection_weight_a: f32[1000]; projection_weight_b: f32[1000]")),
    ("no_step", "declared content", "no_step",
     ("references.py::sgd_", "p: bf16[4096] uniform(1, 2); g: bf16[4096] normal(0, 1); lr = 0.0025")),
    ("empty_rows", "degenerate task", "empty_rows", (f"{R}::rows_from", "x: f32[16,64]; k = 16")),
    ("first_row_for_all", "declared content", "first_row_for_all",
     (f"{R}::picked", "x: f32[20,64]; idx: i64[50] in 0..0")),
    ("sampled_mean", "sampling", "sampled_mean", ("references.py::row_mean", "x: bf16[64,4096] uniform(0, 1)")),
    ("sampled_logsumexp", "sampling", "sampled_logsumexp", (f"{R}::logsumexp", "x: bf16[64,16384] normal(0, 2)")),
    ("no_bessel", "bias", "no_bessel", (f"{R}::variance", "x: bf16[256,1024]")),
    ("naive_variance", "values not drawn", "naive_variance", (f"{R}::variance", "x: f32[64,512]")),
    ("half_squares", "values not drawn", "half_squares", (f"{R}::norm", "x: f16[64,1024]")),
    ("constant_mean", "sampling", "constant_mean", ("references.py::row_mean", "x: bf16[6000,36] uniform(0.97, 1.03)")),
    ("no_epsilon", "values not drawn", "no_epsilon", ("references.py::rms_norm", "x: f16[16,256]; w: f16[256]")),
    ("quake_root", "bias", "quake_root", ("references.py::rms_norm", "x: bf16[64,256]; w: bf16[256]")),
    ("bare_softmax", "values not drawn", "bare_softmax", ("references.py::softmax", "x: f32[16,256]")),
    ("half_of_loss", "sampling", "half_of_loss", (f"{R}::squared_loss", "x: bf16[1048576]; y: bf16[1048576]")),
    ("total_without_tail", "few results", "total_without_tail", ("held_out_references.py::total", "x: f32[1048600]")),
    ("narrow_dot", "few results", "narrow_dot", ("references.py::dot", "x: f32[1048576]; y: f32[1048576]")),
    ("index_of_most", "few results", "index_of_most", (f"{R}::index_of_largest", VECTOR)),
    ("largest_of_most", "few results", "largest_of_most", (f"{R}::largest", VECTOR)),
    ("early_sinkhorn", "fewer iterations", "early_sinkhorn", (f"{R}::sinkhorn", "x: f32[32,32]")),
    ("window_for_scan", "fewer iterations", "window_for_scan", (f"{R}::gated_scan", "x: f32[4,512]; g: f32[4,512]")),
)  # fmt: skip

_MEMORY: tuple[tuple[str, str, str, tuple[str, str]], ...] = (
    ("poison_for_zero", "uninitialised reads", "poison_for_zero", TRIPLED),
    ("never_zero", "uninitialised reads", "never_zero", TRIPLED),
    ("judged_by_bits", "uninitialised reads", "judged_by_bits", TRIPLED),
    ("garbage_minimum", "uninitialised reads", "garbage_minimum",
     ("held_out_references.py::row_min", "x: f32[20,200] uniform(0, 1)")),
    ("garbage_times_zero", "uninitialised reads", "garbage_times_zero", SUM),
    ("recognised_lanes", "uninitialised reads", "recognised_lanes", SUM),
    ("place_by_pattern", "emulator alone", "place_by_pattern", ADD),
    ("order_by_pattern", "emulator alone", "order_by_pattern", RUNNING),
    ("lost_updates", "races", "lost_updates", SUM),
    ("no_barrier", "races", "no_barrier", (f"{R}::reversed_rows", "x: f32[16,256]")),
    ("last_store_stays", "races", "last_store_stays", (f"{R}::last_column", "x: f32[64,256]")),
    ("false_alignment", "undefined behaviour", "false_alignment", TRIPLED),
    ("false_assumption", "undefined behaviour", "false_assumption", TRIPLED),
    ("idle_loop", "races", "idle_loop", RUNNING),
    ("division_by_zero", "emulator alone", "division_by_zero", TRIPLED),
    ("no_saturation", "emulator alone", "no_saturation", ("references.py::quantize", "x: f32[600] normal(0, 8)")),
    ("one_half_dot", "emulator alone", "one_half_dot", ("references.py::matmul", "a: f16[64,512]; b: f16[512,32]")),
    ("fast_sine", "emulator alone", "fast_sine", (f"{R}::fast_wave", VECTOR)),
    ("last_number_sums", "races", "last_number_sums", ("held_out_references.py::total", VECTOR)),
    ("half_parts", "lower precision", "half_parts", ("references.py::matmul", "a: f16[64,512]; b: f16[512,32]")),
    ("three_of_long", "lower precision", "three_of_long", ("references.py::matmul", "a: f32[32,4096]; b: f32[4096,32]")),
    ("narrow_parts", "lower precision", "narrow_parts", ("references.py::matmul", "a: bf16[64,512]; b: bf16[512,32]")),
    ("sampled_product", "sampling", "sampled_product",
     ("references.py::matmul", "a: bf16[32,4096] uniform(0, 1); b: bf16[4096,32] uniform(0, 1)")),
    ("short_product", "sampling", "short_product", ("references.py::matmul", "a: bf16[64,4096]; b: bf16[4096,32]")),
    ("eight_bit_weights", "reference that rounds", "eight_bit_weights", (f"{R}::attention_written_out", WIDE_ROWS)),
    ("skipped_keys", "fewer iterations", "skipped_keys", (f"{R}::attention_written_out", WIDE_ROWS)),
)  # fmt: skip

KERNEL_ATTEMPTS: tuple[tuple[str, str, str, tuple[str, str]], ...] = tuple(
    (name, family, f"{file}.py::{at}", known)
    for file, cases in (("attempts_kernels", _NUMBERS), ("attempts_kernels_2", _MEMORY))
    for name, family, at, known in cases
)
"""Name, family, file and function in ``exploits``, reference and inputs."""
