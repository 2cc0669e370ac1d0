"""What is installed: Triton, torch and the assembler."""

from __future__ import annotations

import os
from functools import lru_cache


@lru_cache(maxsize=1)
def triton_version() -> str:
    """``3.9.0``; empty if Triton isn't installed. Imports nothing of it."""
    return _installed("triton")


@lru_cache(maxsize=1)
def torch_version() -> str:
    """``2.13.0+cpu``; empty if torch isn't installed. Imports nothing of it."""
    return _installed("torch")


def _installed(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # a tenth of the time that the gate takes to load

    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def triton_series() -> str:
    """``3.9``: what static figures are stored under."""
    return ".".join(triton_version().split(".")[:2])


def assembler_version(backend: str, arch: int | str) -> str:
    """The version of the assembler that makes the binary: ptxas for CUDA, Triton's own LLVM for HIP."""
    if backend != "cuda":
        return f"triton-{triton_version()}"
    paths = tuple(os.environ.get(name, "") for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"))
    return _ptxas_version(int(arch), paths)


@lru_cache(maxsize=8)
def _ptxas_version(arch: int, paths: tuple[str, ...]) -> str:
    """Asked anew where ``paths``, what the environment names, differ: Inductor sets one in the midst of a program."""
    from triton.backends.nvidia import compiler

    return str(compiler.get_ptxas(arch).version)
