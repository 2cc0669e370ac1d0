"""A paired replay over several fresh processes: every one must agree."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import NormalDist, mean, variance

from kerntune.base.recording import Recording, Storage
from kerntune.base.stats import Estimate, hodges_lehmann, median, widened
from kerntune.errors import MeasurementError
from kerntune.timing.paired import block_ratios
from kerntune.timing.worker.pool import Pairs
from kerntune.timing.worker.requests import PairReply, PairRequest

PROCESSES = 3
"""Fresh processes of a first look. More blocks in one process can't see the bias that a process has; three fresh ones
of 24 blocks gave no false alarm in 20,000 simulated decisions (``benchmarks/results/simulate_verdicts.json``)."""

MORE_PROCESSES = 5
"""Further ones if the first leave the verdict open: one escalation, which distinguishes 1.5 % from 1 %."""

SHOWN_LEVEL = 0.99
"""Level of the interval that people are shown: the same in every run. A verdict has the run's own level, which grows
with the number of cases; the interval at 99 % lies inside of that one, so it never contradicts a verdict."""

LOOKS = 2
"""How often a verdict may fall: after the first processes and after all. Each look spends half of the error allowed."""

MAX_DISCARDED = 2
"""Processes that may fail (killed, out of memory, a hung device) in one decision before there is none."""

BLOCKS, MORE_BLOCKS = 24, 36
"""Blocks in each process of the first look, and in those that are added. On one H200 the estimates of fresh processes,
equal code beside itself, scatter by at most 0.09 % with 24 blocks (kernels over 3 us), by up to 0.14 % with 12."""

ONE_SIGMA = 0.6827
"""Level of an interval whose half is about a standard error."""

PROCESS_BIAS = 0.001
"""Standard deviation of what one process adds to a ratio, where a case has no calibration: under 0.1 % over fresh
processes of one H200 for kernels over 3 us. The blocks of one see nothing of it, for it is the same in all of them."""


@dataclass(frozen=True)
class PairedWork:
    """Two recordings for one memory plan, the bytes they need, and the timer to use."""

    a: Recording
    b: Recording
    storages: Sequence[Storage]
    artifacts: Mapping[str, bytes]
    timer: str = "auto"

    def request(self, blocks: int, seed: int) -> PairRequest:
        """What a process is asked; ``seed`` decides the order of blocks."""
        names = {x.sha256 for side in (self.a, self.b) for x in side.binaries}
        names |= {s.content.sha256 for s in self.storages if hasattr(s.content, "sha256")}
        needed = {sha: self.artifacts[sha] for sha in names if sha in self.artifacts}
        return PairRequest(self.a, self.b, tuple(self.storages), needed, blocks, seed, self.timer)


@dataclass(frozen=True)
class Replay:
    """Median times of both sides in ns, a process each, and the change from ``a`` to ``b`` (0.12: 12 % slower).

    :func:`combine` says what the change's interval holds. ``shown`` is the same change at :data:`SHOWN_LEVEL`.
    """

    a_ns: tuple[float, ...]
    b_ns: tuple[float, ...]
    change: Estimate
    shown: Estimate


def compare(
    pairs: Pairs, work: PairedWork, level: float, bias: float, settled: Callable[[Estimate, float], bool]
) -> Replay:
    """Time both sides of ``work`` in turn in fresh processes; the interval has a two-sided ``level`` over both looks.

    ``settled(change, a_ns)`` says whether more of them could no longer change the verdict; ``bias`` is the standard
    deviation that a process adds. Raises :class:`ReplayError` where a side can't be run, :class:`MeasurementError`
    where too many processes failed.
    """
    replies: list[PairReply] = []
    failures: list[MeasurementError] = []

    def ask(count: int, blocks: int) -> Replay:
        pairs.expect(len(replies) + count)
        wanted = len(replies) + count
        while len(replies) < wanted:
            with discarding(failures):
                replies.append(pairs.run(work.request(blocks, seed=len(replies) + len(failures))))
        return combine(replies, level, bias)

    replay = ask(PROCESSES, BLOCKS)
    return replay if settled(replay.change, median(replay.a_ns)) else ask(MORE_PROCESSES, MORE_BLOCKS)


@contextlib.contextmanager
def discarding(failures: list[MeasurementError]) -> Iterator[None]:
    """Another process may take the place of one that failed, but not of more than :data:`MAX_DISCARDED`: then the last
    one's error is raised. What a process has measured is never discarded, whatever it says."""
    try:
        yield
    except MeasurementError as exc:
        failures.append(exc)
        if len(failures) > MAX_DISCARDED:
            raise MeasurementError(f"{len(failures)} measuring processes failed, the last one: {exc}") from exc


def once(pairs: Pairs, work: PairedWork, seed: int = 0) -> float:
    """The change from ``a`` to ``b`` as one fresh process sees it: for a share, not for a verdict."""
    reply = pairs.run(work.request(BLOCKS, seed))
    return hodges_lehmann(log_ratios(reply)).map_exp().point


def combine(replies: Sequence[PairReply], level: float, bias: float = PROCESS_BIAS) -> Replay:
    """One estimate of all processes at a two-sided ``level`` that is spent over :data:`LOOKS` looks.

    The blocks of all processes give the exact signed-rank interval. It is widened by what a process adds to all its
    blocks (the larger of ``bias`` and what the processes show), divided by the root of their effective number. And it
    reaches to every process: a border lies outside only if none contradicts, which it does where its own estimate,
    a standard error nearer, lies on the border's other side.
    """
    each = [log_ratios(r) for r in replies]
    change, shown = (pooled(each, one, bias) for one in (level, SHOWN_LEVEL))
    return Replay(tuple(median(r.a_ns) for r in replies), tuple(median(r.b_ns) for r in replies), change, shown)


def pooled(each: Sequence[Sequence[float]], level: float, bias: float) -> Estimate:
    """The relative change of all processes' log-ratios, ``each``, as :func:`combine` says."""
    inner = 1 - (1 - level) / LOOKS
    counts = [len(x) for x in each]
    processes = sum(counts) ** 2 / sum(n * n for n in counts)
    quantile = NormalDist().inv_cdf(1 - (1 - inner) / 2)
    own = [hodges_lehmann(x, ONE_SIGMA) for x in each]
    seen = between(own)
    margin = quantile * max(bias, seen) / processes**0.5
    all_blocks = widened(hodges_lehmann([x for xs in each for x in xs], inner), margin)
    low, high = min(all_blocks.low, *(e.high for e in own)), max(all_blocks.high, *(e.low for e in own))
    return Estimate(all_blocks.point, low, high, level).map_exp()


def between(own: Sequence[Estimate], centre: float | None = None) -> float:
    """How the processes' own estimates (of level :data:`ONE_SIGMA`) scatter beyond what their blocks explain, as a
    standard deviation: around ``centre`` where that is known, else around their mean."""
    inside = mean([((e.high - e.low) / 2) ** 2 for e in own])
    points = [e.point for e in own]
    if centre is not None:
        beyond = mean([(p - centre) ** 2 for p in points]) - inside
    else:
        beyond = variance(points) - inside if len(points) > 1 else 0.0
    return max(0.0, beyond) ** 0.5 if isfinite(beyond) else 0.0


def log_ratios(reply: PairReply) -> list[float]:
    """Per block, log of ``b`` over ``a``. :class:`ReplayError` if a side takes no time: it launches nothing."""
    return block_ratios(reply.a_ns, reply.b_ns)
