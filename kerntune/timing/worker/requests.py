"""The messages between a parent and its processes for timing and for first launches.

They go through :mod:`kerntune.base.frames`.
"""

from __future__ import annotations

from typing import Union

import msgspec

from kerntune.base.numerics import ComparedResults
from kerntune.base.recording import Recording, Storage
from kerntune.gpu.staging import StagedPiece


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
    blocks: int = 0
    seed: int = 0
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

    placements: int = 1
    """Places of memory and code where blocks were timed, as many at each."""


class RequestFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The request could not be carried out. ``replayable`` is False where no process could."""

    message: str
    replayable: bool = True


Message = Union[Ready, PairRequest, PairReply, RequestFailed]


class StageRequest(msgspec.Struct, frozen=True, tag="stage"):
    """Copy first contents of storages out of staging memory (:mod:`kerntune.gpu.staging`), and let go of that.

    ``layout`` has, by storage, its size in bytes and its address modulo :data:`kerntune.gpu.guards.BASE_ALIGN`.
    """

    kind: str
    handle: bytes
    layout: dict[int, tuple[int, int]]
    pieces: tuple[StagedPiece, ...]


class Staged(msgspec.Struct, frozen=True, tag="staged"):
    """They are there."""


class ForgetRequest(msgspec.Struct, frozen=True, tag="forget"):
    """Free all memory of storages; what is staged next is another call's."""


class FirstLaunchRequest(msgspec.Struct, frozen=True, tag="look"):
    """Run a recording once on the staged storages. ``artifacts`` holds its binaries by checksum."""

    recording: Recording
    artifacts: dict[str, bytes]


class FirstLaunchesRequest(msgspec.Struct, frozen=True, tag="looks"):
    """Several of them, one after the other. Each has a reply of its own; none follows one that ends the worker."""

    requests: tuple[FirstLaunchRequest, ...]


class ChangedGuard(msgspec.Struct, frozen=True):
    """As :class:`kerntune.gpu.guards.GuardDamage`, with the launch's place among those that run."""

    launch: int
    storage: int
    first: int
    last: int
    count: int


class FirstLaunchReply(msgspec.Struct, frozen=True, tag="looked"):
    """It ended within so many nanoseconds, and has changed these guard zones."""

    ns: float
    guards: tuple[ChangedGuard, ...] = ()


class FirstLaunchFailed(msgspec.Struct, frozen=True, tag="look failed"):
    """It did not. ``spoiled``: the worker ends now. ``resources``: this device can't launch it, as a loader of this
    process would find as well. ``launch`` is the place of the launch that failed among those that run."""

    reason: str
    spoiled: bool = True
    resources: bool = False
    launch: int = 0
    no_memory: bool = False
    """The device had no room for what the launch needs besides its storages, or for a copy of these."""


FirstLaunchQuestion = Union[StageRequest, ForgetRequest, FirstLaunchRequest, FirstLaunchesRequest]
FirstLaunchAnswer = Union[Ready, RequestFailed, Staged, FirstLaunchReply, FirstLaunchFailed]
FirstLaunchMessage = Union[FirstLaunchQuestion, FirstLaunchAnswer]
