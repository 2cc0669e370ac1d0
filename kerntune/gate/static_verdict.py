"""A case's verdict without a GPU from values alone: figures of its launches beside those that are known of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import NamedTuple

import msgspec

from kerntune.base.case_result import UNJUDGED, CaseResult, End, LaunchCause, LostConfig, word_of
from kerntune.base.device import Target, typical_device
from kerntune.base.formatting import visible
from kerntune.base.numerics import NumericsReport
from kerntune.base.operator_list import OperatorList, places_text
from kerntune.base.policy import Policy, StaticPolicy, StaticRule, Verdict
from kerntune.gate.baselines import StaticBaseline, operators_of
from kerntune.gate.call_operators import NO_CHANGE, OperatorChange, compare_operators, more_bytes
from kerntune.gate.causes import code_cause, config_causes, launch_cause
from kerntune.gate.decision import Evidence, decide
from kerntune.gate.fusion import FUSION_CHANGED
from kerntune.gate.grid_changes import fewer_programs
from kerntune.gate.launch_changes import (
    LaunchFindings,
    changed_sources,
    compare_launches,
    count_findings,
    grown_launches,
    launch_lines,
    moved_settings,
    other_torch,
    replaced_kernels,
    static_setting_lines,
)
from kerntune.gate.static_figures import LaunchStatics, in_both, launch_reports
from kerntune.gate.stores import KnownCase, Stores, Unreviewed
from kerntune.kernels.compat import versions
from kerntune.static.code_rules import SEVERITIES, RuleMessage, worst_first


class StaticFindings(NamedTuple):
    """The static rules' findings on a case: sentences that fail it, that warn, and that only inform."""

    failures: tuple[str, ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    def unsure(self, broken: tuple[str, ...]) -> StaticFindings:
        """With nothing failed but what can't be compiled at all: figures of another compilation are compared."""
        failures = tuple(text for text in self.failures if text in broken)
        others = (text for text in self.failures if text not in broken)
        return StaticFindings(failures, (*others, *self.notes))


@dataclass(frozen=True)
class RunOfCase:
    """What a case's run has beside its figures. ``launched`` counts its launches, those that are ``broken`` (a sentence
    each) or ``refused`` by the compiler (a source's hash each) among them; ``end`` is where it stopped at a value that
    only a GPU has, ``accepted`` where the baseline lets it stop. ``lost`` has by launch the baseline's config that is
    gone."""

    launched: int
    end: End | None
    accepted: End | None
    operators: OperatorList | None
    about_configs: tuple[RuleMessage, ...] = ()
    lost: Mapping[int, LostConfig] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def cut_off(self) -> bool:
        """Whether it stopped where the baseline doesn't accept that."""
        return self.end is not None and self.end != self.accepted


NOTHING_RUNS = "results not compared: nothing runs without a GPU"


class StaticJudgement(NamedTuple):
    """What a case's ``launches`` come to beside those that are ``known`` of it: the verdict, what static rules
    ``found``, what runs ``beside`` the kernels, and the reasons for people."""

    known: KnownCase
    launches: LaunchStatics
    run: RunOfCase
    verdict: Verdict
    found: StaticFindings
    beside: OperatorChange
    reasons: tuple[str, ...]
    launch_causes: tuple[LaunchCause, ...]

    def result(
        self,
        stores: Stores,
        today: StaticBaseline,
        policy: Policy,
        unreviewed: Unreviewed,
        further_reasons: Iterable[str] = (),
    ) -> CaseResult:
        """The result of ``today``'s case, of whose fields no figure is read. Its outcome is that of its verdict."""
        known, run, target = self.known, self.run, today.target
        failures = (*self.beside.failures, *self.found.failures)
        reasons = (*self.reasons, *further_reasons)
        own_path = stores.reference.static_path(target, today.triton, today.case, today.fingerprint)
        numerics = NumericsReport(str(policy.numerics), not_compared=(NOTHING_RUNS,)) if known.own is not None else None
        warnings = [*stores.damage.among(stores.reference, target, (x.ttir_sha256 for x in known.launches))]
        if numerics is not None and policy.numerics.gates:
            warnings.append(NOTHING_RUNS)
        if self.verdict is Verdict.PASS:
            warnings += fewer_programs(known.launches, self.launches)
        if run.end is not None and not run.cut_off:
            warnings.append(f"stopped where the baseline accepts it, at {visible(str(run.end))}")
        word = word_of(self.verdict, held=known.reference is not None)
        return CaseResult(
            case=today.case,
            fingerprint=today.fingerprint,
            verdict=self.verdict,
            outcome=unreviewed.outcome(policy.outcome(self.verdict)),
            message=", ".join([f"{word} {today.case} ({target}, static only)", *failures, *reasons]),
            target=str(target),
            launches=launch_reports(self.launches, known.launches),
            rung="static",
            causes=reasons,
            launch_causes=self.launch_causes,
            lost_configs=tuple(dict.fromkeys(run.lost.values())),
            findings=(*failures, *self.found.notes),
            remarks=(
                *unjudged_remarks(self.verdict, known.launches, self.launches),
                *self.found.remarks,
                *self.beside.told,
            ),
            operators=run.operators,
            warnings=tuple(warnings),
            baseline_path=stores.reference.shown(own_path),
            numerics=numerics,
            end=run.end,
            end_accepted=run.end is not None and not run.cut_off,
        )


def judge_launches(
    known: KnownCase, launches: LaunchStatics, run: RunOfCase, target: Target, policy: Policy
) -> StaticJudgement:
    """A case's verdict from values alone."""
    rules, series = policy.static, versions.triton_series()
    pairs = in_both(known.launches, launches)
    settings = [moved_settings(a.compiler_settings, b.compiler_settings) for _, a, b in pairs if a.code != b.code]
    moved = list(dict.fromkeys(filter(None, settings)))
    found = _found(known, launches, run, target, rules)
    found = found.unsure(run.broken) if moved else found
    beside = _operators_since(known, run.operators, launches, rules)
    (expected, name), launched = known.most, run.launched
    evidence = Evidence(
        launched=launched,
        # without a baseline of its own a case is NEW, but not if another one has more launches of it
        expected=expected if known.own is not None or expected > launched else None,
        static_failure=bool(found.failures),
        timed=False,
        other_settings=bool(moved),
        work_moved=bool(beside.failures),
        work_unsure=bool(beside.unsure),
        cut_off=run.cut_off,
    )
    verdict = decide(evidence, policy)
    before = known.reference.triton if known.reference else ""
    blamed = [launch_cause(a, b, before, series, lost=run.lost.get(i)) for i, a, b in pairs]
    why = _reasons(known, launches, target, series, found, run.refused, blamed)
    # kernels fused into one, or a path that wasn't taken
    fewer = f"{launched} of the {expected} launches that {name} has; {ACCEPT_FEWER}"
    fewer_launches = [fewer] if launched < expected and not beside.failures else []
    unlike = f"compiled under another environment than the baseline ({'; '.join(moved)}), so not judged"
    other = [f"{unlike}: set it as it was, or refresh"] if moved else []
    reasons = (*beside.unsure, *fewer_launches, *beside.qualified(why), *other)
    causes = tuple(dict.fromkeys(filter(None, blamed)))
    return StaticJudgement(known, launches, run, verdict, found, beside, reasons, causes)


def _found(
    known: KnownCase, launches: LaunchStatics, run: RunOfCase, target: Target, rules: StaticPolicy
) -> StaticFindings:
    said = [RuleMessage("fail", "limits", text) for text in run.broken]
    texts = (f"{x.kernel} can't be launched on {target}: {v}" for x in launches for v in x.metrics.over_limit)
    said += rule_messages("limits", texts, rules)
    pairs = compare_launches(known.launches, launches, rules, typical_device(target))
    since = [x for pair in pairs for x in _findings(pair)]
    since += [RuleMessage(f.severity, f.rule, f.text) for f in count_findings(known.launches, launches, rules)]
    anchored = _since_anchor(known, launches, target, rules, {x.text for x in (*said, *since)})
    said += [*map(_of_other_triton(known), since), *anchored, *run.about_configs]
    ordered = worst_first(said)
    return StaticFindings(*(tuple(x.text for x in ordered if x.severity == k) for k in SEVERITIES))


def _of_other_triton(known: KnownCase) -> Callable[[RuleMessage], RuleMessage]:
    """Adds to a finding that fails nothing which Triton's baseline it is held against, where that is another one's. It
    is warned of by itself; of one that fails, the case's line says the same once."""
    if known.own is not None or known.reference is None:
        return lambda said: said
    against = f", since the baseline of Triton {known.reference.triton}"
    return lambda said: said if said.severity == "fail" else said._replace(text=said.text + against)


def _since_anchor(
    known: KnownCase, launches: LaunchStatics, target: Target, rules: StaticPolicy, said: Set[str]
) -> Iterator[RuleMessage]:
    if known.anchor is None:
        return
    for pair in compare_launches(known.anchor.launches, launches, rules, typical_device(target)):
        for found in _findings(pair):
            if found.severity in ("fail", "warn") and found.text not in said:
                text = f"{found.text}, since the anchor of {known.anchor.recorded.partition('T')[0]}"
                yield found._replace(text=text)


def rule_messages(rule: str, texts: Iterable[str], rules: StaticPolicy) -> list[RuleMessage]:
    """The texts with the severity that the policy gives this rule; none where it is off."""
    severity = rules.rule(rule).severity
    return [] if severity == "off" else [RuleMessage(severity, rule, text) for text in texts]


def _findings(pair: LaunchFindings) -> Iterator[RuleMessage]:
    """The rules' findings on a launch, but for limits that it breaks by itself, which are reported already."""
    over = {v.resource for v in pair.after.metrics.over_limit}
    for finding in pair.findings:
        if finding.rule != "limits" or finding.metric not in over:
            where = places_text(pair.after.lines)
            yield RuleMessage(finding.severity, finding.rule, f"{pair.after.kernel}{where}: {finding.text}")


def _operators_since(
    known: KnownCase, now: OperatorList | None, launches: LaunchStatics, rules: StaticPolicy
) -> OperatorChange:
    """The change of what runs beside the kernels, since the baseline, and since the anchor what that alone finds."""
    rule = rules.rule("other_operators")
    if known.reference is None:
        return NO_CHANGE
    codes = [[(x.kernel, x.code, x.grid) for x in side] for side in (known.launches, launches)]
    before, same = operators_of(known.reference), codes[0] == codes[1]
    found = compare_operators(before, now, rule, timed=False, same_kernels=same)
    if not found.failures:
        grown = tuple(grown_launches(known.launches, launches))
        bytes_rule = _bytes_rule(known.launches, launches, rules)
        counted = rule.severity == "fail"
        found = found.joined(more_bytes(before, now, grown, bytes_rule, operators_count=counted))
    if known.anchor is None or known.anchor.operators is msgspec.UNSET or found.failures:
        return found
    since = compare_operators(known.anchor.operators, now, rule, timed=False, same_kernels=True)
    day = known.anchor.recorded.partition("T")[0]
    return found._replace(failures=tuple(f"{t}, since the anchor of {day}" for t in since.failures))


def _bytes_rule(before: LaunchStatics, after: LaunchStatics, rules: StaticPolicy) -> StaticRule:
    """The rule ``bytes_moved``. What a kernel that a person wrote is launched with may decide how it divides its work
    (partial sums of more splits): under other settings more bytes only warn, unless the rule was set."""
    rule = rules.rule("bytes_moved")
    pairs = [(a, b) for _, a, b in in_both(before, after) if not b.origins]
    unset = rule.severity == "fail" and "bytes_moved" not in rules.rules
    if unset and any(a.setting_changes(b) for a, b in pairs):
        return StaticRule("warn", rule.threshold)
    return rule


def unjudged_remarks(verdict: Verdict, before: LaunchStatics, after: LaunchStatics) -> tuple[str, ...]:
    """What changed of a case that passes, though its machine code is another one and nothing was timed."""
    pairs = in_both(before, after)
    same = len(pairs) == len(before) and all(a.code == b.code for _, a, b in pairs)
    if verdict is not Verdict.PASS or same:
        return ()
    config, options = static_setting_lines([(a, b) for _, a, b in pairs])
    kinds = {
        "code": any(changed_sources(before, after)),
        "torch": any(other_torch(a, b) for _, a, b in pairs),
        "config": bool(config),
        "launch options": bool(options),
    }
    changed = [name for name, found in kinds.items() if found] or ["arguments or compiler"]
    return (f"{' and '.join(changed)} changed; {UNJUDGED}",)


ACCEPT_FEWER = "if that is meant, a refresh (--kerntune-update) accepts it, or outcomes={'INCOMPLETE': 'warn'}"
"""The latter where baselines aren't written: held against another revision."""


def _reasons(
    known: KnownCase,
    launches: LaunchStatics,
    target: Target,
    series: str,
    found: StaticFindings,
    refused: tuple[str, ...],
    blamed: Sequence[LaunchCause | None],
) -> tuple[str, ...]:
    reference = known.reference
    if reference is None and found.failures:
        return ()  # a baseline would not help
    if reference is None:
        return (f"no static baseline for {target} under Triton {series}",)
    elsewhere = f"no static baseline for {target} under Triton {series}, held against that of {reference.triton}"
    stored = {x.source for x in reference.launches}
    changed = any(changed_sources(reference.launches, launches)) or any(x and x not in stored for x in refused)
    code = code_cause(changed, reference.triton, series)
    pairs = [(a, b) for _, a, b in in_both(reference.launches, launches)]
    told = {*chain(*static_setting_lines(compress(pairs, blamed)))}
    configs = [x for x in config_causes(*static_setting_lines(pairs)) if x not in told]
    moved = [
        x for x in launch_lines(reference.launches, launches) if x.removeprefix(FUSION_CHANGED) not in found.failures
    ]
    moved += replaced_kernels(reference.launches, launches)
    first = () if known.own else (elsewhere,)
    if refused:  # of a launch without a binary neither its config is compared nor that it is there
        configs, moved = [], []
    return (*first, code, *configs, *moved, *dict.fromkeys(str(b) for b in blamed if b))
