"""What today's time is held against: the baseline's binary, else its TTIR compiled today, else its stored sample."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass

from kerntune.baseline import TimeBaseline
from kerntune.calibration import against_stored
from kerntune.check.replayer import Artifacts
from kerntune.errors import MeasurementError, OutOfResourcesError, ReplayError
from kerntune.farm.farm import Farm
from kerntune.measure.base import Sample
from kerntune.processes import Replay
from kerntune.recompile import recompiled
from kerntune.recording import Recording, scalar_addresses
from kerntune.stats import Estimate, median

IDENTITY, REPLAY, RECOMPILED, STORED = "identity", "paired replay", "recompiled TTIR", "stored sample"
"""The rungs, best first: the same work needs no comparison; the last can say PASS or INCONCLUSIVE only."""

REMEMBERED = "compared when recorded"
"""Of an anchor's comparison alone: both works are those of the baseline's own recording."""

UNREPLAYABLE = (ReplayError, OutOfResourcesError, MeasurementError)
"""What the next rung is for. A damaged file is not: it is to be mended."""


@dataclass(frozen=True)
class Standing:
    """The rung that held. ``before`` is what ran in the baseline's place, ``why_not`` why the rungs above did not."""

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
        return Standing(REPLAY, judged(before, stored), before, stored)
    except UNREPLAYABLE as exc:
        why_not.append(str(exc))
    try:
        before, made = recompiled(farm, before, stored)
        artifacts = ChainMap(made, stored)  # type: ignore[arg-type]  # only read
        return Standing(RECOMPILED, judged(before, artifacts), before, artifacts, tuple(why_not))
    except UNREPLAYABLE as exc:
        why_not.append(str(exc))
    return Standing(STORED, why_not=tuple(dict.fromkeys(why_not)))


def stored_change(baseline: TimeBaseline, sample: Sample, level: float) -> Estimate | None:
    """Today's time against the stored one, for the last rung; None for a case without a calibration."""
    today, stored = median(sample.times_ns), median(baseline.sample.times_ns)
    if baseline.calibration is None or min(today, stored) <= 0:
        return None
    return against_stored(today, stored, baseline.calibration, level)
