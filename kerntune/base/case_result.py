"""The result of one case: what the table's row, the JSON and the test's message are made from."""

from __future__ import annotations

from typing import Literal

from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.base.failed_candidates import ConfigReport, FailedTrial
from kerntune.base.numerics import NumericsReport
from kerntune.base.operator_list import OperatorList
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.roofline import Roofline
from kerntune.base.stats import Estimate, TwoModes
from kerntune.base.strict import SparseStruct, StrictStruct


class CaseId(StrictStruct, frozen=True, order=True):
    """The identity of one gated case: a pytest node id and the call's name (or its ordinal, as text)."""

    nodeid: str
    call: str

    def __str__(self) -> str:
        return self.nodeid if self.call in ("", "0") else f"{self.nodeid}::{self.call}"


class End(SparseStruct, frozen=True):
    """Where a call stopped without a GPU, because it asked for a value that only a GPU has: the users' ``line`` (its
    text) in ``function`` of ``file`` (a path in the project, or the name of an installed module), and the ``reason``.
    No line number is kept: an edit elsewhere in the file leaves the end the same.
    """

    file: str
    function: str
    line: str
    reason: str
    between: bool = False
    """Whether the test stopped after the call and before its next one."""

    def __str__(self) -> str:
        return f"{self.file}, {self.function}: {self.line} ({self.reason})"


class UncheckedValue(SparseStruct, frozen=True):
    """A comparison of values in a test that passed on stand-ins, which have none: its ``place`` (``test_a.py:14``) and
    the text of that ``line``. ``asserted``: it is an assertion, or a call's ``reference``; else other code asked."""

    place: str
    line: str
    asserted: bool = False


class LaunchFigures(SparseStruct, frozen=True):
    """Static figures of a launch: registers and spilled bytes a thread, shared bytes a block, occupancy 0 to 1."""

    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None


class LaunchReport(SparseStruct, frozen=True):
    """One launch of a case, as reports show it: its static figures are of the binary that runs today."""

    kernel: str
    config: Config | None = None
    grid: tuple[int, int, int] = (1, 1, 1)
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    """Theoretical, 0 to 1; None where the device's limits aren't known."""

    limiter: str = ""
    """What limits the occupancy: ``threads``, ``registers``, ``shared memory`` or ``blocks``."""

    before: LaunchFigures | None = None
    """The figures of the baseline's launch that it corresponds to; None without one."""

    origins: tuple[str, ...] = ()
    """The ATen operators that a generated kernel computes; none of a kernel that a person wrote."""

    written: dict[str, str] = {}
    """Of a launch without ``config``: the constants and compile options that it was written with, by name."""

    config_before: Config | None = None
    """The config of the baseline's launch, where that one or ``written_before`` is another than today's."""

    written_before: dict[str, str] = {}
    """Of a baseline's launch without config, what it was written with, where that is another."""


CauseKind = Literal["torch", "code", "config", "launch options", "arguments", "environment", "compiler"]
"""What the code of a launch differs by."""


class LaunchCause(StrictStruct, frozen=True):
    """Why the code of a kernel's launch is not the baseline's: ``config (BLOCK 64 -> 128), first in TTGIR``, and the
    ``kinds`` of cause that this names; none where the cause isn't known."""

    kernel: str
    why: str
    kinds: tuple[CauseKind, ...] = ()

    def __str__(self) -> str:
        return f"{self.kernel}: because of {self.why}"


class LostConfig(SparseStruct, frozen=True):
    """A baseline's ``config`` in whose place another one is ``compared``: it isn't in the list any more, or it can't
    be launched as the list has it now (``broken``: ``is listed, but can't be launched: shared memory: ...``)."""

    kernel: str
    config: str
    compared: str
    broken: str = ""

    @property
    def removal(self) -> str:
        """``BLOCK=64 num_warps=4 removed from the list``; empty if it can't be launched."""
        return "" if self.broken else f"{self.config} removed from the list"

    def __str__(self) -> str:
        lost = f"config {self.removal}" if self.removal else f"the baseline's config {self.config} {self.broken}"
        return f"{self.kernel}: {lost}; compared with {self.compared}"


class CodeChange(SparseStruct, frozen=True):
    """The code of a launch whose source changed, in one compiler ``stage`` (``ttir``, ``ptx``, ``sass``, ``amdgcn``):
    hunks of a unified diff from the baseline's to today's. ``cut``: lines of it that were left out for their number."""

    kernel: str
    stage: str
    diff: str
    cut: int = 0


class ReplayedTimes(StrictStruct, frozen=True):
    """A paired replay: the median time in nanoseconds of the baseline's binary and of today's, a process each."""

    baseline_ns: tuple[float, ...]
    current_ns: tuple[float, ...]


class OutsideWrite(StrictStruct, frozen=True):
    """Bytes that a launch changed outside of its tensors: ``count`` of them, the first at ``offset`` and the last at
    ``last`` bytes from the begin of ``argument``'s storage, which holds ``nbytes`` bytes. ``launch`` is its place among
    those of the case that run, from 0.

    ``certain``: it ran on the very contents that it found in the call. Else an earlier launch has written integers that
    it reads, which the call itself may have changed between the two.
    """

    kernel: str
    launch: int
    argument: str
    offset: int
    last: int
    count: int
    nbytes: int
    certain: bool = True


class LeftOut(StrictStruct, frozen=True):
    """A candidate that was compiled and not run because of its static figures (``static_prune``)."""

    kernel: str
    config: Config
    reason: str


class TrialReport(StrictStruct, frozen=True):
    """A candidate that ran, and its median time in nanoseconds (of the first estimate only, if that was far too
    slow)."""

    kernel: str
    config: Config
    time_ns: float


class Share(SparseStruct, frozen=True):
    """The effect of one cause on a case's time: 0.03 is 3 % slower, None where it could not be measured. ``why`` is
    what differs, or the reason why it could not be measured.

    ``cause`` is a more specific name than the field in :class:`Attribution` ("launch options", "grid"). ``within`` is
    the field whose share includes this cause as well: only the effect of both together was timed.
    """

    change: float | None = None
    why: str = ""
    cause: str = ""
    within: str = ""


class Attribution(SparseStruct, frozen=True):
    """A change of a case's time, divided by cause. Each share is measured between two neighbours of this chain:

    the stored time - ``environment`` - the baseline's binary today - ``compiler`` - its TTIR compiled today -
    ``code``, ``launch`` - today's source and call with the baseline's config - ``config`` - today's config.

    ``launch`` is what the call sets for its launches: options and constants written there, grid, arguments, which
    kernels and in which order. Where kernels' text changed as well, both have one share.
    """

    environment: Share
    compiler: Share
    code: Share
    config: Share
    launch: Share = Share(0.0)


IDENTITY = "identity"
"""The kind of a comparison whose sides do the same work: nothing was timed."""


class Since(SparseStruct, frozen=True):
    """A case compared with its anchor: the time when that was ``recorded``, the verdict on the code since, and the
    change with its tolerance. ``change`` is None where the work is the same, or where nothing could be replayed."""

    recorded: str
    verdict: Verdict
    tolerance: float
    change: Estimate | None = None
    rung: str = ""
    shown: Estimate | None = None
    """The change with a 99 % interval, where it was replayed today."""

    @property
    def date(self) -> str:
        """The day of the recording."""
        return self.recorded.partition("T")[0]


class LaunchShare(StrictStruct, frozen=True):
    """What launch ``index`` of a case takes, timed alone, in nanoseconds, and its share of all of them (0..1)."""

    index: int
    kernel: str
    time_ns: float
    share: float


class Provenance(SparseStruct, frozen=True):
    """What a timed case ran, and what it was compared with. ``work`` and ``baseline_work`` are equal for equal work
    (code, grids and arguments of all launches); ``baseline_recorded`` is a time in UTC, empty without a baseline."""

    work: str = ""
    baseline_work: str = ""
    baseline_recorded: str = ""
    environment: Environment | None = None

    @property
    def same_work(self) -> bool:
        """Whether nothing that decides about the time differs from the baseline."""
        return bool(self.work) and self.work == self.baseline_work


MAX_STORED_TIMES = 100
"""Times of a baseline's sample that a result repeats: more than today's timers take (40)."""

FAILS = "FAILS"
"""What REGRESSED is called of a case that nothing was held against: it breaks a limit of the device, say."""


def word_of(verdict: Verdict, *, held: bool) -> str:
    """A verdict as people read it; ``held`` is whether there was a baseline or an anchor to hold the case against."""
    return FAILS if verdict is Verdict.REGRESSED and not held else verdict.value


UNJUDGED = "speed is judged on a GPU"
"""How the remark ends on a case that passes without a GPU although other machine code runs than in its baseline."""


class CaseResult(SparseStruct, frozen=True):
    """The verdict on a case, with the figures behind it. Times in nanoseconds, changes as shares (0.12 is +12 %).

    ``change`` has the interval that decided, at the level that the whole run left for it; ``shown`` is the same change
    with a 99 % interval, as messages and tables show it.
    """

    case: CaseId
    fingerprint: str
    verdict: Verdict
    outcome: Outcome
    message: str
    target: str
    device: str = ""
    launches: tuple[LaunchReport, ...] = ()
    baseline_ns: float | None = None
    current_ns: float | None = None
    change: Estimate | None = None
    tolerance: float | None = None
    rung: str = ""
    causes: tuple[str, ...] = ()
    launch_causes: tuple[LaunchCause, ...] = ()
    """Those of :attr:`causes` that are about the code of one launch."""

    lost_configs: tuple[LostConfig, ...] = ()
    attribution: Attribution | None = None
    warnings: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    """Violations of static rules and gated metrics, the most severe first. Those that aren't in ``message`` are
    reported as warnings."""

    remarks: tuple[str, ...] = ()
    """Improvements, and changes that are neither better nor worse."""

    outside_writes: tuple[OutsideWrite, ...] = ()
    """Writes of the case's own launches outside of their tensors, where these were looked for."""

    elsewhere: dict[str, int] = {}
    """How often the call ran operators of torch beside its captured kernels, by name (``aten.mm``)."""

    operators: OperatorList | None = None
    """The same with layouts and bytes; None where it isn't known, and in files of earlier versions."""

    trials: tuple[TrialReport, ...] = ()
    failed_trials: tuple[FailedTrial, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    times_ns: tuple[float, ...] = ()
    timer: str = ""
    tuning_seconds: float = 0.0
    baseline_path: str = ""
    recorded: bool = False
    """Whether this run wrote the case's baseline."""

    configs: tuple[ConfigReport, ...] = ()
    """Every candidate config, where the static gate compiles all of them; else empty."""

    since: Since | None = None
    """The comparison with the anchor, where there is one."""

    flops: float | None = None
    bytes_moved: float | None = None
    """Bytes that one call reads and writes: as given by its test, else from the memory plan
    (:func:`kerntune.base.roofline.bytes_moved`)."""

    bandwidth: float | None = None
    """Bytes per second of a copy on this device, as measured there."""

    shares: tuple[LaunchShare, ...] = ()
    """The shares of several launches, the slowest first; empty for one launch."""

    outliers: tuple[int, ...] = ()
    """Indices of the outliers in ``times_ns``; they are kept."""

    modes: TwoModes | None = None
    """The two groups that ``times_ns`` fall into, if they do."""

    shown: Estimate | None = None

    provenance: Provenance | None = None
    """Of a case that was timed."""

    gpu: str = ""
    """The GPU that it ran on (``GPU-`` and its UUID); empty where that has none. ``device`` is its model."""

    gpu_name: str = ""
    """The same for people: ``GPU 1`` of ``/dev/nvidia1``."""

    matmul_peak: float | None = None
    """Operations a second of a large product of random numbers of ``matmul_dtype`` on this device, as measured there;
    where ``flops`` is given."""

    matmul_dtype: str = ""

    baseline_times_ns: tuple[float, ...] = ()
    """The sample that the baseline keeps, taken when it was recorded: at most :data:`MAX_STORED_TIMES` of it."""

    replayed: ReplayedTimes | None = None
    """Both sides of the paired replay that decided, if there was one today."""

    code: tuple[CodeChange, ...] = ()
    """How the code of launches whose source changed differs from the baseline's, where a run was asked for a report."""

    numerics: NumericsReport | None = None
    """How results differ from those of the baseline's code on the same memory; None for the same work, without a
    baseline, and where nothing runs."""

    end: End | None = None
    """Where the call stopped without a GPU; what it launches after that isn't judged."""

    end_accepted: bool = False
    """Whether the baseline keeps that very end, as accepted by ``--kerntune-update``."""

    @property
    def word(self) -> str:
        """The verdict as people read it, with which the message begins."""
        return word_of(self.verdict, held=not self.message.startswith(f"{FAILS} "))

    @property
    def unjudged(self) -> str:
        """The remark that ends with :data:`UNJUDGED`; empty if it has none."""
        return next((text for text in self.remarks if text.endswith(UNJUDGED)), "")

    @property
    def roofline(self) -> Roofline:
        """Today's time against what the device's memory and tensor cores reach."""
        return Roofline(self.current_ns, self.bytes_moved, self.flops, self.bandwidth, self.matmul_peak)


def incomplete_result(case: CaseId, text: str, outcome: Outcome, target: str = "") -> CaseResult:
    """The result of a case of which too little was seen to judge it. ``text`` follows its name in the message.

    ``target`` is empty where that holds for all targets.
    """
    verdict = Verdict.INCOMPLETE
    return CaseResult(case, "", verdict, outcome, f"{verdict.value} {case}{text}", target)
