"""Adding a run to a history: where it comes from, and its file."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kerntune.errors import UsageError
from kerntune.gate.git import git_output
from kerntune.gate.history.places import Place, file_name
from kerntune.gate.history.points import SCHEMA, HistoryRun, encoded, points_of
from kerntune.gate.report import Origin, RunReport

BRANCH_VARIABLES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_BRANCH", "BUILDKITE_BRANCH", "GIT_BRANCH")
"""Where CI says which branch it runs: its checkout has none, mostly (GitHub Actions, GitLab, Buildkite, Jenkins)."""


def add_run(place: Place, run: HistoryRun) -> str:
    """Add a run; the name of its file, or an empty text if it has no points."""
    if not run.points:
        return ""
    data = encoded(run)
    name = file_name(run, data)
    place.add(name, data)
    return name


def history_run(report: RunReport) -> HistoryRun:
    """A run as a history has it."""
    origin = Origin() if isinstance(report.origin, msgspec.UnsetType) else report.origin
    return HistoryRun(
        schema=SCHEMA,
        created=report.created,
        points=points_of(report.results),
        versions=dict(report.versions),
        **msgspec.structs.asdict(origin),
    )


def origin_of(root: Path, environ: Mapping[str, str]) -> Origin:
    """Where a run of the tests in ``root`` takes place."""
    commit, committed = (_git(root, "log", "-1", "--format=%H %cI") + " ").split(" ", 1)
    return Origin(
        commit=commit,
        committed=_in_utc(committed.strip()),
        branch=next(filter(None, map(environ.get, BRANCH_VARIABLES)), None) or _branch(root),
        dirty=bool(_git(root, "status", "--porcelain", "--untracked-files=no")),
        host=platform.node(),
    )


def _branch(root: Path) -> str:
    return _git(root, "symbolic-ref", "--short", "--quiet", "HEAD")


def _in_utc(text: str) -> str:
    if not text:
        return ""
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment.astimezone(datetime.timezone.utc).isoformat(timespec="seconds")


def _git(root: Path, *args: str) -> str:
    """What git prints; empty if it fails or isn't there: a history is kept outside of repositories, too."""
    try:
        printed = git_output(root, *args) or b""
    except UsageError:
        return ""
    return printed.decode(errors="replace").strip()
