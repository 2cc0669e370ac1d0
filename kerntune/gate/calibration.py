"""A case compared with itself in fresh processes: its smallest detectable change, and the processes' variation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from statistics import NormalDist, stdev

import msgspec

from kerntune.base.policy import DEFAULT_LEVEL
from kerntune.base.stats import Estimate, hodges_lehmann, median, student_quantile
from kerntune.gate.baselines import Calibration
from kerntune.timing.paired_processes import BLOCKS, ONE_SIGMA, PairedWork, between, combine, log_ratios
from kerntune.timing.worker.pool import Pairs
from kerntune.timing.worker.requests import PairReply

CALIBRATION_PROCESSES = 4
"""Fresh processes of a calibration: under a second for a short kernel, and a first baseline pays it once."""

VERSION = 2
"""The rule that :func:`calibrate` follows; raised with any change by which the same case has other figures.

1 had 12 blocks a process; 2 has 24 (:data:`kerntune.timing.paired_processes.BLOCKS`), whose floor is lower.
"""

UNVERSIONED = {12: 1, 24: 2}
"""The rule of a calibration that doesn't say its version, by its blocks."""

STATE_BLOCKS = 3
STATE_MARGIN = 1.25
"""A quarter more, since four processes within a second or two don't meet a device's fastest and slowest state. On an
H200 under its power limit, a matmul of 4096 x 4096 x 4096 took 224 us when rested and 252 to 258 us when not."""

MIN_MEDIAN_SD = 0.002
"""A floor, as plain medians of one session agree better than those of two: on one H200, 0.1 to 0.7 % between
processes."""


def calibrate(
    pairs: Pairs,
    work: PairedWork,
    processes: int = CALIBRATION_PROCESSES,
    seen_ns: Sequence[float] = (),
    throttle: Callable[[], str] = lambda: "",
) -> Calibration:
    """Time ``work``, whose two sides are equal, in several processes.

    The floor is how far the interval of a first look reaches from zero, the truth being zero. ``seen_ns`` are times
    of the same work by the same timer at other moments, for example of its stored sample; ``throttle`` gives the
    device's throttle reasons now. Raises what :func:`kerntune.timing.paired_processes.compare` raises.
    """
    pairs.expect(processes)
    replies, reasons = [], {throttle()}
    for seed in range(processes):
        replies.append(pairs.run(work.request(BLOCKS, seed)))
        reasons.add(throttle())
    change = combine(replies, DEFAULT_LEVEL, bias=0.0).change
    bias = between([hodges_lehmann(log_ratios(r), ONE_SIGMA) for r in replies], centre=0.0)
    medians = [log(median(r.a_ns + r.b_ns)) for r in replies]
    states = [x for times in (*map(both, replies), seen_ns) for x in states_of(times) if x > 0]
    return Calibration(
        processes=processes,
        blocks=BLOCKS,
        floor=_rounded(max(abs(change.low), abs(change.high))),
        bias=_rounded(bias),
        median_sd=_rounded(stdev(medians) if processes > 1 else 0.0),
        state_range=_rounded(STATE_MARGIN * (max(states) / min(states) - 1)),
        throttle=tuple(sorted(reasons - {""})),
        version=VERSION,
    )


def version_of(found: Calibration) -> int:
    """The rule that a calibration was made by; 0 for one that is unknown."""
    return UNVERSIONED.get(found.blocks, 0) if found.version is msgspec.UNSET else found.version


def is_current(found: Calibration) -> bool:
    """Whether it was made by today's rule. The figures of rule 1 have the same meaning and serve until the baseline is
    written or ``kerntune calibrate`` is run: in simulated processes its floor, bias and deviation come out up to 1.4
    times as large, so that less is called a change, and its range up to a sixth smaller."""
    return version_of(found) == VERSION


def earlier_text(found: Calibration) -> str:
    """What to say of a calibration that is not by today's rule, and what to do."""
    return (
        f"calibrated by an earlier rule ({found.blocks} blocks a process, now {BLOCKS}), which can't tell as small a "
        "change: `kerntune calibrate` does it anew"
    )


def both(reply: PairReply) -> list[float]:
    """Per block the mean time of both sides, which are equal."""
    return [(a + b) / 2 for a, b in zip(reply.a_ns, reply.b_ns, strict=True)]


def states_of(times_ns: Sequence[float]) -> list[float]:
    """The times that lasted for a while: medians of three in a row, so that one interrupted block is none, while a
    clock that is held back for three is. Of fewer, their median; none of none."""
    if not times_ns:
        return []
    return [median(times_ns[i : i + STATE_BLOCKS]) for i in range(max(1, len(times_ns) - STATE_BLOCKS + 1))]


def against_stored(today_ns: float, stored_ns: float, found: Calibration, level: float) -> Estimate:
    """Today's median against a stored one, with an interval for what two sessions of equal code differ by.

    Student's t with one degree of freedom less than the calibration's processes, for the standard deviation of their
    medians is an estimate itself.
    """
    margin = _student((1 - level) / 2, found.processes - 1) * 2**0.5 * max(found.median_sd, MIN_MEDIAN_SD)
    ratio = log(today_ns / stored_ns)
    return Estimate(ratio, ratio - margin, ratio + margin, level).map_exp()


def _student(tail: float, freedom: int) -> float:
    return student_quantile(tail, freedom) if freedom > 0 else NormalDist().inv_cdf(1 - tail) * 10


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
