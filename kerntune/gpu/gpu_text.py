"""How people and files name one GPU among several of a host, whatever number it has in a process."""

from __future__ import annotations

import re

from kerntune.base.device import DeviceSpec
from kerntune.gpu.device_lock import device_node

SHORT = 8
"""Characters of a UUID, as ``nvidia-smi`` takes them too."""


def gpu_id(spec: DeviceSpec) -> str:
    """``GPU-`` and the UUID; empty for a device that has none. Equal in all processes, however they number GPUs."""
    return f"GPU-{spec.uuid}" if spec.uuid else ""


def gpu_name(spec: DeviceSpec) -> str:
    """``GPU 1`` of ``/dev/nvidia1``, ``GPU-8932f937`` where there is no such node; empty without a UUID."""
    if not spec.uuid:
        return ""
    node = device_node(spec.uuid)
    number = re.search(r"\d+$", node.name) if node is not None else None
    return f"GPU {number[0]}" if number is not None else f"GPU-{spec.uuid[:SHORT]}"
