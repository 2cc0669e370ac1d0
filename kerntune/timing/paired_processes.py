"""A paired replay over several fresh processes: every one must agree."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, isfinite
from statistics import NormalDist, mean, variance
from typing import Any

from msgspec.structs import replace

from kerntune.base.numerics import ComparedResults
from kerntune.base.recording import Recording, Storage
from kerntune.base.stats import Estimate, hodges_lehmann, median, student_quantile, widened
from kerntune.errors import MeasurementError
from kerntune.gpu.foreign_work import NONE_SEEN, ForeignWork, together
from kerntune.timing.paired import block_ratios
from kerntune.timing.worker.pool import Pairs
from kerntune.timing.worker.requests import PairReply, PairRequest

PROCESSES = 3
"""Fresh processes of a first look. More blocks in one process can't show the bias of a process; three fresh ones of 24
blocks gave no false alarm in 20,000 simulated decisions (``benchmarks/results/simulate_verdicts.json``)."""

MORE_PROCESSES = 5
"""Further ones if the first leave the verdict open: one escalation, in which 1.5 % and 1 % can be distinguished."""

SHOWN_LEVEL = 0.99
"""Level of the interval in reports: the same in every run. A verdict has the run's own level, which grows with the
number of cases; the interval at 99 % lies inside of that one, so it never contradicts a verdict."""

LOOKS = 2
"""A verdict is given after the first processes or after all; each time spends half of the error probability."""

MAX_DISCARDED = 2
"""Processes that may fail (killed, out of memory, a hung device) in one decision; with more it has no result."""

BLOCKS, MORE_BLOCKS = 24, 36
"""Blocks in each process of the first look, and in those that are added. On one H200 the estimates of fresh processes,
equal code beside itself, scatter by at most 0.09 % with 24 blocks (kernels over 3 us), by up to 0.14 % with 12."""

ONE_SIGMA = 0.6827
"""Level of an interval whose half is about a standard error."""

PROCESS_BIAS = 0.001
"""Standard deviation of what one process adds to a ratio, at least: under 0.1 % over fresh processes of one H200 for
kernels over 3 us. The blocks of one process don't show it: it is the same in all of them. A case's calibration says if
it is more."""

UNKNOWN_BIAS = 0.0065
"""The same where a case has no calibration, for as long as there are no more than :data:`PROCESSES`: what three
processes that agree by chance may have in common, unless they tell more (:data:`PLACED`). With 0.1 % the interval at
99 % missed the truth in 9 % of simulated decisions where processes are 0.4 % apart, and in 11 to 25 % at 1 %; with this
in 1.1 % at most up to 1 %, and never where half of all processes are in one of two states. A first look at unchanged
code is still within 2 %."""

MORE_UNKNOWN, MORE_UNKNOWN_BLOCKS = 9, 20
"""Further processes and their blocks where the bias isn't known: as many blocks as otherwise, in more processes, since
twelve tell their own scatter. With eight, 1.5 % and 1 % were distinguished in 98.2 % of simulated decisions."""

PLACED, PLACED_SHARE, PLACED_BIAS = 4, 0.5, 0.0035
"""Where three processes have timed at so many places of memory and code each, these tell their own scatter. What a
process adds beside is taken for that share of it, or for this standard deviation if it is more: processes in two states
1 % apart are within the interval at 99 %. On an H200 it was 0.07 % at most for 17 of 19 pairs in six processes of ten
places; 0.5 % for one, and 0.8 % where places are 1.6 % apart (``benchmarks/results/judge_h200.json``)."""

LEAST_PLACED = 4
"""Of fewer blocks at each place it isn't known what these explain of it."""

SEEN_TWICE = 2.0
"""And three processes that show a scatter may by chance show half of it."""


def paired_work(
    a: Recording, b: Recording, storages: Sequence[Storage], artifacts: Mapping[str, bytes], **words: Any
) -> PairRequest:
    """A request for two recordings on one memory plan, with those of the ``artifacts`` that they need."""
    names = {x.sha256 for side in (a, b) for x in side.binaries}
    names |= {s.content.sha256 for s in storages if hasattr(s.content, "sha256")}
    needed = {sha: artifacts[sha] for sha in names if sha in artifacts}
    return PairRequest(a, b, tuple(storages), needed, **words)


@dataclass(frozen=True)
class Replay:
    """Median times of both sides in ns, a process each, and the change from ``a`` to ``b`` (0.12: 12 % slower).

    :func:`combine` defines the change's interval. ``shown`` is the same change at :data:`SHOWN_LEVEL`.
    """

    a_ns: tuple[float, ...]
    b_ns: tuple[float, ...]
    change: Estimate
    shown: Estimate
    foreign: ForeignWork = NONE_SEEN
    """What other processes did on the device meanwhile."""

    results: ComparedResults | None = None
    """What both sides wrote, where that was compared."""


def compare(
    pairs: Pairs, work: PairRequest, level: float, bias: float | None, settled: Callable[[Estimate, float], bool]
) -> Replay:
    """Time both sides of ``work`` in turn in fresh processes; the interval has a two-sided ``level`` over both looks.

    ``settled(change, a_ns)`` returns whether more of them could no longer change the verdict; ``bias`` is the standard
    deviation that a process adds, None where that isn't known. Raises :class:`ReplayError` where a side can't be run,
    :class:`MeasurementError` where too many processes failed.
    """
    replies: list[PairReply] = []
    failures: list[MeasurementError] = []

    def ask(count: int, blocks: int) -> Replay:
        pairs.expect(len(replies) + count)
        wanted = len(replies) + count
        while len(replies) < wanted:
            with discarding(failures):
                seed = len(replies) + len(failures)
                results = work.results and not replies  # the first process compares them
                replies.append(pairs.run(replace(work, blocks=blocks, seed=seed, results=results)))
        return combine(replies, level, bias)

    replay = ask(PROCESSES, BLOCKS)
    if settled(replay.change, median(replay.a_ns)):
        return replay
    return ask(MORE_UNKNOWN, MORE_UNKNOWN_BLOCKS) if bias is None else ask(MORE_PROCESSES, MORE_BLOCKS)


@contextlib.contextmanager
def discarding(failures: list[MeasurementError]) -> Iterator[None]:
    """Replace a process that failed by another one, at most :data:`MAX_DISCARDED` times: then the last error is raised.
    Times that a process has measured are never discarded, whatever they are."""
    try:
        yield
    except MeasurementError as exc:
        failures.append(exc)
        if len(failures) > MAX_DISCARDED:
            what = f"{len(failures)} measuring processes failed"
            raise MeasurementError(f"{what}, the last one: {exc}") from exc


def once(pairs: Pairs, work: PairRequest) -> float:
    """The change from ``a`` to ``b`` in one fresh process: for a share, not for a verdict."""
    reply = pairs.run(replace(work, blocks=BLOCKS))
    return hodges_lehmann(log_ratios(reply)).map_exp().point


def combine(replies: Sequence[PairReply], level: float, bias: float | None = PROCESS_BIAS) -> Replay:
    """One estimate from all processes at a two-sided ``level`` that is divided over :data:`LOOKS` estimates.

    The blocks of all processes give the signed-rank interval, which is exact for errors that are symmetric. It is
    widened by what a process adds to all its blocks (the larger of ``bias`` and the scatter between the processes),
    divided by the root of their effective number. Where the bias isn't known (None), it is what the scatter leaves
    open, that of places of memory and code too. And it includes every process: a border lies outside only if no
    process contradicts; one contradicts if its own estimate, a standard error nearer to the border, lies on the other
    side.
    """
    each = [log_ratios(r) for r in replies]
    placed = [by_place(blocks, r.placements) for r, blocks in zip(replies, each, strict=True)]
    told = [part for parts in placed for part in parts] if min(map(len, placed)) >= PLACED else []
    change, shown = (pooled(each, one, bias, told) for one in (level, SHOWN_LEVEL))
    a_ns, b_ns = ([median(getattr(r, side)) for r in replies] for side in ("a_ns", "b_ns"))
    results = next((r.results for r in replies if r.results is not None), None)
    foreign = together([ForeignWork(*r.foreign) for r in replies])
    return Replay(tuple(a_ns), tuple(b_ns), change, shown, foreign, results)


def by_place(blocks: Sequence[float], count: int) -> list[Sequence[float]]:
    """One process's blocks at each of so many places; all together where that can't be, or says nothing."""
    if count < 1 or len(blocks) % count or len(blocks) // count < LEAST_PLACED:
        return [blocks]
    each = len(blocks) // count
    return [blocks[i * each : (i + 1) * each] for i in range(count)]


def pooled(
    each: Sequence[Sequence[float]], level: float, bias: float | None, placed: Sequence[Sequence[float]] = ()
) -> Estimate:
    """The relative change of all processes' log-ratios, ``each``, as :func:`combine` defines it. ``placed`` are the
    same by place of memory and code, where these are enough."""
    inner = 1 - (1 - level) / LOOKS
    counts = [len(x) for x in each]
    processes = sum(counts) ** 2 / sum(n * n for n in counts)
    own = [hodges_lehmann(x, ONE_SIGMA) for x in each]
    if placed and bias is None and len(own) == PROCESSES:
        margin = _of_places(own, [hodges_lehmann(x, ONE_SIGMA) for x in placed], (1 - inner) / 2, processes)
    else:
        margin = _of_processes(own, (1 - inner) / 2, bias) / processes**0.5
    all_blocks = widened(hodges_lehmann([x for xs in each for x in xs], inner), margin)
    low, high = min(all_blocks.low, *(e.high for e in own)), max(all_blocks.high, *(e.low for e in own))
    return Estimate(all_blocks.point, low, high, level).map_exp()


def _of_processes(own: Sequence[Estimate], tail: float, bias: float | None) -> float:
    """How far one process's bias reaches at a one-sided ``tail``.

    Unknown, it follows from the scatter of the processes' ``own`` estimates, by Student's t; three are too few for
    that, and are given :data:`UNKNOWN_BIAS`. A single one, where kernels follow its addresses, shows nothing, and no
    second one can be asked: :data:`PROCESS_BIAS` is assumed.
    """
    seen, normal = between(own), NormalDist().inv_cdf(1 - tail)
    if bias is not None or len(own) == 1:
        return normal * max(PROCESS_BIAS if bias is None else bias, seen)
    if len(own) <= PROCESSES:
        return normal * max(UNKNOWN_BIAS, SEEN_TWICE * seen)
    return student_quantile(tail, len(own) - 1) * max(PROCESS_BIAS, seen)


def _of_places(own: Sequence[Estimate], placed: Sequence[Estimate], tail: float, processes: float) -> float:
    """How far places, and so many ``processes``, whose bias isn't known, reach together at a one-sided ``tail``."""
    scatter = max(PROCESS_BIAS, between(placed))
    common = max(PLACED_BIAS, PLACED_SHARE * scatter, SEEN_TWICE * between(own))
    of_places = student_quantile(tail, len(placed) - 1) * scatter / len(placed) ** 0.5
    return hypot(of_places, NormalDist().inv_cdf(1 - tail) * common / processes**0.5)


def between(own: Sequence[Estimate], centre: float | None = None) -> float:
    """The scatter of the processes' own estimates (of level :data:`ONE_SIGMA`) beyond what their blocks explain, as a
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
