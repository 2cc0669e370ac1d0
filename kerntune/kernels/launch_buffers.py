"""Memory that a launch needs beside its arguments: semaphores, and a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kerntune.errors import ConfigError


@dataclass(frozen=True)
class LaunchBuffers:
    """The arguments that each launch is given: ``semaphores``, int32 zeros, and ``workspaces`` with their dtypes by
    name, whose contents are undefined."""

    semaphores: str
    workspaces: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (self.semaphores, *self.workspaces)

    def made(self, tensor: Any, semaphores: int, elements: int, kernel: str) -> dict[str, Any]:
        """So many semaphores, and workspaces of so many elements, on a tensor's device. :class:`ConfigError` for a
        dtype that torch doesn't have."""
        zeros = tensor.new_zeros(max(semaphores, 1), dtype=dtype_named("int32", kernel))
        dtypes = {name: dtype_named(text, kernel) for name, text in self.workspaces.items()}
        return {self.semaphores: zeros, **{n: tensor.new_empty(elements, dtype=d) for n, d in dtypes.items()}}


def dtype_named(name: str, kernel: str) -> Any:
    """torch's dtype of a name; :class:`ConfigError` if it has none."""
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ConfigError(f"kernel {kernel}: workspace of {name!r}: torch has no such dtype; float32 is one")
    return found
