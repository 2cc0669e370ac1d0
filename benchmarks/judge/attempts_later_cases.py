"""Later attempts, by an author who wrote neither the judge nor those before; and honest candidates of further kinds."""

from __future__ import annotations

from benchmarks.judge.case_rows import ADD, DROP, VECTOR, Attempt, Row, in_file

FILES = "attempts_later_files"
SEGMENTS = ("segment_sums", "x: f32[50,40]; offsets: i32[4] = [0, 9, 30, 50]")
KEYS = [(37 * i + 11) % 64 for i in range(64)]
BYTES = "in -127..127"

_NUMBERS: tuple[Row, ...] = (
    ("half_up", "values not drawn", ("to_eighths", VECTOR)),
    ("truncated_floor", "values not drawn", ("whole_part", VECTOR)),
    ("infinities_left", "values not drawn", ("nan_to_num", VECTOR)),
    ("sign_of_zero", "values not drawn", ("sign_bit", VECTOR)),
    ("flushed", "small results", ("to_half", "x: f32[4096]")),
    ("scaled_by_bits", "values not drawn", ("eightfold", VECTOR)),
    ("erf_by_polynomial", "lower precision", ("gelu", "x: f32[4096]")),
    ("half_range", "values not drawn", ("tripled", "x: bf16[4096]")),
    ("strict_comparison", "values not drawn", ("not_less", "x: f32[1000]; y: f32[1000]")),
    ("other_side", "values not drawn",
     ("bins", "x: f32[1000]; edges: f32[8] = [-2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0]")),
    ("unstable_order", "values not drawn", ("stable_order", "x: f32[16,64]")),
    ("mask_by_product", "values not drawn", ("masked_zero", "x: f32[1000]; m: bool[1000]")),
    ("flags_wrap", "values not drawn", ("any_above_three", "x: f32[64,256]")),
    ("clamped_index", "values not drawn", ("rows_at", "idx: i64[40] < 100; table: f32[100,48]")),
    ("skips_by_first", "few elements wrong", ("scaled_columns", "x: f32[64,200]; w: f32[200]")),
    ("baked_offsets", "declared content", SEGMENTS),
    ("sorted_by_host", "work that isn't timed", ("in_order_of", f"x: f32[64,48]; key: i32[64] = {KEYS}")),
    ("overwritten_gradient", "declared content",
     ("gradient_added_", "dw: f32[32,16] zeros; a: f32[64,32]; g: f32[64,16]")),
    ("narrow_taps", "lower precision", ("seven_taps", "x: f32[4,16384]; w: f32[7]")),
    ("two_floats", "lower precision", ("tripled", "x: f64[65536]")),
    ("coarse_last_column", "few elements wrong", ("packed_rows", "x: f32[100,199]; s: f32[100]")),
    ("float_sums", "values not drawn", ("whole_product", f"a: i8[32,2048] {BYTES}; b: i8[2048,32] {BYTES}")),
    ("unclamped", "values not drawn", ("requantized", f"a: i8[32,128] {BYTES}; b: i8[128,32] {BYTES}")),
    ("narrow_atomics", "lower precision", ("embedding_gradient", "g: f32[80,32]; idx: i64[80] < 50")),
    ("window_for_bias", "fewer iterations", ("biased_attention", "q: f16[192,32]; k: f16[192,32]; v: f16[192,32]")),
    ("padded_keys", "few elements wrong", ("attention_of_two", "q: f16[70,32]; k: f16[70,32]; v: f16[70,32]")),
)  # fmt: skip

_LAUNCHES: tuple[Row, ...] = (
    ("no_grid_wait", "races", ("tripled", VECTOR)),
    ("other_config", "launches", ("tripled", VECTOR)),
    ("counter_never_reset", "state", ("total", VECTOR)),
    ("address_in_memory", "pointers", ADD),
    ("escaped_name", "forged recording", ADD),
    ("all_bits_histogram", "emulator alone", ("histogram", "idx: i32[1000] < 64")),
    ("crowded_barrier", "emulator alone", ("by_total", "x: f32[19200] uniform(0, 1)")),
    ("wide_shift", "undefined behaviour",
     ("low_bits", "x: i32[1000] in -1000000000..1000000000; bits: i32[1000] in 0..32")),
    ("too_much_shared", "emulator alone", ("matmul", "a: f16[128,512]; b: f16[512,128]")),
    ("tall_grid", "launches", ("tripled", VECTOR)),
    ("short_seed", "randomness", DROP),
    ("coarse_threshold", "randomness", DROP),
)  # fmt: skip

_LAYOUTS: tuple[Attempt, ...] = (
    ("no_maximum_in_model", "values not drawn", f"{FILES}/bare_candidate.py", (f"exploits/{FILES}/bare_task.py", "")),
    ("stats_not_updated", "modified inputs", f"{FILES}/stats_candidate.py", (f"exploits/{FILES}/stats_task.py", "")),
)

LATER_ATTEMPTS: tuple[Attempt, ...] = (
    *in_file("attempts_later", _NUMBERS),
    *in_file("attempts_later_2", _LAUNCHES),
    *_LAYOUTS,
)

LATER_HONEST: dict[str, str] = {
    "grouped_gemm": "x: f16[64,48]; w: f16[3,48,40]; offsets: i32[4] = [0, 20, 50, 64]",
    "top_four": "x: f32[20,300]",
    "scaled_int8_gemm": f"a: i8[64,96] {BYTES}; b: i8[96,64] {BYTES}; s: f32[64] uniform(0.01, 0.1); "
    "t: f32[64] uniform(0.01, 0.1)",
    "rotary_at": "x: f32[24,64]; at: i64[24] < 50; cos: f32[50,32] uniform(-1, 1); sin: f32[50,32] uniform(-1, 1)",
    "adamw_": "p: f32[700]; m: f32[700] normal(0, 0.1); v: f32[700] uniform(0.01, 1); g: f32[700]; lr = 0.05",
    "cross_entropy_backward": "x: f32[16,100]; t: i64[16] in -1..99",
    "cumulative_maximum": "x: f32[8,300]",
    "first_largest:argmax": "x: i32[20,300] < 50",
    "embedding_gradient": "g: f32[80,32]; idx: i64[80] < 50",
    "paged_decode": "q: f16[5,64]; pages: f16[12,16,64]; table: i32[5,4] < 12; lengths: i32[5] in 1..64",
    "padded_channels_last": "x: f16[2,5,9,11]",
    "max_pool": "x: f32[4,15,17]",
    "packed_gemm": "x: f16[32,64]; w: u8[32,48] < 256; s: f32[48] uniform(0.01, 0.1)",
    "group_norm": "x: f32[3,16,50]; w: f32[16]; b: f32[16]",
    "convolution": "x: f16[2,12,9,10]; w: f16[14,12,3,3]",
    "segment_sums": SEGMENTS[1],
}
"""By the function of ``later_honest.py``, and its reference's where that has another name."""

LATER_COUNTER: dict[str, str] = {
    "stable_ranks:stable_order": "x: f32[16,64]",
    "eighths:to_eighths": VECTOR,
    "counter_reset:total": VECTOR,
    "doubled_into_": "out: f32[600] zeros; x: f32[600]",
}
"""The same: each is for a rule that a mend could carry too far."""
