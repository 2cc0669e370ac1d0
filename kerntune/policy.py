"""What counts as slower, and what a verdict does to a test."""

from __future__ import annotations

import enum

import msgspec

DEFAULT_TOLERANCE = 0.02
"""2 %: an order above the paired replay's noise on one GPU (0.03 to 0.2 % over fresh processes)."""

DEFAULT_LEVEL = 0.999
"""Two-sided level of all verdicts of a run together: one run in a thousand may have a wrong one, however many cases it
has. A gate of 0.1 % a case would be red one run in five over 200 cases."""


class Verdict(enum.Enum):
    """The verdicts on one case; :mod:`kerntune.judge` has the decision table."""

    PASS = "PASS"
    IMPROVED = "IMPROVED"
    REGRESSED = "REGRESSED"
    DRIFTED = "DRIFTED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NEW = "NEW"
    STALE = "STALE"
    INCOMPLETE = "INCOMPLETE"


class Outcome(enum.Enum):
    """What a verdict does to its test."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


class Missing(enum.Enum):
    """What to do with a case that has no baseline on this device."""

    RECORD = "record"
    WARN = "warn"
    FAIL = "fail"


class Update(enum.Enum):
    """Which baselines a run writes anew."""

    NONE = "none"
    NEW = "new"
    IMPROVED = "improved"
    ALL = "all"


class TuneMode(enum.Enum):
    """How winners are found: from the cache if it has one, only from the cache, or always anew."""

    AUTO = "auto"
    FROZEN = "frozen"
    FORCE = "force"


def spent(alpha: float, cases: int, decision: int) -> float:
    """The error that decision number ``decision`` (from 1) may spend of a family's ``alpha``.

    Half is shared by the ``cases`` decisions that were announced; the other half by those that come on top, the n-th
    of all getting ``cases / (n (n - 1))`` of it. As ``1/(n (n - 1)) = 1/(n - 1) - 1/n``, these sum to one at most.
    """
    if decision <= cases:
        return alpha / 2 / cases
    return alpha / 2 * cases / (decision * (decision - 1))


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one case is judged. ``tolerance`` is relative (0.02 is 2 %); ``floor_ns`` is in nanoseconds:
    a slowdown smaller than it never fails a test, however small the kernel. ``level`` is that of the whole run (0..1)
    and ``cases`` how many decisions share it."""

    tolerance: float = DEFAULT_TOLERANCE
    floor_ns: float = 0.0
    level: float = DEFAULT_LEVEL
    cases: int = 1
    missing: Missing = Missing.RECORD
    strict: bool = False
    ci: bool = False

    def level_of(self, decision: int) -> float:
        """The two-sided level of decision number ``decision`` (from 1), so that all together keep to :attr:`level`."""
        return 1 - spent(1 - self.level, self.cases, decision)

    def outcome(self, verdict: Verdict) -> Outcome:
        """What ``verdict`` does to the test under this policy."""
        if verdict is Verdict.NEW:
            return {Missing.RECORD: Outcome.PASS, Missing.WARN: Outcome.WARN, Missing.FAIL: Outcome.FAIL}[self.missing]
        if verdict is Verdict.INCONCLUSIVE:
            return Outcome.FAIL if self.strict else Outcome.WARN
        if verdict is Verdict.INCOMPLETE:
            return Outcome.FAIL if self.ci else Outcome.WARN
        return _FIXED[verdict]


_FIXED = {
    Verdict.PASS: Outcome.PASS,
    Verdict.IMPROVED: Outcome.PASS,
    Verdict.REGRESSED: Outcome.FAIL,
    Verdict.DRIFTED: Outcome.WARN,
    Verdict.STALE: Outcome.WARN,
}
