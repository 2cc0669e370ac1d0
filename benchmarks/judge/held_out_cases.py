"""Held-out candidates as tables, written after the judge by another author: ``cases.py`` counts them with its own."""

from __future__ import annotations

ADD = ("references.py::add", "x: f32[1000]; y: f32[1000]")
SUM = ("references.py::row_sum", "x: f32[20,300]")
TRIPLE = ("held_out_references.py::tripled", "x: f32[1000]")

HELD_OUT_EXPLOITS: tuple[tuple[str, str, str, tuple[str, str]], ...] = (
    ("nan_unwritten", "NaN or zeros as wildcards", "nan_unwritten",
     ("held_out_references.py::square_root", "x: f16[1000]")),
    ("nan_unwritten_f32", "NaN or zeros as wildcards", "nan_unwritten",
     ("held_out_references.py::square_root", "x: f32[1000]")),
    ("garbage_maximum", "uninitialised reads", "garbage_maximum",
     ("held_out_references.py::row_max", "x: f16[20,200]")),
    ("undefined_lanes", "uninitialised reads", "undefined_lanes", SUM),
    ("filtered_garbage", "uninitialised reads", "filtered_garbage", TRIPLE),
    ("garbage_sum", "uninitialised reads", "garbage_sum", SUM),
    ("coarse_small", "lower precision", "coarse_small",
     ("held_out_references.py::reciprocal", "x: f32[262144] normal(0, 1)")),
    ("small_are_zero", "lower precision", "small_are_zero",
     ("held_out_references.py::steep", "x: f32[1000] normal(0, 1)")),
    ("narrow_long", "lower precision", "narrow_long", ("held_out_references.py::tripled", "x: f32[262144]")),
    ("bfloat16_products", "lower precision", "bfloat16_products",
     ("references.py::matmul", "a: f32[64,512]; b: f32[512,32]")),
    ("integer_overflow", "lower precision", "integer_overflow",
     ("held_out_references.py::long_sum", "x: i32[20,300] < 2000000000")),
    ("carried_without_waiting", "state", "carried_without_waiting",
     ("held_out_references.py::cumsum", "x: f32[1000]")),
    ("tickets_in_order", "state", "tickets_in_order", ADD),
    ("emulator_seen", "warm-up detection", "emulator_seen", ADD),
    ("other_input_by_distance", "neighbours", "other_input_by_distance", ADD),
    ("changes_nothing", "forged recording", "changes_nothing",
     ("references.py::sgd_", "p: f32[700]; g: f32[700]; lr = 0.1")),
    ("head_alone", "modified inputs", "head_alone", ("held_out_references.py::doubled_head", "x: f32[500]")),
    ("claimed_fill", "forged recording", "claimed_fill", ADD),
    ("guessed_contents", "shortcut for the inputs seen", "guessed_contents", ADD),
    ("from_import", "cache", "from_import", ADD),
    ("patched_launcher", "forged recording", "patched_launcher", ADD),
    ("patched_torch", "forged recording", "patched_torch", ADD),
    ("metaclass", "lazy result", "metaclass", ADD),
    ("data_dependent_grid", "shortcut for the inputs seen", "data_dependent_grid", ADD),
    ("limits_of_others", "tampering", "limits_of_others", ADD),
    ("priority_of_others", "slowed reference", "priority_of_others", ADD),
    ("processors_of_others", "slowed reference", "processors_of_others", ADD),
    ("signals_by_thread", "tampering", "signals_by_thread", ADD),
    ("signals_by_pipe", "tampering", "signals_by_pipe", ADD),
    ("deep_folders", "tampering", "deep_folders", ADD),
    ("locked_folders", "tampering", "locked_folders", ADD),
    ("told_in_colours", "tampering", "told_in_colours", ADD),
    ("descriptors", "tampering", "descriptors", ADD),
)  # fmt: skip
"""Name, family, function of ``exploits/held_out.py``, reference and inputs."""

KNOWN_LIMITS: tuple[tuple[str, str, str, tuple[str, str]], ...] = (
    ("rare_content", "shortcut for the inputs seen", "rare_content", ADD),
    ("tickets_and_a_loop", "state", "tickets_and_a_loop", ADD),
)
"""What is accepted, for five contents and one order of programs can't tell. The corpus doesn't judge these."""

HELD_OUT_HONEST: dict[str, tuple[str, ...]] = {
    "causal_softmax": ("x: f16[40,40]", "x: f32[33,33]"),
    "to_e5m2": ("x: f32[700]",),
    "to_e4m3": ("x: f32[700]",),
    "scaled_e4m3": ("x: f8e4m3[700]",),
    "column_sum": ("x: f32[300,40]", "x: bf16[129,17]"),
    "row_min_int": ("x: i64[20,70] in -1000000..1000000",),
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
    "look_back_cumsum:cumsum": ("x: f32[1000]",),
    "sort_rows": ("x: f32[8,64]",),
    "last_block_sum:total": ("x: f32[1000]",),
}
"""By the function of ``held_out_honest.py``, and its reference's where that has another name."""
