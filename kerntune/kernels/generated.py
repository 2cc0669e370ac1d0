"""Kernels that a compiler wrote: their names hold a number, which says nothing of what they compute."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_NUMBER = re.compile(r"_\d+$")

_MARK = "_kerntune_generated"
"""The attribute of a ``JITFunction`` that a compiler generated."""

CANONICAL = "triton_"
"""The name that stands for a generated kernel's own in its source: what Inductor itself uses where it gives none."""


@dataclass(frozen=True)
class GeneratedKernel:
    """What is known of a generated kernel beside its code.

    ``name`` is its name without the number that it has in its graph (``triton_poi_fused_add_gelu``), ``word`` the name
    in its source, ``origins`` the ATen operators that it was generated for, sorted, each as often as it occurs.
    """

    name: str
    word: str
    origins: tuple[str, ...] = ()


def name_without_number(name: str) -> str:
    """``triton_poi_fused_add_gelu_12`` without ``_12``: other kernels of the graph decide it."""
    return _NUMBER.sub("", name)


def mark_generated(jit: Any, kernel: GeneratedKernel) -> None:
    """Note on a ``JITFunction`` what it was generated for."""
    setattr(jit, _MARK, kernel)


def generated(jit: Any) -> GeneratedKernel | None:
    """What :func:`mark_generated` has noted; None for a kernel that a person wrote."""
    found: GeneratedKernel | None = getattr(jit, _MARK, None)
    return found


def origins_of(jit: Any) -> tuple[str, ...]:
    """The ATen operators that a kernel was generated for; none for a kernel that a person wrote."""
    kernel = generated(jit)
    return kernel.origins if kernel is not None else ()


def without_name(source: str, kernel: GeneratedKernel) -> str:
    """A generated kernel's source with one name for all: equal for kernels that compute the same."""
    return re.sub(rf"\b{re.escape(kernel.word)}\b", CANONICAL, source)
