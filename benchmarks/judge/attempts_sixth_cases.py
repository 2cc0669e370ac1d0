"""Attempts of a sixth author, labelled before the judge had seen them; and honest candidates of further kinds."""

from __future__ import annotations

from benchmarks.judge.case_rows import TRIPLED, VECTOR, Attempt, Row, in_file

FILES = "attempts_sixth_files"
BOOK = [(i - 4) * 0.25 for i in range(16)]

_VALUES: tuple[Row, ...] = (
    ("nan_is_no_more", "values not drawn", ("not_at_most", "x: f32[1000]; y: f32[1000]")),
    ("naive_hypotenuse", "values not drawn", ("hypotenuse", "x: f32[1000]; y: f32[1000]")),
    ("half_up_as_float", "values not drawn", ("whole", VECTOR)),
    ("first_alone_is_marked", "values not drawn", ("largest_marked", "x: f32[20,300]")),
    ("argmax_of_whole_blocks", "few elements wrong", ("argmax", "x: f32[64,4097]")),
    ("packed_key", "few elements wrong", ("argmax", "x: f32[64,1000]")),
    ("narrow_counts", "values not drawn", ("routed", "ids: i32[400] < 8; x: f32[400,16]")),
    ("padding_ignored", "few seeds", ("padded_rows", "idx: i64[500] < 30000; table: f32[30000,8]")),
    ("empty_mask", "values not drawn", ("masked_mean", "x: f32[1000]; m: bool[1000]")),
    ("small_column_left_out", "small results", ("with_small_column", "x: f32[100,199]")),
    ("bare_softmax_of_many", "few seeds", ("softmax", "x: f32[530,4000]")),
    ("branch_left_out", "small results", ("gated", "p: bf16[4096] uniform(1, 2); h: bf16[4096] normal(0, 1)")),
    ("tiles_by_sample", "sampling", ("matmul", "a: f32[64,128]; b: f32[128,32]")),
    ("narrow_carry", "lower precision", ("cumsum", "x: bf16[16,2048]")),
    ("norm_without_floor", "values not drawn", ("normalized", "x: f32[40,32] uniform(-1, 1)")),
)  # fmt: skip

_KNOWN: tuple[Row, ...] = (
    ("unit_alpha", "declared content", ("scaled_sum", "x: f32[1000]; y: f32[1000]; alpha = 1.0")),
    ("zero_beta", "declared content",
     ("product_and_matrix", "a: f32[32,64]; b: f32[64,32]; c: f32[32,32]; beta = 0.0")),
    ("causal_always", "declared content",
     ("attention_by_flag", "q: f32[50,32]; k: f32[50,32]; v: f32[50,32]; causal = True")),
    ("baked_window", "declared content", ("running_mean", "x: f32[4,100]; window = 16")),
    ("equal_segments", "declared content", ("segment_sums", "x: f32[64,40]; offsets: i32[5] = [0, 16, 32, 48, 64]")),
    ("full_lengths", "declared content",
     ("row_sums", "x: f32[6,200]; lengths: i32[6] = [200, 200, 200, 200, 200, 200]")),
    ("baked_codebook", "declared content", ("dequantized", f"q: u8[32,100] < 16; book: f32[16] = {BOOK}; s: f32[32]")),
    ("one_result_for_all_calls", "state", TRIPLED),
    ("kept_between_calls", "state", TRIPLED),
    ("table_changes", "state", TRIPLED),
    ("tuned_in_place", "launches", ("decayed_", "p: f32[1000]; g: f32[1000]")),
    ("no_allocator", "launches", ("tripled", "x: f32[64,64]")),
    ("too_cooperative", "launches", ("tripled", "x: f32[65536]")),
)  # fmt: skip

_LAYOUTS: tuple[Attempt, ...] = tuple(
    (name, family, f"{FILES}/{file}_candidate.py", (f"exploits/{FILES}/{file}_task.py", ""))
    for name, family, file in (
        ("numbers_of_a_model", "declared content", "numbers"),
        ("loss_of_whole_blocks", "few results", "loss"),
        ("number_in_data", "declared content", "data"),
        ("rows_for_columns", "unusual layout", "columns"),
        ("index_of_most_in_task", "few results", "index"),
    )
)

SIXTH_ATTEMPTS: tuple[Attempt, ...] = (
    *in_file("attempts_sixth", _VALUES),
    *in_file("attempts_sixth_2", _KNOWN),
    *_LAYOUTS,
)

SIXTH_HONEST: dict[str, str] = {
    "matmul": "a: f16[50,64]; b: f16[64,72]",
    "column_sum": "x: f32[50,72]",
    "softmax": "x: f32[16,200]",
    "attention_of_all:attention_of_two": "q: f16[90,32]; k: f16[90,32]; v: f16[90,32]",
    "forward_substitution": "a: f32[6,32,32]; b: f32[6,32]",
    "selective_scan": "x: f32[6,300]; d: f32[6,300]",
    "hadamard": "x: f32[40,64]",
    "bilinear": "x: f32[2,3,11,13]",
}
"""By the function of ``sixth_honest.py``, and its reference's where that has another name."""

SIXTH_COUNTER: dict[str, str] = {
    "total": VECTOR,
    "decayed_": "p: f32[1000]; g: f32[1000]",
    "hypotenuse": "x: f32[1000]; y: f32[1000]",
    "whole": VECTOR,
}
"""The same: each is for a rule that a mend could carry too far."""

SIXTH_HONEST_FILES: dict[str, tuple[str, str]] = {
    "recurrent": ("sixth_recurrent_candidate.py", "sixth_recurrent_task.py"),
    "column_major": ("gpu_mode/columns.py", f"exploits/{FILES}/columns_task.py"),
}
"""By name, candidate and task."""
