"""Candidates that can't be used, and why: reasons, problems that several have in common, a line for each kernel.

A compiler's message can be pages long, so a reason that several have stands at the first one alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from kerntune.base.config import Config, configs_text, unique_configs
from kerntune.base.strict import SparseStruct, StrictStruct

WRONG = "it wrote other values"
"""The first words of the failure reason of a candidate whose results differ from those of the others."""

FIRST_LAUNCH = "its first launch"
"""How the reason of a candidate begins that faulted, hung or wrote outside of its tensors in a process of its own."""


def is_fault(reason: str) -> bool:
    """Whether a candidate failed by what its first launch did: it must not run where others have something to lose."""
    return reason.startswith(FIRST_LAUNCH)


def is_wrong(reason: str) -> bool:
    """Whether a candidate failed because its results are wrong."""
    return reason.startswith(WRONG)


class FailedTrial(StrictStruct, frozen=True):
    """A candidate that could not be used, and why."""

    kernel: str
    config: Config
    reason: str

    @property
    def wrong(self) -> bool:
        """Whether its results are wrong; otherwise it could not be compiled or launched."""
        return is_wrong(self.reason)


def failures_line(failures: Sequence[FailedTrial], configs: int) -> str:
    """``kernel parts: 2 of 3 configs failed: BLOCK=128: it wrote other values ...; 1 more``. Of one kernel's failed
    candidates the first is shown, and the first with wrong results if there is one."""
    first = min(failures, key=lambda f: not f.wrong)
    reason = " ".join(first.reason.split())
    shown = reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 3]}..."
    more = f"; {len(failures) - 1} more" if len(failures) > 1 else ""
    return f"kernel {first.kernel}: {len(failures)} of {configs} configs failed: {first.config}: {shown}{more}"


MAX_REASON = 200
"""Characters of a reason in a summary: a compiler's message can be pages long."""


class ConfigReport(SparseStruct, frozen=True):
    """A candidate config as compiled for a target, without being run. ``broken``: why it can't be compiled or launched,
    else empty; the figures are None for one that can't be compiled."""

    kernel: str
    config: Config
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    broken: str = ""

    @property
    def problem(self) -> str:
        """What is wrong with it, empty if nothing is."""
        return self.broken or (f"spills {self.spill_bytes:,} bytes per thread" if self.spill_bytes else "")


class ConfigProblem(NamedTuple):
    """What is wrong with candidates of a kernel, the same with all of them."""

    kernel: str
    configs: tuple[Config, ...]
    problem: str
    broken: bool

    def __str__(self) -> str:
        return f"{self.kernel} with {configs_text(self.configs)}: {self.problem}"


def config_problems(reports: Iterable[ConfigReport]) -> list[ConfigProblem]:
    """The problems of candidates, equal ones of a kernel once."""
    found: dict[tuple[str, str, bool], list[Config]] = {}
    reasons: dict[tuple[str, str], str] = {}
    for report in reports:
        known = reasons.get((report.kernel, report.broken.removeprefix(SAME)), report.broken)
        reasons.setdefault((report.kernel, str(report.config)), known)
        if report.broken.startswith(SAME):  # told_once has left its reason out
            report = report.but(broken=known)
        if report.problem:
            found.setdefault((report.kernel, report.problem, bool(report.broken)), []).append(report.config)
    return [ConfigProblem(k, unique_configs(found[k, text, broken]), text, broken) for k, text, broken in found]


SAME = "can't be used, as "
"""Before the config of the same kernel whose reason is this one's, too. Only :func:`told_once` writes it."""

RefusedCandidate = TypeVar("RefusedCandidate", FailedTrial, ConfigReport)


def told_once(candidates: Iterable[RefusedCandidate]) -> tuple[RefusedCandidate, ...]:
    """Candidates whose long reasons stand at the first one alone: a compiler's message can be pages long, and a list of
    configs hundreds. A wrong result is repeated at each."""
    field = {FailedTrial: "reason", ConfigReport: "broken"}
    first: dict[tuple[str, str], Config] = {}
    reasons: dict[tuple[str, str], str] = {}
    found: list[RefusedCandidate] = []
    for one in candidates:
        name = field[type(one)]
        text = getattr(one, name)
        known = first.setdefault((one.kernel, text), one.config)
        reasons.setdefault((one.kernel, str(one.config)), text)
        clear = known != one.config and reasons[one.kernel, str(known)] == text
        again = clear and len(text) > MAX_REASON and not is_wrong(text)
        found.append(one.but(**{name: f"{SAME}{known}"}) if again else one)
    return tuple(found)
