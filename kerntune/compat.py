"""The one place that knows how Triton's versions differ (3.6 to 3.9)."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import warnings
from collections.abc import Iterator, Mapping
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
    try:
        from triton.backends import driver
    except ImportError:
        return 1
    return 2 if hasattr(driver, "decompose_descriptor") else 1


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

    before = knobs.compilation.disable_line_info
    knobs.compilation.disable_line_info = True
    try:
        yield
    finally:
        knobs.compilation.disable_line_info = before


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
