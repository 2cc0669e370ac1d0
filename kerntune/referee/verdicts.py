"""The verdict, from numbers alone: seven words, by the interval of the change at each shape.

Pure: it sees what was found at each shape, and neither processes nor devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from kerntune.base.formatting import format_bytes, visible
from kerntune.base.frames import StrictMessage
from kerntune.base.stats import Estimate
from kerntune.gpu.memory import used_storages
from kerntune.referee.case_inputs import UNREAD, CaseInputs
from kerntune.referee.element_errors import ResultError
from kerntune.referee.hostile_recording import CheckedCall
from kerntune.referee.reasons import Reason


class Word(str, Enum):
    """What a judgement says."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNDECIDED = "UNDECIDED"
    WRONG = "WRONG"
    REFUSED = "REFUSED"
    UNTIMED = "UNTIMED"


MARGIN = 0.01
"""A change of less than this is none."""

ROOFLINE_ALLOWANCE = 0.10
"""A cold time may be this much below what the device's memory takes for the bytes that must move: the measured
bandwidth is of copies, and what a kernel has written may still lie in the L2 cache."""

EXIT_CODES = {
    Word.FASTER: 0, Word.SAME: 3, Word.SLOWER: 4, Word.UNDECIDED: 5, Word.UNTIMED: 6, Word.WRONG: 7, Word.REFUSED: 8,
}  # fmt: skip
"""Of ``kerntune judge``, beside 1 (the judge itself failed) and 2 (wrong usage). FASTER alone is 0, so that a shell's
``&&`` goes on for nothing else."""


class TimedLaunch(StrictMessage, frozen=True):
    """One launch of the candidate: its kernel, grid, its time where it was taken, and its share of the call.
    An operator of torch's beside the kernels (``aten.sum.IntList_out``) has no grid, and no time of its own."""

    kernel: str
    grid: tuple[int, ...]
    ns: float | None = None
    share: float | None = None


MOST_NAME = 200
"""Characters of a kernel's name that are shown."""


def launches_of(call: CheckedCall) -> tuple[TimedLaunch, ...]:
    """Launches, and operators beside them, in the order in which they run."""
    launches = [(i, 1, x.kernel, x.grid) for i, x in enumerate(call.recording.launches)]
    rows = sorted([*launches, *((x.before, 0, f"aten.{x.name}", ()) for x in call.operators)], key=lambda row: row[:2])
    return tuple(TimedLaunch(visible(kernel[:MOST_NAME]), grid) for *_, kernel, grid in rows)


class ShapeResult(StrictMessage, frozen=True):
    """What was found at one shape. ``change`` is the candidate's time over the reference's, less one, with a cold L2
    cache; ``warm`` the same with a warm one. ``must_move`` bytes have to come from memory."""

    label: str
    word: Word
    errors: tuple[ResultError, ...] = ()
    reason: Reason | None = None
    text: str = ""
    change: Estimate | None = None
    warm: float | None = None
    reference_ns: float | None = None
    candidate_ns: float | None = None
    launches: tuple[TimedLaunch, ...] = ()
    must_move: int = 0
    bandwidth: float | None = None
    remarks: tuple[str, ...] = ()

    @property
    def speedup(self) -> tuple[float, float, float] | None:
        """The reference's time over the candidate's: the estimate and the ends of its interval."""
        if self.change is None:
            return None
        return 1 / (1 + self.change.point), 1 / (1 + self.change.high), 1 / (1 + self.change.low)


def word_of_change(change: Estimate) -> Word:
    """By the whole interval: FASTER or SLOWER beyond 1 %, SAME within, else UNDECIDED. An interval that isn't ordered,
    or has no numbers, decides nothing."""
    if not (-1 < change.low <= change.high < float("inf")):
        return Word.UNDECIDED
    if change.high < -MARGIN:
        return Word.FASTER
    if change.low > MARGIN:
        return Word.SLOWER
    return Word.SAME if change.low >= -MARGIN and change.high <= MARGIN else Word.UNDECIDED


def below_roofline(candidate_ns: float | None, must_move: int, bandwidth: float | None) -> bool:
    """Whether a cold time is shorter than the memory takes for the bytes that must move."""
    if candidate_ns is None or not bandwidth or not must_move:
        return False
    return candidate_ns < (1 - ROOFLINE_ALLOWANCE) * must_move / bandwidth * 1e9


def together(shapes: Sequence[ShapeResult]) -> Word:
    """The verdict of all shapes. Wrong or refused at one of them is that for all; speeds that differ decide nothing
    together, and are reported shape by shape."""
    words = {shape.word for shape in shapes}
    for word in (Word.WRONG, Word.REFUSED):
        if word in words:
            return word
    if not words:
        return Word.REFUSED
    if Word.UNTIMED in words:
        return Word.UNTIMED
    return words.pop() if len(words) == 1 else Word.UNDECIDED


class CandidateVerdict(StrictMessage, frozen=True):
    """A whole judgement, which :mod:`kerntune.referee.verdict_report` writes.

    ``sealed`` is False where the candidate ran without limits; ``speeds`` says where times come from.
    """

    word: Word
    candidate: str
    reference: str
    shapes: tuple[ShapeResult, ...]
    sealed: bool = True
    speeds: str = "none"
    device: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def reason(self) -> Reason | None:
        """Why it is REFUSED."""
        return next((s.reason for s in self.shapes if s.reason is not None), None)

    @property
    def exit_code(self) -> int:
        """Of the command."""
        return EXIT_CODES[self.word]


def bytes_that_must_move(case: CaseInputs, call: CheckedCall) -> int:
    """Bytes of inputs that have to come from memory once. A tensor that an index may choose from (one of its sizes is
    what a declared index is below) needn't be read whole, so it doesn't count; nor do results, which may stay in the
    cache until after the clock is read."""
    chosen_from = {int(t.high) + 1 for t in case.tensors if t.content == "integers" and t.dtype != "bool"}
    return sum(
        call.recording.storages[storage].nbytes
        for given, storage in zip(case.tensors, call.inputs, strict=True)
        if storage is not None and given.content != UNREAD and not chosen_from & set(given.shape)
    )


def constants_told(call: CheckedCall) -> tuple[str, ...]:
    """What launches get that the candidate has made, by size: a table of results would be among it."""
    reached = used_storages(call.recording)
    sizes = sorted((len(c.data) for c in call.constants if c.storage in reached), reverse=True)
    text = f"{len(sizes)} constants of {format_bytes(sum(sizes))} made before the launches, the largest: "
    return (text + ", ".join(map(format_bytes, sizes[:8])),) if sizes else ()
