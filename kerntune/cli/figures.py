"""``kerntune figures``: what all cases take, move and compute, against what their device reaches."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from kerntune.base.formatting import NO_FIGURE, format_rate, format_time
from kerntune.base.roofline import Roofline, bytes_moved
from kerntune.base.strict import StrictStruct
from kerntune.cli.cache import cache_dir_argument, open_cache
from kerntune.cli.stored import (
    Pattern,
    case_argument,
    folder_argument,
    given_folder,
    load_folder,
    problems,
    readable,
    time_ns,
)
from kerntune.errors import UsageError
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.console import FINDINGS, OK, columns, fail_with, say, say_json
from kerntune.gate.report import OF_ROOFLINE, read_run
from kerntune.tuning.device_figures import stored_figures

SCHEMA = "kerntune.figures/1"

HALF = 0.5
"""A case that reaches less of its roof is named apart."""

CASE_WIDTH = 60

HEADERS = ("case", "time", "share", "bytes", "B/s", "of copy", "FLOP/s", "of matmul", "FLOP/B", "roof", "of roof")


class CaseFigures(StrictStruct, frozen=True):
    """A case's figures. ``share`` is that of all cases' times together; rates are a second, shares 0..1; ``roof`` is
    ``memory``, ``matmul``, or empty where the device's rates aren't known."""

    case: str
    device: str
    time_ns: float
    share: float
    bytes_moved: float | None
    bytes_per_second: float | None
    of_bandwidth: float | None
    flops_per_second: float | None
    of_matmul: float | None
    intensity: float | None
    roof: str
    of_roof: float | None


class AllFigures(StrictStruct, frozen=True):
    """What ``--json`` prints: all cases, the slowest first."""

    cases: tuple[CaseFigures, ...]
    problems: tuple[str, ...]
    schema: str = SCHEMA


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune figures`` takes."""
    parser.add_argument("run", metavar="RUN.json", nargs="?", help="what --kerntune-json wrote (default: baselines)")
    folder_argument(parser)
    case_argument(parser)
    cache_dir_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace) -> int:
    """Print the figures of a run, or of the baselines; 1 if some can't be read."""
    if args.run is not None and args.baselines is not None:
        raise UsageError("give a run's JSON, or --baselines=DIR, not both")
    measured, bad = of_baselines(args) if args.run is None else of_run(args.run, args.case)
    rows = figures_of(measured)
    if args.json:
        say_json(AllFigures(rows, tuple(bad)))
        return FINDINGS if bad else OK
    say(text_of(rows) if rows else "no case has a time")
    return fail_with(bad)


TimedCase = tuple[str, str, Roofline]


def of_run(path: str, pattern: str) -> tuple[list[TimedCase], list[str]]:
    """Name, device and times of the cases that a run has timed; nothing else of it can be unreadable."""
    results = read_run(Path(path)).results
    timed = [r for r in results if r.roofline.time_ns and Pattern(pattern).selects(str(r.case))]
    return [(str(r.case), r.device, r.roofline) for r in timed], []


def of_baselines(args: Namespace) -> tuple[list[TimedCase], list[str]]:
    """The same of the baselines' stored times, with the rates that this cache folder has of their devices."""
    entries = load_folder(given_folder(args.baselines))
    rates = {d.name: d.bandwidth for d in stored_figures(open_cache(args.cache_dir).folder)}
    found = []
    for baseline in readable(entries):
        if isinstance(baseline, TimeBaseline) and Pattern(args.case).matches(baseline):
            device = baseline.device.name
            roofline = Roofline(time_ns(baseline), bytes_moved(baseline.recording), bandwidth=rates.get(device))
            found.append((str(baseline.case), device, roofline))
    return found, problems(entries)


def figures_of(measured: Sequence[TimedCase]) -> tuple[CaseFigures, ...]:
    """The figures, the slowest case first."""
    whole = sum(r.time_ns or 0.0 for _, _, r in measured)
    rows = [
        CaseFigures(
            case=case,
            device=device,
            time_ns=r.time_ns or 0.0,
            share=(r.time_ns or 0.0) / whole if whole else 0.0,
            bytes_moved=r.nbytes,
            **{name: getattr(r, name) for name in OF_ROOFLINE},
        )
        for case, device, r in measured
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time_ns, row.case)))


def text_of(rows: Sequence[CaseFigures]) -> str:
    """The table, and the cases that are far from their roof."""
    table = columns([_cells(r) for r in rows], HEADERS, [CASE_WIDTH, *[None] * (len(HEADERS) - 1)])
    far = [row for row in rows if row.of_roof is not None and row.of_roof < HALF]
    told = [f"  {row.case}: {_percent(row.of_roof)} of {row.roof}, {_percent(row.share)} of the time" for row in far]
    return "\n".join([table, *(["", "Under half of their roof:", *told] if told else [])])


def _cells(row: CaseFigures) -> tuple[str, ...]:
    return (
        row.case,
        format_time(row.time_ns),
        _percent(row.share),
        NO_FIGURE if row.bytes_moved is None else f"{row.bytes_moved:,.0f}",
        format_rate(row.bytes_per_second, "B"),
        _percent(row.of_bandwidth),
        format_rate(row.flops_per_second, "FLOP"),
        _percent(row.of_matmul),
        NO_FIGURE if row.intensity is None else f"{row.intensity:.3g}",
        row.roof or NO_FIGURE,
        _percent(row.of_roof),
    )


def _percent(share: float | None) -> str:
    return NO_FIGURE if share is None else f"{share * 100:.1f} %"
