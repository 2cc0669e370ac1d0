"""The outputs of two programs on one memory: run from the same first content, compared on the device.

Those storages are compared that hold the same results on both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from kerntune.base.numerics import OWN, ChangedOutput, ComparedResults
from kerntune.base.recording import Launch, Recording, Storage, View
from kerntune.errors import BackendError, MeasurementError, OutOfResourcesError
from kerntune.gpu.base import Buffer
from kerntune.gpu.number_formats import (
    BITS,
    NOWHERE,
    POISON,
    ElementCounts,
    NumberFormat,
    element_text,
    format_of,
    typical_magnitude,
)
from kerntune.gpu.program import Program
from kerntune.gpu.result_kernels import ResultKernels

RERUNS, ATOMIC_RERUNS = 1, 3
"""Further runs of each side where bits differ, and where float atomics may be why: what varies seldom is seen too."""

SAMPLE_BYTES = 1 << 20
"""What is read of an output that differs, for the magnitude of its numbers."""

KeptPiece = tuple[int, Buffer]
"""A kept part of a storage: its offset in bytes, and what it held."""


def compare_results(a: Program, b: Program, content: str = OWN) -> ComparedResults:
    """Run ``a``, the baseline's side, and ``b`` from the memory's first content, and compare what they write. Copy 0 is
    as before afterwards. What can't be compared is in the result; a lost device raises :class:`BackendError`.

    Outputs that no launch reads are filled with :data:`~kerntune.gpu.number_formats.POISON` first, so that an element
    that isn't written shows. Where bits differ, both run again, to find what varies from run to run.
    """
    try:
        with closing(ResultKernels(a.gpu)) as by:
            return _Comparison(a, b, by, content).result()
    except (BackendError, MeasurementError, OutOfResourcesError) as exc:
        return ComparedResults(content, why_not=str(exc))
    finally:
        a.memory.restore(0, sorted({*a.written, *b.written}))
        a.gpu.synchronize()  # raises where the device is lost


@dataclass
class _Comparison:
    """One comparison. ``kept`` has what each side's first run has left, by storage."""

    a: Program
    b: Program
    by: ResultKernels
    content: str
    kept: dict[int, tuple[list[KeptPiece], list[KeptPiece]]] = field(default_factory=dict)
    unsure: list[str] = field(default_factory=list)

    def result(self) -> ComparedResults:
        """See :func:`compare_results`."""
        self._run(self.a)
        first = {i: self.a.memory.keep(i) for i in sorted({*self.storages.known, *self.storages.unknown})}
        self._run(self.b)
        unlike = self._unlike(first)
        known = {i: first[i] for i in unlike if i in self.storages.known}
        outputs = self._outputs(known) if known else ()
        missing = (*self._one_sided(), *self._unknown(unlike))
        return ComparedResults(self.content, outputs, not_compared=missing, unsure=tuple(self.unsure))

    def _view(self, storage: int) -> View | None:
        """The one tensor that both sides have of a storage."""
        launches = [(side, x) for side in self.sides for x in side.working]
        views = {side.views[p.view] for side, x in launches for p in x.params if p.view is not None}
        found = {v for v in views if v.storage == storage}
        alike = {(v.dtype, v.shape, v.strides, v.offset_bytes) for v in found}
        return next(iter(found)) if len(alike) == 1 else None

    @property
    def sides(self) -> tuple[Recording, Recording]:
        """The baseline's recording and today's."""
        return self.a.recording, self.b.recording

    @cached_property
    def storages(self) -> ComparableStorages:
        """What both sides write."""
        return comparable_storages(*self.sides, self.a.memory.storages)

    def _run(self, program: Program) -> None:
        """From the first content of all that either side writes."""
        memory, gpu = program.memory, program.gpu
        memory.restore(0, self._written)
        for i in self._poisoned:
            gpu.fill(memory.buffer(0, i), POISON)
        program.enqueue()
        gpu.synchronize()

    @cached_property
    def _written(self) -> list[int]:
        return sorted({*self.a.written, *self.b.written})

    @property
    def _poisoned(self) -> list[int]:
        """What both sides should write, and no launch reads. Where addresses are followed, that isn't known."""
        if any(side.hidden_pointers for side in self.sides):
            return []
        read = {i for side in self.sides for launch in side.working for i in launch.reads}
        both = {*self.a.written} & {*self.b.written}
        return sorted((both | (self.storages.known & {*self._written})) - read)

    def _live(self, storage: int, pieces: Sequence[KeptPiece]) -> list[Buffer]:
        memory = self.a.memory
        return [memory.gpu.part(memory.buffer(0, storage), at, kept.nbytes) for at, kept in pieces]

    def _unlike(self, first: dict[int, list[KeptPiece]]) -> list[int]:
        pairs = [
            (i, kept, now)
            for i, pieces in first.items()
            for (_, kept), now in zip(pieces, self._live(i, pieces), strict=True)
        ]
        equal = self.by.equal([(kept, now) for _, kept, now in pairs])
        return sorted({i for (i, _, _), same in zip(pairs, equal, strict=True) if not same})

    def _outputs(self, first: dict[int, list[KeptPiece]]) -> tuple[ChangedOutput, ...]:
        self.kept = {i: (pieces, self.a.memory.keep(i)) for i, pieces in first.items()}
        masks = self._varying()
        found = [self._output(i, masks.get(i)) for i in self.kept]
        return tuple(o for o in found if o is not None)

    def _varying(self) -> dict[int, list[Buffer]]:
        """By storage, for each piece a mask of the elements that two runs of one side write differently."""
        try:
            masks = {
                i: [self.by.new_mask(kept.nbytes // self._kind(i).width) for _, kept in pieces]
                for i, (pieces, _) in self.kept.items()
            }
        except MeasurementError:
            self.unsure.append("whether the results that differ vary from run to run isn't known: no room to tell")
            return {}
        for side, program in ((1, self.b), (0, self.a)):
            for _ in range(ATOMIC_RERUNS if self._atomics else RERUNS):
                self._run(program)
                for i, sides in self.kept.items():
                    for (_, kept), now, mask in zip(sides[side], self._live(i, sides[side]), masks[i], strict=True):
                        self.by.mark(kept, now, mask, self._kind(i))
        return masks

    @property
    def _atomics(self) -> bool:
        return any(x.float_atomics for side in self.sides for x in side.working)

    def _kind(self, storage: int) -> NumberFormat:
        kind = format_of({v.dtype for s in self.sides for v in s.views if v.storage == storage})
        return kind if self.a.memory.storages[storage].nbytes % kind.width == 0 else BITS

    def _output(self, i: int, masks: list[Buffer] | None) -> ChangedOutput | None:
        kind, poisoned = self._kind(i), i in self._poisoned
        mine, theirs = self.kept[i]
        shown: Sequence[Buffer | None] = masks or [None] * len(mine)
        parts = [(at // kind.width, x, y, m) for (at, x), (_, y), m in zip(mine, theirs, shown, strict=True)]

        def total(wanted: int) -> ElementCounts:
            found = ElementCounts()
            for begin, x, y, mask in parts:
                found = found.with_later(self.by.count(x, y, mask, kind, poisoned, wanted), begin)
            return found

        counts = total(NOWHERE)
        if counts.ulp:
            counts = total(counts.ulp)
        elements = sum(x.nbytes // kind.width for _, x, _, _ in parts)
        return self._described(i, kind, counts, elements) if counts.differing or counts.varying else None

    def _described(self, i: int, kind: NumberFormat, counts: ElementCounts, elements: int) -> ChangedOutput:
        worst = counts.worst if counts.worst != NOWHERE else counts.first if counts.differing else 0
        values = [self._text(i, side, worst, kind) if counts.differing else "" for side in (0, 1)]
        return ChangedOutput(
            argument=output_name(i, *self.sides),
            dtype=kind.name,
            total=elements,
            count=counts.differing,
            first=counts.first if counts.differing else 0,
            worst=worst,
            baseline=values[0],
            today=values[1],
            place=place_in(self._view(i), worst) if counts.differing else (),
            ulp=counts.ulp if kind.is_float else None,
            relative=counts.relative if kind.is_float else None,
            nonfinite=counts.nonfinite,
            unwritten=counts.unwritten,
            newly_written=counts.newly_written,
            varying=counts.varying,
            intermediate=i in self.storages.intermediate,
            content=self.content,
            typical=typical_magnitude(self._sample(i), kind) if kind.is_float and counts.differing else None,
        )

    def _sample(self, i: int) -> bytes:
        kept = self.kept[i][0][0][1]
        return self.a.gpu.read(kept, min(kept.nbytes, SAMPLE_BYTES))

    def _text(self, i: int, side: int, element: int, kind: NumberFormat) -> str:
        at = element * kind.width
        for offset, kept in self.kept[i][side]:
            if offset <= at < offset + kept.nbytes:
                place, gpu = self.a.gpu.allocate(kind.width), self.a.gpu
                gpu.copy(place, gpu.part(kept, at - offset, kind.width))
                return element_text(gpu.read(place), kind)
        return ""

    def _one_sided(self) -> list[str]:
        """Outputs that only one side has; a workspace, which its own launches read, is none."""
        out, written = [], [written_by(side.recording) for side in (self.a, self.b)]
        for program, whose in ((self.a, "the baseline's code"), (self.b, "today's code")):
            for i in sorted(written_by(program.recording) - (written[0] & written[1]) - self.storages.known):
                if program.memory.storages[i].nbytes and not last_use_reads(program.recording, i):
                    name = output_name(i, program.recording, program.recording)
                    out.append(f"{name} not compared: only {whose} writes it in this way")
        return out

    def _unknown(self, unlike: Sequence[int]) -> list[str]:
        """A sentence for each reason why some storages don't count, though their contents differ. What is equal
        isn't asked about."""
        why: dict[str, list[str]] = {}
        for i in (i for i in unlike if i in self.storages.unknown):
            names = why.setdefault(self.storages.unknown[i], [])
            names.append(output_name(i, self.a.recording, self.b.recording))
        return [f"{'; '.join(dict.fromkeys(names))} not compared: {reason}" for reason, names in why.items()]


def place_in(view: View | None, element: int) -> tuple[int, ...]:
    """The index of a storage's element in a tensor of two dimensions or more; empty where it isn't clear."""
    if view is None or len(view.shape) < 2:
        return ()
    width = format_of({view.dtype}).width
    if view.offset_bytes % width:
        return ()
    rest, index = element - view.offset_bytes // width, [0] * len(view.shape)
    for axis in sorted(range(len(view.shape)), key=lambda d: -view.strides[d]):
        stride = view.strides[axis]
        if stride > 0 and view.shape[axis] > 1:
            index[axis], rest = divmod(rest, stride)
    inside = all(0 <= i < n for i, n in zip(index, view.shape, strict=True))
    return tuple(index) if inside and rest == 0 else ()


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
