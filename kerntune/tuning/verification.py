"""Compares what candidates write with what one of them, or the captured run, has written.

Workspaces are distinguished from results: memory that holds something for each part of the work, partial sums or one
row a block, may differ where the results agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from kerntune.base.failed_candidates import WRONG
from kerntune.base.recording import Recording
from kerntune.errors import UsageError
from kerntune.gpu.base import Buffer
from kerntune.gpu.compare import Difference, is_float
from kerntune.gpu.program import Program

POISONS = (0x7F, 0x7B)
"""Fill memory that is only written, so that a missed element shows. 0x7F7F... and 0x7B7B... are huge or NaN in every
float format; two, because a kernel may rightly write one of them."""

TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "float16": 1e-2, "bfloat16": 3e-2}
"""Relative to the largest element: another block size sums in another order. Wrong kernels are off by far more."""

ATOMIC_FACTOR = 10.0
"""Float atomics add in any order, in the output's own precision."""

REPEATS = 2
"""Further runs of a reference that a candidate disagrees with: does it write the same each time?"""

OTHER_BITS = "it wrote other bits"
"""The first words of the reason why a candidate can't win under ``verify=bitwise``: its results aren't wrong."""

WITNESSES = 2
"""Further candidates that are run where two disagree about what may be a workspace: one of them may be wrong, too."""


class Verify(str, Enum):
    """Which must write what the reference does: the winner, the last rounds', all, all to the bit, or none."""

    WINNER = "winner"
    FINALISTS = "finalists"
    ALL = "all"
    BITWISE = "bitwise"
    OFF = "off"


E = TypeVar("E", bound=Enum)


def one_of(kind: type[E], text: object, name: str) -> E:
    """The member of that value; ``name`` says what it is for. :class:`UsageError` for any other value."""
    try:
        return kind(text)
    except ValueError:
        *some, last = (member.value for member in kind)
        raise UsageError(f"{name} is {text!r}; it can be {', '.join(some)} or {last}") from None


def verify_mode(text: str | Verify) -> Verify:
    """The mode of that name. :class:`UsageError` for anything else."""
    return one_of(Verify, text, "verify")


def names_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """Names of arguments, in a list or in one text, separated by commas or spaces."""
    return tuple(given.replace(",", " ").split() if isinstance(given, str) else map(str, given))


BITWISE_RULE = "; verify=bitwise"
"""Beside what such a rule let through. A winner of another rule doesn't serve: it may have other bits."""


@dataclass(frozen=True)
class Verification:
    """Which candidates are verified, and which arguments (``name``, or ``kernel.name``) are not compared."""

    mode: Verify = Verify.WINNER
    ignore: tuple[str, ...] = ()

    @property
    def all_compared(self) -> bool:
        """Whether a candidate that was found wrong under the strictest rules is wrong under these, too."""
        return self.mode is not Verify.OFF and not self.ignore

    @property
    def lax(self) -> str:
        """What is stored beside what such rules let through; empty if everything is compared as by default."""
        if self.mode is Verify.OFF:
            return "; verify=off"
        bits = BITWISE_RULE if self.mode is Verify.BITWISE else ""
        return bits + (f"; verify_ignore={','.join(sorted(self.ignore))}" if self.ignore else "")

    def ignores(self, kernel: str, argument: str) -> bool:
        """Whether an argument of a kernel is not compared."""
        return argument in self.ignore or f"{kernel}.{argument}" in self.ignore


def run_poisoned(program: Program, poison: int, only_written: frozenset[int]) -> None:
    """Run once on copy 0 from its first content, with ``only_written`` storages filled with ``poison``."""
    gpu = program.gpu
    program.reset()
    for index in sorted(only_written):
        gpu.fill(program.memory.buffer(0, index), poison)
    program.enqueue()
    gpu.synchronize()


Pieces = list[tuple[int, Buffer]]
"""What a storage held, in pieces with their offsets (all of it, unless it is too large to keep)."""


@dataclass
class Verifier:
    """What one program, the reference, writes, once for each pattern of poison, and compares others with it.

    ``name`` says which program the reference is; it is ``settled`` if no other one will be chosen, and ``confirmed`` if
    there is more evidence for it than its place in the list. What depends on chance or on how a config splits its
    work is ``left_out`` by storage, with the reason; several verifiers may share that. ``ignored`` are arguments
    that are not compared. ``bitwise``: without a tolerance. All programs run on the same memory; copy 0 is as before
    after each call.
    """

    reference: Program
    name: str = "the first candidate"
    settled: bool = False
    confirmed: bool = False
    left_out: dict[int, str] = field(default_factory=dict)
    ignored: Callable[[str], bool] = lambda argument: False
    bitwise: bool = False
    _kept: dict[tuple[int, frozenset[int]], dict[int, Pieces]] = field(default_factory=dict)

    def disagreement(self, program: Program, witnesses: Sequence[Program] = ()) -> str | None:
        """Where and by how much ``program`` writes something else; None if it agrees.

        Of the ``witnesses``, other candidates, some are run where one of the two may have written a workspace.
        """
        written = sorted({*self.reference.written, *program.written})
        only_written = frozenset(written) - {*self.reference.in_place, *program.in_place}
        for poison in POISONS if only_written else POISONS[:1]:
            run = _Run(poison, only_written, written)
            if (text := self._disagreement(program, run, witnesses)) is not None:
                return text
        return None

    def _disagreement(self, program: Program, run: _Run, witnesses: Sequence[Program]) -> str | None:
        memory, expected = program.memory, self._expected(run)
        run_poisoned(program, run.poison, run.only_written)
        compared = [i for i in run.written if i not in self.left_out and not self._ignores(program, i)]
        unlike = {i: found for i in compared if (found := self._differences(program, i, expected[i]))}
        theirs = {i: memory.keep(i) for i in unlike}
        memory.restore(0, run.written)
        if unlike:
            self._leave_out_varying(program, theirs, run)
        for i, found in unlike.items():
            if i not in self.left_out and not self._leave_out_workspace(program, i, theirs[i], found, run, witnesses):
                return self._text(program, i, found)
        return None

    def _ignores(self, program: Program, index: int) -> bool:
        names = arguments_at(program.recording, index)
        return bool(names) and all(map(self.ignored, names))

    def _expected(self, run: _Run) -> dict[int, Pieces]:
        key = (run.poison, run.only_written)
        if key not in self._kept or set(self._kept[key]) != set(run.written):
            memory = self.reference.memory
            run_poisoned(self.reference, run.poison, run.only_written)
            self._kept[key] = {i: memory.keep(i) for i in run.written}
            memory.restore(0, run.written)
        return self._kept[key]

    def _leave_out_varying(self, program: Program, theirs: dict[int, Pieces], run: _Run) -> None:
        """Leave out what the reference itself writes differently from run to run. Where it is only a candidate, the
        other one must vary, too: one that varies alone may have a race, and further candidates decide."""
        found = self._varying(self.reference, {i: self._expected(run)[i] for i in theirs}, run)
        if found and not self.settled:
            found &= self._varying(program, {i: theirs[i] for i in found}, run)
        for i in sorted(found):
            name = storage_name(self.reference.recording, i)
            self.left_out[i] = f"{name} is not compared: one config writes other values there from run to run"

    def _varying(self, program: Program, kept: dict[int, Pieces], run: _Run) -> set[int]:
        """The storages to which further runs write something else than what was kept."""
        found: set[int] = set()
        for _ in range(REPEATS):
            run_poisoned(program, run.poison, run.only_written)
            found |= {i for i, pieces in kept.items() if self._differences(program, i, pieces)}
        program.memory.restore(0, run.written)
        return found

    def _leave_out_workspace(
        self, program: Program, i: int, theirs: Pieces, found: PieceDifferences, run: _Run, witnesses: Sequence[Program]
    ) -> bool:
        """Whether storage ``i`` is a workspace with a row for each block, say: then it can't be compared.

        A way of splitting work that explains why two configs disagree has to explain it still once others have been run
        that split it unlike both: one that writes what one of the two writes shows that it follows no split.
        """
        mine = self._expected(run)[i]
        a, b = (_written(p, i, kept, run) for p, kept in ((self.reference, mine), (program, theirs)))
        program.memory.restore(0, [i])
        ways = explanations(a, b, sum(x.count for _, x in found))
        others = [w for w in witnesses if w is not program and w is not self.reference]
        both = [(mine, a.parts), (theirs, b.parts)]
        telling = [p for p in others if all(_parts(p).get(w) not in [parts[w] for _, parts in both] for w in ways)]
        for other in telling[:WITNESSES] if ways else ():
            run_poisoned(other, run.poison, run.only_written)
            for kept, parts in both:
                if not self._differences(other, i, kept):
                    ways = still_explained(ways, parts, _parts(other))
            other.memory.restore(0, sorted({*run.written, *other.written}))
        if not ways:
            return False
        name, (unit,) = storage_name(program.recording, i), {d.unit for _, d in found}
        self.left_out[i] = (
            f"{name} is not compared: how much is written there follows how a config splits the work "
            f"(({a.config}) writes {a.count:,}, ({b.config}) writes {b.count:,} {unit})"
        )
        return True

    def _differences(self, program: Program, index: int, expected: Pieces) -> PieceDifferences:
        """How copy 0 differs from what is expected. Without a tolerance, bytes are compared (NaN, signed zeros)."""
        gpu, memory = program.gpu, program.memory
        buffer, dtype = memory.buffer(0, index), memory.storages[index].dtype
        kind = "uint8" if self.bitwise else dtype
        allowed = tolerance(program.recording, kind)
        found = ((at, gpu.compare(kept, gpu.part(buffer, at, kept.nbytes), kind, allowed)) for at, kept in expected)
        return [(at, difference) for at, difference in found if difference is not None]

    def _text(self, program: Program, index: int, found: PieceDifferences) -> str:
        offset, first = found[0]
        where = f" from byte {offset} on" if offset else ""
        name, dtype = storage_name(program.recording, index), program.memory.storages[index].dtype
        hint = _fixed_grid(self.reference, program)
        what = OTHER_BITS if self.bitwise else WRONG
        return f"{what} than {self.name} into {name}{where}{hint} ({first}, dtype {dtype})"


@dataclass(frozen=True)
class _Run:
    """How programs are run to be compared: ``only_written`` of the ``written`` storages are poisoned before."""

    poison: int
    only_written: frozenset[int]
    written: list[int]


PieceDifferences = list[tuple[int, Difference]]
"""Differences of a storage's pieces, with their offsets."""


def _written(program: Program, index: int, kept: Pieces, run: _Run) -> WrittenAmount:
    """How much of a storage isn't as it was before a program ran. Leaves copy 0 as that was."""
    gpu, memory = program.gpu, program.memory
    buffer, dtype = memory.buffer(0, index), memory.storages[index].dtype
    if index in run.only_written:
        gpu.fill(buffer, run.poison)
    changed = (gpu.compare(piece, gpu.part(buffer, at, piece.nbytes), dtype, 0.0) for at, piece in kept)
    (launch,) = program.recording.launches
    return WrittenAmount(sum(c.count for c in changed if c is not None), _parts(program), str(launch.config or ""))


def _parts(program: Program) -> Parts:
    (launch,) = program.recording.launches
    return parts_of(launch.grid, program.recording.binary_of(launch).constexprs)


def arguments_at(recording: Recording, storage: int) -> tuple[str, ...]:
    """Names of the arguments that point into a storage."""
    params = [p for launch in recording.launches for p in launch.params]
    return tuple(p.name for p in params if p.view is not None and recording.views[p.view].storage == storage)


def _fixed_grid(one: Program, other: Program) -> str:
    """A hint for configs that split work by different constants over one grid: it may be too small for one."""
    (first,), (second,) = one.recording.launches, other.recording.launches
    constants = one.recording.binary_of(first).constexprs, other.recording.binary_of(second).constexprs
    if first.grid != second.grid or constants[0] == constants[1]:
        return ""
    return f", and the grid {first.grid} does not depend on the config: look there"


def storage_name(recording: Recording, storage: int) -> str:
    """What a storage is called: by the arguments that point into it."""
    return ", ".join(dict.fromkeys(arguments_at(recording, storage))) or f"storage {storage}"


def tolerance(recording: Recording, dtype: str) -> float:
    """How far numbers may be off, relative to the largest; 0 for what has to agree to the bit."""
    atomics = any(launch.float_atomics for launch in recording.launches)
    return TOLERANCE[dtype] * (ATOMIC_FACTOR if atomics else 1.0) if is_float(dtype) else 0.0


NEARLY = 0.02
"""How near the ratio of what two configs write must come to that of their parts: bytes of whole numbers that equal the
poison, and the last part of a number that doesn't divide, count wrongly."""

MOSTLY = 0.5
"""At least this share of what both configs write differs: a sum over 128 elements is none over 64. Where a wrong config
misses some elements, it mostly agrees on those that it does write."""

Parts = dict[str, float]
"""By a name for each way of splitting work, a number in proportion to the parts."""


def parts_of(grid: tuple[int, int, int], constants: Mapping[str, str]) -> Parts:
    """Into how many parts a launch may split its work: blocks, blocks along an axis, the inverse of a block size."""
    sizes = {name: int(text) for name, text in constants.items() if text.isdecimal()}
    found: Parts = {"blocks": math.prod(grid), **{f"axis {axis}": count for axis, count in enumerate(grid)}}
    found |= {f"size {name}": 1 / size for name, size in sizes.items() if size}
    return {name: number for name, number in found.items() if number}


@dataclass(frozen=True)
class WrittenAmount:
    """How much (``count``, in elements or bytes) one config wrote to a storage, and how it may have split the work."""

    count: int
    parts: Parts
    config: str


def explanations(a: WrittenAmount, b: WrittenAmount, different: int) -> frozenset[str]:
    """The ways of splitting work that explain why two configs wrote unlike amounts: in proportion to their blocks, to
    the blocks along an axis, or inversely to a block size; none unless mostly other values are where both wrote.

    ``different`` is how much differs in all. A kernel that forgets the end of a row writes less, too, but not with
    larger blocks, or what it writes is right.
    """
    less, more = sorted((a.count, b.count))
    if not less or less == more or different - (more - less) < MOSTLY * less:
        return frozenset()
    ratios = {name: a.parts[name] / b.parts[name] for name in a.parts.keys() & b.parts.keys()}
    amount = math.log(a.count / b.count)
    return frozenset(n for n, r in ratios.items() if r != 1.0 and abs(amount - math.log(r)) <= NEARLY)


def still_explained(ways: frozenset[str], one: Parts, same: Parts) -> frozenset[str]:
    """Those of the ``ways`` that stand although two configs wrote the same, ``one`` and another: if amounts followed a
    way of splitting, both would have to split alike."""
    return frozenset(way for way in ways if same.get(way, one[way]) == one[way])
