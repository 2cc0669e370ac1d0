"""Kernels whose configs are given, not derived: templates, fixed and user configs, foreach."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kerntune.base.config import COMPILE_FIELDS, Config, Scalar
from kerntune.errors import ConfigError
from kerntune.heuristics.hints import Modes
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.sizing import in_order

BACKEND_OPTIONS = frozenset({"num_consumer_groups", "num_buffers_warp_spec"})
"""Options of torch's configs besides warps and stages; they are never kernel parameters."""

HIP_OPTIONS = frozenset({"waves_per_eu", "matrix_instr_nonkdim", "kpack"})
"""AMD compile options that people write among the constexprs; a kernel that declares one of them receives it."""

FOREACH_WARPS = 8
FOREACH_TUNED_WARPS = (1, 2, 4, 8)


def template(num_warps: int, num_stages: int, options: Mapping[str, Scalar] | None = None) -> tuple[Config, ...]:
    """The one config of a kernel generated for its blocks; :class:`ConfigError` for a count below 1."""
    if num_warps < 1 or num_stages < 1:
        raise ConfigError(f"a template needs at least one warp and stage, got {num_warps} and {num_stages}")
    return (Config(num_warps=num_warps, num_stages=num_stages, options=dict(options or {})),)


def fixed_config(values: Mapping[str, Any], parameters: Collection[str] | None = None) -> tuple[Config, ...]:
    """One config decided before, as flat keywords: ``{"XBLOCK": 64, "num_warps": 8}``.

    A warp, stage, CTA or register count of None means Triton's default. With ``parameters``, the names of the
    kernel's parameters, an AMD option that is none of them becomes a compile option.
    """
    return (flat_config(values, parameters),)


def user_autotune(
    configs: Iterable[Mapping[str, Any] | Config], parameters: Collection[str] | None = None
) -> tuple[Config, ...]:
    """A user's configs, each once; Triton's defaults if there are none.

    Two configs that differ in anything that changes the binary are two (torch 2.13 takes those that differ only in
    ``num_ctas``, ``maxnreg`` or warp-specialisation counts for one).
    """
    found = [c if isinstance(c, Config) else flat_config(c, parameters) for c in configs]
    return in_order(found) or (Config(),)


def foreach(modes: Modes = Modes(), preset: Preset = INDUCTOR_2_13) -> tuple[Config, ...]:  # noqa: B008 (frozen)
    """Kernels that walk a list of tensors: 8 warps, or 1 to 8 under max-autotune, without pipelining."""
    tuned = modes.max_autotune and preset.foreach_candidates
    warps = FOREACH_TUNED_WARPS if tuned else (FOREACH_WARPS,)
    return tuple(Config(num_warps=w, num_stages=1) for w in warps)


def flat_config(values: Mapping[str, Any], parameters: Collection[str] | None = None) -> Config:
    """Flat keywords as a config; see :func:`fixed_config`."""
    given = {k: v for k, v in values.items() if not (v is None and k in COMPILE_FIELDS)}
    options = {k: given.pop(k) for k in list(given) if _is_option(k, parameters)}
    config = Config.from_mapping({**given})
    return config.replace(options={k: v for k, v in options.items() if v is not None})


def _is_option(name: str, parameters: Collection[str] | None) -> bool:
    if name in BACKEND_OPTIONS:
        return True
    return name in HIP_OPTIONS and parameters is not None and name not in parameters
