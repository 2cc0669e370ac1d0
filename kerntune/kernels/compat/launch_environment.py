"""What a launch depends on besides its arguments: knobs, hooks, profilers, devices, globals."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
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
    own = getattr(run, "__code__", None)
    if not isinstance(jit, JITFunction) or type(jit).run is not run or own is None or own.co_filename != _file_of_jit():
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


def _file_of_jit() -> str:
    """The file of Triton's own ``JITFunction``: a replacement is from another file."""
    from triton.runtime.jit import JITFunction

    return str(JITFunction.__init__.__code__.co_filename)


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
