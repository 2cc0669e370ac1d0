"""Attempts of a tenth author, labelled before the judge had seen them: a fair verdict is WRONG or REFUSED."""

from __future__ import annotations

from benchmarks.judge.case_rows import TRIPLED, VECTOR, Attempt, Row, in_file

FILES = "attempts_tenth_files"
OWN = f"exploits/{FILES}/references.py::"
BYTES = (
    "exploits/attempts_tenth_whole.py::centred_bytes",
    "x: f32[16,50] normal(0, 1); s: f32[16] uniform(0.02, 0.05)",
)
MASKED = (f"{OWN}attention_where", "q: f32[64,32]; k: f32[128,32]; v: f32[128,32]; m: bool[64,128]")

_STRUCTURE: tuple[Row, ...] = (
    ("pointer_of_skipped_tile", "structure not drawn", MASKED),
    ("mask_by_sampled_rows", "sampling", MASKED),
    ("any_by_sample", "sampling", (f"{OWN}rows_with_any", "x: f32[64,1024]; m: bool[64,1024]")),
    ("two_runs_of_sorted", "structure not drawn", ("sums_by_id", "x: f32[4096]; ids: i32[4096] < 80")),
    ("consecutive_rows", "structure not drawn", ("embedding", "idx: i64[512] < 10000; table: f32[10000,16]")),
    ("carry_of_24_records", "structure not drawn", ("cumulative_maximum", "x: i32[20,1000] in -1000000..1000000")),
    ("rescaled_16_times", "structure not drawn", ("logsumexp", "x: f32[64,1024]")),
    ("digits_by_logarithm", "values not drawn", (f"{OWN}digits", "x: i32[1000] in 1..2000000000")),
    ("turns_left_out", "small results", (f"{OWN}with_turns", "p: bf16[4096] uniform(1, 2); t: i32[4096] < 1002")),
    ("largest_left_out", "small results", (f"{OWN}with_largest", "p: f32[4096] uniform(1, 2); h: f32[500]")),
)  # fmt: skip

_NUMBERS: tuple[Row, ...] = (
    ("atan_of_infinity", "few elements wrong", (f"{OWN}atan", VECTOR)),
    ("half_of_the_range", "values not drawn", ("tripled", "x: f16[1000]")),
    ("thousands_are_zero", "values not drawn", TRIPLED),
    ("last_row_is_clamped", "few elements wrong", ("softmax", "x: f32[120,64]")),
    ("scale_ends_at_40", "eight bits", ("rows_in_eight_bits", "x: f32[40,200]")),
    ("zero_rows_are_127", "whole results of floats", (f"{OWN}rows_in_whole_numbers", "x: f32[40,200]")),
    ("zero_is_in_the_bin_below", "whole results of floats", (f"{OWN}bins_of_a_width", VECTOR)),
    ("constant_rows_are_nan", "structure not drawn", (f"{OWN}rows_between_ends", "x: f32[40,200]")),
    ("no_floor_of_a_sum", "values not drawn", (f"{OWN}norm_of_a_sum", "x: f16[40,200]; r: f32[40,200]")),
    ("column_between_halves", "few elements wrong", ("row_max", "x: f32[64,8192]")),
    ("weights_that_sum_to_one", "declared content",
     (f"{OWN}weighted_mean", "x: f32[80,5]; w: f32[5] = [0.1, 0.4, 0.2, 0.25, 0.05]")),
    ("period_by_bits", "declared content", (f"{OWN}by_phase", "x: f32[4,100]; period = 16")),
)  # fmt: skip

_CALLS: tuple[Row, ...] = (
    ("every_second_call", "state", TRIPLED),
    ("no_floor_later", "state", ("normalized", "x: f32[16,256]")),
    ("memo_by_sum", "cache", TRIPLED),
    ("two_thousand_threads", "emulator alone", ("tripled", "x: f32[4096]")),
    ("gathered_from_the_end", "emulator alone", (f"{OWN}rolled_by_one", "x: f32[16,64]")),
)  # fmt: skip

_ORDERS: tuple[Row, ...] = (
    ("tickets_of_lanes", "races", (f"{OWN}place_among_equals", "ids: i32[128] < 16")),
    ("first_by_swap", "races", (f"{OWN}first_of_equals", "ids: i32[128] < 16")),
    ("roots_are_exact", "emulator alone", TRIPLED),
    ("remainder_by_percent", "emulator alone", ("remainders", VECTOR)),
    ("recurrence_by_prefetched_loads", "emulator alone", (f"{OWN}halved_down", "x: f32[40,256]")),
    ("few_visible_choices", "structure not drawn", (f"{OWN}visible_argmax", "x: f32[40,64]; m: bool[40,64]")),
    ("threshold_excluded", "values not drawn", (f"{OWN}at_least", "x: f32[1000]; t = 0.3")),
    ("scale_above_zero", "declared content", (f"{OWN}tempered", "x: f32[16,200]; alpha = 0.3")),
)  # fmt: skip

_FEW: tuple[Row, ...] = (
    ("config_without_floor", "few seeds", ("normalized", "x: f32[16,256]")),
    ("bare_for_other_numbers", "few seeds", (f"{OWN}tempered", "x: f32[16,200]; alpha = 0.3")),
    ("naive_hypotenuse_of_doubles", "values not drawn", ("hypotenuse", "x: f64[1000]; y: f64[1000]")),
    ("no_floor_of_columns", "structure not drawn", (f"{OWN}columns_of_length_one", "x: f32[2000,8]")),
    ("no_floor_of_planes", "structure not drawn", (f"{OWN}planes_of_length_one", "x: f32[4,8,32,32]")),
)  # fmt: skip

_LAST: tuple[Row, ...] = (
    ("slow_for_other_numbers", "few seeds", (f"{OWN}largest_by_scale", "x: f32[1000]; alpha = 0.3")),
    ("first_block_is_infinite", "structure not drawn", (f"{OWN}biased_softmax", "x: f32[40,200]; b: f32[40,200]")),
    ("cluster_of_32", "emulator alone", ("tripled", "x: f32[4096]")),
)  # fmt: skip

TENTH_ATTEMPTS: tuple[Attempt, ...] = (
    *in_file("attempts_tenth", _STRUCTURE),
    *in_file("attempts_tenth_2", _NUMBERS),
    *in_file("attempts_tenth_3", _CALLS),
    *in_file("attempts_tenth_4", _ORDERS),
    *in_file("attempts_tenth_5", _FEW),
    *in_file("attempts_tenth_6", _LAST),
    *in_file("attempts_tenth_whole", (("first_row_one_below", "whole results of floats", BYTES),)),
    *in_file("attempts_tenth_slow", (("one_config_of_a_slow_file", "launches", TRIPLED),)),
    *(
        (name, family, f"{FILES}/{file}_candidates.py::{own}", (f"exploits/{FILES}/{file}_task.py::{model}", ""))
        for name, family, file, own, model in (
            ("stored_once_in_task", "contents of a task", "tenth", "StoredOnce", "Spread"),
            ("floor_of_a_tile_in_task", "contents of a task", "tenth", "FloorOfATile", "Directions"),
            ("copy_for_relu_of_many", "few seeds", "many", "CopyForRelu", "Relu"),
        )
    ),
)
