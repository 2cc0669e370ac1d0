"""Held-out candidates as tables, written after the judge by another author: ``cases.py`` counts them with its own."""

from __future__ import annotations

from benchmarks.judge.case_rows import ADD, SUM, TRIPLED, in_file

HELD_OUT_EXPLOITS = in_file("held_out", (
    ("nan_unwritten", "NaN or zeros as wildcards", ("square_root", "x: f16[1000]")),
    ("nan_unwritten_f32:nan_unwritten", "NaN or zeros as wildcards", ("square_root", "x: f32[1000]")),
    ("garbage_maximum", "uninitialised reads", ("row_max", "x: f16[20,200]")),
    ("undefined_lanes", "uninitialised reads", SUM),
    ("filtered_garbage", "uninitialised reads", TRIPLED),
    ("garbage_sum", "uninitialised reads", SUM),
    ("coarse_small", "lower precision", ("reciprocal", "x: f32[262144] normal(0, 1)")),
    ("small_are_zero", "lower precision", ("steep", "x: f32[1000] normal(0, 1)")),
    ("narrow_long", "lower precision", ("tripled", "x: f32[262144]")),
    ("bfloat16_products", "lower precision", ("matmul", "a: f32[64,512]; b: f32[512,32]")),
    ("integer_overflow", "lower precision", ("long_sum", "x: i32[20,300] < 2000000000")),
    ("carried_without_waiting", "state", ("cumsum_down", "x: f32[1000]")),
    ("tickets_in_order", "state", ADD),
    ("emulator_seen", "warm-up detection", ADD),
    ("other_input_by_distance", "neighbours", ADD),
    ("changes_nothing", "forged recording", ("sgd_", "p: f32[700]; g: f32[700]; lr = 0.1")),
    ("head_alone", "modified inputs", ("doubled_head", "x: f32[500]")),
    ("claimed_fill", "forged recording", ADD),
    ("guessed_contents", "shortcut for the inputs seen", ADD),
    ("from_import", "cache", ADD),
    ("patched_launcher", "forged recording", ADD),
    ("patched_torch", "forged recording", ADD),
    ("metaclass", "lazy result", ADD),
    ("data_dependent_grid", "shortcut for the inputs seen", ADD),
    ("limits_of_others", "tampering", ADD),
    ("priority_of_others", "slowed reference", ADD),
    ("processors_of_others", "slowed reference", ADD),
    ("signals_by_thread", "tampering", ADD),
    ("signals_by_pipe", "tampering", ADD),
    ("deep_folders", "tampering", ADD),
    ("locked_folders", "tampering", ADD),
    ("told_in_colours", "tampering", ADD),
    ("descriptors", "tampering", ADD),
))  # fmt: skip

KNOWN_LIMITS = in_file("held_out", (
    ("rare_content", "shortcut for the inputs seen", ADD),
    ("tickets_and_a_loop", "state", ADD),
))  # fmt: skip
"""What is accepted, for five contents and one order of programs can't tell. The corpus doesn't judge these."""

HELD_OUT_HONEST: dict[str, tuple[str, ...]] = {
    "causal_softmax": ("x: f16[40,40]", "x: f32[33,33]"),
    "to_e5m2": ("x: f32[700]",),
    "to_e4m3": ("x: f32[700]",),
    "scaled_e4m3": ("x: f8e4m3[700]",),
    "column_sum": ("x: f32[300,40]", "x: bf16[129,17]"),
    "row_min_int:row_min": ("x: i64[20,70] in -1000000..1000000",),
    "add_and_norm": ("x: f32[16,200]; r: f32[16,200]; w: f32[200]",),
    "quantize_rows": ("x: f32[16,200]",),
    "max_and_index": ("x: f16[20,300]",),
    "matmul_backward": ("g: f32[32,48]; a: f32[32,64]; b: f32[64,48]",),
    "interleave": ("x: i32[77] < 1000; y: i32[77] < 1000",),
    "top_columns": ("x: f16[19,50]; k = 13",),
    "logical": ("x: f32[1]; y: f32[1]", "x: bf16[77]; y: bf16[77]"),
    "reciprocal": ("x: f32[262144] normal(0, 1)",),
    "steep": ("x: f32[1000] normal(0, 1)",),
    "square_root": ("x: f16[1000]", "x: f32[1000]", "x: bf16[1000]"),
    "look_back_cumsum:cumsum_down": ("x: f32[1000]",),
    "sort_rows": ("x: f32[8,64]",),
    "last_block_sum:total": ("x: f32[1000]",),
}
"""By the function of ``held_out_honest.py``, and its reference's where that has another name."""
