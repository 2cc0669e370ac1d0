"""Calls torch's own heuristics module for a kernel's configs, on any device, without a GPU.

That module reads globals (``torch.version.hip``, ``torch.cuda.is_available``) where it should read the device, so each
backend is a set of patches. It also builds a runtime for the kernel; the patch of ``cached_autotune`` stops there and
returns the configs, after the two steps of it that change them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch._inductor.runtime import hints as torch_hints
from torch._inductor.runtime import triton_heuristics as th

from kerntune.base.device import DeviceSpec
from kerntune.heuristics.hints import KernelHints
from kerntune.heuristics.sizing import device_major

from .inductor_free import Flat, flat_all


@contextlib.contextmanager
def backend(name: str) -> Iterator[None]:
    """Torch's globals as they are on a machine with a GPU of this backend."""
    hip = name == "hip"
    with contextlib.ExitStack() as stack:
        for target, attribute, value in (
            (torch.version, "hip", "6.4" if hip else None),
            (torch.version, "xpu", "2025" if name == "xpu" else None),
            (torch.cuda, "is_available", lambda: name != "xpu"),
            (torch.xpu, "is_available", lambda: name == "xpu"),
            (th, "cached_autotune", _configs_only),
        ):
            stack.enter_context(mock.patch.object(target, attribute, value))
        if hip:
            stack.enter_context(mock.patch.dict(torch_hints.TRITON_MAX_BLOCK, {"X": 8192}))
        yield


def _configs_only(size_hints: Any, configs: Any, triton_meta: Any, heuristic_type: Any, **kwargs: Any) -> list[Any]:
    meta = kwargs.get("inductor_meta") or {}
    if size_hints is not None and heuristic_type.name in ("REDUCTION", "PERSISTENT_REDUCTION"):
        configs = th._enforce_reduction_config_block_minimums(configs, size_hints, meta)
    return th.unique_configs(configs)


def axis_name(axis: str) -> str:
    """``r0`` is ``r0_`` in torch."""
    return f"{axis}_" if axis[0] == "r" else axis


def properties(device: DeviceSpec) -> torch_hints.DeviceProperties:
    """Our device in torch's words."""
    return torch_hints.DeviceProperties(
        type=device.target.backend,
        index=0,
        multi_processor_count=device.sm_count,
        cc=int(device.target.arch) if device.target.backend == "cuda" else 0,
        major=device_major(device),
        regs_per_multiprocessor=device.registers_per_sm,
        max_threads_per_multi_processor=device.max_threads_per_sm,
        max_threads_per_block=device.max_threads_per_block,
        warp_size=untold_warp_size() if device.target.backend == "xpu" else device.warp_size,
    )


@functools.cache
def untold_warp_size() -> int | None:
    """What torch takes for an Intel GPU, whose driver tells none: 32 until 2.13, from 2.15 on None."""
    device = torch.device("xpu", 0)
    told = SimpleNamespace(multi_processor_count=1, gpu_subslice_count=1)
    interface = SimpleNamespace(
        get_device_properties=lambda of: told,
        get_multi_processor_count=lambda of: 1,
        get_compute_capability=lambda of: 0,
    )
    with mock.patch("torch._dynamo.device_interface.get_interface_for_device", return_value=interface):
        return torch_hints.DeviceProperties.create(device).warp_size  # type: ignore[no-any-return]


def sizes_of(hints: KernelHints) -> dict[str, int]:
    return {axis_name(axis): size for axis, size in hints.sizes.items()}


def inductor_meta(hints: KernelHints, device: DeviceSpec) -> dict[str, Any]:
    """Our hints as the dict that torch's functions read."""
    modes = hints.modes
    meta: dict[str, Any] = {
        "autotune_hints": [h for hint in hints.autotune if (h := getattr(torch_hints.AutotuneHint, hint.name, None))],
        "autotune_pointwise": modes.autotune_pointwise,
        "max_autotune": modes.max_autotune,
        "deterministic": modes.deterministic,
        "force_filter_reduction_configs": modes.single_reduction_config,
        "batch_invariant": modes.batch_invariant,
        "mix_order_reduction_allow_multi_stages": modes.multi_stage_mix_order,
        "coordinate_descent_search_radius": modes.descent_radius,
        "dynamic_scale_rblock": modes.dynamic_scale_rblock,
        "is_hip": device.target.backend == "hip",
        "warp_size": device.warp_size,
        "max_threads_per_block": device.max_threads_per_block,
        "num_load": hints.loads,
        "num_store": hints.stores,
        "num_reduction": hints.reductions,
        "atomic_add_found": hints.atomic_add,
        "no_x_dim": hints.no_x_block,
        "has_loadstore_with_contiguous_rdim": hints.contiguous_reduction_access,
        "tiling_scores": {axis_name(a): s for a, s in hints.tiling_scores.items()},
        "uses_tma": bool(hints.tma_minimums),
        "uses_device_tma": hints.makes_descriptors,
        "tma_min_block_sizes": {f"{axis_name(a).upper()}BLOCK": m for a, m in hints.tma_minimums.items()},
        "min_xblock": hints.min_x_block,
        "min_rblock": hints.min_r_block,
        "RSPLIT_SIZE": hints.rsplit_size,
        "add_persistent_rblock": hints.add_persistent_rblock,
        "max_persistent_rblock": hints.max_persistent_rblock,
        "min_split_scan_rblock": hints.min_scan_rblock,
        "native_matmul_persistent_rblock": hints.native_matmul_rblock,
    }
    return meta


def triton_meta(hints: KernelHints, device: DeviceSpec) -> dict[str, Any]:
    signature = {"in_ptr0": "*fp32", **{f"ks{i}": "i32" for i in range(hints.dynamic_sizes)}}
    return {"device": properties(device), "signature": signature, "native_matmul": hints.native_matmul}


def tile_hint(hints: KernelHints) -> torch_hints.TileHint:
    return torch_hints.TileHint[hints.tile.name]


def reduction_hint(hints: KernelHints) -> torch_hints.ReductionHint:
    return torch_hints.ReductionHint[hints.reduction.name]


def ask(family: str, hints: KernelHints, device: DeviceSpec) -> list[Flat] | None:
    """Torch's ordered configs of a family, or None if it raises. Call it inside :func:`backend`."""
    meta, device_meta, sizes = inductor_meta(hints, device), triton_meta(hints, device), sizes_of(hints)
    try:
        if family == "pointwise":
            found = th.pointwise(
                sizes,
                device_meta,
                tile_hint=tile_hint(hints),
                min_elem_per_thread=hints.min_elements_per_thread,
                inductor_meta=meta,
            )
        elif family.startswith("cooperative"):
            meta["persistent_reduction"] = family.endswith("persistent")
            found = th.cooperative_reduction(sizes, reduction_hint(hints), device_meta, None, meta)
        else:
            function = getattr(th, family)
            found = function(sizes, reduction_hint(hints), triton_meta=device_meta, inductor_meta=meta)
    except (AssertionError, KeyError, NotImplementedError, TypeError, UnboundLocalError, ValueError, ZeroDivisionError):
        return None
    return flat_all(found)
