"""What the terminal shows at the end of a run: the table, and what to do next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from kerntune.base.case_result import UNJUDGED, CaseResult
from kerntune.base.config import Config, configs_text, unique_configs
from kerntune.base.failed_candidates import config_problems, failures_line
from kerntune.base.formatting import visible
from kerntune.base.policy import Outcome, Verdict
from kerntune.gate.console import counted
from kerntune.gate.report import badness, counts_line, unchecked_line
from kerntune.gate.reporting.failure import accepted_together, table_lines
from kerntune.gate.stores import CALL_GONE, RUN_JSON, prune_command
from pytest_kerntune.options import OPTIONS
from pytest_kerntune.payload import Collected
from pytest_kerntune.values import needed_words, parted

MAX_LINES = 20
"""Lines of one kind that are listed without ``-v``: more would push the table off the screen."""

RENAMED = "renamed from "
"""Begins the remark on a case that may be another one under a new name; it has the command that keeps the baseline."""


def write_text(reporter: pytest.TerminalReporter, text: str, **markup: bool) -> None:
    """The only way of a text to the terminal here: ids, kernels and messages may be a file's."""
    reporter.write_line(visible(text), **markup)


def write_summary(
    reporter: pytest.TerminalReporter,
    collected: Collected,
    stale: Sequence[CaseResult],
    errors: Sequence[str],
    written: Path | None = None,
    not_passed: Collection[str] = (),
) -> None:
    """The section at the end of the run; one line of counts under ``-q``. ``written`` is the run's JSON, if it writes
    one; ``not_passed`` are tests of which no baseline is written."""
    results = (*collected.results, *stale)
    reporter.write_sep("=", "kerntune")
    if collected.results and reporter.verbosity >= 0:  # the worst cases first; passing ones under -v alone
        whole, width = reporter.verbosity > 0, reporter._tw.fullwidth
        lines = table_lines(sorted(collected.results, key=badness), whole=whole, width=width)
        for line, outcome in lines:
            write_text(reporter, line, red=outcome is Outcome.FAIL, yellow=outcome is Outcome.WARN)
        if lines:
            write_text(reporter, "")
    _write_configs(reporter, collected.results)
    _write_failures(reporter, collected.results)
    passing = [r for r in collected.results if r.outcome is Outcome.PASS]  # their messages aren't shown
    _write_some(reporter, [f"{r.case}: {text}" for r in passing for text in r.warnings], "warnings")
    for nodeid, reason in collected.static_only.items():
        write_text(reporter, f"static only: {nodeid} stopped where it needs results of a GPU: {reason}")
    _write_unchecked(reporter, collected)
    for result in stale:
        write_text(reporter, result.message, yellow=True)
    bad = any(r.outcome is Outcome.FAIL for r in results)
    write_text(reporter, counts_line(results), red=bad, green=not bad and bool(results))
    if changed := sum(bool(r.unjudged) for r in collected.results):
        write_text(reporter, f"{counted(changed, 'case')} passed with other code than before: {UNJUDGED}")
    for line in offers(collected.results, stale, reporter.config, written, not_passed):
        write_text(reporter, line)
    for error in errors:
        write_text(reporter, f"ERROR: {error}", red=True)


def offers(
    results: Sequence[CaseResult],
    stale: Sequence[CaseResult],
    config: pytest.Config,
    written: Path | None,
    not_passed: Collection[str] = (),
) -> list[str]:
    """Commands that keep what this run found: for gains, for new cases, for baselines without a case. ``written`` is
    the run's JSON, if it writes one. Of a test that has ``not_passed`` nothing would be recorded."""
    if config.getoption("kerntune_sealed"):
        return []  # it records nothing, and its command isn't the user's
    recorded = [r for r in results if r.recorded]
    improved = sum(r.verdict is Verdict.IMPROVED and not r.recorded for r in results)
    failing = [r for r in results if r.outcome is Outcome.FAIL and r.verdict is not Verdict.NEW]
    tests = {r.case.nodeid for r in failing}  # they fail for more than the want of a baseline: none is recorded
    unrecorded = [r for r in results if r.verdict is Verdict.NEW and not r.recorded and r.case.nodeid not in tests]
    unrecorded = [r for r in unrecorded if r.outcome is Outcome.FAIL or r.case.nodeid not in not_passed]
    renamed = {id(r): text for r in unrecorded for text in r.remarks if text.startswith(RENAMED)}
    new = len(unrecorded) - len(renamed)
    lines = [f"{r.word} {r.case}: {renamed[id(r)]}" for r in unrecorded if id(r) in renamed]
    if recorded:
        lines.append(
            f"{counted(len(recorded), 'baseline')} recorded{_where(recorded)}; commit the folder, so that later runs "
            "are held against it"
        )
    elif results and config.getoption("kerntune_update"):
        lines.append("no baseline has changed")
    if improved:
        lines.append(
            f"{counted(improved, 'case')} improved; to hold the gain: {_again(config, '--kerntune-update=improved')}"
        )
    if new:
        lines.append(f"{counted(new, 'case')} without a baseline; to record: {_again(config, '--kerntune-update=new')}")
    if not (config.getoption("kerntune_against") or config.getoption("kerntune_baselines_ref")):
        for told, update, _ in accepted_together(failing):  # the tests name what accepts one of them
            command = _again(config, f"--kerntune-update={update.value}")
            lines.append(f"{told}; to accept, if that is meant: {command}")
    gone = [r for r in stale if r.fingerprint]  # those that can't be read say so themselves, and prune refuses them
    may_be = tuple(f"{RENAMED}{r.case}{end}" for r in gone for end in (" and edited?", "?"))
    if any(text.startswith(may_be) for text in renamed.values()):
        lines.append(f"{counted(len(gone), 'stale baseline')}; remove none before renamed cases have theirs: see above")
    elif gone:
        lines.append(f"{counted(len(gone), 'stale baseline')}; to remove: {_removing(gone, config, written)}")
    return lines


def _removing(stale: Sequence[CaseResult], config: pytest.Config, written: Path | None) -> str:
    """The commands that remove them all. What a test doesn't call any more shows in a run alone: the command reads
    the JSON that this run has ``written``, or else the same run again writes one."""
    if not any(CALL_GONE in r.message for r in stale):
        return prune_command(by_run=False)
    if written is not None:
        return prune_command(by_run=True, report=os.path.relpath(written, config.invocation_params.dir))
    again = _again(config, f"--kerntune-json={RUN_JSON}")
    return f"{again}, then {prune_command(by_run=True)}"


def _where(recorded: Sequence[CaseResult]) -> str:
    """The folder that has them all, if there is one."""
    folders = {os.path.dirname(r.baseline_path) for r in recorded if r.baseline_path}
    try:
        common = os.path.commonpath(folders) if all(folders) else ""
    except ValueError:  # none at all, or some below the project's root and some elsewhere
        return ""
    return f" in {common}" if common else ""


def _write_configs(reporter: pytest.TerminalReporter, results: Sequence[CaseResult]) -> None:
    """Candidates that have a problem, equal problems once; ``-v`` shows all of them, and names each config."""
    found: dict[tuple[str, str, str], list[Config]] = {}
    for result in results:
        for kernel, configs, problem, _ in config_problems(result.configs):
            found.setdefault((result.target, kernel, problem), []).extend(configs)
    lines = []
    for (target, kernel, problem), about in found.items():
        configs = unique_configs(about)
        named = ", ".join(map(str, configs)) if reporter.verbosity > 0 else configs_text(configs)
        lines.append(f"{target}: {kernel} with {named}: {problem}")
    _write_some(reporter, lines, "problems of configs")


def _write_failures(reporter: pytest.TerminalReporter, results: Sequence[CaseResult]) -> None:
    """A line per kernel of a case some of whose candidates could not be used."""
    lines = []
    for result in results:
        for kernel in dict.fromkeys(f.kernel for f in result.failed_trials):
            failed = [f for f in result.failed_trials if f.kernel == kernel]
            others = [(t.kernel, t.config) for t in result.trials] + [(t.kernel, t.config) for t in result.left_out]
            configs = {*(f.config for f in failed), *(c for name, c in others if name == kernel)}
            lines.append(f"{result.case}: {failures_line(failed, len(configs))}")
    _write_some(reporter, lines, "kernels with failed configs")


def _write_some(reporter: pytest.TerminalReporter, lines: Sequence[str], what: str) -> None:
    shown = lines if reporter.verbosity > 0 else lines[:MAX_LINES]
    for line in shown:
        write_text(reporter, line, yellow=True)
    if len(lines) > len(shown):
        write_text(reporter, f"... and {len(lines) - len(shown)} more {what}; -v shows all")


def _write_unchecked(reporter: pytest.TerminalReporter, collected: Collected) -> None:
    """How many comparisons of values passed unseen; ``-v`` shows where."""
    line = unchecked_line(collected.unchecked)
    if not line:
        return
    write_text(reporter, line if reporter.verbosity > 0 else f"{line}; -v shows them", yellow=True)
    if reporter.verbosity > 0:
        for nodeid, values in collected.unchecked.items():
            for value in values:
                write_text(reporter, f"  {nodeid}: {value.place}: {value.line}")


def _again(config: pytest.Config, option: str) -> str:
    """This run's command, as short as it can be, with ``option``."""
    given, outputs = config.invocation_params, [o.flag for o in OPTIONS if o.output]
    args, names = parted(needed_words([str(a) for a in given.args], given.dir, outputs))
    return shlex.join(["pytest", *args, option, *names])
