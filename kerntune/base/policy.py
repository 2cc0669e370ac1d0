"""What counts as slower, and what a verdict does to a test."""

from __future__ import annotations

import enum
from math import nan
from typing import Any, Literal

from kerntune.base.numerics import NumericsRule
from kerntune.base.stats import DEFAULT_LEVEL
from kerntune.base.strict import StrictStruct
from kerntune.errors import UsageError

DEFAULT_TOLERANCE = 0.02
"""2 %: an order above the paired replay's noise on one GPU (0.03 to 0.2 % over fresh processes)."""

DEFAULT_ANCHOR_TOLERANCE = 0.05
"""What steps may add up to since the anchor, 5 %: twice the default tolerance and a half, so that two accepted
slowdowns of a release pass and steps of 1 %, each within tolerance, are seen at the sixth."""


class Verdict(enum.Enum):
    """The verdicts on one case; :mod:`kerntune.gate.decision` has the decision table."""

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
    REGRESSED = "regressed"
    RENAMED = "renamed"
    ALL = "all"


ACCEPTING = (Update.ALL, Update.NEW, Update.REGRESSED)
"""Updates under which a case whose baseline is written anew passes, whatever its verdict: that was asked for."""

MAPPABLE = (*(v for v in Verdict if v.value not in ("PASS", "NEW", "STALE")), Verdict.STALE)
"""Verdicts that a policy may give another outcome. NEW has ``missing``, and PASS passes. STALE belongs to no test that
ran: where it fails, the run does."""


class TuneMode(enum.Enum):
    """How winners are found: from the cache if it has one, only from the cache, always anew, or from the cache and else
    by the nearest call that it has a winner of, never by tuning."""

    AUTO = "auto"
    FROZEN = "frozen"
    FORCE = "force"
    NEAREST = "nearest"


def spent(alpha: float, cases: int, decision: int) -> float:
    """The error that decision number ``decision`` (from 1) may spend of a family's ``alpha``.

    Half is shared by the ``cases`` decisions that were announced; the other half by those that come on top, the n-th
    of all getting ``cases / (n (n - 1))`` of it. As ``1/(n (n - 1)) = 1/(n - 1) - 1/n``, these sum to one at most.
    """
    if decision <= cases:
        return alpha / 2 / cases
    return alpha / 2 * cases / (decision * (decision - 1))


class StaticPrune(StrictStruct, frozen=True):
    """Which candidates aren't run, by static figures of what they compile to (:mod:`kerntune.static.resource_model`):
    those that spill while others don't, whose occupancy is far below the highest, whose predicted cost is far above the
    lowest; then all but the best ``share`` (above 0, at most 1) by predicted cost."""

    spills: bool = False
    occupancy: bool = False
    model: bool = False
    share: float | None = None

    def __bool__(self) -> bool:
        return self.spills or self.occupancy or self.model or self.share is not None

    @classmethod
    def parse(cls, value: object, where: str) -> StaticPrune:
        """``"spills model"``, ``0.33``, ``"33%"``, several of them in a list or in one text, or ``"off"``;
        :class:`UsageError`, naming ``where``, for anything else."""
        words = value if isinstance(value, (list, tuple)) else str(value).replace(",", " ").split()
        found: dict[str, Any] = {}
        for word in words:
            if word in PRUNE_WORDS:
                found[word] = True
            elif word != "off" or len(words) > 1:
                found["share"] = _share(word, value, where)
        return cls(**found)


PRUNE_WORDS = ("spills", "occupancy", "model")


def _share(word: object, value: object, where: str) -> float:
    text = str(word)
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = nan
    if not 0 < share <= 1:
        raise UsageError(
            f"{where}: {value!r} is none of {', '.join(PRUNE_WORDS)}, a share above 0 (0.33 or 33%), several of them, "
            "or off"
        )
    return share


StaticSeverity = Literal["fail", "warn", "off"]


class StaticRule(StrictStruct, frozen=True):
    """What a static figure's change does. ``threshold`` is a share of the value before (0.1: a tenth) that may change
    without a finding; None: the rule has none, any change counts."""

    severity: StaticSeverity
    threshold: float | None = None


STATIC_RULES: dict[str, StaticRule] = {
    "limits": StaticRule("fail"),
    "spills": StaticRule("fail"),
    "vgpr_spills": StaticRule("fail"),
    "sgpr_spills": StaticRule("warn"),
    "tensor_cores": StaticRule("fail"),
    "operand_width": StaticRule("fail"),
    "pipelining": StaticRule("fail"),
    "async_copies": StaticRule("warn"),
    "tma": StaticRule("fail"),
    "tma_operands": StaticRule("warn"),
    "fp64": StaticRule("fail"),
    "more_fp64": StaticRule("warn"),
    "load_width": StaticRule("fail", 0.10),
    "store_width": StaticRule("fail", 0.10),
    "work": StaticRule("fail", 1.0),
    "other_operators": StaticRule("fail", 0.10),
    "bytes_moved": StaticRule("fail", 0.10),
    "fusion": StaticRule("fail"),
    "launches": StaticRule("warn", 0.0),
    "grid": StaticRule("warn", 0.10),
    "occupancy": StaticRule("warn", 0.10),
    "registers": StaticRule("warn", 0.10),
    "shared_memory": StaticRule("warn", 0.10),
    "binary_size": StaticRule("warn", 0.10),
    "instructions": StaticRule("warn", 0.10),
    "config_removed": StaticRule("warn"),
    "config_limits": StaticRule("warn"),
    "config_spills": StaticRule("warn"),
}
"""The rules of the static gate and their defaults (:mod:`kerntune.static.rules` says what each compares). What fails by
default is hardly ever an optimization. The last two are about candidate configs other than the one that is judged: many
lists have some that a device can't launch."""


class StaticPolicy(StrictStruct, frozen=True):
    """How static figures are judged: rules that differ from :data:`STATIC_RULES`, and whether every candidate config of
    a tuned kernel is checked (None: not given, so no)."""

    rules: dict[str, StaticRule] = {}
    every_config: bool | None = None

    def rule(self, name: str) -> StaticRule:
        """The rule of that name."""
        return self.rules.get(name) or STATIC_RULES[name]

    def over(self, defaults: StaticPolicy) -> StaticPolicy:
        """``defaults`` with this policy's own rules in place of theirs."""
        every = defaults.every_config if self.every_config is None else self.every_config
        return StaticPolicy({**defaults.rules, **self.rules}, every)


TIME = "time"

METRIC_TOLERANCES = {
    name: STATIC_RULES[name].threshold or 0.0
    for name in ("registers", "spills", "shared_memory", "binary_size", "instructions")
}
"""Static figures that can be gated in addition to the time, with the growth that is allowed by default: that of
the static gate's rules of the same names (:data:`STATIC_RULES`), and no spill more."""

METRICS = (TIME, *METRIC_TOLERANCES)

TIMERS = ("auto", "graph", "events", "profiler")
"""What a test can ask to be timed by; ``auto`` chooses by length and memory (:mod:`kerntune.timing.sampling`)."""


class Metrics(StrictStruct, frozen=True):
    """What of a case on a GPU is gated. Without ``time``, the verdict on it is only reported. ``static`` maps figures
    (of :data:`METRIC_TOLERANCES`) to the growth over the baseline's that is allowed, as a share."""

    time: bool = True
    static: dict[str, float] = {}


class Policy(StrictStruct, frozen=True):
    """How one case is judged. ``tolerance`` is relative (0.02 is 2 %); ``floor_ns`` is in nanoseconds:
    a slowdown smaller than it never fails a test, however small the kernel. ``level`` is that of the whole run (0..1)
    and ``cases`` how many decisions share it. ``anchor_tolerance`` is what the code may have become slower by since the
    anchor's recording. ``outcomes`` says what a verdict does to the test where that isn't the usual. ``timer`` is
    one of :data:`TIMERS`."""

    tolerance: float = DEFAULT_TOLERANCE
    floor_ns: float = 0.0
    level: float = DEFAULT_LEVEL
    cases: int = 1
    verify: str = ""
    """Which candidates have to write what others write: ``winner``, ``finalists``, ``all`` or ``off``; empty as
    ``KERNTUNE_VERIFY`` says (:mod:`kerntune.tuning.tune_options`)."""

    verify_ignore: tuple[str, ...] | None = None
    """Arguments that aren't compared, by name or ``kernel.name``; None for none."""

    static_prune: StaticPrune | None = None
    """Which candidates are left out unrun; None for none."""

    missing: Missing = Missing.RECORD
    strict: bool = False
    ci: bool = False
    static: StaticPolicy = StaticPolicy()
    anchor_tolerance: float = DEFAULT_ANCHOR_TOLERANCE
    metrics: Metrics = Metrics()
    outcomes: dict[Verdict, Outcome] = {}
    timer: str = "auto"
    numerics: NumericsRule = NumericsRule()
    """Which change of results, against those of the baseline's code on the same memory, fails."""

    def since_anchor(self) -> Policy:
        """The policy that the anchor's comparison is judged by. Never the stricter one of the two: a step that is
        within tolerance is also within the anchor's."""
        return self.but(tolerance=max(self.tolerance, self.anchor_tolerance))

    def level_of(self, decision: int) -> float:
        """The two-sided level of decision number ``decision`` (from 1), so that all together keep to :attr:`level`."""
        return 1 - spent(1 - self.level, self.cases, decision)

    def outcome(self, verdict: Verdict) -> Outcome:
        """What ``verdict`` does to the test under this policy."""
        if verdict in self.outcomes:
            return self.outcomes[verdict]
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
