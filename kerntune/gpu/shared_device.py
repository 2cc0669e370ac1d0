"""How a device is shared between processes, where that takes protection away: MPS, exclusive-process mode."""

from __future__ import annotations

import os
from pathlib import Path

MPS_FOLDER = Path("/tmp/nvidia-mps")
"""Where MPS has its pipes unless ``CUDA_MPS_PIPE_DIRECTORY`` says otherwise (NVIDIA's Multi-Process Service guide)."""

MPS_CONTROL = "control"
"""The daemon's pipe among them."""

EXCLUSIVE_PROCESS = 3
"""``NVML_COMPUTEMODE_EXCLUSIVE_PROCESS``, and ``CU_COMPUTEMODE_EXCLUSIVE_PROCESS`` of cuda.h: one process at a time may
have a context."""


def unprotected(uuid: str) -> list[str]:
    """What can't be protected on the device with this UUID (without ``GPU-``), a sentence each, as NVML and the
    environment say."""
    return unprotected_by(compute_mode(uuid), mps_folder() is not None)


def unprotected_by(mode: int | None, mps: bool) -> list[str]:
    """The same of a device in compute mode ``mode``, whose clients MPS serves or doesn't."""
    found = []
    if mps:
        pipes = mps_folder()
        found.append(
            f"MPS is on{f' ({pipes})' if pipes else ''}: a fault of one process ends the others that use the device, "
            "so a broken candidate can end this run, and work of others can slow it down; measure where no MPS daemon "
            "runs"
        )
    if mode == EXCLUSIVE_PROCESS:
        found.append(
            "the device is in exclusive-process mode: no second process can use it, so candidates run in this one, a "
            "broken one ends the run, and baselines can't be replayed in processes of their own; an administrator can "
            "set it back: nvidia-smi -c DEFAULT"
        )
    return found


def mps_folder() -> Path | None:
    """The folder of MPS's pipes where a daemon listens there, or where the environment names one."""
    named = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    folder = Path(named) if named else MPS_FOLDER
    return folder if (folder / MPS_CONTROL).exists() else None


def compute_mode(uuid: str) -> int | None:
    """The device's compute mode, as NVML numbers it; None where NVML doesn't say."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")))
    except pynvml.NVMLError:
        return None
