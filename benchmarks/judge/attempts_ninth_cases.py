"""Attempts of a ninth author: what is submitted in practice; labelled before the judge had seen them."""

from __future__ import annotations

from benchmarks.judge.case_rows import Attempt, Row, in_file

FILES = "attempts_ninth_files"
QKV16 = "q: f16[2,50,32]; k: f16[2,50,32]; v: f16[2,50,32]"
QKV32 = QKV16.replace("f16", "f32")
NORM = ("rms_norm_by_epsilon", "x: f16[16,200]; w: f16[200]; eps = 1e-5")

_KERNELS: tuple[Row, ...] = (
    ("first_head_alone", "a part of the work", ("attention_in_float32", QKV16)),
    ("no_cap", "skipped step", ("capped_attention", f"{QKV16}; cap = 50.0")),
    ("whole_blocks_masked", "skipped step", ("causal_attention", QKV16)),
    ("one_key_too_many", "skipped step", ("window_attention", f"{QKV16}; window = 16")),
    ("maximum_of_first_block", "values not drawn", ("attention_in_float32", QKV32)),
    ("sums_never_rescaled", "skipped step", ("attention_in_float32", QKV32)),
    ("weights_in_bfloat16", "lower precision", ("attention_in_float32", QKV16)),
    ("values_by_tf32", "lower precision", ("attention_in_float32", QKV32)),
    ("epsilon_outside", "skipped step", NORM),
    ("norm_of_first_columns", "a part of the work", NORM),
    ("norm_in_eight_bits", "lower precision", NORM),
    ("padding_in_variance", "a part of the work", ("layer_norm", "x: f32[16,200]; w: f32[200]; b: f32[200]")),
    ("log_of_softmax", "values not drawn", ("log_softmax", "x: f32[16,200]")),
    ("bfloat16_log_of_sum", "lower precision", ("log_softmax", "x: bf16[16,200]")),
    ("tanh_by_exponentials", "values not drawn", ("tanh", "x: f32[16,200]")),
    ("two_newton_steps", "lower precision", ("rms_norm_by_epsilon", "x: f32[16,200]; w: f32[200]; eps = 1e-5")),
    ("softmax_of_fourth_degree", "lower precision", ("softmax", "x: f32[16,200]")),
    ("ignored_label_counts", "values not drawn", ("cross_entropy_but_ignored", "x: f32[32,100]; t: i64[32] in -1..99")),
    ("mean_over_all_rows", "values not drawn", ("cross_entropy_but_ignored", "x: f32[32,100]; t: i64[32] in -1..99")),
    ("no_smoothing", "declared content", ("smoothed", "x: f32[32,100]; t: i64[32] < 100; smoothing = 0.0")),
    ("pool_padded_with_zeros", "skipped step", ("largest_of_nine", "x: f32[2,3,11,13]")),
    ("pool_of_interior", "a part of the work", ("largest_of_nine", "x: f32[2,3,11,13]")),
    ("mean_without_padding", "skipped step", ("mean_of_nine", "x: f32[2,3,11,13]")),
)  # fmt: skip

VECTOR = "x: f32[1000]"
TRIPLED = ("tripled", VECTOR)
ROTATED = ("rotate", "x: f32[9,4,32]; c: f32[9,16] uniform(-1, 1); s: f32[9,16] uniform(-1, 1)")
EXPERTS = ("two_experts", "x: f32[24,32]; w: f32[8,32,32]; g: f32[24,8]")
QUANTIZED = ("quantized", "x: f32[16,200]")
UNPACKED = ("unpacked", "w: u8[32,50] < 256; s: f32[32]")
ADAM = (
    "adamw",
    "p: f32[1000]; g: f32[1000]; m: f32[1000]; v: f32[1000] uniform(0, 1); lr = 1e-3; decay = 1e-2; eps = 1e-8; "
    "step = 10000",
)
CONV = ("convolution", "x: f32[1,4,10,10]; w: f32[6,4,3,3]")
LAST = ("last_of_each", "x: f32[300]; idx: i64[300] < 64")

_OTHERS: tuple[Row, ...] = (
    *((name, "skipped step", ROTATED) for name in ("rotates_neighbours", "last_head_unrotated")),
    ("table_in_half", "lower precision", ROTATED),
    *((name, "skipped step", EXPERTS) for name in ("weights_not_normalized", "first_expert_alone")),
    *((name, "lower precision", QUANTIZED) for name in ("quantized_by_cutting", "scale_of_128", "scale_of_first_row")),
    *((name, "skipped step", UNPACKED) for name in ("high_nibbles_unsigned", "one_scale_for_two_rows")),
    *((name, "skipped step", ADAM) for name in ("decay_in_gradient", "no_decay", "uncorrected_moments",
      "moment_of_before", "moment_unwritten", "epsilon_below_root")),
    ("taps_in_half", "lower precision", CONV),
    *((name, "a part of the work", CONV) for name in ("eight_taps", "channels_but_last", "flipped_taps")),
    ("carry_of_last_block", "a part of the work", ("cumsum", "x: f32[8,300]")),
    *((f"last_by_{name}", "operators beside kernels", LAST) for name in ("scatter", "index_put", "index_copy")),
    ("whole_product_by_torch", "operators beside kernels",
     ("whole_product_of_bytes", "a: i8[32,64] in -128..127; b: i8[64,32] in -128..127")),
    ("whole_pool_by_torch", "operators beside kernels", ("whole_pool", "a: i32[2,8,8] < 1000")),
    ("half_on_processor_alone", "operators beside kernels", ("middle", "x: f32[40,33]")),
    *((name, "changed kernel", TRIPLED) for name in ("text_replaced", "called_text_replaced", "global_replaced",
      "tuple_of_a_constant", "grid_changed", "number_changed")),
    ("input_changed_back", "modified inputs", TRIPLED),
    ("fake_computes", "other implementation", TRIPLED),
    *((name, "cache", TRIPLED) for name in ("by_pointer_and_version", "by_object_number")),
    ("alarm_spoils", "other stream, other thread", TRIPLED),
)  # fmt: skip

PRODUCT = ("scaled_product", "a: f16[3,40,70]; b: f16[3,70,24]; bias: f16[24]; scale = 0.5")
FROBENIUS = ("by_norm", "x: f32[64,64] normal(0, 1)")

_THIRD: tuple[Row, ...] = (
    *((name, "a part of the work", PRODUCT)
      for name in ("first_batch_alone", "whole_blocks_of_terms", "whole_tiles_of_rows")),
    *((name, "lower precision", PRODUCT) for name in ("products_of_eight_bits", "sums_in_bfloat16")),
    *((name, "skipped step", PRODUCT) for name in ("no_bias_in_product", "bias_unscaled")),
    *((name, "identity", FROBENIUS) for name in ("norm_of_unit_variance", "norm_of_fifteen_sixteenths")),
    ("norm_in_half", "lower precision", FROBENIUS),
    ("state_of_last_chunk", "a part of the work",
     ("linear_attention", "q: f32[2,50,16]; k: f32[2,50,16]; v: f32[2,50,16]")),
    ("keeps_all_ties", "values not drawn", ("largest_four", "x: bf16[40,100]")),
    *((name, "changed kernel", TRIPLED) for name in ("hook_before_each_run", "assertion_fails")),
    *((name, "unusual result", TRIPLED)
      for name in ("swapped_tensors", "by_autograd", "result_beside_its_memory", "hook_of_a_module")),
    ("workspace_of_poison", "uninitialised reads", TRIPLED),
)  # fmt: skip

_BEHIND: tuple[Row, ...] = (
    ("precision_by_environment", "changed kernel", ("matmul", "a: f32[32,32]; b: f32[32,32]")),
    ("name_of_another", "changed kernel", TRIPLED),
    *((name, "changed argument", TRIPLED)
      for name in ("descriptor_of_another", "number_that_says_another", "object_of_two_pointers",
                   "wrapper_of_another", "config_of_another")),
    ("descriptor_by_shape", "cache", TRIPLED),
    ("nonsense_at_ties", "values not drawn",
     ("chosen_experts", "x: f32[64,32]; w: f32[16,32]; g: bf16[64,16]")),
    *((name, "skipped step", ("grouped_scores", "q: f32[8,32]; k: f32[4,20,32]"))
      for name in ("groups_in_turns", "first_group_alone")),
    ("scale_of_first_call", "cache", ("in_steps", VECTOR)),
)  # fmt: skip

OLD = ("exploits/attempts_ninth_5.py::old_attention", QKV32)

_KEPT: tuple[Row, ...] = (
    ("number_of_first_call", "cache", ("times", f"{VECTOR}; alpha = 0.3")),
    ("lengths_of_first_call", "cache",
     ("sums_of_lengths", "x: f32[80,200]; lengths: i32[80] = " + str([1 + 37 * i % 200 for i in range(80)]))),
    ("causal_of_first_call", "cache", ("flagged_attention", f"{QKV32}; causal = True")),
    ("slower_later", "work that isn't timed", TRIPLED),
    ("count_that_says_another", "changed argument", TRIPLED),
    ("small_rows_are_zero", "lower precision", ("in_eight_bits", "x: f32[40,200]")),
    *((f"{name}_beside_kernel", "beside a kernel", OLD) for name in ("first_maximum", "no_rescaling", "first_head")),
)  # fmt: skip

_LEFT: tuple[Row, ...] = (
    *((name, "left changed", TRIPLED) for name in ("input_reshaped", "input_needs_gradient", "tf32_left_on",
      "default_dtype_left", "generator_left_seeded", "deterministic_left_on")),
    *((name, "changed argument", TRIPLED) for name in ("number_in_pinned_memory", "grid_that_counts",
      "constants_that_are_equal", "one_and_true")),
    ("rounded_twice", "lower precision", ("tripled", "x: bf16[1000]")),
)  # fmt: skip

LONG = "x: f32[4,4096]"

_LAST: tuple[Row, ...] = (
    ("coarse_beside_flags", "lower precision", ("gate_and_flags", LONG)),
    ("coarse_update", "lower precision",
     ("small_update", "p: f32[16384]; g: f32[16384]; v: f32[16384] uniform(0, 1)")),
    ("wrong_backward:WrongBackward", "not called", TRIPLED),
    ("no_floor_of_many", "few seeds", ("directions_of_rows", "x: f32[2100,1000]")),
    ("sixteen_at_most", "declared content", ("padded_running_mean", "x: f32[4,100]; window = 16")),
    ("product_by_convolution", "operators beside kernels", ("matmul", "a: f32[32,64]; b: f32[64,16]")),
    ("on_another_device", "unusual result", TRIPLED),
    ("memo_by_sample", "cache", TRIPLED),
    ("constant_changed_at_import", "changed argument", TRIPLED),
    ("table_by_kernel_at_import", "work that isn't timed", ("by_cosines_of_columns", "x: f32[64,512]")),
)  # fmt: skip

_ROWS = (
    ("no_bias_at_init", "weights at init", "NoBiasAtInit", "Linear"),
    ("narrow_weights", "lower precision", "NarrowWeights", "Linear"),
    ("default_precision", "lower precision", "DefaultPrecision", "Linear"),
    ("relu_for_relu6", "contents of a task", "ReluForRelu6", "Relu6"),
    ("tanh_gelu", "lower precision", "TanhGelu", "Gelu"),
    ("first_half_of_rows", "a part of the work", "FirstHalfOfRows", "Linear"),
    ("packed_once", "cache", "PackedOnce", "Linear"),
    ("bias_kept", "cache", "BiasKept", "Linear"),
    ("weights_of_the_seed", "weights at init", "WeightsOfTheSeed", "Linear"),
    ("no_affine", "weights at init", "NoAffine", "Affine"),
    ("relu_before_scale", "weights at init", "ReluBeforeScale", "ScaledRelu"),
    ("max_before_scale", "weights at init", "MaxBeforeScale", "ScaledMax"),
    ("prelu_as_maximum", "weights at init", "PreluAsMaximum", "Prelu"),
    ("residual_alone", "weights at init", "ResidualAlone", "LayerScale"),
    ("no_floor", "contents of a task", "NoFloor", "Direction"),
    ("temperature_of_init", "weights at init", "TemperatureOfInit", "Temperature"),
    ("statistics_frozen", "state", "StatisticsFrozen", "Normed"),
    ("biased_running_variance", "state", "BiasedRunningVariance", "Normed"),
    ("evaluated_later", "state", "EvaluatedLater", "Normed"),
    ("mean_is_of_bias", "identity", "MeanIsOfBias", "GroupMean"),
    ("first_hidden", "state", "FirstHidden", "Hidden"),
    ("history_of_40", "weights at init", "HistoryOf40", "Decay"),
    ("largest_unscaled", "weights at init", "LargestUnscaled", "Chosen"),
    ("no_tiny_epsilon", "contents of a task", "NoTinyEpsilon", "TinyEpsilon"),
    ("dequantized_when_made", "inputs alike", "DequantizedWhenMade", "Quantized"),
    ("last_of_equal_in_task", "contents of a task", "LastOfEqual", "Largest"),
    ("listed_state", "forged recording", "ListedState", "Linear"),
)

_PAIRS = (
    ("copy_for_relu", "contents of a task", "CopyForRelu", "Relu"),
    ("hinge_without_clamp", "contents of a task", "HingeWithoutClamp", "Hinge"),
    ("triplet_without_clamp", "contents of a task", "TripletWithoutClamp", "Triplet"),
    ("causal_whatever_is_given", "inputs alike", "CausalWhateverIsGiven", "Masked"),
    ("temperature_of_task", "inputs alike", "TemperatureOfTask", "Tempered"),
    ("rows_of_the_seed", "inputs alike", "RowsOfTheSeed", "Looked"),
)

_DATA = tuple(
    (f"{name}_of_data", family, name, "ref_kernel")
    for name, family in (
        ("turns", "declared content"),
        ("flag", "declared content"),
        ("table", "inputs alike"),
        ("lengths", "inputs alike"),
        ("rows", "a part of the work"),
        ("mapping_changed", "left changed"),
    )
)

_SEEDS = (("table_of_all_seeds", "shortcut for the inputs seen", "table_of_all_seeds", "ref_kernel"),)

NINTH_ATTEMPTS: tuple[Attempt, ...] = (
    *in_file("attempts_ninth", _KERNELS),
    *in_file("attempts_ninth_2", _OTHERS),
    *in_file("attempts_ninth_3", _THIRD),
    *in_file("attempts_ninth_4", _BEHIND),
    *in_file("attempts_ninth_5", _KEPT),
    *in_file("attempts_ninth_6", _LEFT),
    *in_file("attempts_ninth_7", _LAST),
    ("coarse_silu", "lower precision", "attempts_ninth_7.py::CoarseSilu", (f"exploits/{FILES}/long_task.py", "")),
    *(
        (name, family, f"{FILES}/{file}_candidates.py::{own}", (f"exploits/{FILES}/{file}_task.py::{model}", ""))
        for file, rows in (("rows", _ROWS), ("pairs", _PAIRS), ("data", _DATA), ("seeds", _SEEDS))
        for name, family, own, model in rows
    ),
)
