"""Launch configs as pure decisions: what is known of a kernel and a device in, candidates out.

Inductor's heuristics and kerntune's own presets, the hints that they take, the scaling of configs by registers.
Nothing here compiles, measures or imports torch or triton; what a list is searched for is :mod:`kerntune.search`.

All modules are pure; ``presets`` and ``given_configs`` are small.
"""

from __future__ import annotations

from kerntune.heuristics.call_hints import (
    Read,
    Split,
    TtirCounts,
    count_ttir,
    read_of,
    reduction_split,
    round_sizes,
    second_stage_hint,
    sizes_from_arguments,
    tile_hint,
)
from kerntune.heuristics.combo import ComboGroup, ComboPlan, SubKernel, combo
from kerntune.heuristics.descent_steps import Field, Neighbourhood, improves, may_descend, neighbourhood
from kerntune.heuristics.given_configs import (
    LookupTable,
    fixed_config,
    foreach,
    kernel_hash,
    read_table,
    template,
    user_autotune,
    write_table,
)
from kerntune.heuristics.persistent import cooperative_reduction, persistent_reduction, rsplit
from kerntune.heuristics.pointwise import pointwise
from kerntune.heuristics.presets import (
    DEFAULT,
    INDUCTOR_2_6,
    INDUCTOR_2_13,
    INDUCTOR_2_15,
    MEASURED_2026,
    PRESETS,
    Preset,
)
from kerntune.heuristics.reduction import (
    may_scale,
    reduction,
    scale_reductions,
    scaled_down,
    spill_threshold,
    split_scan,
    without_pipelining,
    without_spilling,
)
from kerntune.heuristics.sizing import named_blocks

__all__ = [
    "DEFAULT", "INDUCTOR_2_6", "INDUCTOR_2_13", "INDUCTOR_2_15", "MEASURED_2026", "PRESETS",
    "ComboGroup", "ComboPlan", "Field", "LookupTable", "Neighbourhood", "Preset", "Read", "Split",
    "SubKernel", "TtirCounts", "combo", "cooperative_reduction", "count_ttir", "fixed_config",
    "foreach", "improves", "kernel_hash", "may_descend", "may_scale",
    "named_blocks", "neighbourhood", "persistent_reduction", "pointwise", "read_of", "read_table",
    "reduction", "reduction_split", "round_sizes", "rsplit", "scale_reductions", "scaled_down",
    "second_stage_hint", "sizes_from_arguments", "spill_threshold", "split_scan", "template",
    "tile_hint", "user_autotune", "without_pipelining", "without_spilling", "write_table",
]  # fmt: skip
