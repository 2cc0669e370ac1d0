"""The fast path of prepared launches in C, compiled on first use as Triton compiles its own launchers."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kerntune.kernels.compat import launcher
from kerntune.kernels.dispatch.codegen import Form, LaunchArgument

KINDS = (
    "absent", "none", "bool", "float", "int", "i32", "tensor", "descriptor", "constant bool", "constant int",
    "constant str", "constant NoneType", "constant object",
)  # fmt: skip
"""The kinds that ``key.c`` supports, in the order of its numbers; a form with another kind is launched by Python."""

OBJECTS = (
    "kt_fallback", "kt_table", "kt_tuner", "kt_fn", "kt_jit", "kt_JITFunction", "kt_run", "kt_profiler", "kt_entering",
    "kt_leaving", "kt_running", "kt_runtime", "kt_runtime_then", "kt_compilation", "kt_compilation_then",
    "kt_current_device", "kt_current_stream", "kt_allocator", "kt_keywords", "kt_names",
)  # fmt: skip
"""The objects that the C function holds, in the order of its numbers."""

MAX_PARAMETERS = 64

C_FILES = ("key.c", "launch.c", "choice.c", "front.c")


def native_front(form: Form, fallback: Callable[..., Any], names: Mapping[str, Any]) -> Callable[..., Any] | None:
    """A form's launch in C, which leaves the rest to ``fallback``; None where there is no C for it or no compiler.

    ``names`` are those of the Python function.
    """
    order = launcher.direct_order()
    if order is None or form.globals or len(form.arguments) > MAX_PARAMETERS:
        return None
    if any(a.part.kind not in KINDS for a in form.arguments):
        return None
    compiled = module()
    if compiled is None:
        return None
    keywords = tuple(map(sys.intern, form.keywords))
    parameters = tuple(_parameter(form, i, a) for i, a in enumerate(form.arguments))
    held = {
        **names,
        "kt_fallback": fallback,
        "kt_profiler": vars(names["kt_profiler"]),
        "kt_keywords": keywords,
        "kt_names": tuple(a.name for a in form.arguments),
    }
    flags = (form.positional, form.single, form.staged, form.layouts, not form.staged, form.one_device, order)
    front: Callable[..., Any] = compiled.front(tuple(held[name] for name in OBJECTS), parameters, *flags)
    return front


def _parameter(form: Form, index: int, argument: LaunchArgument) -> tuple[int, int, int, int]:
    """Kind, place among grid, positional and keyword arguments, whether its value counts, whether it is a constexpr."""
    if not argument.given:
        source = 0
    elif index < form.positional:
        source = 1 + index
    else:
        source = 1 + form.positional + form.keywords.index(argument.name)
    return KINDS.index(argument.part.kind), source, bool(argument.part.items), argument.constexpr


def c_text() -> str:
    """The C of the fronts: Triton's helper compiles one file."""
    return "\n".join((Path(__file__).parent / name).read_text(encoding="utf-8") for name in C_FILES)


_BUILDING = threading.Lock()


def module() -> Any:
    """The compiled C, out of Triton's cache after the first time; None where it can't be compiled. Waits for a thread
    that is compiling it."""
    with _BUILDING:
        return built()


@lru_cache(maxsize=1)
def built() -> Any:
    """The result of :func:`module`."""
    try:
        compiled = launcher.compile_c(c_text(), "kerntune_front")
    except Exception:  # no compiler, no headers, a cache that can't be written: Python does the same, slower
        return None
    compiled.use_driver(driver_address())
    use_exchange(compiled)
    compiled.use_settings(*launcher.setting_addresses())
    return compiled


def use_exchange(compiled: Any, device_type: int | None = None) -> bool:
    """Make the C functions read plain tensors through DLPack's C exchange, where torch has that: one call for address,
    device and element type, without new objects. Returns whether they do. ``device_type`` is DLPack's number for the
    GPUs."""
    exchange = launcher.tensor_exchange()
    if exchange is None:
        return False
    capsule, gpus, types, samples = exchange
    return bool(compiled.use_exchange(capsule, gpus if device_type is None else device_type, types, samples))


def driver_address() -> int:
    """Where the driver's ``cuLaunchKernel`` is; 0 without a driver."""
    try:
        return ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0
