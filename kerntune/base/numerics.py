"""How today's results differ from those of the baseline's binary on the same memory, and which difference fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Literal

from kerntune.base.strict import SparseStruct
from kerntune.errors import UsageError

MADE_UP, OWN = "made-up content", "the call's own content"
"""What the outputs were computed from: what a measuring process makes by the recording's description, or what the call
of the test itself found in memory."""


class ChangedOutput(SparseStruct, frozen=True):
    """Elements of one output that differ between the baseline's code and today's.

    ``argument`` has the names of the arguments that point there. ``count`` of ``total`` elements of ``dtype`` differ
    (bytes, where the memory is viewed by several dtypes), not counting the ``varying`` ones, which two runs of the same
    code write differently. ``first`` and ``worst`` are elements, counted from the storage's begin; ``place`` is the
    worst one's index in the tensor, where there is one tensor. ``baseline`` and ``today`` are the values there.
    """

    argument: str
    dtype: str
    total: int
    count: int = 0
    first: int = 0
    worst: int = 0
    baseline: str = ""
    today: str = ""
    place: tuple[int, ...] = ()
    ulp: int | None = None
    """The largest distance of two finite numbers, in representable numbers of the dtype; None where it isn't a float's.
    """

    relative: float | None = None
    """The largest difference of two finite numbers over the larger magnitude of the two (as ``math.isclose``)."""

    nonfinite: int = 0
    """Elements that are infinite or NaN on one side only, or infinities of unlike sign."""

    unwritten: int = 0
    """Elements that the baseline's code writes, and today's doesn't."""

    newly_written: int = 0
    """The other way round."""

    varying: int = 0
    """Where there are any, no difference of this output decides: one that was written equally in a few runs may be
    chance."""

    intermediate: bool = False
    """Whether a later launch reads it, and none writes it afterwards: it may be a workspace."""

    content: str = OWN
    typical: float | None = None
    """The median magnitude of the baseline's finite numbers, in the first megabyte; None where it isn't a float's."""

    @property
    def decides(self) -> bool:
        """Whether a gate looks at it."""
        return self.count > 0 and not self.varying and not self.intermediate and not self.out_of_domain

    @property
    def out_of_domain(self) -> bool:
        """Whether only infinities and NaN differ, and from made-up content: it may have numbers that the call never has
        (a variance below zero, say)."""
        return self.content != OWN and 0 < self.nonfinite == self.count

    @property
    def cancelled(self) -> bool:
        """Whether the largest distance is at numbers that are small beside the others: what is left of a difference of
        larger ones has their rounding errors."""
        if self.typical is None or not self.baseline:
            return False
        return SMALL * max(abs(float(self.baseline)), abs(float(self.today))) < self.typical


SMALL = 1000.0
"""A number is small if this many times it is less than the median: ten of float32's 24 bits are lost by then."""


class ComparedResults(SparseStruct, frozen=True):
    """The outputs of both sides after one run each on ``content``. ``why_not`` says why none could be compared,
    ``not_compared`` has a reason for each that couldn't be; ``unsure`` is what isn't known of those that differ."""

    content: str
    outputs: tuple[ChangedOutput, ...] = ()
    why_not: str = ""
    not_compared: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()


class NumericsReport(SparseStruct, frozen=True):
    """What became of a case's results: by which ``rule``, computed from which ``contents`` they were compared, and the
    outputs that differ."""

    rule: str
    contents: tuple[str, ...] = ()
    outputs: tuple[ChangedOutput, ...] = ()
    not_compared: tuple[str, ...] = ()
    """Sentences about outputs that were not compared from any content."""

    unsure: tuple[str, ...] = ()

    @property
    def changed(self) -> tuple[ChangedOutput, ...]:
        """An entry for each output that differs, of the call's own content where that is known."""
        found: dict[str, ChangedOutput] = {}
        for output in sorted(self.outputs, key=lambda o: (o.content != OWN, -o.count)):
            if output.count:
                found.setdefault(output.argument, output)
        return tuple(found.values())

    def texts(self, rule: NumericsRule) -> tuple[str, ...]:
        """A sentence for each of these: those that fail by ``rule`` first, by what fails; one for all that vary."""
        failing = rule.failing(self)
        others = [o for o in self.changed if o.argument not in failing]
        # outputs in which only elements differ that vary from run to run of the same code
        differing = {o.argument for o in self.outputs if o.count}
        most: dict[str, ChangedOutput] = {}
        for output in sorted(self.outputs, key=lambda o: (o.content != OWN, -o.varying)):
            if output.varying and output.argument not in differing:
                most.setdefault(output.argument, output)
        named = [f"{o.argument} ({o.varying:,} of {o.total:,} elements)" for o in most.values()]
        varying = [f"{VARYING_RESULTS}{', '.join(named)}"] if named else []
        return (*rule.failures(self), *map(changed_text, others), *varying)


MOST_ULP = 1 << 53
"""Whole numbers up to this are exact in the rule's limit."""


class NumericsRule(SparseStruct, frozen=True):
    """Which change of results fails: none (``report``), any (``bitwise``), one of more than ``limit`` representable
    numbers (``ulp``), or of more than that share of the larger number (``rtol``). ``off`` compares nothing.

    Integers and bits have to agree under every rule that gates: what rounds, rounds floats. So have infinities, NaN
    and which elements are written.
    """

    kind: Literal["report", "bitwise", "ulp", "rtol", "off"] = "report"
    limit: float = 0.0

    @classmethod
    def parse(cls, value: object, where: str) -> NumericsRule:
        """``"report"``, ``"bitwise"``, ``"ulp:2"``, ``"rtol:1e-5"`` or ``"off"``; :class:`UsageError`, naming
        ``where``, for anything else."""
        if isinstance(value, cls):
            return value
        kind, colon, limit = str(value).strip().partition(":")
        if kind in ("report", "bitwise", "off") and not colon:
            return cls(kind)  # type: ignore[arg-type]
        number = _limit(kind, limit)
        if number is None:
            raise UsageError(
                f"{where}: {value!r} is none of report, bitwise, ulp:2 (a whole number), rtol:1e-5 (above 0), off"
            )
        return cls(kind, number)  # type: ignore[arg-type]

    def __str__(self) -> str:
        if self.kind == "ulp":
            return f"ulp:{self.limit:.0f}"
        return f"rtol:{self.limit!r}" if self.kind == "rtol" else self.kind

    @property
    def gates(self) -> bool:
        """Whether a change can fail a test."""
        return self.kind in ("bitwise", "ulp", "rtol")

    def fails(self, output: ChangedOutput) -> bool:
        """Whether an output has changed by more than is allowed."""
        if not self.gates or not output.decides:
            return False
        odd = output.nonfinite if output.content == OWN else 0
        if self.kind == "bitwise" or output.ulp is None or odd or output.unwritten or output.newly_written:
            return True
        return (output.ulp if self.kind == "ulp" else output.relative or 0.0) > self.limit

    def failing(self, report: NumericsReport | None) -> dict[str, ChangedOutput]:
        """The outputs that fail, by argument, on the call's own content where they fail there."""
        found = [o for o in report.outputs if self.fails(o)] if report is not None else []
        return {o.argument: o for o in sorted(found, key=lambda o: o.content == OWN)}

    def failures(self, report: NumericsReport | None) -> tuple[str, ...]:
        """A sentence for each of these."""
        return tuple(f"{changed_text(o)}; {self} is gated" for o in self.failing(report).values())

    def unknown(self, report: NumericsReport | None) -> bool:
        """Whether an output that is gated could not be compared."""
        return self.gates and report is not None and bool(report.not_compared)


def _limit(kind: str, text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if kind == "ulp":
        return number if number.is_integer() and 0 <= number < MOST_ULP else None
    return number if kind == "rtol" and 0 < number < 2 else None


CHANGED_RESULTS = "results changed: "
"""How the sentence about an output begins."""

VARYING_RESULTS = "results vary from run to run of the same code, so they decide nothing: "


def changed_text(output: ChangedOutput) -> str:
    """``results changed: y_ptr: 17 of 4,096 elements differ, at most 3 ulp and 1.2e-07 relative, at [0, 12]: 0.5 ->
    0.50000006; first at element 5``."""
    unit = "bytes" if output.dtype == "bytes" else "elements"
    text = f"{CHANGED_RESULTS}{output.argument}: {output.count:,} of {output.total:,} {unit} differ"
    return f"{text}{_size(output)}{_where(output)}{_remarks(output)}"


def _size(output: ChangedOutput) -> str:
    parts = []
    numbers = output.count - output.nonfinite - output.unwritten - output.newly_written
    if output.ulp is not None and output.relative is not None and numbers > 0:
        parts.append(f"at most {output.ulp:,} ulp and {output.relative:.2g} relative")
    parts += [f"{output.nonfinite:,} of them infinite or NaN on one side"] if output.nonfinite else []
    parts += [f"{output.unwritten:,} no longer written"] if output.unwritten else []
    parts += [f"{output.newly_written:,} not written before"] if output.newly_written else []
    return "".join(f", {part}" for part in parts)


def _where(output: ChangedOutput) -> str:
    place = str(list(output.place)) if output.place else f"{output.worst:,}"
    first = f", first at {output.first:,}" if output.first != output.worst else ""
    scale = f" (half of the numbers are above {output.typical:.2g})" if output.cancelled else ""
    values = f": {output.baseline} -> {output.today}{scale}" if output.baseline else ""
    return f", at {place}{values}{first}"


def _remarks(output: ChangedOutput) -> str:
    said = []
    if output.content != OWN:
        said.append(f"on {output.content}")
    if output.out_of_domain:
        said.append("the call may never have such numbers, so it decides nothing")
    if output.intermediate:
        said.append("a later launch reads it, so it decides nothing")
    if output.varying:
        said.append(f"{output.varying:,} more vary from run to run of the same code, so it decides nothing")
    return f" ({'; '.join(said)})" if said else ""


def without_ignored(found: ComparedResults, ignored: Sequence[str], writers: Mapping[str, Set[str]]) -> ComparedResults:
    """Without outputs all of whose arguments are named in ``ignored``, as ``name``, or as ``kernel.name`` for each of
    the kernels that write such an argument (``writers``, by argument)."""

    def is_ignored(name: str) -> bool:
        kernels = writers.get(name, frozenset())
        return name in ignored or (bool(kernels) and all(f"{kernel}.{name}" in ignored for kernel in kernels))

    kept = tuple(o for o in found.outputs if not all(map(is_ignored, o.argument.split(", "))))
    return found.but(outputs=kept)


def report_of(rule: NumericsRule, found: Iterable[ComparedResults]) -> NumericsReport:
    """All comparisons of a case as one."""
    every = list(found)
    done = [x for x in every if not x.why_not]
    why = [f"results not compared on {x.content}: {x.why_not}" for x in every if x.why_not]
    missing = [text for x in done for text in x.not_compared] if done else why
    unsure = [*(text for x in done for text in x.unsure), *(why if done else ())]
    return NumericsReport(
        str(rule),
        tuple(x.content for x in done),
        tuple(o for x in done for o in x.outputs),
        tuple(dict.fromkeys(missing)),
        tuple(dict.fromkeys(unsure)),
    )
