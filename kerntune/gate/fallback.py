"""What today's time is held against: the baseline's binary, else its TTIR compiled today, else its stored sample."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kerntune.base.recording import Artifacts, Recording, scalar_addresses
from kerntune.base.stats import Estimate, median
from kerntune.compiling.farm import Farm
from kerntune.compiling.recompile import recompiled
from kerntune.errors import MeasurementError, OutOfResourcesError, ReplayError
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.calibration import against_stored
from kerntune.timing.paired_processes import Replay
from kerntune.timing.sample import Sample

IDENTITY, REPLAY, RECOMPILED, STORED = "identity", "paired replay", "recompiled TTIR", "stored sample"
"""The rungs, best first: the same work needs no comparison; the last can say PASS or INCONCLUSIVE only."""

REMEMBERED = "compared when recorded"
"""Of an anchor's comparison alone: both works are those of the baseline's own recording."""

UNREPLAYABLE = (ReplayError, OutOfResourcesError)
"""What the next rung is for. A damaged file is not: it is to be mended. Nor is a measurement that failed: the next one
would fail as well, or clear the case by less."""


@dataclass(frozen=True)
class Standing:
    """The rung that held. ``before`` is what ran in the baseline's place, ``why_not`` why the rungs above did not, and
    this one neither if there is no ``replay`` of it."""

    rung: str
    replay: Replay | None = None
    before: Recording | None = None
    artifacts: Artifacts | None = None
    why_not: tuple[str, ...] = ()


def stand(
    baseline: TimeBaseline, stored: Artifacts, farm: Farm, judged: Callable[[Recording, Artifacts], Replay]
) -> Standing:
    """Replay the baseline beside today's recording from the best rung that holds. ``judged`` does one replay."""
    before, why_not = baseline.recording, []
    hidden = scalar_addresses(before)
    if hidden:
        return Standing(STORED, why_not=(f"it takes addresses as numbers ({', '.join(hidden)}); pass tensors instead",))
    try:
        return _replayed(REPLAY, before, stored, judged)
    except UNREPLAYABLE as exc:
        why_not.append(str(exc))
    try:
        before, made = recompiled(farm, before, stored)
        artifacts = ChainMap(made, stored)  # type: ignore[arg-type]  # only read
        return _replayed(RECOMPILED, before, artifacts, judged, why_not)
    except UNREPLAYABLE as exc:
        why_not.append(str(exc))
    return Standing(STORED, why_not=tuple(dict.fromkeys(why_not)))


def _replayed(
    rung: str,
    before: Recording,
    artifacts: Artifacts,
    judged: Callable[[Recording, Artifacts], Replay],
    why_not: Sequence[str] = (),
) -> Standing:
    """The rung with its replay; without one if the processes failed that were to measure: then nothing is known."""
    try:
        return Standing(rung, judged(before, artifacts), before, artifacts, tuple(why_not))
    except MeasurementError as exc:
        return Standing(rung, why_not=(*why_not, str(exc)))


def stored_change(baseline: TimeBaseline, sample: Sample, level: float) -> Estimate | None:
    """Today's time against the stored one, for the last rung; None for a case without a calibration."""
    today, stored = median(sample.times_ns), median(baseline.sample.times_ns)
    if baseline.calibration is None or min(today, stored) <= 0:
        return None
    return against_stored(today, stored, baseline.calibration, level)
