"""Which contents a candidate's timed executions have, and of which of them the results are known.

Numbers that are drawn are rolled: moved by a distance that is another one for each execution. What the author's code
makes may have a structure (rows that sum to one, a triangle), by which a kernel would know what is rolled: of that
there are several contents, of other seeds, in turn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kerntune.referee.case_inputs import CaseInputs, UserCallable
from kerntune.referee.content_forms import DRAWN
from kerntune.referee.declared_inputs import drawn_distance, rolled
from kerntune.referee.element_errors import ResultError
from kerntune.referee.hostile_recording import ITEM_BYTES, CheckedCall, side_of
from kerntune.referee.reasons import Refusal
from kerntune.referee.tasks import BytesLike, ExpectedSeed, ReplaySide, Rolls, Variation

LEAST_VARIED = 64
"""Elements of a tensor whose content is rolled at least."""

WHOLE_BYTES = 256 << 20
"""Of contents that the author's code makes, and that one timing process has beside each other; two of them at least."""


@dataclass(frozen=True)
class ComparedReplays:
    """What was compared, by content, usual ones first. ``errors`` are those of usual contents."""

    expected: tuple[ExpectedSeed, ...]
    patterns: Sequence[bytes]
    """What filled unwritten memory."""

    left: Sequence[tuple[BytesLike, ...]]
    """What each wanted storage held after the replay."""

    repeatable: bool
    """Whether equal content gave equal results, bit for bit."""

    errors: tuple[ResultError, ...]
    wrong: tuple[ResultError, ...]
    remarks: tuple[str, ...] = ()
    """What was not compared."""

    forms: Sequence[Sequence[str]] = ()
    """What is extreme in each content."""

    cut: str = ""
    """How many of the further contents were compared, where the time didn't reach all."""


@dataclass(frozen=True)
class RightCandidate:
    """A shape at which the candidate was right, to be timed. ``patterns`` is what filled unwritten memory, by seed."""

    case: CaseInputs
    call: CheckedCall
    source: UserCallable
    """The reference."""

    reference: CheckedCall | Refusal
    expected: tuple[ExpectedSeed, ...]
    results: tuple[tuple[BytesLike, ...], ...]
    """What each wanted storage held after the replay that was right, by seed."""

    repeatable: bool
    """Whether equal content gave equal results, bit for bit."""

    patterns: Sequence[bytes]
    deadline: float
    cut: str = ""
    """As :attr:`ComparedReplays.cut`."""


class TimedContents:
    """Of one right candidate, process by process."""

    def __init__(self, right: RightCandidate, chance: random.Random) -> None:
        self._right, self.variation = right, variation_of(right.case, right.call)
        seeds = () if self.variation.whole else right.expected
        self._rolls = [drawn_rolls(self.variation, right.call, chance) for _ in seeds]

    def known(self, seed: int) -> dict[Rolls, int]:
        """The distances in a process of this seed whose results are known, and the seed that each leads to. None leads
        to that of the reference beside it."""
        if not self.variation.whole:
            return {self._rolls[seed]: seed}
        call, count = self._right.call, len(self._right.expected)
        each = sum(call.recording.storages[i].nbytes for i in self.variation.storages)
        seeds = [(seed - k) % count for k in range(max(1, min(max(2, WHOLE_BYTES // each), count - 1)))]
        return dict(zip(places(call, self.variation, len(seeds)), seeds, strict=True))

    def side(self, seed: int) -> ReplaySide:
        """The candidate's, with contents that become those of seeds by the known distances."""
        right, known = self._right, self.known(seed)
        side = side_of(right.call, right.expected[seed].contents, right.patterns[seed])
        if self.variation.whole:
            return in_a_row(side, right.call, [right.expected[one].contents for one in known.values()], self.variation)
        contents = list(side.contents)
        for storage, distance in zip(self.variation.storages, self._rolls[seed], strict=True):
            content = contents[storage] or b""
            contents[storage] = rolled(content, len(content) - distance)
        return replace(side, contents=tuple(contents))


def in_a_row(
    side: ReplaySide, call: CheckedCall, inputs: Sequence[Sequence[bytes]], variation: Variation
) -> ReplaySide:
    """A side whose varied storages have the contents of all these inputs, one after the other."""
    given = [call.contents(one) for one in inputs]
    contents = list(side.contents)
    for storage in variation.storages:
        contents[storage] = b"".join(one[storage] or b"" for one in given)
    return replace(side, contents=tuple(contents))


def places(call: CheckedCall, variation: Variation, count: int) -> tuple[Rolls, ...]:
    """Where each of so many contents in a row begins."""
    sizes = [call.recording.storages[i].nbytes for i in variation.storages]
    return tuple(tuple(place * n for n in sizes) for place in range(count))


def drawn_rolls(variation: Variation, call: CheckedCall, chance: random.Random) -> Rolls:
    """A distance for each varied storage."""
    sizes = [call.recording.storages[i].nbytes for i in variation.storages]
    return tuple(drawn_distance(item, n, chance) for item, n in zip(variation.items, sizes, strict=True))


def variation_of(case: CaseInputs, call: CheckedCall, least: int = LEAST_VARIED) -> Variation:
    """Inputs whose content may be rolled: numbers that are drawn, so many at ``least``. Of what the task's own code
    makes, all inputs have another content together."""
    found = [
        (storage, given)
        for given, storage in zip(case.tensors, call.inputs, strict=True)
        if storage is not None and math.prod(given.shape) >= (1 if given.content == "author" else least)
    ]
    found = [(s, given) for s, given in found if given.content in (*DRAWN, "author")]
    whole = any(given.content == "author" for _, given in found)
    return Variation(tuple(s for s, _ in found), tuple(ITEM_BYTES[given.dtype] for _, given in found), whole)
