"""The operator that stands in a graph for the launch of a tuned kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from kerntune.tuning.torch_compile.graph_launch import launch_of

NAME = "kerntune::launch"

SCHEMA = "launch(str token, Tensor(a!)[] written, Tensor[] read, SymInt[] ints, Scalar[] floats) -> ()"
"""``written`` are the tensors that the kernel may change: torch moves no operation across such a call."""

WRITTEN_AS = "torch.ops.kerntune.launch.default"
"""Its name in Inductor's tables."""

NO_GRADIENT = ("Autograd", "ADInplaceOrView")
"""Dispatch keys that it has no part in, as torch's own operator for Triton kernels: a launch has no gradient."""

_library: list[Any] = []


@lru_cache(maxsize=1)
def launch_operator() -> Any:
    """The operator, defined when it is first asked for."""
    library = torch.library.Library("kerntune", "FRAGMENT")
    library.define(SCHEMA, tags=(torch.Tag.needs_exact_strides,))
    library.impl("launch", _launch, "CompositeExplicitAutograd")
    for key in NO_GRADIENT:
        library.impl("launch", torch.library.fallthrough_kernel, key)
    torch.library.register_fake(NAME, _launch_nothing, lib=library)
    _library.append(library)  # the operator lives as long as this
    return torch.ops.kerntune.launch.default


def _launch(
    token: str, written: Sequence[Any], read: Sequence[Any], ints: Sequence[int], floats: Sequence[float]
) -> None:
    launch_of(token).run([*written, *read], ints, floats)


def _launch_nothing(token: str, written: Any, read: Any, ints: Any, floats: Any) -> None:
    return None
