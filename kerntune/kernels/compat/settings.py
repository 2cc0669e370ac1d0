"""Settings of Triton's compiler that aren't options of a launch: environment variables and knobs that change code."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

_ANY = {
    "DISABLE_LLVM_OPT": "",
    "LLVM_PASS_PLUGIN_PATH": "",
    "TRITON_PLUGIN_PATHS": "",
    "TRITON_KERNEL_OVERRIDE": "compilation.override",
    "TRITON_ENABLE_ASAN": "compilation.enable_asan",
    "TRITON_INSTRUMENTATION_MODE": "compilation.instrumentation_mode",
    "TRITON_FPSAN_HOMOMORPHIC_CASTS": "compilation.fpsan_homomorphic_casts",
    "TRITON_ENABLE_EXPERIMENTAL_CONSAN": "",
    "TRITON_F32_DEFAULT": "language.fp32_default",
    "TRITON_DEFAULT_FP_FUSION": "language.default_fp_fusion",
    "TRITON_FORCE_DISABLE_FP_FUSION": "language.force_disable_fp_fusion",
    "TRITON_OVERRIDE_ARCH": "runtime.override_arch",
    "TRITON_DEBUG": "runtime.debug",
}

_NVIDIA = {
    "DISABLE_PTXAS_OPT": "nvidia.disable_ptxas_opt",
    "PTXAS_OPTIONS": "nvidia.ptxas_options",
    "TRITON_MOCK_PTX_VERSION": "nvidia.mock_ptx_version",
    "TRITON_LIBDEVICE_PATH": "nvidia.libdevice_path",
    "DISABLE_MMA_V3": "",
    "DISABLE_MMA_V5": "",
    "ALLOW_LHS_TMEM_LAYOUT_CONVERSION": "",
    "TRITON_PREFER_TMEM_16x256_LAYOUT": "",
}

_AMD = {
    "AMDGCN_USE_BUFFER_OPS": "amd.use_buffer_ops",
    "AMDGCN_USE_BUFFER_ATOMICS": "amd.use_buffer_atomics",
    "AMDGCN_ANALYZE_SMALL_TENSOR_RANGE": "amd.buffer_ops_analyze_small_tensor_range",
    "AMDGCN_SCALARIZE_PACKED_FOPS": "amd.scalarize_packed_fops",
    "TRITON_HIP_USE_ASYNC_COPY": "amd.use_async_copy",
    "TRITON_HIP_USE_BLOCK_PINGPONG": "amd.use_block_pingpong",
    "TRITON_HIP_USE_IN_THREAD_TRANSPOSE": "amd.use_in_thread_transpose",
    "TRITON_HIP_USE_COEXEC_SCHEDULER": "amd.use_coexec_scheduler",
    "TRITON_HIP_USE_EXPERT_SCHEDULING": "amd.use_expert_scheduling",
    "TRITON_AMD_CODEGEN_PATH": "amd.codegen_path",
    "TRITON_SWAP_MIR": "amd.swap_mir",
    "TRITON_SWAP_MIR_ENABLE_MISCHED": "amd.swap_mir_enable_misched",
}

SETTINGS: dict[str, dict[str, str]] = {"cuda": {**_ANY, **_NVIDIA}, "hip": {**_ANY, **_AMD}}
"""Per backend: environment variables that change what is compiled, each with its knob (none where only C++ code reads
it). From ``triton/knobs.py``, the backends' ``compiler.py`` and ``Tools/Sys/GetEnv.hpp`` of Triton 3.6 to 3.9; a
version has some of them. Left out: settings that only dump, time, check, or set source locations."""

ASSEMBLER_ONLY = ("DISABLE_PTXAS_OPT", "TRITON_KERNEL_OVERRIDE")
"""Settings whose effect is in no option and may be in no assembly text: their values are part of the code's
identity."""

_ON = ("1", "true", "on", "yes", "y")
_OFF = ("", "0", "false", "off", "no", "n")


def compiler_settings(backend: str) -> dict[str, str]:
    """Current settings that aren't Triton's defaults: ``{"DISABLE_PTXAS_OPT": "1"}``. Of a path the last part."""
    present = set(os.environ)  # separate look-ups take ten times as long
    found = {v: _text(_value(v, knob, v in present)) for v, knob in SETTINGS.get(backend, {}).items()}
    return {variable: text for variable, text in found.items() if text}


def _value(variable: str, knob: str, present: bool) -> Any:
    """The value that is set, None where it is the default."""
    if not knob:
        return _switch(os.environ[variable]) if present else None
    group, _, name = knob.partition(".")
    holder = _group(group)
    if holder is None or (not present and name not in vars(holder)) or not hasattr(holder, name):
        return None
    value, default = getattr(holder, name), _default(holder, name)
    return None if value == default else value


@lru_cache(maxsize=8)
def _group(name: str) -> Any:
    from triton import knobs

    return getattr(knobs, name, None)


def _default(holder: Any, name: str) -> Any:
    """The knob's default; knobs that are read once, when Triton is imported, are off and empty by default."""
    descriptor = holder.knob_descriptors.get(name)
    if descriptor is None:
        return type(getattr(holder, name))()
    return getattr(descriptor, "default", None)


def _switch(text: str) -> str | None:
    """A switch as Triton's C++ code reads it: some texts mean off."""
    return None if text.lower() in _OFF else "1" if text.lower() in _ON else text


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return Path(str(value)).name if os.sep in str(value) else str(value)
