"""What is installed: Triton, torch and the assembler."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache

TORCH_RUN = ("2.11", "2.12", "2.13", "2.14", "2.15")
TRITON_RUN = ("3.6", "3.7", "3.8", "3.9")
PYTHON_RUN = ("3.10", "3.11", "3.12", "3.13")
"""The series that kerntune was run with, oldest first. README says under which of them ``make torch-matrix`` was run,
and benchmarks/results/torch_matrix.json has its results. The bounds in pyproject.toml, README and ``kerntune doctor``
follow from these: what is one series newer may be installed, and each run says that it was not run."""


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


def as_series(version: str) -> tuple[int, int] | None:
    """``(2, 15)`` for ``2.15.0+cu132``; None for what is no version."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def newer_than_run(name: str, version: str, run: Sequence[str]) -> str:
    """What to say of an installed version beyond the newest of ``run``; empty for any other."""
    found, newest = as_series(version), as_series(run[-1])
    if found is None or newest is None or found <= newest:
        return ""
    series = ".".join(map(str, found))
    return f"{name} {series} is newer than any that kerntune was run with ({run[-1]})"


def newer_versions() -> list[str]:
    """A line for each of torch and Triton that is newer than any that kerntune was run with."""
    lines = [
        newer_than_run("torch", torch_version(), TORCH_RUN),
        newer_than_run("Triton", triton_version(), TRITON_RUN),
    ]
    return [line for line in lines if line]


def versions_run() -> str:
    """The sentence that says what kerntune was run with."""
    return f"kerntune was run with torch {TORCH_RUN[0]} to {TORCH_RUN[-1]}"


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
