"""What a case's comparisons and gated metrics come to together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kerntune.base.policy import Policy, Verdict
from kerntune.gate.comparison import Comparison
from kerntune.gate.decision import Evidence, decide, with_anchor


@dataclass(frozen=True)
class Judgement:
    """The verdict on a case. ``found`` is the comparison with the baseline, ``since`` that with the anchor.

    ``grown`` has a sentence for each gated metric that grew too much; ``reported`` is what the time alone says where it
    isn't gated.
    """

    verdict: Verdict
    found: Comparison | None = None
    since: Comparison | None = None
    grown: tuple[str, ...] = ()
    reported: Verdict | None = None

    @property
    def decisive(self) -> Comparison | None:
        """The comparison whose causes somebody will ask for: the one that is slower, or that drifted."""
        if self.reported is not None or self.verdict not in (Verdict.REGRESSED, Verdict.DRIFTED):
            return None
        return next((c for c in (self.found, self.since) if c is not None and c.verdict is self.verdict), None)


def judged(
    policy: Policy, launched: int, found: Comparison | None, since: Comparison | None, grown: tuple[str, ...]
) -> Judgement:
    """The verdict of ``policy`` on a case that launched something; without ``found`` it has no baseline."""
    evidence = found.evidence if found is not None else Evidence(launched)
    evidence = replace(evidence, static_failure=bool(grown), timed=policy.metrics.time)
    verdict = decide(evidence, policy)
    if not policy.metrics.time:
        return Judgement(verdict, found, None, grown, found.verdict if found is not None else None)
    return Judgement(with_anchor(verdict, since.verdict if since is not None else None), found, since, grown)
