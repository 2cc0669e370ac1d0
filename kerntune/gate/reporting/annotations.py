"""Annotations on a pull request, as GitHub Actions reads them from a job's log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from kerntune.base.formatting import visible
from kerntune.base.policy import Outcome
from kerntune.gate.reporting.ranking import RankedResult

SHOWN = 10
"""Annotations of a kind that GitHub shows of a step: the others are dropped without a word
(github.com/orgs/community/discussions/26680)."""

MAX_MESSAGE = 4_000
"""Characters of a message: GitHub cuts what is longer."""

KINDS = {Outcome.FAIL: "error", Outcome.WARN: "warning"}

FileLine = tuple[str, int]
"""A file as the repository names it, and a line (0: not known)."""


def annotation_lines(ranked: Sequence[RankedResult], place_of: Callable[[str], FileLine]) -> list[str]:
    """Workflow commands, a line each: the worst errors and warnings, and in the last place of a kind how many more.

    ``ranked`` has the worst first; ``place_of`` gives a node id's file and line.
    """
    lines: list[str] = []
    for outcome, kind in KINDS.items():
        found = [r for r in ranked if r.result.outcome is outcome]
        kept = found if len(found) <= SHOWN else found[: SHOWN - 1]
        lines += [_command(kind, r, place_of) for r in kept]
        if len(found) > len(kept):
            more = f"{len(found) - len(kept)} more cases: GitHub shows {SHOWN} {kind}s; the job's summary has all"
            lines.append(f"::{kind} title=kerntune::{_data(more)}")
    return lines


def file_of(nodeid: str) -> str:
    """The test file of a node id, with slashes."""
    return PurePath(nodeid.partition("::")[0]).as_posix()


def _command(kind: str, ranked: RankedResult, place_of: Callable[[str], FileLine]) -> str:
    result = ranked.result
    file, line = place_of(result.case.nodeid)
    title = f"{result.word} {result.case}"
    parts = [f"file={_property(file)}", *([f"line={line}"] if line else []), f"title={_property(title)}"]
    return f"::{kind} {','.join(parts)}::{_data(result.message[:MAX_MESSAGE])}"


def _data(text: str) -> str:
    """Escaped as ``escapeData`` of the runner's toolkit does (github.com/actions/toolkit, core/src/command.ts)."""
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escaped as ``escapeProperty`` of the same file does."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
