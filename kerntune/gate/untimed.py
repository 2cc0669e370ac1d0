"""Cases that have no time: their launches run nothing, or can't be run again."""

from __future__ import annotations

from pathlib import Path

from kerntune.base.policy import Policy, Update, Verdict
from kerntune.base.recording import Recording
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.call import Settings
from kerntune.gate.decision import Evidence, decide

LAUNCHES_NOTHING = "launches nothing: every grid is empty"


def untimed(
    recording: Recording, unsaved: str, baseline: TimeBaseline | None, policy: Policy, settings: Settings
) -> tuple[Verdict, str] | None:
    """Verdict and reason of a case that can't have a time; None for all others.

    ``unsaved`` says why its launches can't be run again, if they can't. A case without work passes, unless its
    ``baseline`` had some.
    """
    before = len(baseline.recording.working) if baseline is not None else 0
    if not recording.working and before:
        advice = "" if settings.read_only else "; --kerntune-update=all removes that"
        return Verdict.INCOMPLETE, f"{LAUNCHES_NOTHING}, its baseline has work{advice}"
    if not recording.working:
        return Verdict.PASS, LAUNCHES_NOTHING
    if unsaved:
        return decide(Evidence(len(recording.working), before), policy), f"it can't be timed: {unsaved}"
    return None


def obsolete(recording: Recording, path: Path, settings: Settings) -> Path | None:
    """``path``, a case's baseline, if this run accepts that the case has no work any more: it passes without one."""
    accepts = settings.update is Update.ALL and not settings.read_only
    return path if accepts and not recording.working and path.exists() else None
