"""Whether this process is one of several that should go on with the same winners."""

from __future__ import annotations

import os
import sys
import time

SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "SLURM_NTASKS")
"""Variables by which launchers (torchrun, Open MPI, MPICH, Slurm) say how many processes there are."""

BEGUN = time.time()
"""When this process loaded this module."""

MARGIN_S = 60.0
"""Ranks of one run start within so many seconds of each other, by clocks of several machines."""


def several_ranks() -> bool:
    """Whether a launcher or ``torch.distributed`` says that there are others."""
    if any(_size(os.environ.get(name, "")) > 1 for name in SIZES):
        return True
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return False
    return int(distributed.get_world_size()) > 1


def of_this_run(created: float) -> bool:
    """Whether something with this time stamp (seconds since 1970) was stored since this run began."""
    return created >= BEGUN - MARGIN_S


def _size(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
