"""The messages between a parent and its measuring processes, which go through :mod:`kerntune.base.frames`."""

from __future__ import annotations

from typing import Union

import msgspec

from kerntune.base.numerics import ComparedResults
from kerntune.base.recording import Recording, Storage


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker has its device."""

    device: str


class PairRequest(msgspec.Struct, frozen=True, tag="pair"):
    """Time ``a`` and ``b`` in turn on memory laid out as ``storages``, whose contents they describe.

    ``artifacts`` holds binaries and stored contents by checksum. ``seed`` decides the order of blocks, ``timer`` is
    one of :data:`kerntune.base.policy.TIMERS`. ``spaced`` as for :class:`kerntune.gpu.memory.Memory`. ``results``:
    what both sides write is compared as well.
    """

    a: Recording
    b: Recording
    storages: tuple[Storage, ...]
    artifacts: dict[str, bytes]
    blocks: int
    seed: int
    timer: str = "auto"
    spaced: bool = False
    results: bool = False


class PairReply(msgspec.Struct, frozen=True, tag="paired"):
    """Times of both sides in nanoseconds, a block each."""

    a_ns: tuple[float, ...]
    b_ns: tuple[float, ...]
    foreign: tuple[float, float, float, int] = (0.0, 0.0, 0.0, 0)
    """The fields of :class:`kerntune.gpu.foreign_work.ForeignWork`."""

    results: ComparedResults | None = None
    """Where they were asked for."""


class RequestFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The request could not be carried out. ``replayable`` is False where no process could."""

    message: str
    replayable: bool = True


Message = Union[Ready, PairRequest, PairReply, RequestFailed]
