"""Results for terminals and for files: figures as text, the table, the counts, a run's JSON.

All reports have one order of results: the worst first.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Union

import msgspec

from kerntune.base.case_result import CaseResult, LaunchFigures, LaunchReport, UncheckedValue, word_of
from kerntune.base.codec import MAX_REPORT, MAX_REPORT_VALUES, from_json, read_file, to_json, write_atomic
from kerntune.base.formatting import NO_FIGURE, bounded, format_rate, format_share, format_time, visible
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.stats import Estimate
from kerntune.base.strict import SparseStruct, StrictStruct
from kerntune.gate.console import counted

SCHEMA = "kerntune.run/1"

OUTCOMES = (Outcome.FAIL, Outcome.WARN, Outcome.PASS)

MAX_CODE = 4_000_000
"""Characters of changed code of a run in its JSON, or on a page: some 150 cases of 25 KB. An edit of a function that
all kernels call must not make a file that is too long to be read (:data:`kerntune.base.codec.MAX_REPORT_VALUES`, which
counts the commas in texts as well)."""

MAX_CONFIG_LINES = 4
"""Kernels of one case that are named in its row; the JSON has them all."""


class Origin(SparseStruct, frozen=True):
    """Where a run took place: commit and branch of the repository around its tests, the commit's time in UTC
    (ISO 8601), whether the checkout had uncommitted changes, the machine's name, the project's name, and the address of
    the repository on the web. Empty texts for unknown ones."""

    commit: str = ""
    committed: str = ""
    branch: str = ""
    dirty: bool = False
    host: str = ""
    project: str = ""
    url: str = ""

    @property
    def short_commit(self) -> str:
        """The commit for people, and whether the checkout had more; empty if it isn't known."""
        return f"{self.commit[:12]}{' with uncommitted changes' if self.dirty else ''}" if self.commit else ""


class RunReport(StrictStruct, frozen=True):
    """Everything that ``--kerntune-json`` writes: one run, whole.

    ``header`` are the lines of pytest's header (device, Triton, torch, baseline folder); ``static_only`` maps the
    node ids of tests that could not be finished without a GPU to the reason; ``failed`` maps those of tests (and of
    files that can't be imported) that failed, for whatever reason, to a line of it; ``baselines`` maps a case's text to
    what ``kerntune baselines apply`` needs to write its baseline on another machine.
    """

    results: tuple[CaseResult, ...]
    header: tuple[str, ...] = ()
    counts: dict[str, int] = {}
    static_only: dict[str, str] = {}
    baselines: dict[str, Any] = {}
    exit_status: int = 0
    created: str = ""
    versions: dict[str, str] = {}
    failed: dict[str, str] = {}
    schema: str = SCHEMA
    origin: Union[Origin, msgspec.UnsetType] = msgspec.UNSET
    """Unset in what an earlier kerntune wrote."""

    unchecked: Union[dict[str, tuple[UncheckedValue, ...]], msgspec.UnsetType] = msgspec.UNSET
    """By the node id of a test what it compared and what passed unseen, since nothing runs without a GPU; unset where
    nothing did."""

    @property
    def place(self) -> Origin:
        """Its origin, all of whose texts are empty where it has none."""
        return Origin() if isinstance(self.origin, msgspec.UnsetType) else self.origin


def write_run(path: Path, run: RunReport) -> None:
    """Write a run's JSON whole or not at all; :class:`~kerntune.errors.StoreError` says why it can't."""
    results = with_bounded_code(run.results)
    write_atomic(path, to_json(run.but(results=results)))


def read_run(path: Path) -> RunReport:
    """The run that ``--kerntune-json`` wrote to ``path``, strictly decoded; :class:`~kerntune.errors.StoreError` if it
    is damaged or too long, FileNotFoundError if there is none."""
    data = read_file(path, limit=MAX_REPORT)
    if data is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return decode_run(data, str(path))


def decode_run(data: bytes, where: str) -> RunReport:
    """A run's JSON, strictly decoded; :class:`~kerntune.errors.StoreError` if it is damaged. ``where`` names it."""
    return from_json(data, RunReport, SCHEMA, where=where, most_values=MAX_REPORT_VALUES)


CODE_LEFT_OUT = "changed code left out: that of worse cases fills the report; `kerntune code` shows it"


def with_bounded_code(results: Sequence[CaseResult]) -> tuple[CaseResult, ...]:
    """The results with :data:`MAX_CODE` characters of code in all: that of failing tests first, then of warnings. A
    remark says where it was left out."""
    kept, room = list(results), MAX_CODE
    for i in sorted(range(len(kept)), key=lambda i: OUTCOMES.index(kept[i].outcome)):
        room -= sum(len(c.diff) for c in kept[i].code)
        if room < 0 and kept[i].code:
            kept[i] = kept[i].but(code=(), remarks=(*kept[i].remarks, CODE_LEFT_OUT))
    return tuple(kept)


def unchecked_line(unchecked: Mapping[str, Sequence[UncheckedValue]]) -> str:
    """``values not checked without a GPU: 14 assertions and 2 other comparisons in 9 tests``; empty for none. A line
    that several parameters of a test run counts once for each."""
    values = [value for found in unchecked.values() for value in found]
    if not values:
        return ""
    asserted = sum(value.asserted for value in values)
    kinds = [counted(asserted, "assertion")] if asserted else []
    if others := len(values) - asserted:
        kinds.append(counted(others, "other comparison" if asserted else "comparison"))
    return f"values not checked without a GPU: {' and '.join(kinds)} in {counted(len(unchecked), 'test')}"


def counts(results: Iterable[CaseResult]) -> dict[Verdict, int]:
    """How many results each verdict has, in the order of the enum; verdicts without any are left out."""
    seen = [r.verdict for r in results]
    return {v: seen.count(v) for v in Verdict if v in seen}


def counts_line(results: Iterable[CaseResult]) -> str:
    """``3 PASS, 1 REGRESSED``."""
    return ", ".join(f"{n} {w}" for w, n in word_counts(results).items()) or "no case was checked"


def word_counts(results: Iterable[CaseResult], order: Iterable[Verdict] = Verdict) -> dict[str, int]:
    """How many results each verdict has as people read it (:attr:`CaseResult.word`), in the order of verdicts."""
    seen = [(r.verdict, r.word) for r in results]
    words = ((v, word_of(v, held=held)) for v in order for held in (True, False))
    return {word: seen.count((v, word)) for v, word in words if (v, word) in seen}


def format_change(change: Estimate | None) -> str:
    """A change with its interval: ``+12.1 % (+11.6..+12.5)``."""
    if change is None:
        return NO_FIGURE
    if not (bounded(change.low) and bounded(change.high)):
        return format_share(change.point)
    return f"{format_share(change.point)} ({100 * change.low:+.1f}..{100 * change.high:+.1f})"


def format_today(result: CaseResult) -> str:
    """Today's time; static figures of a case that was not timed."""
    if result.current_ns is not None:
        return format_time(result.current_ns)
    kernel, launches = shown_launches(result)
    return f"{kernel}: {format_static(launches)}" if kernel else format_static(launches)


def format_baseline(result: CaseResult) -> str:
    """The baseline's time; of a case without times, its static figures, of the launches that today's correspond to."""
    if result.baseline_ns is not None or result.current_ns is not None:
        return format_time(result.baseline_ns)
    return format_static([x.before for x in shown_launches(result)[1] if x.before is not None])


def shown_launches(result: CaseResult) -> tuple[str, Sequence[LaunchReport]]:
    """The kernel whose figures stand for a case of several kernels, and its launches: the one that the first finding
    names, of those that decided if there are any, else the one whose figures differ most from the baseline's. No name
    and all launches where the case has one kernel or nothing differs."""
    kernels = dict.fromkeys(x.kernel for x in result.launches)
    if len(kernels) < 2:
        return "", result.launches
    texts = sorted(result.findings, key=lambda text: text not in result.message)
    # they begin with the kernel's name: ``add: ``, ``add at model.py:12: ``, ``launch 0 (add): ``
    begins = {kernel: re.compile(rf"(launch \d+ \()?{re.escape(kernel)}(?!\w)") for kernel in kernels}
    named = (kernel for text in texts for kernel, begin in begins.items() if begin.match(text))
    most = max(result.launches, key=_moved)
    kernel = next(named, most.kernel if _moved(most) else "")
    return kernel, [x for x in result.launches if kernel in (x.kernel, "")]


def _moved(launch: LaunchReport) -> float:
    if launch.before is None:
        return 0.0
    pairs = [(getattr(launch.before, name), getattr(launch, name)) for name in LaunchFigures.__struct_fields__]
    known_pairs = [(old, new) for old, new in pairs if None not in (old, new) and old != new]
    return max((abs(new - old) / max(abs(old), abs(new)) for old, new in known_pairs), default=0.0)


def format_static(launches: Sequence[LaunchReport | LaunchFigures]) -> str:
    """Registers a thread, spilled bytes and shared memory a block; the largest of each over the launches."""
    registers = [x.registers for x in launches if x.registers is not None]
    parts = [f"{max(registers)} regs"] if registers else []
    spilled = max((x.spill_bytes or 0 for x in launches), default=0)
    shared = max((x.shared_bytes or 0 for x in launches), default=0)
    parts += [f"{spilled} B spilled"] if spilled else []
    parts += [f"{shared} B shared"] if shared else []
    return ", ".join(parts) or NO_FIGURE


def format_configs(launches: Sequence[LaunchReport]) -> str:
    """A line per kernel and config, each once, with the kernel's name before its first one alone; launches with
    written-out parameters show the kernel alone."""
    told: set[str] = set()
    lines = []
    for launch in {f"{x.kernel}: {x.config}": x for x in launches}.values():
        config = f": {launch.config}" if launch.config else ""
        lines.append(f"and {launch.config}" if config and launch.kernel in told else f"{launch.kernel}{config}")
        told.add(launch.kernel)
    lines = list(dict.fromkeys(lines))
    more = len(lines) - MAX_CONFIG_LINES
    return "\n".join([*lines[:MAX_CONFIG_LINES], f"... {more} more"] if more > 0 else lines) or NO_FIGURE


def format_work(result: CaseResult) -> str:
    """Operations a second where the test says how many there are, else bytes a second and their share of what the
    device was measured to copy: ``612 TFLOP/s``, ``3.81 TB/s (92 %)``."""
    roof = result.roofline
    if roof.flops_per_second is not None:
        return format_rate(roof.flops_per_second, "FLOP")
    used = roof.of_bandwidth
    share = f" ({used:.0%})".replace("%", " %") if used is not None else ""
    return format_rate(roof.bytes_per_second, "B") + share


def properties(results: Sequence[CaseResult]) -> list[tuple[str, str]]:
    """Names and texts for a test's JUnit ``<property>`` elements; several results of one test carry their call."""
    out: list[tuple[str, str]] = []
    several = len({r.target for r in results if r.target}) > 1
    for r in results:
        call = r.case.call or "0"
        suffix = f"[{call} {r.target}]" if several else f"[{call}]" if len(results) > 1 else ""
        out.append((f"kerntune_verdict{suffix}", r.word))
        out += [(f"kerntune_{name}{suffix}", text) for name, text in _figures(r).items()]
    return [(name, visible(text)) for name, text in out]


def _figures(result: CaseResult) -> Mapping[str, str]:
    change, roof = result.change.point if result.change else None, result.roofline
    figures: dict[str, tuple[float | str | None, str]] = {
        "change": (change, "+.4f"),
        "time_ns": (result.current_ns, ".1f"),
        "baseline_ns": (result.baseline_ns, ".1f"),
        **{name: (getattr(roof, name), form) for name, form in OF_ROOFLINE.items()},
        "shares": (", ".join(f"{x.kernel} {x.share:.0%}" for x in result.shares), ""),
    }
    return {name: format(v, form) for name, (v, form) in figures.items() if v not in (None, "")}


OF_ROOFLINE = {
    "bytes_per_second": ".4g", "of_bandwidth": ".3f", "flops_per_second": ".4g", "of_matmul": ".3f",
    "intensity": ".4g", "roof": "", "of_roof": ".3f",
}  # fmt: skip
"""Properties of a case's roofline, and how many digits each has."""

VERDICTS = (
    Verdict.REGRESSED,
    Verdict.INCOMPLETE,
    Verdict.STALE,
    Verdict.INCONCLUSIVE,
    Verdict.DRIFTED,
    Verdict.NEW,
    Verdict.IMPROVED,
    Verdict.PASS,
)
"""The worst first."""


class RankedResult(NamedTuple):
    """A result with its run and the run's place among those that are reported."""

    result: CaseResult
    run: RunReport
    run_index: int = 0


def worst_first(runs: Iterable[RunReport]) -> list[RankedResult]:
    """All results of ``runs``: failing ones, then warnings; of one verdict the largest slowdown first."""
    found = [RankedResult(result, run, i) for i, run in enumerate(runs) for result in run.results]
    return sorted(found, key=lambda one: badness(one.result))


def shown_change(result: CaseResult) -> Estimate | None:
    """The change that reports show: with a 99 % interval where there is one, since the anchor where that decided."""
    since = result.since
    if since is not None and since.change is not None and result.verdict is since.verdict is not Verdict.PASS:
        own = result.shown or result.change
        of_anchor = since.shown or since.change
        return of_anchor if own is None or of_anchor.point > own.point else own
    return result.shown or result.change


def printable(value: object) -> object:
    """A value whose texts, in lists and dicts too, are as people may see them
    (:func:`kerntune.base.formatting.visible`); what a page marks as safe, its own scripts, stays."""
    if isinstance(value, str):
        return value if hasattr(value, "__html__") else visible(value)
    if isinstance(value, dict):
        return {printable(key): printable(one) for key, one in value.items()}
    return [printable(one) for one in value] if isinstance(value, (list, tuple)) else value


def other_failures(run: RunReport) -> dict[str, str]:
    """Tests that failed for another reason than a verdict, with a line of it."""
    judged = {r.case.nodeid for r in run.results if r.outcome is Outcome.FAIL}
    return {nodeid: text for nodeid, text in run.failed.items() if nodeid not in judged}


def badness(result: CaseResult) -> tuple[int, int, float]:
    """The worst first, as a key for sorting: by outcome, verdict and change."""
    change = shown_change(result)
    faster = -change.point if change is not None else inf
    return OUTCOMES.index(result.outcome), VERDICTS.index(result.verdict), faster
