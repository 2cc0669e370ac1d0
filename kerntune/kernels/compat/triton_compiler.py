"""Triton's compiler: its backends and their options, sources, results and warnings, and parsing in threads.

Python 3.11.0 to 3.11.7 can't parse in several threads: ``ast.parse`` fails at random there (gh-106905).
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kerntune.base.changed_items import changed_items
from kerntune.base.device import Target


def make_backend(target: Any) -> Any:
    """Triton's compiler backend for a ``GPUTarget``."""
    from triton.compiler.compiler import make_backend as make

    return make(target)


def gpu_target(target: Target) -> Any:
    """A target as Triton's ``GPUTarget``."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget(target.backend, target.triton_arch, target.warp_size)


def triton_key() -> str:
    """Triton's hash of its own files, which is in the key of every kernel in its cache."""
    from triton.runtime import cache

    return str(cache.triton_key())


def triton_key_is_known() -> bool:
    """Whether Triton caches this hash, and has computed it."""
    from triton.runtime import cache

    asked = getattr(cache.triton_key, "cache_info", None)
    return asked is None or asked().currsize > 0


def know_triton_key(key: str | None) -> None:
    """Make Triton use ``key``, computed by a fork, as that hash, as its own process pools do. None changes nothing."""
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


def default_options(target: Target) -> dict[str, Any]:
    """The current default options of a compilation."""
    return dict(vars(make_backend(gpu_target(target)).parse_options({})))


def option_names(target: Target) -> tuple[str, ...]:
    """Compile options of a target's backend, besides the four that all backends have."""
    return tuple(sorted(default_options(target)))


def all_option_names() -> frozenset[str]:
    """Compile options of any backend that is installed, from the fields of their option classes."""
    from triton.backends import backends

    modules = [sys.modules[kind.compiler.__module__] for kind in backends.values()]
    options = [value for m in modules for value in vars(m).values() if dataclasses.is_dataclass(value)]
    return frozenset(field.name for one in options for field in dataclasses.fields(one))


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


GLUON = "GLUON", "glir"
"""Triton's name of the language, and the stage that its front end makes: a file of its own from Triton 3.9 on."""


def front_end_stage(source: Any) -> str:
    """The stage whose text a worker process compiles. Before 3.9 Triton says TTGIR for Gluon, which passes make that
    may crash: here it is the module before them in every version."""
    return GLUON[1] if source.language.name == GLUON[0] else str(source.ext)


def language_of(stage: str) -> str:
    """Triton's name of the language whose first stage this is."""
    return GLUON[0] if stage == GLUON[1] else "TRITON"


def stages_after(stages: Mapping[str, Any], stage: str) -> list[tuple[str, Any]]:
    """The stages of a backend that follow one; all of them where the backend doesn't list it (Gluon's, before 3.9)."""
    names = list(stages)
    return list(stages.items())[names.index(stage) + 1 if stage in names else 0 :]


@lru_cache(maxsize=8)
def compiled_kernel() -> Any:
    """The class of the result of ``kernel.warmup(...)``."""
    from triton.compiler.compiler import CompiledKernel

    return CompiledKernel


def is_compiled_kernel(value: Any) -> bool:
    """Whether a launch returned Triton's own compiled kernel, rather than None or one that is still being compiled."""
    return type(value) is compiled_kernel()


@contextlib.contextmanager
def without_line_info() -> Iterator[None]:
    """Compile without line tables: binaries are smaller, and don't depend on the path of the source file."""
    from triton import knobs

    name = "disable_line_info"
    held, variable = vars(knobs.compilation), knobs.compilation.knob_descriptors[name].key
    # a knob that isn't set is missing; Triton passes the setting on to subprocesses in the environment
    with changed_items(held, {name: True}), changed_items(os.environ, {variable: "1"}):
        yield


ASSEMBLER_PATH = "TRITON_PTXAS_PATH"
TORCHS_ASSEMBLERS = ("bin/ptxas", "_inductor/bin/ptxas")
"""In torch's folder, where Inductor looks for one (``torch/_inductor/runtime/compile_tasks.py`` of 2.11 and 2.13)."""


@contextlib.contextmanager
def same_assembler() -> Iterator[None]:
    """Compile with the ptxas of this moment until the end, also after Inductor's first compilation of the process.

    torch's wheels for CUDA 13 carry a ptxas of their own, and Inductor sets ``TRITON_PTXAS_PATH`` to it for the process
    when it compiles its first kernel, unless the variable is set. A kernel's binary would depend on whether a compiled
    function ran before it. Where torch has no such file, or the variable is set, there is nothing to do.
    """
    from triton import knobs

    own = str(knobs.nvidia.knob_descriptors["ptxas"].default_path)
    if ASSEMBLER_PATH in os.environ or not os.access(own, os.X_OK) or not _torch_has_ptxas():
        yield
        return
    os.environ[ASSEMBLER_PATH] = own
    try:
        yield
    finally:
        if os.environ.get(ASSEMBLER_PATH) == own:
            del os.environ[ASSEMBLER_PATH]


def _torch_has_ptxas() -> bool:
    spec = importlib.util.find_spec("torch")
    folders = spec.submodule_search_locations if spec is not None else None
    return any(Path(folder, name).exists() for folder in folders or () for name in TORCHS_ASSEMBLERS)


def take_announcements() -> None:
    """Trigger and ignore the warnings that Triton gives once a process: 3.9 warns of 3.10's default for fused
    multiply-add at the first compilation. Under ``-W error`` that would fail the first test that compiles."""
    from triton import knobs

    announce = getattr(getattr(knobs, "language", None), "fp_fusion_enabled", None)
    if announce is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            announce(None)


def fails_in_threads(version: tuple[Any, ...]) -> bool:
    """Whether this Python's parser does (gh-106905)."""
    return (3, 11) <= version < (3, 11, 8)


IN_TURN = fails_in_threads(sys.version_info)
"""Whether threads must not parse at the same time. A kernel is parsed for its hash here, and for its code by threads
that compile; there, "AST constructor recursion depth mismatch" would make a candidate fail."""

_TURN: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
if IN_TURN:
    _TURN = _LOCK = threading.RLock()
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def parsed(text: str) -> ast.Module:
    """``ast.parse(text)``, under a lock where this Python needs one."""
    with _TURN:
        return ast.parse(text)


def parse_in_turn() -> None:
    """Make Triton parse kernels under the same lock, if this Python needs one."""
    from triton.runtime.jit import JITFunction

    owner = next(kind for kind in JITFunction.__mro__ if "parse" in vars(kind))
    parse = owner.parse
    if not IN_TURN or hasattr(parse, "__wrapped__"):
        return

    @functools.wraps(parse)
    def in_turn(kernel: Any) -> Any:
        with _TURN:
            return parse(kernel)

    owner.parse = in_turn
