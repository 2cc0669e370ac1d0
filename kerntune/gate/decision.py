"""The decision table: from evidence to exactly one verdict. Sees numbers and facts, never a GPU."""

from __future__ import annotations

from typing import NamedTuple

from kerntune.base.policy import Policy, Verdict
from kerntune.base.stats import Estimate

DRIFT = 0.05
"""Identical code more than 5 % off its stored time is DRIFTED: medians moved by up to 4 % from process to process
on one H200 with nothing changed, so less than that says nothing."""


class Evidence(NamedTuple):
    """What is known of a case when it is judged. Changes are relative: 0.12 is 12 % slower than the baseline.

    ``launched`` and ``expected`` count launches (``expected`` is None without a baseline). ``identical`` is whether
    code, grids, scalars, layouts and order are the baseline's. ``replay`` is the paired estimate of today's recording
    against the baseline's binary. ``drift`` is the baseline's binary (or identical code) against its stored time.
    ``static_failure`` is whether a static rule failed, or that a gated metric grew by more than it may. ``timed``:
    there are times, and they are gated. ``state_range`` is how far apart the times of equal code lay in the device's
    states when the case was calibrated, ``effect_floor`` the smallest change that could be detected. ``stored``
    is today's time against the stored one, where nothing of the baseline can be replayed; its interval holds what
    sessions differ by. ``other_settings`` tells that the environment had the compiler make other code than it would
    under the baseline's. ``outside_writes`` is whether a launch changed bytes outside of its tensors; of ``identical``
    work, that was looked for when the baseline was recorded. ``foreign_work`` is whether other processes used the
    device during the replay. ``results_changed`` is whether results differ from those of the baseline's code by more
    than a gate on them allows, ``results_unknown`` whether such a gate is set and some could not be compared.
    ``work_moved`` is whether operators of torch have taken over work that kernels did, ``work_unsure`` whether they do
    more or less than before in a way that the judged kernels don't show (:mod:`kerntune.gate.call_operators`);
    ``work_taken_over`` whether they do less and other kernels are timed, which may do that work now.
    ``cut_off``: without a GPU, the call stopped at a value that only a GPU has, and the baseline doesn't accept that.
    """

    launched: int
    expected: int | None = None
    identical: bool = False
    replay: Estimate | None = None
    drift: float | None = None
    baseline_ns: float | None = None
    static_failure: bool = False
    timed: bool = True
    state_range: float = 0.0
    effect_floor: float = 0.0
    stored: Estimate | None = None
    other_settings: bool = False
    outside_writes: bool = False
    foreign_work: bool = False
    results_changed: bool = False
    results_unknown: bool = False
    work_moved: bool = False
    work_unsure: bool = False
    work_taken_over: bool = False
    cut_off: bool = False


CLEARED = (Verdict.PASS, Verdict.IMPROVED, Verdict.DRIFTED)
"""Verdicts that say that nothing got worse."""


def decide(evidence: Evidence, policy: Policy) -> Verdict:
    """The verdict. Total and exclusive: the first line that holds decides.

    ====  =================================================================  ============
    line  holds when                                                         verdict
    ====  =================================================================  ============
    1     nothing was launched, or less than the baseline has and no work    INCOMPLETE
          moved to operators of torch
    2     work moved to operators of torch, a launch wrote outside of its    REGRESSED
          tensors, a static rule failed (a limit of the device, without a
          baseline), a gated metric grew, or gated results changed
    3     there is no baseline                                               NEW
    4     no rule failed, and time isn't gated (static only, say)            PASS,
                                                                             INCONCLUSIVE
    5     identical, and its time is near the stored one                     PASS
    6     identical otherwise                                                DRIFTED
    7     replayed: the whole interval is slower than tolerance and floor,   REGRESSED
          no other process used the device meanwhile, and kernels took over
          no work of operators
    8     replayed: the whole interval is faster than tolerance and floor,   IMPROVED
          and no other process used the device meanwhile
    9     replayed: the interval excludes a slowdown beyond tolerance        PASS, DRIFTED
    10    no replay: the stored sample excludes a slowdown beyond tolerance  PASS
    11    anything else                                                      INCONCLUSIVE
    ====  =================================================================  ============

    Line 4 says INCONCLUSIVE where code was compiled under other settings than the baseline's, line 9 DRIFTED where the
    baseline's own binary runs far off its stored time. Lines 3 and 4 say INCOMPLETE where the call was cut off.
    Tolerance is never below the case's effect floor. Where results are gated and some could not be compared, or
    operators of torch may have taken over work, PASS, IMPROVED and DRIFTED of lines 4 to 10 are INCONCLUSIVE. So is
    REGRESSED of line 7 where kernels may have taken over work of operators, whose time the baseline doesn't have.
    """
    verdict = _decide_compared(evidence, policy)
    unsure = evidence.results_unknown or evidence.work_unsure
    return Verdict.INCONCLUSIVE if unsure and verdict in CLEARED else verdict


def _decide_compared(evidence: Evidence, policy: Policy) -> Verdict:
    if evidence.launched == 0 or ((evidence.expected or 0) > evidence.launched and not evidence.work_moved):
        return Verdict.INCOMPLETE
    if evidence.work_moved or evidence.static_failure or evidence.outside_writes or evidence.results_changed:
        return Verdict.REGRESSED
    if evidence.cut_off:
        return Verdict.INCOMPLETE
    if evidence.expected is None:
        return Verdict.NEW
    if not evidence.timed:
        return Verdict.INCONCLUSIVE if evidence.other_settings else Verdict.PASS
    drifted = evidence.drift is not None and abs(evidence.drift) > drift_limit(evidence.state_range)
    if evidence.identical:
        return Verdict.DRIFTED if drifted else Verdict.PASS
    limit = limit_of(policy, evidence.baseline_ns, evidence.effect_floor)
    if evidence.replay is None:
        # times of two sessions can say that nothing got slower; that something did, they can't
        passed = evidence.stored is not None and evidence.stored.high <= limit
        return Verdict.PASS if passed else Verdict.INCONCLUSIVE
    if evidence.replay.low > limit:
        unfair = evidence.foreign_work or evidence.work_taken_over
        return Verdict.INCONCLUSIVE if unfair else Verdict.REGRESSED
    if evidence.replay.high < -limit:
        return Verdict.INCONCLUSIVE if evidence.foreign_work else Verdict.IMPROVED
    if evidence.replay.high <= limit:
        return Verdict.DRIFTED if drifted else Verdict.PASS
    return Verdict.INCONCLUSIVE


def with_anchor(verdict: Verdict, since: Verdict | None) -> Verdict:
    """The worse of the verdict by the baseline and that by the anchor, which only says whether code got slower.

    ====  =================================================================  ============
    line  holds when                                                         verdict
    ====  =================================================================  ============
    1     INCOMPLETE by the baseline: what ran is not the case               INCOMPLETE
    2     REGRESSED by the anchor                                            REGRESSED
    3     INCONCLUSIVE by the anchor, and PASS, IMPROVED or DRIFTED by the   INCONCLUSIVE
          baseline
    4     anything else; no anchor                                           as it was
    ====  =================================================================  ============

    With another number of launches than the anchor has, nothing is wrong: that was accepted when the baseline was
    recorded. Nor is the anchor's drift of interest: it is older than the driver, as a rule.
    """
    if verdict is Verdict.INCOMPLETE:
        return verdict
    if since is Verdict.REGRESSED:
        return Verdict.REGRESSED
    return Verdict.INCONCLUSIVE if since is Verdict.INCONCLUSIVE and verdict in CLEARED else verdict


def drift_limit(state_range: float) -> float:
    """How far equal code may lie from its stored time: :data:`DRIFT`, or what the case's calibration saw if that is
    more."""
    return max(DRIFT, state_range)


def limit_of(policy: Policy, baseline_ns: float | None, effect_floor: float) -> float:
    """The relative slowdown that is allowed: the tolerance, or the absolute or the effect floor where that is more."""
    floor = policy.floor_ns / baseline_ns if baseline_ns else 0.0
    return max(policy.tolerance, floor, effect_floor)


def settled(change: Estimate, policy: Policy, baseline_ns: float | None, effect_floor: float) -> bool:
    """Whether more blocks could not change the verdict: the interval lies on one side of each border."""
    limit = limit_of(policy, baseline_ns, effect_floor)
    return change.low > limit or change.high < -limit or (change.high <= limit and change.low >= -limit)
