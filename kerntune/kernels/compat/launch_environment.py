"""What a launch and its compilation depend on besides arguments and options.

A launch depends on knobs, hooks, profilers, devices and globals. Code depends on environment variables and knobs of
Triton's compiler.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

UNUSUAL = (
    "kt_JITFunction.run is not kt_run or kt_profiler._is_profiler_enabled or kt_entering or kt_leaving or kt_running"
)
"""An expression that is true while a launch must go through Triton: a capture or a tool has replaced Triton's
functions, or a profiler or a hook is active. Names are those of :func:`launch_surroundings`."""


def launch_surroundings(jit: Any) -> dict[str, Any] | None:
    """The names of :data:`UNUSUAL` and of a launch for one kernel; None where no launch can be prepared."""
    import torch.autograd.profiler
    from triton import knobs
    from triton.runtime import _allocation
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    run = JITFunction.run
    own, tritons = getattr(run, "__code__", None), JITFunction.__init__.__code__
    if not isinstance(jit, JITFunction) or type(jit).run is not run:
        return None
    if own is None or own.co_filename != tritons.co_filename:  # a replacement is from another file
        return None
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    if not (hasattr(enter, "calls") and hasattr(leave, "calls")):
        return None
    if knobs.runtime.debug or knobs.runtime.add_stages_inspection_hook or knobs.compilation.instrumentation_mode:
        return None
    active = driver.active
    if active.get_current_target().backend != "cuda":  # HIP also specializes on the tensors' sizes
        return None
    return {
        "kt_JITFunction": JITFunction,
        "kt_run": run,
        "kt_runtime": vars(knobs.runtime),
        "kt_runtime_then": dict(vars(knobs.runtime)),
        "kt_compilation": vars(knobs.compilation),
        "kt_compilation_then": dict(vars(knobs.compilation)),
        "kt_profiler": torch.autograd.profiler,
        "kt_jit": jit,
        "kt_entering": enter.calls,
        "kt_leaving": leave.calls,
        "kt_running": jit.pre_run_hooks,
        "kt_allocator": _allocation._allocator,
        "kt_current_device": active.get_current_device,
        "kt_current_stream": active.get_current_stream,
    }


def has_allocator() -> bool:
    """Whether something gives Triton the memory that a kernel needs beside its arguments."""
    from triton.runtime import _allocation

    return not isinstance(_allocation._allocator.get(), _allocation.NullAllocator)


def launch_settings() -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of Triton's runtime and compilation knobs that were set; those that have their defaults are
    missing."""
    from triton import knobs

    return dict(vars(knobs.runtime)), dict(vars(knobs.compilation))


def settings_changed(settings: tuple[dict[str, Any], dict[str, Any]]) -> str:
    """The text of an expression that is true once a knob was set or reset; a knob that isn't set is the fastest to
    check."""
    return " or ".join(
        f"{name} != {name}_then" if then else name
        for name, then in zip(("kt_runtime", "kt_compilation"), settings, strict=True)
    )


def has_one_device() -> bool:
    """Whether torch has exactly one GPU, number 0: then no launch needs to query the current device, which is slow."""
    import torch

    return int(torch.cuda.device_count()) == 1


def globals_kept(jit: Any) -> bool:
    """Whether the globals that a kernel was compiled with still have their values (else Triton raises at a launch)."""
    return all(scope.get(name, _GONE) == value for (name, _), (value, scope) in jit.used_global_vals.items())


_GONE = object()


def profiler_range(name: Callable[[], str]) -> contextlib.AbstractContextManager[Any]:
    """A named range for torch's profiler and NVTX while one of them is active, else an empty context."""
    import torch.autograd.profiler

    if not torch.autograd.profiler._is_profiler_enabled:
        return contextlib.nullcontext()
    recorded: contextlib.AbstractContextManager[Any] = torch.profiler.record_function(name())
    return recorded


def current_stream() -> int | None:
    """The stream that Triton launches on now; None without a driver for a GPU."""
    from triton.runtime.driver import driver

    try:
        return int(driver.active.get_current_stream(driver.active.get_current_device()))
    except Exception:  # no driver, or one without streams
        return None


def begin_nvtx_range(name: str) -> Callable[[], object]:
    """Open an NVTX range; what is returned closes it. RuntimeError where torch has no NVTX."""
    import torch

    torch.cuda.nvtx.range_push(name)
    end: Callable[[], object] = torch.cuda.nvtx.range_pop
    return end


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
