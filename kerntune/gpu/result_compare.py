"""The outputs of two programs on one memory: run from the same first content, compared on the device."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property

from kerntune.base.numerics import OWN, ChangedOutput, ComparedResults
from kerntune.base.recording import Recording, View
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
from kerntune.gpu.result_storages import (
    ComparableStorages,
    comparable_storages,
    last_use_reads,
    output_name,
    written_by,
)

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
