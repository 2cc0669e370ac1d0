"""What programs that share a reduction need: a barrier among them, semaphores, and a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import triton
import triton.language as tl

from kerntune.errors import ConfigError


@triton.jit  # type: ignore[untyped-decorator]  # Triton has no types here
def grid_barrier(semaphore: tl.tensor, programs: tl.constexpr) -> None:
    """Wait until ``programs`` programs, a power of two, have come here with this ``semaphore`` (a pointer to int32).

    What they stored before is visible to all of them after it. The semaphore begins at 0 and counts on: it needn't be
    zeroed between launches, so that replayed and timed launches work, too. All the programs must be resident at once,
    which a cooperative launch makes sure of; in Triton's interpreter, ``programs`` must be 1.
    """
    tl.debug_barrier()
    if programs > 1:
        ticket = tl.atomic_add(semaphore, 1, sem="acq_rel")
        complete = ticket - (ticket & (programs - 1)) + programs
        arrived = ticket
        while arrived - complete < 0:
            arrived = tl.atomic_add(semaphore, 0, sem="acquire")
    tl.debug_barrier()


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
