"""What is installed (Triton, torch, the assembler), and names in torch's modules that torch makes no promise about."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeVar

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
    run = ("torch", torch_version(), TORCH_RUN), ("Triton", triton_version(), TRITON_RUN)
    return [line for one in run if (line := newer_than_run(*one))]


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


Kind = Literal["function", "class", "value"]
"""What a name must stand for: something that is called, a class, or an object of any other kind."""

Part = TypeVar("Part", bound="PrivateName")


@dataclass(frozen=True)
class PrivateName:
    """``path`` is the name in ``module``, with a dot before each attribute of a class. ``parameters`` are those that
    the function must have."""

    module: str
    path: str
    kind: Kind = field(default="function", kw_only=True)
    parameters: tuple[str, ...] = field(default=(), kw_only=True)

    @classmethod
    def parsed(cls: type[Part], text: str, *more: str, **flags: bool) -> Part:
        """``module:Name.method(a, b)``, ``class module:Name`` or ``value module:Name.attribute``; ``more`` and
        ``flags`` are the fields of the subclass."""
        found = re.fullmatch(r"(?:(class|value) )?([\w.]+):([\w.]+)(?:\((.+)\))?", text)
        assert found is not None, text
        parameters = tuple(found[4].split(", ")) if found[4] else ()
        words: dict[str, Any] = {"kind": found[1] or "function", "parameters": parameters, **flags}
        return cls(found[2], found[3], *more, **words)

    @property
    def name(self) -> str:
        """``module:path``."""
        return f"{self.module}:{self.path}"

    def load(self) -> Any:
        """The module, imported now; it may be an extension's (``torch._C._dynamo.guards``) that isn't found by
        importing. None where there is none."""
        try:
            return importlib.import_module(self.module)
        except ImportError:
            first, *steps = self.module.split(".")
            found: Any = sys.modules.get(first)
            for step in steps:
                found = getattr(found, step, None)
            return found

    def owner_in(self, module: Any) -> tuple[Any, str] | None:
        """The object that has the attribute, and the attribute's name; None where ``module`` (None: there is none)
        lacks it."""
        found = module
        *outer, last = self.path.split(".")
        for step in outer:
            found = getattr(found, step, None)
        return (found, last) if found is not None and hasattr(found, last) else None

    def problem_in(self, module: Any) -> str:
        """What this torch has moved or changed, with its version; empty if the name stands for what it did."""
        torch = f"torch {torch_version()}"
        found = self.owner_in(module)
        if found is None:
            return f"{torch} has no {self.name}"
        value = getattr(*found)
        if not _is_of(value, self.kind):
            return f"{torch}'s {self.name} is no {self.kind} any more"
        lacking = lacking_parameters(value, self.parameters)
        return f"{torch}'s {self.name} has no parameter {', '.join(lacking)} any more" if lacking else ""


def _is_of(value: Any, kind: Kind) -> bool:
    if kind == "value":
        return not (inspect.isroutine(value) or isinstance(value, type))
    return isinstance(value, type) if kind == "class" else callable(value) and not isinstance(value, type)


def lacking_parameters(function: Any, parameters: Collection[str]) -> list[str]:
    """Those of ``parameters`` that a function doesn't take by these names; ``**kwargs`` takes any."""
    if not parameters:
        return []  # what is no function has no signature
    has = inspect.signature(function).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in has.values())
    return [p for p in parameters if p not in has and not takes_any]
