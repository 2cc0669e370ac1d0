"""Presets: which release of Inductor's rules a proposal follows, and whether measured ones are added."""

from __future__ import annotations

import msgspec

from kerntune.base.device import DeviceSpec

MEASURED_SINCE = 80
"""The oldest compute capability that measured rules are for: they need its asynchronous copies, and the registers and
shared memory that an SM has since then."""


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One set of rules. The fields are the points at which the known sets differ.

    * ``grid_by_threads``: the x grid is bounded by threads (blocks times warps times lanes) on every backend; else
      only on AMD, and by blocks elsewhere.
    * ``hip_wide_x``: AMD kernels may have X blocks up to 8192.
    * ``hip_is_wave64``: every AMD GPU counts as wave64 (also RDNA, which is wave32).
    * ``backend_extras``: further candidates on AMD and Intel GPUs.
    * ``tune_3d``: seven 3-D pointwise candidates by default, not only under max-autotune.
    * ``grow_reductions``: a reduction whose x or r is short gets the other axis longer, up to the wanted tile.
    * ``inner_by_r``: an inner reduction's warps follow r alone; up to 32 warps beyond r = 8192.
    * ``tuned_outer``: the outer tile follows x, loads and dynamic sizes; else it is (64, 8).
    * ``small_persistent_inner``: a short inner persistent reduction packs rows into one warp.
    * ``tune_persistent``: max-autotune tries all rows-a-block of a persistent reduction.
    * ``cooperative_target``: programs of a cooperative reduction; ``None`` takes the SM count.
    * ``filters``: determinism, batch invariance, TMA minimums, block minimums and mix-order reductions exist.
    * ``deterministic_pointwise``: deterministic mode leaves one config to pointwise kernels too.
    * ``chained_scaling``: a config made by halving a reduction block may be halved again.
    * ``foreach_candidates``: max-autotune tries 1, 2, 4 and 8 warps for foreach kernels.
    * ``scalar_accumulators``: kernels with that hint try steps of 4096 and more.
    * ``one_row_if_few``: an inner reduction of up to 64 rows on an AMD GPU takes one row a block.
    * ``long_step_sm103``: an inner reduction on sm_103 also tries a step of 4096 with 16 elements a thread.
    * ``wide_inner_xpu``: an inner reduction on an Intel GPU also tries (64, 64) with 16 warps.
    * ``whole_mix_order``: X of a mix-order reduction divides its split; descent keeps that, the descriptors' minimums
      and the stages' maximum; descriptors that the kernel makes itself forbid stages.
    * ``lanes_must_be_told``: ONE_ELEMENT_PER_THREAD adds nothing on Intel GPUs, whose driver tells torch no warp size.
    * ``splits_by_outputs``: how long a reduction goes unsplit on new GPUs depends on its outputs, and is far less.
    * ``measured``: on NVIDIA GPUs from sm_80 on, further candidates by rules found in a sweep
      (:mod:`kerntune.heuristics.measured`), and what newer releases of torch know of sizes. Blocks of products are
      within their sizes, tiles that cannot fit are left out (``torch/_inductor/heuristics/template/triton.py``). A
      looped or cooperative kernel has candidates of the kind that ``choices.py`` takes, too. Max-autotune keeps what
      the hint proposes, first.
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
    scalar_accumulators: bool = False
    one_row_if_few: bool = False
    long_step_sm103: bool = False
    wide_inner_xpu: bool = False
    whole_mix_order: bool = False
    lanes_must_be_told: bool = False
    splits_by_outputs: bool = False
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

INDUCTOR_2_15 = msgspec.structs.replace(
    INDUCTOR_2_13,
    name="inductor-2.15",
    scalar_accumulators=True,
    one_row_if_few=True,
    long_step_sm103=True,
    wide_inner_xpu=True,
    whole_mix_order=True,
    lanes_must_be_told=True,
    splits_by_outputs=True,
)
"""torch 2.15's rules (``torch/_inductor/heuristics/triton_codegen/``, and ``choices.py`` for splits)."""

MEASURED_2026 = msgspec.structs.replace(INDUCTOR_2_13, name="measured-2026", measured=True)
"""torch 2.13's candidates in their order, then those of :mod:`kerntune.heuristics.measured` and newer torch's."""

DEFAULT = MEASURED_2026
"""The preset of decorators that name none. Where nothing was measured it proposes what ``inductor-2.13`` proposes."""

PRESETS: dict[str, Preset] = {p.name: p for p in (INDUCTOR_2_13, INDUCTOR_2_6, INDUCTOR_2_15, MEASURED_2026)}


def measured_on(device: DeviceSpec, preset: Preset) -> bool:
    """Whether a preset has measured rules for a device: NVIDIA GPUs from sm_80 on."""
    target = device.target
    return preset.measured and target.backend == "cuda" and int(target.arch) >= MEASURED_SINCE
