"""The texts of a case's result: its sentence, times, reasons and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kerntune.base.case_result import IDENTITY, Attribution, CaseId, Share, Since, word_of
from kerntune.base.device import Environment
from kerntune.base.formatting import format_share, format_size, format_time
from kerntune.base.policy import Policy, Verdict
from kerntune.base.recording import Recording
from kerntune.base.stats import Estimate, TwoModes, median
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.call import PendingBaseline
from kerntune.gate.causes import STEPS, causes
from kerntune.gate.comparison import Comparison, Judgement
from kerntune.gate.decision import DRIFT, limit_of
from kerntune.gate.replay import RECOMPILED, REPLAY, STORED, ComparisonMethod, earlier_text, is_current
from kerntune.gpu.foreign_work import ForeignWork, together
from kerntune.timing.paired_processes import Replay
from kerntune.timing.timers import Sample


def interval(change: Estimate) -> str:
    """``99 % CI +11.6..+12.5``."""
    return f"{change.level * 100:.3g} % CI {_ends(change)}"


def _ends(change: Estimate) -> str:
    return f"{change.low * 100:+.1f}..{change.high * 100:+.1f}"


def shares_text(parts: Attribution) -> str:
    """``attributed: code +9.8 %, environment +0.2 %, compiler not measured``: the largest share first.

    Causes that could only be timed together are named together: ``code and launch options +5.7 %``.
    """
    fields: dict[str, Share] = {name: getattr(parts, name) for name in NAMES}
    found = [(_named(name, fields), share) for name, share in fields.items() if not share.within]
    shown = [(n, s.change) for n, s in found if s.change is not None and abs(s.change) >= SHOWN]
    shown.sort(key=lambda pair: -abs(pair[1]))
    words = [f"{name} {format_share(change)}" for name, change in shown] or ["no cause to speak of"]
    words += [f"{name} not measured" for name, share in found if share.change is None]
    return f"attributed: {', '.join(words)}"


def _named(field: str, fields: Mapping[str, Share]) -> str:
    return " and ".join(s.cause or NAMES[n] for n, s in fields.items() if field in (n, s.within))


def since_text(since: Since | None, parts: Attribution | None) -> str:
    """``+6.1 % since the anchor of 2026-10-02 (99 % CI +5.9..+6.3; 5.0 % allowed)``; empty for the same work.

    ``parts`` is this change taken apart, where it was.
    """
    if since is None:
        return ""
    allowed = f"{format_size(since.tolerance)} allowed"
    if since.change is not None:
        change = format_share(since.change.point)
        known = [interval(since.shown)] if since.shown is not None else []
        told = [*known, allowed, *([shares_text(parts)] if parts is not None else [])]
        return f"{change} since the anchor of {since.date} ({'; '.join(told)})"
    return f"the anchor of {since.date} can't be replayed" if since.verdict is Verdict.INCONCLUSIVE else ""


NAMES = {name: name for name in STEPS} | {"config": "config choice"}
"""Causes by their field, as far as they have no nearer name."""

SHOWN = 0.0005
"""Smaller shares would be shown as 0.0 %."""


def timed_message(
    verdict: Verdict,
    case: CaseId,
    before_ns: float | None,
    after_ns: float | None,
    change: Estimate | None,
    causes: Sequence[str],
    *,
    held: bool = True,
) -> str:
    """A verdict's sentence, with the causes at its end; ``change`` has the interval that is shown. ``held``: there was
    something to hold the case against.

    ``REGRESSED test[4096]: 12.4 µs -> 13.9 µs (+12.1 %, 99 % CI +11.6..+12.5), code changed, config unchanged``.
    """
    text = f"{word_of(verdict, held=held)} {case}"
    if before_ns is not None and after_ns is not None:
        text += f": {format_time(before_ns)} -> {format_time(after_ns)}"
        if change is not None:
            text += f" ({format_share(change.point)}, {interval(change)})"
        elif before_ns > 0:
            text += f" ({format_share(after_ns / before_ns - 1)})"
    elif after_ns is not None:
        text += f": {format_time(after_ns)}"
    return ", ".join([text, *causes])


def modes_text(modes: TwoModes | None) -> list[str]:
    """A remark on times that fall into two groups, as clocks that are held back now and then make them."""
    if modes is None:
        return []
    low, high = format_time(modes.low), format_time(modes.high)
    share = format_size(modes.share_high)
    return [f"times fall into two groups, {low} and {high} ({share} of them), as under a power limit"]


def times(baseline: TimeBaseline | None, sample: Sample, replayed: Replay | None) -> tuple[float | None, float]:
    """The baseline's time and today's: both of today's replay if there was one."""
    if replayed is not None:
        return median(replayed.a_ns), median(replayed.b_ns)
    return (median(baseline.sample.times_ns) if baseline else None), median(sample.times_ns)


def reasons_of(
    baseline: TimeBaseline | None,
    recording: Recording,
    today: Environment,
    used: ComparisonMethod,
    scope: str,
    sample: Sample,
) -> tuple[str, ...]:
    """What differs from the baseline, and which fallback the comparison used, if any."""
    if baseline is None:
        return ("no baseline on this device",)
    reasons = causes(baseline.recording, recording, baseline.environment, today)
    moved, why = baseline.environment.differences(today), "; ".join(used.why_not)
    if moved:
        reasons = (*reasons, "environment " + "; ".join(moved))
    retimed = baseline.sample.protocol.differences(sample.protocol)
    if retimed:
        reasons = (*reasons, f"not held against the stored time, which was taken otherwise: {', '.join(retimed)}")
    if scope == "op" and used.replay is not None:
        whole = " -> ".join(format_time(median(x.times_ns)) for x in (baseline.sample, sample))
        reasons = (*reasons, f"these are its kernels; the whole call: {whole}")
    if used.rung in (REPLAY, RECOMPILED) and used.replay is None:
        return (*reasons, f"the replay could not be measured: {why}")
    if used.rung == RECOMPILED:
        return (*reasons, f"held against the baseline's TTIR compiled today, for its binary can't run: {why}")
    if used.rung == STORED:
        return (*reasons, f"the baseline can't be replayed: {why}")
    return reasons


MEASURE_AGAIN = "measure again when it has ended, or on a GPU of its own"


def foreign_text(judgement: Judgement, alone: ForeignWork) -> tuple[str, ...]:
    """That other processes used the device during a replay, or while a time was taken by which a case drifted or
    became a baseline (``alone``); empty where the message contains it as a reason."""
    replays = [c.used.replay for c in (judgement.found, judgement.since) if c is not None and c.used.replay is not None]
    seen = together([alone, *(r.foreign for r in replays)])
    return () if not seen.disturbs or unsure(judgement) else (f"{seen}; {MEASURE_AGAIN}",)


def unsure(judgement: Judgement) -> tuple[str, ...]:
    """Why a replay left the verdict open, by the interval at the run's level, which is wider than the shown one."""
    open_ones = [c for c in (judgement.found, judgement.since) if c is not None and c.verdict is Verdict.INCONCLUSIVE]
    if judgement.verdict is not Verdict.INCONCLUSIVE or not open_ones or open_ones[0].change is None:
        return ()
    found = open_ones[0]
    if found.evidence.foreign_work and found.used.replay is not None:
        return (f"{found.used.replay.foreign}; {MEASURE_AGAIN}",)
    limit = limit_of(found.policy, found.evidence.baseline_ns, found.evidence.effect_floor)
    ends, allowed = _ends(open_ones[0].change), format_share(limit)
    return (f"not sure enough: of the interval that decides, {ends}, a part lies beyond {allowed}",)


def warnings_of(judgement: Judgement, pending: PendingBaseline, policy: Policy) -> tuple[str, ...]:
    """What limits the verdict: noise above the tolerance, an earlier rule's calibration, a time that isn't gated."""
    mine = pending.baseline.calibration if isinstance(pending.baseline, TimeBaseline) else None
    known = judgement.found.baseline.calibration if judgement.found is not None else mine
    out = []
    if known is not None and known.floor > policy.tolerance:
        asked, told = format_size(policy.tolerance), format_size(known.floor)
        out.append(
            f"can't be gated at {asked}: on this device a change under {told} can't be told from none, so {told} is "
            "what was gated"
        )
    stays = mine is known or not pending.write
    if judgement.found is not None and known is not None and stays and not is_current(known):
        # equal code needs no calibration up to DRIFT
        needed = judgement.found.used.rung != IDENTITY or known.state_range > DRIFT
        out += [earlier_text(known)] if needed else []
    if not policy.metrics.time:
        would = f", by which it would be {judgement.reported.value}" if judgement.reported is not None else ""
        out.append(f"its time is not gated{would}")
    return tuple(out)


def reported(found: Comparison | None) -> Since | None:
    """The comparison with the anchor, for reports."""
    if found is None:
        return None
    rung, tolerance = found.used.rung, found.policy.tolerance
    return Since(found.baseline.recorded, found.verdict, tolerance, found.change, rung, found.shown)
