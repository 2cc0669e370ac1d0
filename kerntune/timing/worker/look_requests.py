"""The messages between a parent and its process for first looks, which go through :mod:`kerntune.base.frames`."""

from __future__ import annotations

from typing import Union

import msgspec

from kerntune.base.recording import Recording
from kerntune.timing.worker.requests import Ready, RequestFailed


class StagedPiece(msgspec.Struct, frozen=True):
    """``count`` bytes of a storage from ``offset`` on lie at place ``at`` of the staging memory."""

    storage: int
    offset: int
    at: int
    count: int


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


class LookRequest(msgspec.Struct, frozen=True, tag="look"):
    """Run a recording once on the staged storages. ``artifacts`` holds its binaries by checksum."""

    recording: Recording
    artifacts: dict[str, bytes]


class LooksRequest(msgspec.Struct, frozen=True, tag="looks"):
    """Several of them, one after the other. Each has a reply of its own; none follows one that ends the worker."""

    looks: tuple[LookRequest, ...]


class ChangedGuard(msgspec.Struct, frozen=True):
    """As :class:`kerntune.gpu.guards.GuardDamage`, with the launch's place among those that run."""

    launch: int
    storage: int
    first: int
    last: int
    count: int


class LookReply(msgspec.Struct, frozen=True, tag="looked"):
    """It ended within so many nanoseconds, and has changed these guard zones."""

    ns: float
    guards: tuple[ChangedGuard, ...] = ()


class LookFailed(msgspec.Struct, frozen=True, tag="look failed"):
    """It did not. ``spoiled``: the worker ends now. ``resources``: this device can't launch it, as a loader of this
    process would find as well. ``launch`` is the place of the launch that failed among those that run."""

    reason: str
    spoiled: bool = True
    resources: bool = False
    launch: int = 0
    no_memory: bool = False
    """The device had no room for what the launch needs besides its storages, or for a copy of these."""


LookMessage = Union[
    Ready, RequestFailed, StageRequest, Staged, ForgetRequest, LookRequest, LooksRequest, LookReply, LookFailed
]
