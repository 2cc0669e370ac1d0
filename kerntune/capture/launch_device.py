"""The GPU that a call launches on: Triton takes the current one, whatever memory the arguments are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kerntune.errors import CaptureError
from kerntune.gpu.base import Backend
from kerntune.kernels.source import DESCRIPTORS


def launch_device(backend: Backend, kernel: str, arguments: Mapping[str, Any]) -> int:
    """The number of the GPU that a launch with these arguments runs on, by name.

    :class:`CaptureError` where some of its tensors are on another one: it would reach them through the bus at best, and
    fault at worst.
    """
    mine = backend.current()
    others = {name: d for name, v in arguments.items() if (d := _device(backend, v)) is not None and d != mine}
    if not others:
        return mine
    told = ", ".join(f"{name} on cuda:{device}" for name, device in others.items())
    first = next(iter(others.values()))
    raise CaptureError(
        f"kernel {kernel} is launched on cuda:{mine}, the current device, with {told}: Triton launches on the current "
        "device, and a launch that mixes devices can't be tuned. Launch it inside of "
        f"`with torch.cuda.device({first}):`, or have all its tensors on one device"
    )


def _device(backend: Backend, value: Any) -> int | None:
    """Of a tensor on a GPU, or of what wraps one (a descriptor, a reinterpreted tensor)."""
    tensor = getattr(value, "base", value) if type(value).__name__ in _WRAPPERS else value
    index = tensor.device.index if backend.tensors.is_tensor(tensor) else None
    return None if index is None else int(index)


_WRAPPERS = ("TensorWrapper", *DESCRIPTORS)
"""Triton's."""


def refuse_second_device(kernel: str, device: int, before: str, earlier: int) -> None:
    """One call is one case, with one device's times. :class:`CaptureError` if this launch is on another than the one
    before."""
    if device != earlier:
        raise CaptureError(
            f"a call mixes devices: kernel {before} was launched on cuda:{earlier}, kernel {kernel} on cuda:{device}; "
            "one call is timed on one GPU, so make a call of autotune for each"
        )
