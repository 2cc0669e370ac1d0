"""Presets: which release of Inductor's rules a proposal follows, and whether measured ones are added."""

from __future__ import annotations

import msgspec

from kerntune.base.device import DeviceSpec

MEASURED_SINCE = 80
"""The oldest compute capability that measured rules are for: they need its asynchronous copies, and the registers and
shared memory that an SM has since then."""


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One set of rules. The fields are the points at which the known sets differ.

    * ``scalar_accumulators``: kernels with that hint try steps of 4096 and more.
    * ``one_row_if_few``: an inner reduction of up to 64 rows on an AMD GPU takes one row a block.
    * ``long_step_sm103``: an inner reduction on sm_103 also tries a step of 4096 with 16 elements a thread.
    * ``wide_inner_xpu``: an inner reduction on an Intel GPU also tries (64, 64) with 16 warps.
    * ``whole_mix_order``: X of a mix-order reduction divides its split; descent keeps that, the descriptors' minimums
      and the stages' maximum; descriptors that the kernel makes itself forbid stages.
    * ``lanes_must_be_told``: ONE_ELEMENT_PER_THREAD adds nothing on Intel GPUs, whose driver tells torch no warp size.
    * ``measured``: on NVIDIA GPUs from sm_80 on, further candidates by rules found in a sweep
      (:mod:`kerntune.heuristics.measured`), and what newer releases of torch know of sizes. Blocks of products are
      within their sizes, tiles that cannot fit are left out (``torch/_inductor/heuristics/template/triton.py``). A
      looped or cooperative kernel has candidates of the kind that ``choices.py`` takes, too. Max-autotune keeps what
      the hint proposes, first.
    """

    name: str
    scalar_accumulators: bool = False
    one_row_if_few: bool = False
    long_step_sm103: bool = False
    wide_inner_xpu: bool = False
    whole_mix_order: bool = False
    lanes_must_be_told: bool = False
    measured: bool = False


INDUCTOR_2_13 = Preset("inductor-2.13")
"""torch 2.13's rules (``torch/_inductor/runtime/triton_heuristics.py``)."""

INDUCTOR_2_15 = msgspec.structs.replace(
    INDUCTOR_2_13,
    name="inductor-2.15",
    scalar_accumulators=True,
    one_row_if_few=True,
    long_step_sm103=True,
    wide_inner_xpu=True,
    whole_mix_order=True,
    lanes_must_be_told=True,
)
"""torch 2.15's rules (``torch/_inductor/heuristics/triton_codegen/``)."""

MEASURED_2026 = msgspec.structs.replace(INDUCTOR_2_13, name="measured-2026", measured=True)
"""torch 2.13's candidates in their order, then those of :mod:`kerntune.heuristics.measured` and newer torch's."""

DEFAULT = MEASURED_2026
"""The preset of decorators that name none. Where nothing was measured it proposes what ``inductor-2.13`` proposes."""

PRESETS: dict[str, Preset] = {p.name: p for p in (INDUCTOR_2_13, INDUCTOR_2_15, MEASURED_2026)}


def measured_on(device: DeviceSpec, preset: Preset) -> bool:
    """Whether a preset has measured rules for a device: NVIDIA GPUs from sm_80 on."""
    target = device.target
    return preset.measured and target.backend == "cuda" and int(target.arch) >= MEASURED_SINCE
