"""``kerntune baselines apply``: baselines from another machine's run, where its GPU is missing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kerntune.base.case_result import CaseResult
from kerntune.base.formatting import format_time
from kerntune.base.policy import Verdict
from kerntune.cli.stored import Pattern, case_argument, folder_argument, time_ns
from kerntune.errors import BaselineError, StoreError, UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.bundle import Bundle, apply_bundle, check_identity, decode_bundle, unpacked
from kerntune.gate.console import OK, counted, say
from kerntune.gate.project import baseline_folder
from kerntune.gate.report import RunReport, read_run

ALL, NEW, IMPROVED = "all", "new", "improved"
"""What ``--only`` takes, as ``--kerntune-update`` does."""


@dataclass(frozen=True)
class Offer:
    """A bundle of a run with the verdict that the run gave; ``where`` names file and case."""

    where: str
    bundle: Bundle
    result: CaseResult | None

    @property
    def verdict(self) -> str:
        """The verdict as text."""
        return self.result.verdict.value if self.result else "no verdict"


def run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``kerntune baselines apply`` takes."""
    parser.add_argument("run", metavar="RUN.json", help="what --kerntune-json wrote on the other machine")
    folder_argument(parser)
    case_argument(parser)
    parser.add_argument(
        "--only",
        choices=("new", "improved", "all"),
        default="all",
        help="cases that the folder doesn't have, cases that the run found faster, or all (default)",
    )
    parser.set_defaults(function=run)


def run(args: argparse.Namespace) -> int:
    """Write the baselines that a run carries. All are checked before the first is written."""
    store = BaselineStore(baseline_folder(args.baselines, Path.cwd()))
    offers = list(_offers(Path(args.run), Pattern(args.case)))
    if not offers:
        raise UsageError(f"{args.run}: no case in it matches {args.case!r}")
    chosen = [o for o in offers if wanted(o, args.only, store)]
    for offer in chosen:
        say(_line(offer, apply_bundle(offer.bundle, store, where=offer.where)))
    skipped = f", {len(offers) - len(chosen)} left alone" if len(offers) > len(chosen) else ""
    say(f"{counted(len(chosen), 'baseline')} written to {store.folder}{skipped}")
    return OK


def wanted(offer: Offer, only: str, store: BaselineStore) -> bool:
    """Whether ``--only`` selects this case: one that the folder hasn't, or one that the run found to be faster. A case
    that is INCOMPLETE is never selected, as with ``--kerntune-update``."""
    if offer.result is not None and offer.result.verdict is Verdict.INCOMPLETE:
        return False
    if only == NEW:
        return not store.path_of(offer.bundle.baseline).exists()
    if only == IMPROVED:
        return offer.result is not None and offer.result.verdict is Verdict.IMPROVED
    return True


def read(path: Path) -> RunReport:
    """A run's JSON; :class:`UsageError` if there is no such file, or it is not a run's."""
    try:
        return read_run(path)
    except OSError as exc:
        raise UsageError(f"{path}: can't be read ({exc.strerror}); name what --kerntune-json wrote") from exc
    except StoreError as exc:
        raise UsageError(f"{exc}; name what --kerntune-json wrote") from exc


def _offers(path: Path, pattern: Pattern) -> Iterator[Offer]:
    report = read(path)
    if not report.baselines:
        raise BaselineError(
            f"{path}: carries no baselines; let the other machine run with --kerntune-json and --kerntune-update=all: "
            "a run keeps what a baseline needs only of cases that it is to write"
        )
    for name, value in report.baselines.items():
        where = f"{path}: {name}"
        bundle = decode_bundle(value, where)
        if pattern.matches(bundle.baseline):
            check_identity(bundle, where)
            unpacked(bundle, where)
            yield Offer(where, bundle, _result(report, bundle))


def _result(report: RunReport, bundle: Bundle) -> CaseResult | None:
    mine = (bundle.baseline.case, str(bundle.baseline.target), bundle.baseline.fingerprint)
    return next((r for r in report.results if (r.case, r.target, r.fingerprint) == mine), None)


def _line(offer: Offer, path: Path) -> str:
    ns = time_ns(offer.bundle.baseline)
    time = "" if ns is None else f" {format_time(ns)},"
    return f"{offer.bundle.baseline.case} ({offer.bundle.place}):{time} {offer.verdict} -> {path}"
