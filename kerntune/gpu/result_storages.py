"""Which storages of two recordings with one memory plan hold the same results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kerntune.base.recording import Launch, Recording, Storage, View

Uses = frozenset[tuple[str, str]]
"""Arguments that point into a storage: of a generated kernel with its name, of one that a person wrote by the
argument's name alone. Generated kernels all have an ``in_ptr0``."""


class ComparableStorages(NamedTuple):
    """Of the storages that two recordings write: those whose contents have the same meaning on both sides, with which
    of them are ``intermediate`` results, and those of which that can't be known, with the reason."""

    known: frozenset[int]
    intermediate: frozenset[int]
    unknown: dict[int, str]


RELAUNCHED = "the launches differ, so it may be another buffer"
RELAID = "its tensor has other strides"


def comparable_storages(a: Recording, b: Recording, storages: Sequence[Storage]) -> ComparableStorages:
    """For ``a``, renumbered for the memory plan ``storages``, and ``b``.

    Where each launch has its counterpart on the same storages, every storage has; there one counts that a single side
    writes, too: an output that isn't written any more is a changed one. An intermediate result then counts if
    what is fused in its kernels is the same, else it may hold another step of the computation. Where launches were
    added, removed or take other storages (a lost fusion), the plan may have paired unlike storages, and a side may have
    read what the other one's call left there. Then a storage counts only if it is the last thing that both sides do to
    it to write it, it is identified by its arguments' names or by its size, and so is all that the baseline reads.
    """
    both = {i for i in written_by(a) & written_by(b) if storages[i].nbytes}
    between = frozenset(i for i in both if last_use_reads(a, i) and last_use_reads(b, i))
    ends = frozenset(i for i in both if not last_use_reads(a, i) and not last_use_reads(b, i))
    one, other = ([[i for _, i in _pointers(side, x)] for x in side.working] for side in (a, b))
    if one == other:  # both launch as often, each time on the same storages in the same order
        same = {i for i in both if i not in between or _origins(a, i) == _origins(b, i)}
        same |= _one_sided_outputs(a, b, storages)
        unsure: set[int] = set()
    else:
        distinct = _distinct(a, b, storages)
        same = set(ends) if _inputs(a) <= distinct & _inputs(b) else set()
        same &= distinct
        unsure = both - between - same
    moved = {i for i in same if _laid_out_otherwise(a, b, i)}
    why = dict.fromkeys(unsure, RELAUNCHED) | dict.fromkeys(moved - between, RELAID)
    return ComparableStorages(frozenset(same - moved), between, why)


def _one_sided_outputs(a: Recording, b: Recording, storages: Sequence[Storage]) -> set[int]:
    """Of launches in step, what one side leaves written and the other one never writes. Not of generated kernels, whose
    arguments may be other buffers from one compilation to the next."""
    found = {i for i in written_by(a) ^ written_by(b) if storages[i].nbytes}
    generated = {i for side in (a, b) for x in side.working if x.origins for _, i in _pointers(side, x)}
    return {i for i in found - generated if not any(last_use_reads(s, i) for s in (a, b) if i in written_by(s))}


def written_by(recording: Recording) -> set[int]:
    """Storages that launches write."""
    return {i for launch in recording.working for i in launch.writes}


def last_use_reads(recording: Recording, storage: int) -> bool:
    """Whether the last launch that uses a storage only reads it: what was written there may be a workspace."""
    for launch in reversed(recording.working):
        if storage in launch.writes:
            return False
        if storage in launch.reads:
            return True
    return False


def arguments_of_storage(recording: Recording, storage: int) -> tuple[str, ...]:
    """Names of the arguments that point into a storage, each once."""
    found = (name for x in recording.working for name, i in _pointers(recording, x) if i == storage)
    return tuple(dict.fromkeys(found))


def output_name(storage: int, before: Recording, now: Recording) -> str:
    """By today's arguments, else by the baseline's."""
    names = arguments_of_storage(now, storage) or arguments_of_storage(before, storage)
    return ", ".join(names) or f"storage {storage}"


def _pointers(recording: Recording, launch: Launch) -> list[tuple[str, int]]:
    return [(p.name, recording.views[p.view].storage) for p in launch.params if p.view is not None]


def _origins(recording: Recording, storage: int) -> list[tuple[str, ...]]:
    return [x.origins for x in recording.working if storage in x.writes]


def _inputs(recording: Recording) -> set[int]:
    found: set[int] = set()
    seen: set[int] = set()
    for launch in recording.working:
        found |= set(launch.reads) - seen
        seen |= set(launch.writes)
    return found


def _uses(recording: Recording) -> dict[int, Uses]:
    found: dict[int, set[tuple[str, str]]] = {}
    for launch in recording.working:
        for name, i in _pointers(recording, launch):
            found.setdefault(i, set()).add((launch.kernel if launch.origins else "", name))
    return {i: frozenset(names) for i, names in found.items()}


def _distinct(a: Recording, b: Recording, storages: Sequence[Storage]) -> set[int]:
    """Storages of both that no other one of either could be."""
    uses = [_uses(side) for side in (a, b)]
    shared = set(uses[0]) & set(uses[1])
    kinds = [{i: _kind(side, i, storages[i]) for i in known} for side, known in zip((a, b), uses, strict=True)]
    by_name = {i for i in shared if uses[0][i] == uses[1][i] and all(_single(i, k) for k in uses)}
    by_size = {i for i in shared if kinds[0][i] == kinds[1][i] and all(_single(i, known) for known in kinds)}
    return by_name | by_size


def _kind(recording: Recording, i: int, storage: Storage) -> tuple[object, ...]:
    return storage.nbytes, storage.dtype, i in _inputs(recording), last_use_reads(recording, i)


def _single(i: int, known: Mapping[int, object]) -> bool:
    return Counter(known.values())[known[i]] == 1


def _laid_out_otherwise(a: Recording, b: Recording, storage: int) -> bool:
    """Whether no tensor through which one side writes a storage has its elements where one of the other's has."""
    one, other = (_written_views(side, storage) for side in (a, b))
    return bool(one and other) and all(_differ(x, y) for x in one for y in other)


def _written_views(recording: Recording, storage: int) -> list[View]:
    views = recording.views
    used = (views[p.view] for x in recording.working if storage in x.writes for p in x.params if p.view is not None)
    return [view for view in used if view.storage == storage]


def _differ(x: View, y: View) -> bool:
    """Equal sizes with other strides, or in another order, are another layout; other sizes are one if they don't cover
    the memory in the same order."""
    one, other = ([(n, stride) for n, stride in zip(v.shape, v.strides, strict=True) if n != 1] for v in (x, y))
    if one == other and x.offset_bytes == y.offset_bytes:
        return False
    if sorted(n for n, _ in one) == sorted(n for n, _ in other):
        return True
    return _merged(one) != _merged(other) or x.offset_bytes != y.offset_bytes


def _merged(dims: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Dimensions that follow each other without a gap, as one."""
    out: list[tuple[int, int]] = []
    for n, stride in dims:
        if out and out[-1][1] == n * stride:
            out[-1] = (out[-1][0] * n, stride)
        else:
            out.append((n, stride))
    return out
