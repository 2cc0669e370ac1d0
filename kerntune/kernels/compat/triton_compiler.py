"""Triton's compiler: its backends and their options, sources, and what it says and leaves."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any


def make_backend(target: Any) -> Any:
    """Triton's compiler backend for a ``GPUTarget``."""
    from triton.compiler.compiler import make_backend as make

    return make(target)


def gpu_target(backend: str, arch: int | str, warp_size: int) -> Any:
    """Triton's own word for a target."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget(backend, arch, warp_size)


def triton_key() -> str:
    """Triton's hash of its own files, which is in the key of every kernel in its cache."""
    from triton.runtime import cache

    return str(cache.triton_key())


def triton_key_is_known() -> bool:
    """Whether Triton keeps it, and has worked it out."""
    from triton.runtime import cache

    asked = getattr(cache.triton_key, "cache_info", None)
    return asked is None or asked().currsize > 0


def know_triton_key(key: str | None) -> None:
    """Have Triton take ``key``, worked out by a fork, for that hash, as its own process pools do. None: nothing."""
    from triton.runtime import autotuner, cache

    if key is None or triton_key_is_known():
        return

    @lru_cache
    def triton_key() -> str:
        return key

    asked = cache.triton_key
    for module in (cache, autotuner):
        if getattr(module, "triton_key", None) is asked:
            module.triton_key = triton_key


SURROUNDING_OPTIONS = ("ptx_options", "enable_fp_fusion")
"""Compile options whose default environment variables set: ``PTXAS_OPTIONS``, ``TRITON_DEFAULT_FP_FUSION``."""


def default_options(target: Any) -> dict[str, Any]:
    """The options of a compilation of which nothing was said, here and now."""
    return dict(vars(make_backend(target).parse_options({})))


def option_names(target: Any) -> tuple[str, ...]:
    """Compile options that the backend of a :class:`kerntune.base.device.Target` knows beside the usual four."""
    backend = make_backend(gpu_target(target.backend, target.triton_arch, target.warp_size))
    return tuple(sorted(vars(backend.parse_options({}))))


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


@lru_cache(maxsize=8)
def compiled_kernel() -> Any:
    """The class of what ``kernel.warmup(...)`` gives."""
    from triton.compiler.compiler import CompiledKernel

    return CompiledKernel


def is_compiled_kernel(value: Any) -> bool:
    """Whether a launch gave Triton's own compiled kernel, rather than nothing or one that is still being compiled."""
    from triton.compiler import CompiledKernel

    return type(value) is CompiledKernel


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


def take_announcements() -> None:
    """Let Triton announce what it announces once a process, unheard: 3.9 warns of 3.10's default for fused multiply-add
    at the first compilation, which under ``-W error`` would fail whichever test happens to come first."""
    from triton import knobs

    announce = getattr(getattr(knobs, "language", None), "fp_fusion_enabled", None)
    if announce is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            announce(None)
