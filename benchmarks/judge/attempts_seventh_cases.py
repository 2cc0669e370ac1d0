"""Attempts of a seventh author, all of them wrong, labelled before the judge had seen them."""

from __future__ import annotations

from benchmarks.judge.case_rows import Attempt, Row, in_file

R = "attempts_seventh_references.py"
VECTOR = "x: f32[1000]"
PAIR = "x: f32[1000]; y: f32[1000]"

_VALUES: tuple[Row, ...] = (
    ("infinite_is_largest", "NaN beside results", (f"{R}::scaled_and_largest_finite", "x: f32[40,200]")),
    ("nan_unmarked", "NaN beside results", (f"{R}::unscaled_and_marked", "g: f32[1000]")),
    ("sums_of_sixteen_bits", "whole results of floats",
     (f"{R}::requantized_by", "a: i8[32,256] in -15..15; b: i8[256,32] in -15..15; s: f32[32] uniform(0.001, 0.002)")),
    ("behind_the_end", "values not drawn", (f"{R}::interpolated", "t: f32[200]; g: f32[500] uniform(-1, 1)")),
    ("no_floor_for_equal_rows", "equal inputs", (f"{R}::directions", "x: f32[40,32]; y: f32[40,32]")),
    ("all_to_the_first", "equal inputs", (f"{R}::maximum_backward", f"{PAIR}; g: f32[1000]")),
    ("border_belongs", "values not drawn", (f"{R}::relu6_backward", "x: f32[1000]; g: f32[1000]")),
    ("angle_of_minus_zero", "values not drawn", (f"{R}::angle", "y: f32[1000]; x: f32[1000]")),
    ("root_of_underflow", "values not drawn", (f"{R}::hypotenuse", PAIR)),
    ("floor_by_integers", "values not drawn", (f"{R}::floor", VECTOR)),
    ("pairs_in_half", "values not drawn", (f"{R}::row_mean", "x: f16[80,300]")),
    ("zero_rows_are_nan", "eight bits", (f"{R}::rows_in_eight_bits", "x: f32[40,200]")),
)  # fmt: skip

SEVENTH_ATTEMPTS: tuple[Attempt, ...] = (*in_file("attempts_seventh", _VALUES),)
