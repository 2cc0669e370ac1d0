"""Presets: which release of Inductor's rules a proposal follows, and whether measured ones are added."""

from __future__ import annotations

import msgspec


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One set of rules. The fields are the points at which the known sets differ.

    * ``grid_by_threads``: the x grid is bounded by threads (blocks times warps times lanes) on every backend; else
      only on AMD, and by blocks elsewhere.
    * ``hip_wide_x``: AMD kernels may have X blocks up to 8192.
    * ``hip_is_wave64``: every AMD GPU counts as wave64 (also RDNA, which is wave32).
    * ``backend_extras``: further candidates on AMD and Intel GPUs.
    * ``tune_3d``: seven 3-D pointwise candidates by default, not only under max-autotune.
    * ``grow_reductions``: a reduction whose x or r is short gets the other axis longer, up to the asked tile.
    * ``inner_by_r``: an inner reduction's warps follow r alone; up to 32 warps beyond r = 8192.
    * ``tuned_outer``: the outer tile follows x, loads and dynamic sizes; else it is (64, 8).
    * ``small_persistent_inner``: a short inner persistent reduction packs rows into one warp.
    * ``tune_persistent``: max-autotune tries all rows-a-block of a persistent reduction.
    * ``cooperative_target``: programs of a cooperative reduction; ``None`` takes the SM count.
    * ``filters``: determinism, batch invariance, TMA minimums, block minimums and mix-order reductions exist.
    * ``deterministic_pointwise``: deterministic mode leaves one config to pointwise kernels too.
    * ``chained_scaling``: a config made by halving a reduction block may be halved again.
    * ``foreach_candidates``: max-autotune tries 1, 2, 4 and 8 warps for foreach kernels.
    * ``measured``: further candidates on NVIDIA GPUs, by rules found in a sweep (:mod:`kerntune.heuristics.measured`).
    """

    name: str
    grid_by_threads: bool = False
    hip_wide_x: bool = True
    hip_is_wave64: bool = False
    backend_extras: bool = True
    tune_3d: bool = False
    grow_reductions: bool = False
    inner_by_r: bool = True
    tuned_outer: bool = True
    small_persistent_inner: bool = True
    tune_persistent: bool = True
    cooperative_target: int | None = None
    filters: bool = True
    deterministic_pointwise: bool = False
    chained_scaling: bool = True
    foreach_candidates: bool = True
    measured: bool = False


INDUCTOR_2_13 = Preset("inductor-2.13")
"""torch 2.13's rules (``torch/_inductor/runtime/triton_heuristics.py``)."""

INDUCTOR_2_6 = Preset(
    "inductor-2.6",
    grid_by_threads=True,
    hip_wide_x=False,
    hip_is_wave64=True,
    backend_extras=False,
    tune_3d=True,
    grow_reductions=True,
    inner_by_r=False,
    tuned_outer=False,
    small_persistent_inner=False,
    tune_persistent=False,
    cooperative_target=64,
    filters=False,
    deterministic_pointwise=True,
    chained_scaling=False,
    foreach_candidates=False,
)
"""torch 2.6's rules (the same file at that release). Its one reduction axis ``r`` is ``r0`` here."""

MEASURED_2026 = msgspec.structs.replace(INDUCTOR_2_13, name="measured-2026", measured=True)
"""torch 2.13's candidates in their order, then those of :mod:`kerntune.heuristics.measured`."""

PRESETS: dict[str, Preset] = {p.name: p for p in (INDUCTOR_2_13, INDUCTOR_2_6, MEASURED_2026)}
