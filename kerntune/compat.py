"""The one place that knows how Triton's versions differ (3.6 to 3.9)."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def triton_version() -> str:
    """``3.9.0``; empty if Triton isn't installed. Imports nothing."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


@lru_cache(maxsize=1)
def torch_version() -> str:
    """``2.13.0+cpu``; empty if torch isn't installed. Imports nothing."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def triton_series() -> str:
    """``3.9``: what static figures are stored under."""
    return ".".join(triton_version().split(".")[:2])


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


def make_backend(target: Any) -> Any:
    """Triton's compiler backend for a ``GPUTarget``."""
    from triton.compiler.compiler import make_backend as make

    return make(target)


def gpu_target(backend: str, arch: int | str, warp_size: int) -> Any:
    """Triton's own word for a target."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget(backend, arch, warp_size)


SURROUNDING_OPTIONS = ("ptx_options", "enable_fp_fusion")
"""Compile options whose default environment variables set: ``PTXAS_OPTIONS``, ``TRITON_DEFAULT_FP_FUSION``."""


def default_options(target: Any) -> dict[str, Any]:
    """The options of a compilation of which nothing was said, here and now."""
    return dict(vars(make_backend(target).parse_options({})))


@lru_cache(maxsize=8)
def compiled_kernel() -> Any:
    """The class of what ``kernel.warmup(...)`` gives."""
    from triton.compiler.compiler import CompiledKernel

    return CompiledKernel


def option_names(target: Any) -> tuple[str, ...]:
    """Compile options that the backend of a :class:`kerntune.device.Target` knows beside the usual four."""
    backend = make_backend(gpu_target(target.backend, target.triton_arch, target.warp_size))
    return tuple(sorted(vars(backend.parse_options({}))))


def binder_of(jit: Any, backend: Any) -> Any:
    """The function that binds and specializes arguments: ``(*args, **kwargs) -> bound, specialization, options``."""
    from triton.runtime.jit import create_function_from_signature

    return create_function_from_signature(jit.signature, jit.params, backend)


def pack_args(jit: Any, backend: Any, kwargs: dict[str, Any], bound: Any, specialization: Any, options: Any) -> Any:
    """``options, signature, constexprs, attrs`` for ``ASTSource``. Raises what the backend raises for bad options."""
    return jit._pack_args(backend, kwargs, bound, specialization, options)


def is_gluon(jit: Any) -> bool:
    """Whether a kernel is written in Gluon, which needs another source class."""
    is_gluon = getattr(jit, "is_gluon", None)
    return bool(is_gluon()) if callable(is_gluon) else False


def source_of(jit: Any, signature: Any, constexprs: Any, attrs: Any) -> Any:
    """The source object that ``triton.compile`` takes."""
    if is_gluon(jit):
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource(jit, signature, constexprs, attrs)
    from triton.compiler import ASTSource

    return ASTSource(jit, signature, constexprs, attrs)


def prepare_driver() -> None:
    """Have Triton's driver ready: it builds a C module (0.4 s) where Triton's cache has none.

    A help, no need: whatever goes wrong will be said by the first launch. The same goes for :func:`prepare_launcher`.
    """
    from triton.runtime.driver import driver

    with contextlib.suppress(Exception):
        _ = driver.active


def prepare_launcher(jit: Any, signature: Any, constexprs: Any, attrs: Any) -> None:
    """Have the C module built that Triton 3.6 needs for launches of a signature (0.2 s, then it is in Triton's cache).

    Later ones need none. Not for tensor descriptors, whose launcher depends on what the compiler makes of them.
    """
    from types import SimpleNamespace

    from triton.backends.nvidia import driver

    if not hasattr(driver, "make_launcher") or "tensordesc" in str(signature):
        return
    unused = dict.fromkeys(("global_scratch_size", "global_scratch_align", "profile_scratch_size"), 0)
    unused |= dict.fromkeys(("profile_scratch_align", "launch_cooperative_grid", "launch_pdl"), 0)
    with contextlib.suppress(Exception):
        driver.CudaLauncher(source_of(jit, signature, constexprs, attrs), SimpleNamespace(**unused))


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


def assembler_version(backend: str, arch: int | str) -> str:
    """The version of the assembler that makes the binary: ptxas for CUDA, Triton's own LLVM for HIP."""
    if backend != "cuda":
        return f"triton-{triton_version()}"
    return _ptxas_version(int(arch))


@lru_cache(maxsize=8)
def _ptxas_version(arch: int) -> str:
    from triton.backends.nvidia import compiler

    return str(compiler.get_ptxas(arch).version)


def autotuner_key(tuner: Any, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key under which ``triton.autotune`` keeps a winner: its key arguments, then every argument's dtype.

    A tuner with a ``tuning_key`` of its own is asked instead.
    """
    if hasattr(tuner, "tuning_key"):
        return tuple(tuner.tuning_key({**named, **kwargs}))
    values = {k: v for k, v in {**named, **kwargs}.items() if k in tuner.arg_names}
    key = [values[k] for k in tuner.keys if k in values]
    return tuple(key + [str(v.dtype) for v in values.values() if hasattr(v, "dtype")])


def interprets() -> bool:
    """Whether kernels decorated now run in Triton's interpreter (``TRITON_INTERPRET=1``)."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


def prints_tuning() -> bool:
    """Whether the user wants a line per tuned kernel (``TRITON_PRINT_AUTOTUNING=1``)."""
    from triton import knobs

    return bool(knobs.autotuning.print)


def tuning_listener() -> Any:
    """What wants to hear of every tuned kernel (``knobs.autotuning.listener``, unknown to 3.6); None if nothing."""
    from triton import knobs

    return getattr(knobs.autotuning, "listener", None)


@contextlib.contextmanager
def without_line_info() -> Iterator[None]:
    """Compile without line tables: smaller binaries, and the same ones wherever the source file lies."""
    from triton import knobs

    name = "disable_line_info"
    held, variable = vars(knobs.compilation), knobs.compilation.knob_descriptors[name].key
    before = {name: held[name]} if name in held else {}  # a knob that nobody has set isn't there
    environment = os.environ.get(variable)  # Triton tells subprocesses of what is set
    knobs.compilation.disable_line_info = True
    try:
        yield
    finally:
        held.pop(name, None)
        held.update(before)
        os.environ.pop(variable, None)
        if environment is not None:
            os.environ[variable] = environment


def autotuner_errors() -> tuple[type[Exception], ...]:
    """What Triton's autotuner raises when a user's pruning leaves nothing; some versions have no class of its own."""
    from triton.runtime import errors

    found = getattr(errors, "AutotunerError", None)
    return (found,) if found is not None else ()


def take_announcements() -> None:
    """Let Triton announce what it announces once a process, unheard: 3.9 warns of 3.10's default for fused multiply-add
    at the first compilation, which under ``-W error`` would fail whichever test happens to come first."""
    from triton import knobs

    announce = getattr(getattr(knobs, "language", None), "fp_fusion_enabled", None)
    if announce is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            announce(None)


def triton_config(config: Any) -> Any:
    """A :class:`kerntune.config.Config` as Triton's; backend options go among the keywords, as in AMD's examples."""
    from triton import Config

    words = {**config.kwargs, **config.options}
    return Config(
        words, num_warps=config.num_warps, num_stages=config.num_stages, num_ctas=config.num_ctas,
        maxnreg=config.maxnreg,
    )  # fmt: skip


# the launch path

UNUSUAL = (
    "kt_JITFunction.run is not kt_run or kt_profiler._is_profiler_enabled or kt_entering or kt_leaving or kt_running"
)
"""True while a launch must take Triton's own way: something stands in for it (a capture, a tool), or a profiler or a
hook wants to hear of it. Names are those of :func:`launch_surroundings`."""

DIRECT_NAMES = ("kt_launch", "kt_cooperative", "kt_pdl", "kt_annotations", "kt_types", "kt_scratch_size", "kt_align")
"""What :func:`direct_values` gives, under the names that :func:`direct_call` uses. The size is in bytes a block."""

_DIRECT_CALLS = {
    "3.6": "kt_launch(kt_x, kt_y, kt_z, kt_current_stream(kt_device), kt_function, kt_cooperative, kt_pdl, "
    "kt_scratch, None, kt_packed, None, None, None, {arguments})",
    "3.9": "kt_launch(kt_x, kt_y, kt_z, kt_current_stream(kt_device), kt_function, kt_cooperative, kt_pdl, "
    "kt_packed, None, None, None, kt_scratch, None, kt_annotations, kt_types, ({arguments}))",
}
"""How Triton's C launcher is called, by series: 3.6 compiles one for each signature, 3.9 has one for all.

Both take grid, stream, function, cooperative and PDL flags, then two scratch pointers and the packed metadata with
launch metadata and two hooks (3.9 the other way round), then the arguments (``CudaLauncher`` in Triton's
``backends/nvidia/driver.py``).
"""


def direct_call() -> str:
    """The text of a call of Triton's C launcher; where its order isn't known, nothing ever comes to it."""
    return _DIRECT_CALLS.get(triton_series(), "pass  # {arguments}")


def direct_order() -> int | None:
    """The same for the C front: 36 or 39; None where it isn't known."""
    return {"3.6": 36, "3.9": 39}.get(triton_series())


def compile_c(text: str, name: str) -> Any:
    """A C extension module, compiled and cached by Triton's own helper. Raises what a missing compiler raises."""
    from triton.runtime.build import compile_module_from_src

    return compile_module_from_src(src=text, name=name)


_C_TYPES = {
    "i1": "b", "i8": "b", "u1": "b", "u8": "b", "i16": "h", "u16": "h", "i32": "i", "u32": "i", "i64": "l", "u64": "l",
    "fp32": "f", "f32": "f", "fp64": "d", "constexpr": "-",
}  # fmt: skip
"""Triton's words for types that the C front can pass; 16-bit floats and descriptors are left to Triton's launcher."""


def driver_plan(kernel: Any, room: int) -> bytes | None:
    """What the C front tells the driver of a kernel (its ``Plan``, with ``room`` types); None where Triton launches.

    That is with clusters, and for cooperative and programmatic dependent launches.
    """
    values, metadata = direct_values(kernel), kernel.metadata
    if values is None or values[1] or values[2] or getattr(metadata, "num_ctas", 1) != 1:
        return None
    words = [str(word) for word in kernel.src.signature.values()]
    types = ["P" if word.startswith("*") else _C_TYPES.get(word, "") for word in words]
    if not all(types) or len(types) > room:
        return None
    threads = metadata.num_warps * metadata.target.warp_size
    return struct.pack(f"QII{room}s", kernel.function, threads, metadata.shared, "".join(types).encode())


def direct_values(kernel: Any) -> tuple[Any, ...] | None:
    """A compiled kernel's C launcher and what it takes; None where only ``kernel.run`` can launch.

    That is where it is instrumented, isn't CUDA's, or is of a series whose launcher isn't known.
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


def launch_surroundings(jit: Any) -> dict[str, Any] | None:
    """The names of :data:`UNUSUAL` and of a launch for one kernel; None where nothing can be prepared at all."""
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
    if active.get_current_target().backend != "cuda":  # HIP also compiles by the tensors' sizes
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


def heuristic_layers(fn: Any) -> tuple[list[Any], Any]:
    """``@triton.heuristics`` between a tuner and its kernel, as names and functions, outermost first; the kernel."""
    from triton.runtime.autotuner import Heuristics

    layers: list[Any] = []
    while type(fn) is Heuristics and "run" not in vars(fn):
        layers.append((fn.arg_names, fn.values))
        fn = fn.fn
    return layers, fn


def launch_settings() -> tuple[dict[str, Any], dict[str, Any]]:
    """What somebody set of Triton's knobs that a launch depends on."""
    from triton import knobs

    return dict(vars(knobs.runtime)), dict(vars(knobs.compilation))


def settings_changed(settings: tuple[dict[str, Any], dict[str, Any]]) -> str:
    """The text that is true once a knob was set or reset; what isn't set is quickest to look at."""
    return " or ".join(
        f"{name} != {name}_then" if then else name
        for name, then in zip(("kt_runtime", "kt_compilation"), settings, strict=True)
    )


def _file_of_jit() -> str:
    """The file of Triton's own ``JITFunction``: what was put in its place is from elsewhere."""
    from triton.runtime.jit import JITFunction

    return str(JITFunction.__init__.__code__.co_filename)


def has_one_device() -> bool:
    """Whether torch sees but one GPU, number 0: then no launch need ask which one is current, which is dear."""
    import torch

    return int(torch.cuda.device_count()) == 1


def is_compiled_kernel(value: Any) -> bool:
    """Whether a launch gave Triton's own compiled kernel, rather than nothing or one that is still being compiled."""
    from triton.compiler import CompiledKernel

    return type(value) is CompiledKernel


def globals_kept(jit: Any) -> bool:
    """Whether the globals that a kernel was compiled with have their values still (else Triton refuses to launch)."""
    return all(scope.get(name, _GONE) == value for (name, _), (value, scope) in jit.used_global_vals.items())


_GONE = object()


def profiler_range(name: Callable[[], str]) -> contextlib.AbstractContextManager[Any]:
    """A named range for torch's profiler and NVTX while one of them listens, else nothing."""
    import torch.autograd.profiler

    if not torch.autograd.profiler._is_profiler_enabled:
        return contextlib.nullcontext()
    recorded: contextlib.AbstractContextManager[Any] = torch.profiler.record_function(name())
    return recorded
