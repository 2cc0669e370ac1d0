"""The GPUs of a host in another order for each process of a run: each has another first one, and all see all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from kerntune.gpu.nvml import device_count

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
"""What NVIDIA's driver, AMD's HIP and the layer below HIP read once, when they start."""

MIG = "MIG-"
"""A process sees the first MIG instance of its list alone (NVIDIA MIG user guide, "CUDA Device Enumeration")."""


def rotated(environ: Mapping[str, str], count: int, turns: int, amd: bool = False) -> dict[str, str]:
    """The variable to set so that a process begins its list ``turns`` GPUs later than this one, which sees ``count``;
    empty where there is nothing to turn.

    Entries stay as the user wrote them (index, UUID, MIG instance), and only those that this process sees are listed:
    the driver would drop all after one that it doesn't know. Of HIP's variables the one nearest to the program is
    turned, because its numbers count what the one below leaves.
    """
    names = (HIP, CUDA, ROCR) if amd else (CUDA,)
    name = next((n for n in names if n in environ), names[0])
    entries = listed(environ, name, count)
    if len(entries) < 2 or len(set(entries)) < len(entries) or turns % len(entries) == 0:
        return {}
    return {name: ",".join(turned(entries, entries[turns % len(entries)]))}


def turned(entries: Sequence[str], first: str) -> list[str]:
    """The list with one entry in front, the others after it in the order of a ring; one that isn't listed comes
    before all."""
    at = entries.index(first) if first in entries else 0
    return [*([] if first in entries else [first]), *entries[at:], *entries[:at]]


def listed(environ: Mapping[str, str], name: str = CUDA, count: int | None = None) -> list[str]:
    """The entries of a variable, as users write them (index, UUID, MIG instance), up to the first that is none; the
    numbers of all GPUs where it isn't set.

    ``count`` is how many a process sees that has started the driver, which drops what it doesn't know and all after.
    Without it the driver isn't asked, and NVML counts NVIDIA's GPUs; it finds none where there are none.
    """
    text = environ.get(name)
    if text is None:
        return [str(i) for i in range(device_count() if count is None else count)]
    entries = [entry.strip() for entry in text.split(",")]
    entries = entries[: next((i for i, e in enumerate(entries) if not e or e.startswith("-")), len(entries))]
    return entries if count is None or (entries and entries[0].startswith(MIG)) else entries[:count]


def turned_by_others(given: Mapping[str, str]) -> bool:
    """Whether an environment that a process is to get names GPUs already."""
    return any(name in given for name in (CUDA, HIP, ROCR))


def visible_count(seen: int, environ: Mapping[str, str] = os.environ) -> int:
    """How many GPUs the processes of a run can begin with, where this one sees so many of them: of MIG instances it
    sees one, whatever the list has."""
    return max(seen, len(listed(environ, CUDA, seen))) if seen else 0
