"""A candidate beside its reference as one request of a scripted GPU, which has no values to compare."""

from __future__ import annotations

from msgspec.structs import replace

from kerntune.base.recording import Launch, Recording, Storage
from kerntune.gpu.base import binary_of_ptx
from kerntune.timing.worker.requests import PairRequest

LIVE = "live_reference"
"""The name of a reference's work that isn't Triton's, on a scripted GPU."""


def live_stand_in(like: Recording) -> Recording:
    """One launch of :data:`LIVE`, for a scripted GPU alone."""
    binary = replace(binary_of_ptx(LIVE, 4), arch=f"sm_{like.target.arch}")
    return Recording(like.target, (Launch(LIVE, "", 0, (1, 1, 1), ()),), (binary,), (), ())


def side_by_side(reference: Recording, candidate: Recording) -> PairRequest:
    """A request of a scripted GPU, whose sides share no memory."""
    count = len(reference.storages)
    views = tuple(replace(v, storage=v.storage + count) for v in candidate.views)
    launches = tuple(
        replace(x, reads=tuple(i + count for i in x.reads), writes=tuple(i + count for i in x.writes))
        for x in candidate.launches
    )
    storages: tuple[Storage, ...] = (*reference.storages, *candidate.storages)
    moved = replace(candidate, views=views, launches=launches, storages=storages)
    first = replace(reference, storages=storages)
    return PairRequest(first, moved, storages, {b.sha256: b"" for side in (first, moved) for b in side.binaries})
