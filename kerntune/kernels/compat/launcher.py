"""Triton's C launchers, the modules built for them, and arguments on their way to the binary's parameters."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kerntune.kernels.compat.triton_compiler import source_of
from kerntune.kernels.compat.versions import triton_series


def run_options(jit: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that ``JITFunction.run`` adds to a launch before it binds the arguments.

    3.6 adds ``debug`` and ``instrumentation_mode``, 3.9 also ``fpsan_homomorphic_casts``.
    """
    from triton import knobs

    out = dict(kwargs)
    out["debug"] = out.get("debug", jit.debug) or knobs.runtime.debug
    out["instrumentation_mode"] = knobs.compilation.instrumentation_mode
    if hasattr(knobs.compilation, "fpsan_homomorphic_casts"):
        out["fpsan_homomorphic_casts"] = knobs.compilation.fpsan_homomorphic_casts
    return out


def binder_of(jit: Any, backend: Any) -> Any:
    """The function that binds and specializes arguments: ``(*args, **kwargs) -> bound, specialization, options``."""
    from triton.runtime.jit import create_function_from_signature

    return create_function_from_signature(jit.signature, jit.params, backend)


def pack_args(jit: Any, backend: Any, kwargs: dict[str, Any], bound: Any, specialization: Any, options: Any) -> Any:
    """``options, signature, constexprs, attrs`` for ``ASTSource``. Raises what the backend raises for bad options."""
    return jit._pack_args(backend, kwargs, bound, specialization, options)


_DESCRIPTOR = re.compile(r"tensordesc(?:_im2col)?<([^[>]*)\[([^\]]*)\]")


def expand_type(type_: str, lowered_to_tma: bool) -> list[tuple[str, str]]:
    """A tensor descriptor's flattened parameters as ``(part, type)``, in the launcher's order.

    With TMA: the tensor map, shape (i32), strides (i64). Without: base pointer, shape and strides (i64), padding flag
    (and from 3.7 on a TF32 rounding flag), shape (i32), strides (i64) again.
    """
    match = _DESCRIPTOR.match(type_)
    if match is None:
        return [("", type_)]
    rank = match[2].count(",") + 1
    shape = [(f"shape[{i}]", "i32") for i in range(rank)]
    strides = [(f"strides[{i}]", "i64") for i in range(rank)]
    if lowered_to_tma:
        return [("map", "nvTmaDesc"), *shape, *strides]
    wide = [(part, "i64") for part, _ in (*shape, *strides)]
    flags = [("nan_padding", "i1")]
    if _decomposed_flags() > 1:
        flags.append(("round_f32_to_tf32", "i1"))
    return [("base", "*" + match[1]), *wide, *flags, *shape, *strides]


@lru_cache(maxsize=1)
def _decomposed_flags() -> int:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return 2 if "round_f32_to_tf32" in vars(TensorDescriptor).get("__dataclass_fields__", {}) else 1


def prepare_driver() -> None:
    """Initialize Triton's driver, which builds a C module (0.4 s) if Triton's cache has none.

    Only saves time: errors are ignored here and raised by the first launch. The same is true of
    :func:`prepare_launcher`.
    """
    from triton.runtime.driver import driver

    with contextlib.suppress(Exception):
        _ = driver.active


def prepare_specializing() -> None:
    """Import what Triton imports when it specializes the first launch's arguments: all of Gluon, 0.1 s."""
    with contextlib.suppress(Exception):
        import triton.experimental.gluon.nvidia.hopper  # noqa: F401


def missing_driver() -> str:
    """The reason why Triton has no driver here: the message of the RuntimeError that a launch raises. Empty if there is
    a GPU, also if its driver module can't be built for want of a C compiler."""
    from triton.runtime.driver import backends, driver

    try:
        _ = driver.active
    except Exception as exc:
        return "" if any(backend.driver.is_active() for backend in backends.values()) else str(exc)
    return ""


def prepare_launcher(jit: Any, signature: Any, constexprs: Any, attrs: Any, descriptors: Any = None) -> None:
    """Build the C module that Triton 3.6 needs for launches of a signature (0.2 s, then it is in Triton's cache).

    Later versions need none. For tensor descriptors it depends on how the compiler lowers them: ``tensordesc_meta`` of
    a kernel's metadata, without which nothing is built.
    """
    from types import SimpleNamespace

    from triton.backends.nvidia import driver

    if not hasattr(driver, "make_launcher") or ("tensordesc" in str(signature) and not descriptors):
        return
    unused = dict.fromkeys(("global_scratch_size", "global_scratch_align", "profile_scratch_size"), 0)
    unused |= dict.fromkeys(("profile_scratch_align", "launch_cooperative_grid", "launch_pdl"), 0)
    with contextlib.suppress(Exception):
        metadata = SimpleNamespace(**unused, tensordesc_meta=descriptors)
        driver.CudaLauncher(source_of(jit, signature, constexprs, attrs), metadata)


def compile_c(text: str, name: str) -> Any:
    """A C extension module, compiled and cached by Triton's own helper, whose exceptions (no compiler, for example)
    pass through."""
    from triton.runtime.build import compile_module_from_src

    return compile_module_from_src(src=text, name=name)


DIRECT_NAMES = ("kt_launch", "kt_cooperative", "kt_pdl", "kt_annotations", "kt_types", "kt_scratch_size", "kt_align")
"""The values of :func:`direct_values`, under the names that :func:`direct_call` uses. The size is in bytes a block."""

_LATER = (
    "kt_launch(kt_x, kt_y, kt_z, kt_current_stream(kt_device), kt_function, kt_cooperative, kt_pdl, "
    "kt_packed, None, None, None, kt_scratch, None, kt_annotations, kt_types, ({arguments}))"
)

_DIRECT_CALLS = {
    "3.6": "kt_launch(kt_x, kt_y, kt_z, kt_current_stream(kt_device), kt_function, kt_cooperative, kt_pdl, "
    "kt_scratch, None, kt_packed, None, None, None, {arguments})",
    **dict.fromkeys(("3.7", "3.8", "3.9"), _LATER),
}
"""How Triton's C launcher is called, by series: 3.6 compiles one for each signature, later ones have one for all.

Both take grid, stream, function, cooperative and PDL flags, then two scratch pointers and the packed metadata with
launch metadata and two hooks (since 3.7 the other way round), then the arguments (``CudaLauncher`` in Triton's
``backends/nvidia/driver.py``).
"""


def direct_call() -> str:
    """The text of a call of Triton's C launcher; for series whose order isn't known it is never executed."""
    return _DIRECT_CALLS.get(triton_series(), "pass  # {arguments}")


def direct_order() -> int | None:
    """The same for the C front: 36 as 3.6 has it, 37 as later ones; None where it isn't known."""
    order = _DIRECT_CALLS.get(triton_series())
    return None if order is None else 37 if order is _LATER else 36


def direct_values(kernel: Any) -> tuple[Any, ...] | None:
    """A compiled kernel's C launcher and its arguments; None where only ``kernel.run`` can launch.

    The latter are launchers that are instrumented, of another backend than CUDA, or of a series that isn't listed here.
    """
    launcher = kernel.run
    if triton_series() not in _DIRECT_CALLS or type(launcher).__name__ != "CudaLauncher":
        return None
    if launcher.profile_scratch_size or getattr(launcher, "gsan_enabled", False):
        return None
    annotations, types = (getattr(launcher, name, None) for name in ("arg_annotations", "kernel_signature"))
    scratch = launcher.global_scratch_size * launcher.num_ctas
    flags = (launcher.launch_cooperative_grid, launcher.launch_pdl)
    return launcher.launch, *flags, annotations, types, scratch, launcher.global_scratch_align


_C_TYPES = {
    "i1": "b", "i8": "b", "u1": "b", "u8": "b", "i16": "h", "u16": "h", "i32": "i", "u32": "i", "i64": "l", "u64": "l",
    "fp32": "f", "f32": "f", "fp64": "d", "constexpr": "-",
}  # fmt: skip
"""Triton's names of the types that the C front can pass; 16-bit floats and descriptors are left to Triton's
launcher."""


def driver_plan(kernel: Any, room: int) -> bytes | None:
    """A kernel's ``Plan`` for the C front's call of the driver, with space for ``room`` types; None where Triton
    launches.

    That is with clusters, and for cooperative and programmatic dependent launches.
    """
    values, metadata = direct_values(kernel), kernel.metadata
    if values is None or values[1] or values[2] or metadata.num_ctas != 1:
        return None
    words = [str(word) for word in kernel.src.signature.values()]
    types = ["P" if word.startswith("*") else _C_TYPES.get(word, "") for word in words]
    if not all(types) or len(types) > room:
        return None
    threads = metadata.num_warps * metadata.target.warp_size
    return struct.pack(f"QII{room}s", kernel.function, threads, metadata.shared, "".join(types).encode())


DLPACK_CUDA, DLPACK_ROCM = 2, 10
"""DLPack's numbers of device types (``DLDeviceType`` of dlpack.h)."""

EXACT_DTYPES = (
    "bool", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip
"""Element types that DLPack distinguishes; it has torch's integers of less than 8 bits as 8-bit ones."""

STATE_FUNCTIONS = (
    ("libc10.so", "_ZN3c108GradMode10is_enabledEv", ()),
    ("libtorch_cpu.so", "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", (1,)),
)
"""``c10::GradMode::is_enabled()`` and ``at::autocast::is_autocast_enabled(c10::DeviceType)``, with CUDA's number, and
torch's library that exports them (``c10/core/GradMode.h``, ``aten/src/ATen/autocast_mode.h``)."""


def setting_addresses() -> tuple[int, int]:
    """Where torch answers whether gradients are recorded, and whether autocast is on for CUDA; 0 where that isn't
    exported, or doesn't answer as the Python functions do."""
    import torch

    answers = (torch.is_grad_enabled(), torch.is_autocast_enabled())
    grad, autocast = (_setting(torch.__path__[0], *one, now) for one, now in zip(STATE_FUNCTIONS, answers, strict=True))
    return grad, autocast


def _setting(torch_folder: str, library: str, symbol: str, args: tuple[int, ...], expected: bool) -> int:
    try:
        found = ctypes.CDLL(f"{torch_folder}/lib/{library}", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)[symbol]
    except (OSError, AttributeError):
        return 0
    found.restype, found.argtypes = ctypes.c_bool, [ctypes.c_int8] * len(args)
    return ctypes.cast(found, ctypes.c_void_p).value or 0 if found(*args) == expected else 0


def tensor_exchange() -> tuple[Any, int, tuple[type, ...], list[tuple[Any, Any]]] | None:
    """torch's DLPack C exchange (``__dlpack_c_exchange_api__``; 2.11 has it): its capsule, the device type of the GPUs,
    the tensor classes that it describes completely, and a tensor of each element type that it describes exactly. None
    without it."""
    import torch

    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    dtypes = [getattr(torch, name) for name in EXACT_DTYPES if hasattr(torch, name)]
    samples = [(torch.empty(0, dtype=dtype, device="cpu"), dtype) for dtype in dtypes]
    return capsule, DLPACK_ROCM if torch.version.hip else DLPACK_CUDA, (torch.Tensor, torch.nn.Parameter), samples
