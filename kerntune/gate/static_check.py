"""Judges a captured call without a GPU: its static figures against the stored ones, per target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from itertools import chain

import msgspec

from kerntune.base.case_result import CaseResult, CodeChange, ConfigReport, End, config_problems, told_once
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec, Target, typical_device
from kerntune.base.numerics import NumericsReport
from kerntune.base.policy import Policy, StaticPolicy, Update, Verdict
from kerntune.capture import Capture
from kerntune.capture.recorder import Recorded
from kerntune.compiling.compiler import Compiled
from kerntune.errors import CompileError, EnvironmentFault, TrialError
from kerntune.gate.baselines import (
    STATIC_SCHEMA,
    StaticBaseline,
    now,
)
from kerntune.gate.call import PendingBaseline, outcome_of, should_write
from kerntune.gate.call_capture import CapturedCall
from kerntune.gate.causes import code_cause, config_causes, launch_cause
from kerntune.gate.decision import Evidence, decide
from kerntune.gate.fusion import FUSION_CHANGED
from kerntune.gate.launch_changes import (
    LaunchFindings,
    changed_sources,
    compare_launches,
    count_findings,
    launch_lines,
    moved_settings,
    static_setting_lines,
)
from kerntune.gate.static_figures import LaunchStatic, binary_input, in_both, launch_reports, launch_statics
from kerntune.gate.stores import KnownCase, Stores, known_case, known_figures
from kerntune.kernels import compat
from kerntune.kernels.generated import generated
from kerntune.kernels.source import source_hash
from kerntune.kernels.specialize import Specialized
from kerntune.static.finding import Said, worst_first
from kerntune.static.metrics import StaticMetrics, metrics_of


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


def check_static(
    stores: Stores, captured: CapturedCall, target: Target, update: Update, *, code: bool = False
) -> tuple[CaseResult, PendingBaseline]:
    """One target's verdict on a call, and the baseline that may be written. ``code``: with hunks of changed code."""
    case, policy, spec = captured.on(target, stores.reference), captured.call.policy, typical_device(target)
    recorded, fingerprint, series = case.recorded, case.fingerprint, compat.triton_series()
    own_path = stores.reference.static_path(target, series, case.id, fingerprint)
    renamed = stores.renames.settle(case.id, fingerprint, case.recording, own_path)
    known = known_case(stores, target, case.id, fingerprint, update)
    _refuse_known(known, recorded, case.capture, target)
    launches = launch_statics(recorded, spec, known_figures(known.launches, update))
    configs = config_reports(case.capture, spec, every=bool(policy.static.every_config))
    broken = tuple(dict.fromkeys(f"can't be compiled: {exc}" for exc in recorded.failures.values()))
    moved = _moved(known.launches, launches)
    found = _found(known, launches, configs, broken, target, policy.static)
    found = found.unsure(broken) if moved else found
    launched, accepted = len(case.capture.launches), stores.accepted_end(target, case.id, fingerprint, update)
    cut_off = captured.end is not None and captured.end != accepted
    verdict = _verdict(known, launched, found, bool(moved), cut_off, policy)
    today = StaticBaseline(STATIC_SCHEMA, case.id, fingerprint, case.arguments, target, series, now(), launches)
    today = msgspec.structs.replace(today, end=_kept_end(captured.end, accepted, update))
    write = should_write(verdict, update, policy) and not broken
    fewer = known.most[0] > launched  # accepted by a baseline that is later than the one with more
    pending = PendingBaseline(today, {} if broken else recorded.artifacts, write, anew=fewer)
    refused = _refused_sources(recorded, case.capture, target)
    why = _reasons(known, launches, target, series, found, refused)
    stopped = _stopped(captured, accepted) if cut_off else ()
    reasons = (*_missing(known, launched), *why, *_settings(moved))
    reasons = (*reasons, *([renamed.said] if renamed.said else []), *stopped)
    word = "FAILS" if known.reference is None and verdict is Verdict.REGRESSED else verdict.value
    numerics = NumericsReport(str(policy.numerics), not_compared=(NOTHING_RUNS,)) if known.own is not None else None
    unknown = numerics.not_compared if numerics is not None and policy.numerics.gates else ()
    result = CaseResult(
        case=case.id,
        fingerprint=fingerprint,
        verdict=verdict,
        outcome=outcome_of(verdict, policy, pending, update),
        message=", ".join([f"{word} {case.id} ({target}, static only)", *found.failures, *reasons]),
        target=str(target),
        launches=launch_reports(launches, known.launches),
        rung="static",
        causes=reasons,
        findings=(*found.failures, *found.notes),
        remarks=(*renamed.remarks, *found.remarks),
        configs=told_once(configs),
        warnings=(
            *stores.damage.among(stores.reference, target, (x.ttir_sha256 for x in known.launches)),
            *unknown,
            *([f"stopped where the baseline accepts it, at {captured.end}"] if captured.end and not cut_off else []),
        ),
        baseline_path=stores.reference.shown(own_path),
        recorded=renamed.taken,
        code=_code_changes(stores, known, captured, recorded, launches) if code else (),
        numerics=numerics,
        end=captured.end,
        end_accepted=captured.end is not None and not cut_off,
    )
    return result, pending


def _code_changes(
    stores: Stores, known: KnownCase, captured: CapturedCall, recorded: Recorded, launches: tuple[LaunchStatic, ...]
) -> tuple[CodeChange, ...]:
    from kerntune.gate.code_changes import StoredCode, code_changes  # for reports, which few runs write

    artifacts = stores.reference.readable(recorded.recording.target)
    return code_changes(StoredCode(known.launches, artifacts), recorded, launches, captured.capture.compiler.farm)


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
    configs: tuple[ConfigReport, ...],
    broken: tuple[str, ...],
    target: Target,
    rules: StaticPolicy,
) -> StaticFindings:
    judged = {(x.kernel, x.config) for x in launches}
    said = [Said("fail", "limits", text) for text in broken]
    said += _over_limits(launches, target, rules)
    since = [x for pair in compare_launches(known.launches, launches, rules) for x in _findings(pair)]
    since += [Said(f.severity, f.rule, f.text) for f in count_findings(known.launches, launches, rules)]
    anchored = _since_anchor(known, launches, rules, {x.text for x in (*said, *since)})
    said += [*map(_of_other_triton(known), since), *anchored]
    said += config_findings(configs, judged, rules)
    said = worst_first(said)
    return StaticFindings(
        tuple(x.text for x in said if x.severity == "fail"),
        tuple(x.text for x in said if x.severity == "warn"),
        tuple(x.text for x in said if x.severity == "info"),
    )


def _of_other_triton(known: KnownCase) -> Callable[[Said], Said]:
    """Adds to a finding that fails nothing which Triton's baseline it is held against, where that is another one's. It
    is warned of by itself; of one that fails, the case's line says the same once."""
    if known.own is not None or known.reference is None:
        return lambda said: said
    against = f", since the baseline of Triton {known.reference.triton}"
    return lambda said: said if said.severity == "fail" else said._replace(text=said.text + against)


def _since_anchor(
    known: KnownCase, launches: tuple[LaunchStatic, ...], rules: StaticPolicy, said: Set[str]
) -> Iterator[Said]:
    """Findings since the anchor that aren't found since the baseline already."""
    if known.anchor is None:
        return
    for pair in compare_launches(known.anchor.launches, launches, rules):
        for found in _findings(pair):
            if found.severity in ("fail", "warn") and found.text not in said:
                text = f"{found.text}, since the anchor of {known.anchor.recorded.partition('T')[0]}"
                yield found._replace(text=text)


NOTHING_RUNS = "results not compared: nothing runs without a GPU"


def _over_limits(launches: tuple[LaunchStatic, ...], target: Target, rules: StaticPolicy) -> list[Said]:
    severity = rules.rule("limits").severity
    if severity == "off":
        return []
    texts = (f"{x.kernel} can't be launched on {target}: {v}" for x in launches for v in x.metrics.over_limit)
    return [Said(severity, "limits", text) for text in texts]


def _findings(pair: LaunchFindings) -> Iterator[Said]:
    """The rules' findings on a launch, but for limits that it breaks by itself, which are reported already."""
    over = {v.resource for v in pair.after.metrics.over_limit}
    for finding in pair.findings:
        if finding.rule != "limits" or finding.metric not in over:
            yield Said(finding.severity, finding.rule, f"{pair.after.kernel}: {finding.text}")


def _verdict(
    known: KnownCase, launched: int, found: StaticFindings, other_settings: bool, cut_off: bool, policy: Policy
) -> Verdict:
    """A case without a baseline of its own is NEW, but not if another one has more launches of it."""
    expected = known.most[0]
    evidence = Evidence(
        launched=launched,
        expected=expected if known.own is not None or expected > launched else None,
        static_failure=bool(found.failures),
        timed=False,
        other_settings=other_settings,
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
    blamed = [launch_cause(a, b, reference.triton, series) for a, b in pairs]
    told = {*chain(*static_setting_lines([p for p, why in zip(pairs, blamed, strict=True) if why]))}
    configs = [x for x in config_causes(*static_setting_lines(pairs)) if x not in told]
    moved = [
        x for x in launch_lines(reference.launches, launches) if x.removeprefix(FUSION_CHANGED) not in found.failures
    ]
    first = () if known.own else (elsewhere,)
    if refused:  # of a launch without a binary neither its config is compared nor that it is there
        configs, moved = [], []
    return (*first, code, *configs, *moved, *dict.fromkeys(b for b in blamed if b))


@dataclass(frozen=True)
class CandidateConfig:
    """A candidate of a launch site: what would be compiled for it, or why nothing can be."""

    kernel: str
    config: Config
    launch: Specialized | TrialError


def config_reports(capture: Capture, spec: DeviceSpec, *, every: bool = True) -> tuple[ConfigReport, ...]:
    """A report on each candidate of each launch whose config was open, equal ones once, in order. Without ``every`` of
    kernels alone that Inductor generated: it chooses among its list on the GPU, so any of them may run there."""
    with capture.active():
        candidates = _distinct(_candidates(capture, spec, every))
    capture.compiler.compile_all([c.launch for c in candidates if isinstance(c.launch, Specialized)])
    compiled = [_compiled(capture, c.launch) for c in candidates]
    inputs = [binary_input(c.binary, c.data, c.asm) for c in compiled if isinstance(c, Compiled)]
    figures = iter(metrics_of(inputs, spec))
    return tuple(
        _report(c, next(figures) if isinstance(made, Compiled) else made)
        for c, made in zip(candidates, compiled, strict=True)
    )


def config_findings(
    reports: tuple[ConfigReport, ...], judged: set[tuple[str, Config | None]], rules: StaticPolicy
) -> Iterator[Said]:
    """A finding on the candidates that have a problem, once for those that have the same, but for those that are judged
    by themselves."""
    for found in config_problems(r for r in reports if (r.kernel, r.config) not in judged):
        rule = "config_limits" if found.broken else "config_spills"
        severity = rules.rule(rule).severity
        if severity != "off":
            yield Said(severity, rule, str(found))


def _candidates(capture: Capture, spec: DeviceSpec, every: bool) -> Iterator[CandidateConfig]:
    for pending in list(capture.launches):
        site = pending.site if every or generated(pending.jit) else None
        for index, candidate in enumerate(site.candidates if site else ()):
            assert site is not None
            launch: Specialized | TrialError
            try:
                launch = capture.probe(site, index, spec.target).specialized
            except TrialError as exc:
                launch = exc
            yield CandidateConfig(site.kernel, candidate.config, launch)


def _distinct(candidates: Iterator[CandidateConfig]) -> list[CandidateConfig]:
    """A kernel that is launched often is compiled once for each of its specializations."""
    found: dict[tuple[str, Config, str], CandidateConfig] = {}
    for c in candidates:
        key = c.launch.key() if isinstance(c.launch, Specialized) else str(c.launch)
        found.setdefault((c.kernel, c.config, key), c)
    return list(found.values())


def _compiled(capture: Capture, launch: Specialized | TrialError) -> Compiled | TrialError:
    if isinstance(launch, TrialError):
        return launch
    try:
        return capture.compiler.compile(launch)
    except EnvironmentFault:
        raise
    except TrialError as exc:
        return exc


def _report(candidate: CandidateConfig, made: StaticMetrics | TrialError) -> ConfigReport:
    if isinstance(made, TrialError):
        return ConfigReport(candidate.kernel, candidate.config, broken=f"can't be compiled: {made}")
    return ConfigReport(
        kernel=candidate.kernel,
        config=candidate.config,
        registers=made.registers,
        spill_bytes=made.spill_store_bytes + made.spill_load_bytes,
        shared_bytes=made.shared_bytes,
        broken="; ".join(f"can't be launched: {v}" for v in made.over_limit),
    )
