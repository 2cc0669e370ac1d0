"""What is installed: Triton, torch and the assembler."""

from __future__ import annotations

import importlib.metadata
import os
from functools import lru_cache


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


def assembler_version(backend: str, arch: int | str) -> str:
    """The version of the assembler that makes the binary: ptxas for CUDA, Triton's own LLVM for HIP."""
    if backend != "cuda":
        return f"triton-{triton_version()}"
    return _ptxas_version(int(arch), os.environ.get("TRITON_PTXAS_PATH", ""))


@lru_cache(maxsize=8)
def _ptxas_version(arch: int, path: str) -> str:
    """``path`` names another ptxas than Triton's: Inductor sets it for the process when it first compiles."""
    from triton.backends.nvidia import compiler

    return str(compiler.get_ptxas(arch).version)
