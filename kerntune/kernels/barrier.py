"""A barrier between programs of one launch, for kernels whose programs share a reduction."""

from __future__ import annotations

import triton
import triton.language as tl


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
