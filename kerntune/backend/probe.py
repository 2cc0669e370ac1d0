"""Finds out where a run takes place."""

from __future__ import annotations

from collections.abc import Sequence

from kerntune.backend.base import Backend
from kerntune.device import TYPICAL_DEVICES, Target, typical_device
from kerntune.errors import UsageError


def find_backend(targets: Sequence[str] = (), known: Sequence[Target] = ()) -> Backend:
    """The GPU of this machine; without one, or with ``targets`` given, a backend that only compiles.

    ``known`` are the targets that the project's baselines know: the default without a GPU.
    :class:`UsageError` if there is no GPU and no target.
    """
    chosen = tuple(dict.fromkeys(Target.parse(t) for text in targets for t in text.split(",") if t.strip()))
    if not chosen and has_cuda():
        from kerntune.backend.cuda import CudaBackend

        return CudaBackend()
    chosen = chosen or tuple(t for t in known if str(t) in TYPICAL_DEVICES)
    if not chosen:
        raise UsageError(
            "there is no GPU here and the baseline folder knows no target; say what to compile for, "
            "for example --kerntune-target=cuda:90 (H100, H200)"
        )
    for target in chosen:
        typical_device(target)
    from kerntune.backend.static import StaticBackend

    return StaticBackend(chosen)


def torch_device() -> str:
    """What a plain test makes its tensors on: ``cuda`` (AMD GPUs too) if torch sees a GPU, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def has_cuda() -> bool:
    """Whether torch sees an NVIDIA GPU. AMD GPUs can be compiled for, but not yet measured on."""
    import torch

    return bool(torch.cuda.is_available()) and torch.version.hip is None
