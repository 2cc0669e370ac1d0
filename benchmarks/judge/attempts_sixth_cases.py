"""Attempts of a sixth author, labelled before the judge had seen them; and honest candidates of further kinds."""

from __future__ import annotations

from benchmarks.judge.case_rows import Attempt, Row, in_file

R = "attempts_sixth_references.py"
FILES = "attempts_sixth_files"
VECTOR = "x: f32[1000]"
TRIPLED = (f"{R}::tripled", VECTOR)
BOOK = [(i - 4) * 0.25 for i in range(16)]

_VALUES: tuple[Row, ...] = (
    ("nan_is_no_more", "values not drawn", (f"{R}::not_at_most", "x: f32[1000]; y: f32[1000]")),
    ("naive_hypotenuse", "values not drawn", (f"{R}::hypotenuse", "x: f32[1000]; y: f32[1000]")),
    ("half_up_as_float", "values not drawn", (f"{R}::whole", VECTOR)),
    ("first_alone_is_marked", "values not drawn", (f"{R}::largest_marked", "x: f32[20,300]")),
    ("argmax_of_whole_blocks", "few elements wrong", (f"{R}::first_largest", "x: f32[64,4097]")),
    ("packed_key", "few elements wrong", (f"{R}::first_largest", "x: f32[64,1000]")),
    ("narrow_counts", "values not drawn", (f"{R}::routed", "ids: i32[400] < 8; x: f32[400,16]")),
    ("padding_ignored", "few seeds", (f"{R}::padded_rows", "idx: i64[500] < 30000; table: f32[30000,8]")),
    ("empty_mask", "values not drawn", (f"{R}::masked_mean", "x: f32[1000]; m: bool[1000]")),
    ("small_column_left_out", "small results", (f"{R}::with_small_column", "x: f32[100,199]")),
    ("bare_softmax_of_many", "few seeds", (f"{R}::softmax", "x: f32[530,4000]")),
    ("branch_left_out", "small results",
     (f"{R}::gated", "p: bf16[4096] uniform(1, 2); h: bf16[4096] normal(0, 1)")),
    ("tiles_by_sample", "sampling", (f"{R}::block_product", "a: f32[64,128]; b: f32[128,32]")),
    ("narrow_carry", "lower precision", (f"{R}::running_sum", "x: bf16[16,2048]")),
    ("norm_without_floor", "values not drawn", (f"{R}::normalized", "x: f32[40,32] uniform(-1, 1)")),
)  # fmt: skip

_KNOWN: tuple[Row, ...] = (
    ("unit_alpha", "declared content", (f"{R}::scaled_sum", "x: f32[1000]; y: f32[1000]; alpha = 1.0")),
    ("zero_beta", "declared content",
     (f"{R}::product_and_matrix", "a: f32[32,64]; b: f32[64,32]; c: f32[32,32]; beta = 0.0")),
    ("causal_always", "declared content",
     (f"{R}::attention", "q: f32[50,32]; k: f32[50,32]; v: f32[50,32]; causal = True")),
    ("baked_window", "declared content", (f"{R}::running_mean", "x: f32[4,100]; window = 16")),
    ("equal_segments", "declared content",
     (f"{R}::segment_sums", "x: f32[64,40]; offsets: i32[5] = [0, 16, 32, 48, 64]")),
    ("full_lengths", "declared content",
     (f"{R}::row_sums", "x: f32[6,200]; lengths: i32[6] = [200, 200, 200, 200, 200, 200]")),
    ("baked_codebook", "declared content",
     (f"{R}::dequantized", f"q: u8[32,100] < 16; book: f32[16] = {BOOK}; s: f32[32]")),
    ("one_result_for_all_calls", "state", TRIPLED),
    ("kept_between_calls", "state", TRIPLED),
    ("table_changes", "state", TRIPLED),
    ("tuned_in_place", "launches", (f"{R}::decayed_", "p: f32[1000]; g: f32[1000]")),
    ("no_allocator", "launches", (f"{R}::tripled", "x: f32[64,64]")),
    ("too_cooperative", "launches", (f"{R}::tripled", "x: f32[65536]")),
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

SIXTH_HONEST: dict[str, tuple[str, str]] = {
    "matmul": (f"{R}::matmul", "a: f16[50,64]; b: f16[64,72]"),
    "column_sum": ("held_out_references.py::column_sum", "x: f32[50,72]"),
    "softmax": (f"{R}::softmax", "x: f32[16,200]"),
    "attention_of_all": (f"{R}::attention_of_all", "q: f16[90,32]; k: f16[90,32]; v: f16[90,32]"),
    "forward_substitution": (f"{R}::forward_substitution", "a: f32[6,32,32]; b: f32[6,32]"),
    "selective_scan": (f"{R}::selective_scan", "x: f32[6,300]; d: f32[6,300]"),
    "hadamard": (f"{R}::hadamard", "x: f32[40,64]"),
    "bilinear": (f"{R}::bilinear", "x: f32[2,3,11,13]"),
}
"""By the function of ``sixth_honest.py``, its reference and inputs."""

SIXTH_COUNTER: dict[str, tuple[str, str]] = {
    "total": ("held_out_references.py::total", VECTOR),
    "decayed_": (f"{R}::decayed_", "p: f32[1000]; g: f32[1000]"),
    "hypotenuse": (f"{R}::hypotenuse", "x: f32[1000]; y: f32[1000]"),
    "whole": (f"{R}::whole", VECTOR),
}
"""The same: each is for a rule that a mend could carry too far."""

SIXTH_HONEST_FILES: dict[str, tuple[str, str]] = {
    "recurrent": ("sixth_recurrent_candidate.py", "sixth_recurrent_task.py"),
    "column_major": ("gpu_mode/columns.py", f"exploits/{FILES}/columns_task.py"),
}
"""By name, candidate and task."""
