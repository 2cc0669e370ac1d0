"""Which kind of reduction pays for a size: looped, persistent, or cooperative.

torch 2.13 and 2.15, ``torch/_inductor/choices.py``, ``should_use_persistent_reduction`` and
``should_use_cooperative_reduction``. Inductor writes the kernel that it decides for. A user's kernel is written, so
its decorator adds the candidates of the other kind where the kernel can take them (a looped kernel whose step is the
row, a cooperative one with ``RSPLIT`` 1).
"""

from __future__ import annotations

from math import prod

from kerntune.heuristics.hints import REDUCTION_AXES, KernelHints, ReductionHint

LONGEST_INNER_ROW = 1024
LONGEST_ROW = 64
"""Longest reduction that one block holds: read along contiguous elements, or otherwise."""

COOPERATIVE_ROWS = 32
"""A cooperative reduction of fewer outputs than this holds rows that are so many times longer: programs share them."""

FEW_OUTPUTS, LENGTH_PER_OUTPUT = 8, 32768
SOME_OUTPUTS, LENGTH_FOR_SOME = 16, 2097152
"""Programs share the rows of up to 8 outputs from 32768 elements an output on, of up to 16 from two million."""


def pays_cooperative(hints: KernelHints) -> bool:
    """Whether programs should share each row; Inductor asks only where ``cooperative_reductions`` is switched on."""
    outputs, r = _outputs(hints), hints.reduction_numel
    if outputs <= FEW_OUTPUTS:
        return r >= LENGTH_PER_OUTPUT * outputs
    return outputs <= SOME_OUTPUTS and r >= LENGTH_FOR_SOME


def pays_persistent(hints: KernelHints, *, cooperative: bool = False) -> bool:
    """Whether a block should hold whole rows (its share of them, where the reduction is ``cooperative``).

    A reduction whose length is only known at launch (``dynamic_sizes``) isn't.
    """
    if hints.dynamic_sizes:
        return False
    longest = LONGEST_INNER_ROW if hints.reduction is ReductionHint.INNER else LONGEST_ROW
    if cooperative:
        longest *= COOPERATIVE_ROWS // min(_outputs(hints), COOPERATIVE_ROWS)
    return hints.reduction_numel <= longest


def _outputs(hints: KernelHints) -> int:
    return prod(size for axis, size in hints.sizes.items() if axis not in REDUCTION_AXES)
