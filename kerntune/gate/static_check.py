"""Judges a captured call without a GPU: its static figures against the stored ones, per target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType

import msgspec

from kerntune.base.case_result import UNJUDGED, CaseResult, End, LaunchCause, LostConfig, word_of
from kerntune.base.device import Target, typical_device
from kerntune.base.failed_candidates import told_once
from kerntune.base.numerics import NumericsReport
from kerntune.base.operator_list import OperatorList, places_text
from kerntune.base.policy import Policy, StaticPolicy, StaticRule, Update, Verdict
from kerntune.capture import Capture
from kerntune.capture.recorder import Recorded
from kerntune.errors import CompileError, EnvironmentFault
from kerntune.gate.baselines import (
    STATIC_SCHEMA,
    StaticBaseline,
    now,
    operators_of,
)
from kerntune.gate.call import PendingBaseline, outcome_of, should_write
from kerntune.gate.call_capture import CapturedCall
from kerntune.gate.call_operators import NO_CHANGE, OperatorChange, compare_operators, more_bytes
from kerntune.gate.candidate_configs import config_findings, config_reports, lost_configs
from kerntune.gate.causes import code_cause, config_causes, launch_cause
from kerntune.gate.decision import Evidence, decide
from kerntune.gate.fusion import FUSION_CHANGED
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
from kerntune.gate.static_figures import LaunchStatic, in_both, launch_reports, launch_statics
from kerntune.gate.stores import KnownCase, Stores, known_case, known_figures
from kerntune.kernels import compat
from kerntune.kernels.source import source_hash
from kerntune.kernels.specialize import Specialized
from kerntune.static.code_rules import RuleMessage, worst_first


@dataclass(frozen=True)
class StaticFindings:
    """The static rules' findings on a case: sentences that fail it, that warn, and that only inform."""

    failures: tuple[str, ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    def unsure(self, broken: tuple[str, ...]) -> StaticFindings:
        """With nothing failed but what can't be compiled at all: figures of another compilation are compared."""
        failures = tuple(text for text in self.failures if text in broken)
        return StaticFindings(failures, (*(text for text in self.failures if text not in broken), *self.notes))


@dataclass(frozen=True)
class StaticJudgement:
    """What a case's launches come to beside those that are known of it: the verdict, what static rules ``found``, what
    runs ``beside`` the kernels, and the reasons for people."""

    verdict: Verdict
    found: StaticFindings
    beside: OperatorChange
    reasons: tuple[str, ...]
    launch_causes: tuple[LaunchCause, ...] = ()

    @property
    def findings(self) -> tuple[str, ...]:
        """What fails the case, then what it is warned of."""
        return (*self.beside.failures, *self.found.failures, *self.found.notes)

    def message(self, head: str, reasons: Iterable[str]) -> str:
        """The case's message: ``head`` has its verdict and its name."""
        return ", ".join([head, *self.beside.failures, *self.found.failures, *reasons])


def judge_launches(
    known: KnownCase,
    launches: tuple[LaunchStatic, ...],
    operators: OperatorList | None,
    target: Target,
    policy: Policy,
    *,
    launched: int,
    cut_off: bool,
    about_configs: Iterable[RuleMessage] = (),
    lost: Mapping[int, LostConfig] = MappingProxyType({}),
    broken: tuple[str, ...] = (),
    refused: tuple[str, ...] = (),
) -> StaticJudgement:
    """A case's verdict from values alone. ``launched`` counts its launches, those that are ``broken`` (a sentence each)
    or ``refused`` by the compiler (a source's hash each) among them; ``cut_off``: it stopped at a value that only a GPU
    has, and that isn't accepted. ``lost`` has by launch the baseline's config that is gone."""
    rules, series = policy.static, compat.triton_series()
    moved = _moved(known.launches, launches)
    found = _found(known, launches, about_configs, broken, target, rules)
    found = found.unsure(broken) if moved else found
    beside = _operators_since(known, operators, launches, rules)
    verdict = _verdict(known, launched, found, beside, bool(moved), cut_off, policy)
    before = known.reference.triton if known.reference else ""
    blamed = [launch_cause(a, b, before, series, lost=lost.get(i)) for i, a, b in in_both(known.launches, launches)]
    why = _reasons(known, launches, target, series, found, refused, blamed)
    fewer_launches = () if beside.failures else _missing(known, launched)
    reasons = (*beside.unsure, *fewer_launches, *beside.qualified(why), *_settings(moved))
    return StaticJudgement(verdict, found, beside, reasons, tuple(dict.fromkeys(filter(None, blamed))))


def check_static(
    stores: Stores, captured: CapturedCall, target: Target, update: Update, *, code: bool = False
) -> tuple[CaseResult, PendingBaseline]:
    """One target's verdict on a call, and the baseline that may be written. ``code``: with hunks of changed code."""
    case, policy, spec = captured.on(target, stores.reference), captured.call.policy, typical_device(target)
    recorded, fingerprint, series = case.recorded, case.fingerprint, compat.triton_series()
    own_path = stores.reference.static_path(target, series, case.id, fingerprint)
    renamed = stores.renames.settle(case.id, fingerprint, case.recording, own_path, case.arguments)
    known = known_case(stores, target, case.id, fingerprint, update)
    _refuse_known(known, recorded, case.capture, target)
    launches = launch_statics(recorded, spec, known_figures(known.launches, update))
    configs = config_reports(case.capture, spec, every=bool(policy.static.every_config))
    broken = tuple(dict.fromkeys(f"can't be compiled: {exc}" for exc in recorded.failures.values()))
    lost = dict(lost_configs(known.launches, launches, recorded, case.capture, spec))
    own = {(x.kernel, x.config) for x in launches}
    launched, accepted = len(case.capture.launches), stores.accepted_end(target, case.id, fingerprint, update)
    cut_off = captured.end is not None and captured.end != accepted
    judged = judge_launches(
        known,
        launches,
        case.operators,
        target,
        policy,
        launched=launched,
        cut_off=cut_off,
        about_configs=config_findings(configs, own, dict.fromkeys(lost.values()), policy.static),
        lost=lost,
        broken=broken,
        refused=_refused_sources(recorded, case.capture, target),
    )
    verdict, found, beside = judged.verdict, judged.found, judged.beside
    stored = tuple(x.without_lines() for x in launches)
    today = StaticBaseline(STATIC_SCHEMA, case.id, fingerprint, case.arguments, target, series, now(), stored)
    kept, listed = (
        _kept_end(captured.end, accepted, update),
        case.operators.without_places() if case.operators else msgspec.UNSET,
    )
    today = msgspec.structs.replace(today, end=kept, operators=listed)
    unreviewed = stores.unreviewed(verdict, stores.own.static_path(target, series, case.id, fingerprint))
    write = should_write(verdict, update, policy, known_otherwise=renamed.edited) and not broken
    write = unreviewed.writes(write, update)
    fewer = known.most[0] > launched  # accepted by a baseline that is later than the one with more
    pending = PendingBaseline(today, {} if broken else recorded.artifacts, write, anew=fewer)
    stopped = _stopped(captured, accepted) if cut_off else ()
    reasons = (*judged.reasons, *filter(None, [unreviewed.said, renamed.said]), *stopped)
    word = word_of(verdict, held=known.reference is not None)
    numerics = NumericsReport(str(policy.numerics), not_compared=(NOTHING_RUNS,)) if known.own is not None else None
    unknown = numerics.not_compared if numerics is not None and policy.numerics.gates else ()
    result = CaseResult(
        case=case.id,
        fingerprint=fingerprint,
        verdict=verdict,
        outcome=unreviewed.outcome(outcome_of(verdict, policy, pending, update)),
        message=judged.message(f"{word} {case.id} ({target}, static only)", reasons),
        target=str(target),
        launches=launch_reports(launches, known.launches),
        rung="static",
        causes=reasons,
        launch_causes=judged.launch_causes,
        lost_configs=tuple(dict.fromkeys(lost.values())),
        findings=judged.findings,
        remarks=(*unjudged_remarks(verdict, known.launches, launches), *renamed.remarks, *found.remarks, *beside.told),
        operators=case.operators,
        configs=told_once(configs),
        warnings=(
            *stores.damage.among(stores.reference, target, (x.ttir_sha256 for x in known.launches)),
            *unknown,
            *([f"stopped where the baseline accepts it, at {captured.end}"] if captured.end and not cut_off else []),
        ),
        baseline_path=stores.reference.shown(own_path),
        recorded=renamed.taken,
        code=case.code_changes(stores.reference, known.launches, launches) if code else (),
        numerics=numerics,
        end=captured.end,
        end_accepted=captured.end is not None and not cut_off,
    )
    return result, pending


def _refuse_known(known: KnownCase, recorded: Recorded, capture: Capture, target: Target) -> None:
    """:class:`EnvironmentFault` for a launch that can't be compiled, though the baseline has the same one: the same
    TTIR, compiled for the same arguments and options by the same compiler. The code is not the cause then."""
    for index, error in recorded.failures.items():
        launch = capture.launches[index].specialized[target]
        if not isinstance(error, CompileError) or not isinstance(launch, Specialized):
            continue
        assembler = compat.assembler_version(target.backend, target.triton_arch)
        compiler = f"Triton {compat.triton_version()}, assembler {assembler}"
        for before in known.launches:
            same_job = (before.compiler, before.compiled_for) == (compiler, launch.compiled_for())
            if error.ttir_sha256 and before.ttir_sha256 == error.ttir_sha256 and same_job:
                raise EnvironmentFault(
                    f"{error}\nThe baseline has the same code, compiled for the same arguments and options by the same "
                    "compiler, so this machine is to blame: look at its memory, its load, HOME, TRITON_CACHE_DIR and "
                    "TMPDIR, and run again"
                )


def _found(
    known: KnownCase,
    launches: tuple[LaunchStatic, ...],
    about_configs: Iterable[RuleMessage],
    broken: tuple[str, ...],
    target: Target,
    rules: StaticPolicy,
) -> StaticFindings:
    said = [RuleMessage("fail", "limits", text) for text in broken]
    said += _over_limits(launches, target, rules)
    pairs = compare_launches(known.launches, launches, rules, typical_device(target))
    since = [x for pair in pairs for x in _findings(pair)]
    since += [RuleMessage(f.severity, f.rule, f.text) for f in count_findings(known.launches, launches, rules)]
    anchored = _since_anchor(known, launches, target, rules, {x.text for x in (*said, *since)})
    said += [*map(_of_other_triton(known), since), *anchored, *about_configs]
    said = worst_first(said)
    return StaticFindings(
        tuple(x.text for x in said if x.severity == "fail"),
        tuple(x.text for x in said if x.severity == "warn"),
        tuple(x.text for x in said if x.severity == "info"),
    )


def _of_other_triton(known: KnownCase) -> Callable[[RuleMessage], RuleMessage]:
    """Adds to a finding that fails nothing which Triton's baseline it is held against, where that is another one's. It
    is warned of by itself; of one that fails, the case's line says the same once."""
    if known.own is not None or known.reference is None:
        return lambda said: said
    against = f", since the baseline of Triton {known.reference.triton}"
    return lambda said: said if said.severity == "fail" else said._replace(text=said.text + against)


def _since_anchor(
    known: KnownCase, launches: tuple[LaunchStatic, ...], target: Target, rules: StaticPolicy, said: Set[str]
) -> Iterator[RuleMessage]:
    """Findings since the anchor that aren't found since the baseline already."""
    if known.anchor is None:
        return
    for pair in compare_launches(known.anchor.launches, launches, rules, typical_device(target)):
        for found in _findings(pair):
            if found.severity in ("fail", "warn") and found.text not in said:
                text = f"{found.text}, since the anchor of {known.anchor.recorded.partition('T')[0]}"
                yield found._replace(text=text)


NOTHING_RUNS = "results not compared: nothing runs without a GPU"


def _over_limits(launches: tuple[LaunchStatic, ...], target: Target, rules: StaticPolicy) -> list[RuleMessage]:
    severity = rules.rule("limits").severity
    if severity == "off":
        return []
    texts = (f"{x.kernel} can't be launched on {target}: {v}" for x in launches for v in x.metrics.over_limit)
    return [RuleMessage(severity, "limits", text) for text in texts]


def _findings(pair: LaunchFindings) -> Iterator[RuleMessage]:
    """The rules' findings on a launch, but for limits that it breaks by itself, which are reported already."""
    over = {v.resource for v in pair.after.metrics.over_limit}
    for finding in pair.findings:
        if finding.rule != "limits" or finding.metric not in over:
            where = places_text(pair.after.lines)
            yield RuleMessage(finding.severity, finding.rule, f"{pair.after.kernel}{where}: {finding.text}")


def _operators_since(
    known: KnownCase, now: OperatorList | None, launches: tuple[LaunchStatic, ...], rules: StaticPolicy
) -> OperatorChange:
    """The change of what runs beside the kernels, since the baseline, and since the anchor what that alone finds."""
    rule = rules.rule("other_operators")
    if known.reference is None:
        return NO_CHANGE
    before, same = operators_of(known.reference), _same_code(known.launches, launches)
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
    return replace(found, failures=tuple(f"{text}, since the anchor of {day}" for text in since.failures))


def _bytes_rule(before: tuple[LaunchStatic, ...], after: tuple[LaunchStatic, ...], rules: StaticPolicy) -> StaticRule:
    """The rule ``bytes_moved``. What a kernel that a person wrote is launched with may decide how it divides its work
    (partial sums of more splits): under other settings more bytes only warn, unless the rule was set."""
    rule, pairs = rules.rule("bytes_moved"), [(a, b) for _, a, b in in_both(before, after) if not b.origins]
    if rule.severity == "fail" and "bytes_moved" not in rules.rules and any(a.setting_changes(b) for a, b in pairs):
        return StaticRule("warn", rule.threshold)
    return rule


def _same_code(before: tuple[LaunchStatic, ...], after: tuple[LaunchStatic, ...]) -> bool:
    return [(x.kernel, x.code, x.grid) for x in before] == [(x.kernel, x.code, x.grid) for x in after]


def _verdict(
    known: KnownCase,
    launched: int,
    found: StaticFindings,
    beside: OperatorChange,
    other_settings: bool,
    cut_off: bool,
    policy: Policy,
) -> Verdict:
    """A case without a baseline of its own is NEW, but not if another one has more launches of it."""
    expected = known.most[0]
    evidence = Evidence(
        launched=launched,
        expected=expected if known.own is not None or expected > launched else None,
        static_failure=bool(found.failures),
        timed=False,
        other_settings=other_settings,
        work_moved=bool(beside.failures),
        work_unsure=bool(beside.unsure),
        cut_off=cut_off,
    )
    return decide(evidence, policy)


def _moved(before: tuple[LaunchStatic, ...], after: tuple[LaunchStatic, ...]) -> tuple[str, ...]:
    """The environment's settings of the compiler that differ, where code differs; each once."""
    pairs = [(a, b) for _, a, b in in_both(before, after) if a.code != b.code]
    moved = [moved_settings(a.compiler_settings, b.compiler_settings) for a, b in pairs]
    return tuple(dict.fromkeys(text for text in moved if text))


def _settings(moved: tuple[str, ...]) -> tuple[str, ...]:
    if not moved:
        return ()
    told = "; ".join(moved)
    text = f"compiled under another environment than the baseline ({told}), so not judged: set it as it was, or refresh"
    return (text,)


def unjudged_remarks(
    verdict: Verdict, before: tuple[LaunchStatic, ...], after: tuple[LaunchStatic, ...]
) -> tuple[str, ...]:
    """What changed of a case that passes, though its machine code is another one and nothing was timed."""
    pairs = in_both(before, after)
    if verdict is not Verdict.PASS or (len(pairs) == len(before) and all(a.code == b.code for _, a, b in pairs)):
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


def _missing(known: KnownCase, launched: int) -> tuple[str, ...]:
    """How many launches there were, if a baseline has more: kernels fused into one, or a path that wasn't taken."""
    expected, name = known.most
    if launched >= expected:
        return ()
    return (f"{launched} of the {expected} launches that {name} has; {ACCEPT_FEWER}",)


def _kept_end(end: End | None, accepted: End | None, update: Update) -> End | msgspec.UnsetType:
    """What a baseline that is written now accepts: today's end, else what was accepted of the test after the call,
    which isn't known yet; a refresh of all finds out anew."""
    if end is not None:
        return end
    return accepted if accepted is not None and accepted.between and update is not Update.ALL else msgspec.UNSET


def _stopped(captured: CapturedCall, accepted: End | None) -> tuple[str, ...]:
    other = f" (the baseline accepts another end, at {accepted})" if accepted and not accepted.between else ""
    if captured.ended is None:
        return (f"asked in vain at {captured.end}{other}: on a GPU it may launch something else. {ACCEPT_END}",)
    count = len(captured.capture.launches)
    return (
        f"stopped after {count} launch{'es' if count > 1 else ''} at {captured.end}{other}; what it launches after "
        f"that isn't judged. {ACCEPT_END}",
    )


ACCEPT_END = (
    'Where a kernel computes that value, give it: autotune(..., values={"kernel.argument": tensor}); if the end is '
    "meant, a refresh (--kerntune-update) accepts it, or outcomes={'INCOMPLETE': 'warn'}"
)

ACCEPT_FEWER = "if that is meant, a refresh (--kerntune-update) accepts it, or outcomes={'INCOMPLETE': 'warn'}"
"""The latter where baselines aren't written: held against another revision."""


def _refused_sources(recorded: Recorded, capture: Capture, target: Target) -> tuple[str, ...]:
    """The hashes of the sources of launches that can't be compiled; empty text where there is no kernel to ask."""
    refused = (capture.launches[index].specialized[target] for index in recorded.failures)
    return tuple(source_hash(x.jit) if isinstance(x, Specialized) else "" for x in refused)


def _reasons(
    known: KnownCase,
    launches: tuple[LaunchStatic, ...],
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
    told = {*chain(*static_setting_lines([p for p, why in zip(pairs, blamed, strict=True) if why]))}
    configs = [x for x in config_causes(*static_setting_lines(pairs)) if x not in told]
    moved = [
        x for x in launch_lines(reference.launches, launches) if x.removeprefix(FUSION_CHANGED) not in found.failures
    ]
    moved += replaced_kernels(reference.launches, launches)
    first = () if known.own else (elsewhere,)
    if refused:  # of a launch without a binary neither its config is compared nor that it is there
        configs, moved = [], []
    return (*first, code, *configs, *moved, *dict.fromkeys(str(b) for b in blamed if b))
