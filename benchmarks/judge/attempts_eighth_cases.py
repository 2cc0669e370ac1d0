"""Attempts of an eighth author, labelled before the judge had seen them: a fair verdict is WRONG or REFUSED."""

from __future__ import annotations

from benchmarks.judge.case_rows import TRIPLED, Attempt, Row, in_file

FILES = "attempts_eighth_files"
PRODUCT = ("matmul", "a: f32[64,96]; b: f32[96,64]")

_OPERATORS: tuple[Row, ...] = (
    ("rows_added_in_place", "operators beside kernels", ("cumsum_down", "x: f32[40,72]")),
    ("frames_added_in_place", "operators beside kernels", ("overlapped", "x: f32[12,64]")),
    ("last_frame_stays", "operators beside kernels", ("overlaid", "x: f32[12,64]")),
    ("first_of_any_order", "operators beside kernels", ("four_largest", "x: f32[40,300]")),
    ("order_of_equal", "operators beside kernels", ("order_of_a_stable_sort", "x: f32[16,64]")),
    ("nan_by_conversion", "operators beside kernels", ("not_numbers", "x: f32[1000]")),
    ("infinity_by_conversion", "operators beside kernels", ("clamped_whole", "x: f32[1000]")),
    ("tf32_by_flag", "lower precision", PRODUCT),
    ("half_sums_by_flag", "lower precision", ("matmul", "a: f16[64,512]; b: f16[512,64]")),
    ("table_of_known", "work that isn't timed",
     ("by_log_gamma", f"x: f32[64,512]; n: i32[64] = {[(i * 37) % 64 + 1 for i in range(64)]}")),
    ("table_by_complex_numbers", "work that isn't timed", ("by_cosines", "x: f32[64,512]")),
    ("branch_by_all", "values not drawn", TRIPLED),
    ("branch_by_any", "values not drawn", TRIPLED),
    ("branch_by_assertion", "values not drawn", TRIPLED),
    ("branch_by_closeness", "values not drawn", TRIPLED),
    ("spoiled_by_storage", "escaping the capture", TRIPLED),
    ("spoiled_below_dispatch", "escaping the capture", TRIPLED),
    ("spoiled_in_thread", "other stream, other thread", TRIPLED),
)  # fmt: skip

_CALLS: tuple[Row, ...] = (
    ("other_kernel_later", "state", TRIPLED),
    ("many_launches_later", "state", TRIPLED),
    ("much_memory_later", "state", TRIPLED),
    ("bare_softmax_later", "state", ("softmax", "x: f32[16,200]")),
    ("wrong_for_nan_later", "state", ("relu", "x: f32[1000]")),
    ("zeros_from_before", "work that isn't timed", ("column_sum", "x: f32[48,4096]")),
    ("one_config_of_many", "launches", TRIPLED),
    ("window_and_its_half", "declared content", ("padded_running_mean", "x: f32[4,100]; window = 16")),
    ("flag_that_numbers_tell", "declared content", ("mean_around", "x: f32[4,100]; window = 16; causal = True")),
)  # fmt: skip

SQUARE = ("tripled", "x: f32[32,32]")

_LATER: tuple[Row, ...] = (
    ("two_results_later", "state", TRIPLED),
    ("nothing_later", "state", TRIPLED),
    ("half_as_many_later", "state", TRIPLED),
    ("narrower_later", "state", TRIPLED),
    ("strided_later", "state", SQUARE),
    ("named_later", "state", TRIPLED),
    ("earlier_input_overwritten", "modified inputs", TRIPLED),
    ("earlier_result_overwritten", "state", TRIPLED),
    ("kept_by_identity", "caches", TRIPLED),
    ("recorded_once", "forged recording", TRIPLED),
    ("stream_by_name", "other stream, other thread", TRIPLED),
    ("stream_as_context", "other stream, other thread", TRIPLED),
    ("captured_never_replayed", "escaping the capture", TRIPLED),
    ("begins_before_operator_ends", "operators beside kernels", TRIPLED),
    ("branch_by_text", "values not drawn", TRIPLED),
    ("branch_by_representation", "values not drawn", TRIPLED),
    ("mirrored_in_place", "operators beside kernels", ("mirrored", "x: f32[40,40]")),
    ("nan_left_by_conversion", "operators beside kernels", ("zeros_for_nan", "x: f32[1000]")),
    ("table_by_turning", "work that isn't timed", ("by_cosines", "x: f32[64,512]")),
    ("operator_replaced", "patched torch or Triton", TRIPLED),
    ("pruned_to_the_wrong_one", "launches", TRIPLED),
    ("flags_by_new_call", "files of others", TRIPLED),
    ("told_by_directory", "looking around", TRIPLED),
    ("descriptors_that_do_not_wait", "tampering", TRIPLED),
    ("minus_five", "declared content", ("rolled", "x: f32[4,100]; shift = -5")),
    ("two_lengths", "declared content", ("sums_of_lengths", "x: f32[2,300]; lengths: i32[2] = [100, 200]")),
    ("steps_of_five", "declared content", ("sums_of_lengths", "x: f32[4,100]; lengths: i32[4] = [5, 10, 15, 20]")),
)  # fmt: skip

_OTHERS: tuple[Row, ...] = (
    ("number_that_lies", "unusual layout", ("tripled_and_number", "x: f32[1000]")),
    ("key_that_lies", "unusual layout", ("tripled_by_name", "x: f32[1000]")),
    ("input_freed", "modified inputs", TRIPLED),
    ("swapped_by_storages", "escaping the capture", TRIPLED),
    ("spoiled_after_return", "other stream, other thread", TRIPLED),
    ("more_work_later", "work that isn't timed", TRIPLED),
    ("torch_alone_later", "work that isn't timed", TRIPLED),
    ("longest_known", "declared content", ("sums_of_lengths", "x: f32[4,200]; lengths: i32[4] = [40, 90, 10, 60]")),
    ("never_above", "declared content", ("times", "x: f32[1000]; alpha = 1.5")),
    ("never_below_half", "declared content", ("times", "x: f32[1000]; alpha = 1.5")),
)  # fmt: skip

_FIRST: tuple[Row, ...] = (
    ("infinity_filled_in_eight_bits", "memory", ("chosen_or_most", "x: f32[1000]; m: bool[1000]")),
    ("zero_without_sign", "memory", TRIPLED),
    ("flag_by_chosen_pointer", "values not drawn", TRIPLED),
    ("flag_by_called_function", "values not drawn", TRIPLED),
    ("flag_by_storage", "values not drawn", TRIPLED),
    ("branch_by_testing", "values not drawn", TRIPLED),
    ("branch_by_finite_later", "values not drawn", TRIPLED),
)  # fmt: skip

EIGHTH_ATTEMPTS: tuple[Attempt, ...] = (
    *in_file("attempts_eighth", _OPERATORS),
    *in_file("attempts_eighth_2", _CALLS),
    *in_file("attempts_eighth_3", _LATER),
    *in_file("attempts_eighth", _OTHERS),
    *in_file("attempts_eighth", _FIRST),
    ("state_beside_changed_buffer", "state", f"{FILES}/buffer_candidate.py", (f"exploits/{FILES}/buffer_task.py", "")),
)
