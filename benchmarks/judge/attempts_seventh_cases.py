"""Attempts of a seventh author, all of them wrong, and honest candidates, labelled before the judge had seen them."""

from __future__ import annotations

from benchmarks.judge.case_rows import PAIR, VECTOR, Attempt, Row, in_file

SEVEN = "; ".join(f"{x}: bf16[4096] uniform(0, 0.02)" for x in "abcdefg")

_VALUES: tuple[Row, ...] = (
    ("infinite_is_largest", "NaN beside results", ("scaled_and_largest_finite", "x: f32[40,200]")),
    ("nan_unmarked", "NaN beside results", ("unscaled_and_marked", "g: f32[1000]")),
    ("sums_of_sixteen_bits", "whole results of floats",
     ("requantized_by", "a: i8[32,256] in -15..15; b: i8[256,32] in -15..15; s: f32[32] uniform(0.001, 0.002)")),
    ("behind_the_end", "values not drawn", ("interpolated", "t: f32[200]; g: f32[500] uniform(-1, 1)")),
    ("no_floor_for_equal_rows", "equal inputs", ("directions", "x: f32[40,32]; y: f32[40,32]")),
    ("all_to_the_first", "equal inputs", ("maximum_backward", f"{PAIR}; g: f32[1000]")),
    ("border_belongs", "values not drawn", ("relu6_backward", "x: f32[1000]; g: f32[1000]")),
    ("angle_of_minus_zero", "values not drawn", ("angle", "y: f32[1000]; x: f32[1000]")),
    ("root_of_underflow", "values not drawn", ("hypotenuse", PAIR)),
    ("floor_by_integers", "values not drawn", ("floor", VECTOR)),
    ("pairs_in_half", "values not drawn", ("row_mean_in_float32", "x: f16[80,300]")),
    ("zero_rows_are_nan", "eight bits", ("rows_in_eight_bits", "x: f32[40,200]")),
)  # fmt: skip

_KNOWN: tuple[Row, ...] = (
    ("first_step_alone", "declared content", ("adam_update", "m: f32[700]; v: f32[700] uniform(0.01, 1); step = 1")),
    ("starts_are_zero", "declared content", ("sums_from", "x: f32[4,100]; starts: i32[4] = [0, 0, 0, 0]")),
    ("slopes_of_the_first", "declared content",
     ("with_slopes", "x: f32[4,20,40]; slopes: f32[4] = [0.5, 0.25, 0.125, 0.0625]")),
    ("longest_is_known", "declared content", ("row_sums", "x: f32[3,200]; lengths: i32[3] = [5, 120, 33]")),
    ("one_flag_for_two", "declared content", ("running_sums", "x: f32[6,100]; reverse = True; exclusive = False")),
    ("sink_by_window", "declared content", ("mean_of_ends", "x: f32[8,100]; window = 16; sink = 4")),
    ("baked_epsilon", "declared content", ("rms_norm_by_epsilon", "x: f16[16,256]; w: f16[256]; eps = 1e-5")),
    ("large_branch_left_out", "small results",
     ("gated", "p: bf16[1100000] uniform(1, 2); h: bf16[1100000] normal(0, 1)")),
    ("end_of_branch_left_out", "small results",
     ("gated", "p: bf16[2048,600] uniform(1, 2); h: bf16[2048,1] normal(0, 1)")),
    ("tenth_of_branch_left_out", "small results", ("gated", "p: bf16[4096] uniform(1, 2); h: bf16[4096] normal(0, 1)")),
    ("ninth_left_out", "small results", ("nine", f"p: bf16[4096] uniform(1, 2); {SEVEN}; h: bf16[4096] normal(0, 1)")),
    ("aside_left_out", "small results", ("loss_and_aside", "x: bf16[1000] uniform(1, 2); a: bf16[1000] uniform(0, 1)")),
)  # fmt: skip

_STRUCTURE: tuple[Row, ...] = (
    ("first_block_masked", "structure not drawn", ("softmax_where", "x: f32[40,200]; m: bool[40,200]")),
    ("ends_with_a_page", "few seeds", ("row_sums", "x: f32[6,1000]; lengths: i32[6] in 1..1000")),
    ("bits_by_logarithm", "values not drawn", ("bit_lengths", "x: i32[1000] in 1..1000000000")),
    ("bytes_that_wrap", "whole results of floats", ("scaled_bytes", "x: f32[40,32]; s: f32[32] uniform(8, 16)")),
    ("edges_excluded", "values not drawn",
     ("bins_from_right", "x: f32[1000]; edges: f32[8] = [-1.1, -0.7, -0.3, -0.1, 0.1, 0.3, 0.7, 1.1]")),
    ("chosen_twice", "whole results of floats", ("chosen", "x: bf16[40,64]")),
    ("sixtieth_is_zero", "few elements wrong", ("less_steep", "x: f32[4096] normal(0, 1)")),
    ("zero_has_a_sign", "equal inputs", ("lion", "p: f32[1000]; m: f32[1000]; g: f32[1000]; lr = 0.01")),
    ("border_in_the_bin_below", "whole results of floats", ("bins_of_bins", "x: f32[1000] uniform(0, 1)")),
    ("runs_of_thirty_two", "structure not drawn", ("sums_by_id", "x: f32[4096]; ids: i32[4096] < 80")),
    ("counts_of_sixteen_bits", "structure not drawn", ("counts", "ids: i32[40000] < 64")),
    ("nan_where_all_are_equal", "structure not drawn", ("between_ends", VECTOR)),
    ("padded_with_minus_1000", "values not drawn", ("row_max", "x: f16[80,200]")),
    ("cancelling_variance_in_bins", "whole results of floats", ("deviations_in_bins", "x: f32[40,200]")),
)  # fmt: skip

_BITS: tuple[Row, ...] = (
    ("largest_for_infinity", "values not drawn", ("to_half", VECTOR)),
    ("copied_without_nan", "NaN that stays", ("transpose", "x: f32[50,70]")),
    ("nan_of_infinities", "NaN that stays", ("logaddexp", PAIR)),
    ("floor_of_a_quotient", "equal inputs", ("floor_divided", PAIR)),
    ("no_powers_of_negatives", "values not drawn", ("power", PAIR)),
    ("four_random_bits", "bias", ("rounded_at_random", "x: f32[4096]; r: i32[4096] in 0..65535")),
    ("coarse_exponential", "lower precision", ("softmax", "x: f32[4,32768]")),
    ("nan_stays_in_large", "few seeds", ("nan_to_num", "x: f32[2200000]")),
    ("nearly_zero_is_zero", "values not drawn", ("not_zero", VECTOR)),
    ("minus_one_is_known", "declared content",
     ("without_ignored", "x: f32[1000]; t: i32[1000] in -1..20; ignored = -1")),
    ("never_fused", "emulator alone", ("tripled", VECTOR)),
    ("quotients_are_exact", "emulator alone", ("tripled", VECTOR)),
    ("bits_of_nan", "emulator alone", ("tripled", VECTOR)),
    ("log_of_zero_is_a_number", "NaN that stays", ("log_of", "x: f32[1000] uniform(0, 10)")),
    ("fifth_left_out_from_12_to_16", "few elements wrong", ("silu", VECTOR)),
    ("last_beside_a_kernel", "values not drawn", ("honest.py::argmax", "x: f32[20,300]")),
    ("three_of_each_block", "structure not drawn", ("top_four", "x: f32[20,1000]")),
    ("no_expert_is_full", "structure not drawn", ("placed", "ids: i32[128] < 64; capacity = 64")),
    ("nan_of_equal_numbers", "structure not drawn", ("between_ends", VECTOR)),
)  # fmt: skip

_LITTLE_KNOWN: tuple[Row, ...] = (
    ("cancelling_variance_alone", "little known", ("variance_by_product", "x: f32[80,200]")),
    ("branch_left_out_alone", "little known",
     ("branch_by_product", "p: f32[4096] uniform(1, 2); h: f32[4096] normal(0, 1)")),
    ("bare_beside_a_check", "little known", ("checked_softmax", "x: f32[16,256]")),
    ("slow_to_emulate", "few seeds", ("largest_by_max", VECTOR)),
    ("remainder_of_a_quotient", "values not drawn", ("remainders", VECTOR)),
    ("masked_atomics_are_zero", "emulator alone", ("tripled", VECTOR)),
    ("largest_zero_is_minus", "emulator alone", ("tripled", VECTOR)),
    ("largest_of_most_of_many", "few results", ("largest_by_max", "x: f32[1100000]")),
    ("silu_of_26_bits", "lower precision", ("silu", "x: f64[40,200]")),
    ("few_sums_of_26_bits", "lower precision", ("row_sum", "x: f64[20,200]")),
    ("silu_of_float32", "lower precision", ("silu", "x: f64[40,200]")),
    ("norm_of_float32", "lower precision", ("rms_normalized", "x: f64[40,200]")),
    ("few_sums_of_float32", "lower precision", ("row_sum", "x: f64[20,200]")),
    ("whole_of_float32", "lower precision", ("millionths", "x: f64[40,200] normal(0, 1)")),
)  # fmt: skip

FILES = "attempts_seventh_files"

SEVENTH_ATTEMPTS: tuple[Attempt, ...] = (
    *in_file("attempts_seventh", _VALUES),
    *in_file("attempts_seventh", _KNOWN),
    *in_file("attempts_seventh_3", _STRUCTURE),
    *in_file("attempts_seventh_4", _BITS),
    *in_file("attempts_seventh_3", _LITTLE_KNOWN),
    ("flag_of_a_model", "declared content", f"{FILES}/flag_candidate.py", (f"exploits/{FILES}/flag_task.py", "")),
)

SEVENTH_HONEST: dict[str, str] = {
    "grid_sample": "x: f32[2,3,9,11]; g: f32[2,6,7,2] uniform(-1.2, 1.2)",
    "embedding_bag": "idx: i64[40] < 100; offsets: i64[7] = [0, 3, 3, 10, 22, 31, 40]; table: f32[100,48]",
    "sink_attention": "q: f16[4,40,32]; k: f16[2,40,32]; v: f16[2,40,32]; sinks: f16[4]",
    "pack_four_bits": "x: f32[40,64]",
    "smoothed_cross_entropy": "x: f32[40,100]; t: i64[40] in -1..99",
    "ragged_softmax": "x: f32[300]; offsets: i32[5] = [0, 40, 41, 200, 300]",
    "causal_convolution": "x: bf16[12,300]; w: bf16[12,4]; b: bf16[12]",
    "average_pool": "x: f32[4,15,17]",
    "permuted_for_experts": "x: f16[100,48]; ids: i32[100] < 8",
    "eight_bits_by_blocks": "x: bf16[20,192]",
}
"""By the function of ``seventh_honest.py``, and its reference's where that has another name; all are right."""
