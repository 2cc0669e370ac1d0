"""Rules that others use, on stored launches of one process against those of another. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from scipy.stats import mannwhitneyu

SLOWER, FASTER, SAME = "slower", "faster", "same"

RANK_LEVEL = 0.999
"""The level that kerntune's own verdicts have."""


@dataclass(frozen=True)
class Rule:
    """``judge(before, today)`` returns slower, faster or same for two lists of times; ``timer`` names which times."""

    name: str
    timer: str
    judge: Callable[[Sequence[float], Sequence[float]], str]

    def of(self, stored: dict[str, Any], today: dict[str, Any]) -> str:
        """One process's launches of side ``a``, as stored, against another's of side ``b``."""
        return self.judge(stored[f"a_{self.timer}"], today[f"b_{self.timer}"])


def beyond(statistic: Callable[[Sequence[float]], float], limit: float, faster: bool = True) -> Callable[..., str]:
    """A rule that compares one figure of each side; ``faster`` is whether it also reports gains."""

    def judge(before: Sequence[float], today: Sequence[float]) -> str:
        change = statistic(today) / statistic(before) - 1
        if change > limit:
            return SLOWER
        return FASTER if faster and change < -limit else SAME

    return judge


def rank_test(before: Sequence[float], today: Sequence[float]) -> str:
    """Mann and Whitney's test, two-sided; the medians say in which direction."""
    if mannwhitneyu(before, today).pvalue >= 1 - RANK_LEVEL:
        return SAME
    return SLOWER if median(today) > median(before) else FASTER


RULES = (
    Rule("pytest-benchmark, mean:5%", "host", beyond(mean, 0.05, faster=False)),
    Rule("mean of event times, 5%", "event", beyond(mean, 0.05, faster=False)),
    Rule("do_bench median, 5%", "event", beyond(median, 0.05)),
    Rule("do_bench median, 2%", "event", beyond(median, 0.02)),
    Rule("rank test on event times, 99.9%", "event", rank_test),
)
"""``pytest-benchmark compare --benchmark-compare-fail=mean:5%`` fails on what is slower only. ``do_bench`` is
``triton.testing.do_bench``: an event pair around each launch, the L2 cache flushed before."""
