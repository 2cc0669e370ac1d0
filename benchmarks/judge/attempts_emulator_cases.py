"""Attempts at what the emulator forgives, and honest kernels that a stricter emulator might refuse."""

from __future__ import annotations

from benchmarks.judge.case_rows import in_file

R = "attempts_emulator_references.py"
K = "attempts_kernels_references.py"
VECTOR = "x: f32[1000]"
SUM = ("references.py::row_sum", "x: f32[20,300]")
RUNNING = ("held_out_references.py::cumsum", VECTOR)
TRIPLED = ("held_out_references.py::tripled", VECTOR)
TOTAL = ("held_out_references.py::total", VECTOR)
SQUARES = (f"{R}::flat_transpose", "x: f32[12,256]")

EMULATOR_ATTEMPTS = in_file("attempts_emulator", (
    ("relaxed_count", "races", TOTAL),
    ("waits_for_nothing", "races", RUNNING),
    ("early_flag", "races", RUNNING),
    ("narrow_flag", "races", RUNNING),
    ("zeroed_by_one", "races", SUM),
    ("shifted_in_place", "races", (f"{R}::shifted_", VECTOR)),
    ("shared_scratch", "races", (f"{K}::reversed_rows", "x: f32[16,256]")),
    ("relaxed_lock", "races", SUM),
    ("reshaped_through_memory", "races", SQUARES),
    ("read_by_all_threads", "races", (f"{K}::flipped_", VECTOR)),
    ("no_proxy_fence", "races", ("held_out_references.py::tripled", "x: f32[32,64]")),
    ("false_contiguity", "undefined behaviour", (f"{K}::reversed_rows", "x: f32[16,256]")),
    ("false_constancy", "undefined behaviour", (f"{R}::repeated_three", VECTOR)),
    ("odd_words", "undefined behaviour", TRIPLED),
    ("odd_base", "undefined behaviour", ("held_out_references.py::tripled", "x: f32[32,12]")),
    ("joined_in_order", "undefined behaviour", TRIPLED),
    ("viewed_in_order", "undefined behaviour", SQUARES),
    ("scan_by_reduction", "undefined behaviour",
     (f"{R}::last_of_gated_scan", "x: f32[40,100]; g: f32[40,100]")),
    ("fast_exponential", "emulator alone", ("held_out_references.py::steep", "x: f32[1000] normal(0, 2)")),
    ("fast_tangent", "emulator alone", (f"{K}::tangent", VECTOR)),
))  # fmt: skip

EMULATOR_HONEST: dict[str, tuple[str, str]] = {
    "decoupled_look_back": RUNNING,
    "volatile_look_back": RUNNING,
    "split_k_last": ("references.py::matmul", "a: f16[64,200]; b: f16[200,64]"),
    "column_sum_locked": ("held_out_references.py::column_sum", "x: f32[50,70]"),
    "tripled_from_queue": TRIPLED,
    "by_total_at_once": (f"{R}::by_total", "x: f32[1000] uniform(0, 1)"),
    "softmax_in_place": (f"{R}::softmax_", "x: f16[16,200]"),
    "rotary_in_place": (f"{R}::rotary_", "x: f32[16,64]; c: f32[16,32] uniform(-1, 1); s: f32[16,32] uniform(-1, 1)"),
    "reversed_with_barrier": (f"{K}::reversed_rows", "x: f32[16,256]"),
    "column_sum_turned": ("held_out_references.py::column_sum", "x: f32[50,70]"),
    "tripled_twice_at_the_end": TRIPLED,
    "matmul_hinted": ("references.py::matmul", "a: f16[50,96]; b: f16[96,72]"),
    "matmul_described": ("references.py::matmul", "a: f16[50,96]; b: f16[96,72]"),
    "softmax_by_pairs": ("references.py::softmax", "x: f32[16,200]"),
    "argmax_by_pairs": ("references.py::argmax", "x: f32[20,300]"),
    "squares_in_any_order": (f"{R}::sum_of_squares", "x: f32[4000]"),
    "fast_sigmoid": (f"{K}::sigmoid", "x: bf16[4096]"),
}
"""By the function of ``counter_emulator.py``, its reference and inputs."""
