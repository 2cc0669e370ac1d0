"""Judges a captured call without a GPU: its static figures against the stored ones, per target."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from itertools import chain

import msgspec

from kerntune.base.case_result import UNJUDGED, CaseResult, CodeChange, End, word_of
from kerntune.base.device import Target, typical_device
from kerntune.base.failed_candidates import told_once
from kerntune.base.numerics import NumericsReport
from kerntune.base.policy import Update, Verdict
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
from kerntune.gate.call_operators import NO_CHANGE, OperatorChange, compare_operators
from kerntune.gate.candidate_configs import config_findings, config_reports, lost_configs
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
    replaced_kernels,
    static_setting_lines,
)
from kerntune.gate.static_figures import LaunchStatic, in_both, launch_reports, launch_statics
from kerntune.gate.stores import KnownCase, Stores, known_case, known_figures
from kerntune.kernels import compat
from kerntune.kernels.source import source_hash
from kerntune.kernels.specialize import Specialized
from kerntune.static.code_rules import SEVERITIES, RuleMessage, worst_first


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
    check = StaticCheck(stores, captured, target, update)
    pending = check.pending()
    return check.result(pending, code), pending


class StaticCheck:
    """The check of one call for one target: what is known of the case, what it is today, and the findings."""

    def __init__(self, stores: Stores, captured: CapturedCall, target: Target, update: Update) -> None:
        self.stores, self.captured, self.target, self.update = stores, captured, target, update
        self.policy, self.rules, self.spec = captured.call.policy, captured.call.policy.static, typical_device(target)
        self.case = case = captured.on(target, stores.reference)
        self.series, self.launched = compat.triton_series(), len(case.capture.launches)
        self.path = stores.reference.static_path(target, self.series, case.id, case.fingerprint)
        self.renamed = stores.renames.settle(case.id, case.fingerprint, case.recording, self.path, case.arguments)
        self.known = known = known_case(stores, target, case.id, case.fingerprint, update)
        _refuse_known(known, case.recorded, case.capture, target)
        self.launches = launch_statics(case.recorded, self.spec, known_figures(known.launches, update))
        self.configs = config_reports(case.capture, self.spec, every=bool(self.rules.every_config))
        self.broken = tuple(dict.fromkeys(f"can't be compiled: {exc}" for exc in case.recorded.failures.values()))
        self.moved = _moved(known.launches, self.launches)
        found = self._found()
        self.found = found.unsure(self.broken) if self.moved else found
        self.accepted = stores.accepted_end(target, case.id, case.fingerprint, update)
        self.cut_off = captured.end is not None and captured.end != self.accepted
        self.beside = self._operators_since()
        self.verdict = self._verdict()
        own_path = stores.own.static_path(target, self.series, case.id, case.fingerprint)
        self.unreviewed = stores.unreviewed(self.verdict, own_path)

    def pending(self) -> PendingBaseline:
        """The baseline as it would be stored."""
        case, end = self.case, _kept_end(self.captured.end, self.accepted, self.update)
        today = StaticBaseline(
            STATIC_SCHEMA,
            case.id,
            case.fingerprint,
            case.arguments,
            self.target,
            self.series,
            now(),
            self.launches,
            end=end,
            operators=case.operators or msgspec.UNSET,
        )
        write = should_write(self.verdict, self.update, self.policy, known_otherwise=self.renamed.edited)
        write = self.unreviewed.writes(write and not self.broken, self.update)
        fewer = self.known.most[0] > self.launched  # accepted by a baseline that is later than the one with more
        return PendingBaseline(today, {} if self.broken else case.recorded.artifacts, write, anew=fewer)

    def result(self, pending: PendingBaseline, code: bool) -> CaseResult:
        """The verdict with its reasons; ``code``: with hunks of changed code."""
        case, known, found, beside, end = self.case, self.known, self.found, self.beside, self.captured.end
        reasons = self._reasons()
        word = word_of(self.verdict, held=known.reference is not None)
        failures = (*beside.failures, *found.failures)
        numerics = NumericsReport(str(self.policy.numerics), not_compared=(NOTHING_RUNS,)) if known.own else None
        return CaseResult(
            case=case.id,
            fingerprint=case.fingerprint,
            verdict=self.verdict,
            outcome=self.unreviewed.outcome(outcome_of(self.verdict, self.policy, pending, self.update)),
            message=", ".join([f"{word} {case.id} ({self.target}, static only)", *failures, *reasons]),
            target=str(self.target),
            launches=launch_reports(self.launches, known.launches),
            rung="static",
            causes=reasons,
            findings=(*failures, *found.notes),
            remarks=(*self._unjudged(), *self.renamed.remarks, *found.remarks, *beside.told),
            operators=case.operators,
            configs=told_once(self.configs),
            warnings=self._warnings(),
            baseline_path=self.stores.reference.shown(self.path),
            recorded=self.renamed.taken,
            code=self._code_changes() if code else (),
            numerics=numerics,
            end=end,
            end_accepted=end is not None and not self.cut_off,
        )

    def _warnings(self) -> tuple[str, ...]:
        """Damaged artifacts of the baseline, results that are gated and not compared, an end that is accepted."""
        stores, end = self.stores, self.captured.end
        damaged = stores.damage.among(stores.reference, self.target, (x.ttir_sha256 for x in self.known.launches))
        unknown = [NOTHING_RUNS] if self.known.own and self.policy.numerics.gates else []
        stopped = [f"stopped where the baseline accepts it, at {end}"] if end and not self.cut_off else []
        return (*damaged, *unknown, *stopped)

    def _code_changes(self) -> tuple[CodeChange, ...]:
        from kerntune.gate.code_changes import StoredCode, code_changes  # for reports, which few runs write

        stored = StoredCode(self.known.launches, self.stores.reference.artifacts(self.target))
        return code_changes(stored, self.case.recorded, self.launches, self.case.capture.compiler.farm)

    # findings

    def _found(self) -> StaticFindings:
        known, launches, rules = self.known, self.launches, self.rules
        said = [RuleMessage("fail", "limits", text) for text in self.broken] + self._over_limits()
        since = [x for pair in compare_launches(known.launches, launches, rules, self.spec) for x in _findings(pair)]
        since += [RuleMessage(f.severity, f.rule, f.text) for f in count_findings(known.launches, launches, rules)]
        anchored = self._since_anchor({x.text for x in (*said, *since)})
        said += [*map(self._of_other_triton, since), *anchored, *self._about_configs()]
        by_severity = {kind: tuple(x.text for x in worst_first(said) if x.severity == kind) for kind in SEVERITIES}
        return StaticFindings(*by_severity.values())

    def _over_limits(self) -> list[RuleMessage]:
        severity, target = self.rules.rule("limits").severity, self.target
        if severity == "off":
            return []
        over = ((x.kernel, v) for x in self.launches for v in x.metrics.over_limit)
        return [RuleMessage(severity, "limits", f"{kernel} can't be launched on {target}: {v}") for kernel, v in over]

    def _about_configs(self) -> Iterator[RuleMessage]:
        """Findings on the candidates that aren't judged by themselves, and on configs of the baseline that were
        lost."""
        case, launches, rules = self.case, self.launches, self.rules
        sites = [p.site for i, p in enumerate(case.capture.launches) if i not in case.recorded.failures]
        yield from config_findings(self.configs, {(x.kernel, x.config) for x in launches}, rules)
        yield from lost_configs(self.known.launches, launches, sites, case.capture, self.spec, rules)

    def _of_other_triton(self, said: RuleMessage) -> RuleMessage:
        """A finding with which Triton's baseline it is held against, where that is another one's. One that fails
        nothing is warned of by itself; of one that fails, the case's line says the same once."""
        if self.known.own is not None or self.known.reference is None or said.severity == "fail":
            return said
        return said._replace(text=f"{said.text}, since the baseline of Triton {self.known.reference.triton}")

    def _since_anchor(self, said: Set[str]) -> Iterator[RuleMessage]:
        """Findings since the anchor that aren't found since the baseline already."""
        anchor = self.known.anchor
        if anchor is None:
            return
        for pair in compare_launches(anchor.launches, self.launches, self.rules, self.spec):
            for found in _findings(pair):
                if found.severity in ("fail", "warn") and found.text not in said:
                    yield found._replace(text=_since_day(found.text, anchor))

    def _operators_since(self) -> OperatorChange:
        """The change of what runs beside the kernels, since the baseline, and since the anchor what that alone
        finds."""
        rule, now, known = self.rules.rule("other_operators"), self.case.operators, self.known
        if known.reference is None:
            return NO_CHANGE
        same = _same_code(known.launches, self.launches)
        found = compare_operators(operators_of(known.reference), now, rule, timed=False, same_kernels=same)
        anchor = known.anchor
        if anchor is None or anchor.operators is msgspec.UNSET or found.failures:
            return found
        since = compare_operators(anchor.operators, now, rule, timed=False, same_kernels=True)
        return replace(found, failures=tuple(_since_day(text, anchor) for text in since.failures))

    def _verdict(self) -> Verdict:
        """A case without a baseline of its own is NEW, but not if another one has more launches of it."""
        expected = self.known.most[0]
        evidence = Evidence(
            launched=self.launched,
            expected=expected if self.known.own is not None or expected > self.launched else None,
            static_failure=bool(self.found.failures),
            timed=False,
            other_settings=bool(self.moved),
            work_moved=bool(self.beside.failures),
            work_unsure=bool(self.beside.unsure),
            cut_off=self.cut_off,
        )
        return decide(evidence, self.policy)

    # reasons

    def _reasons(self) -> tuple[str, ...]:
        beside, said = self.beside, filter(None, [self.unreviewed.said, self.renamed.said])
        fewer = () if beside.failures else self._missing()
        stopped = [self._stopped()] if self.cut_off else []
        return (*beside.unsure, *fewer, *beside.qualified(self._causes()), *self._settings(), *said, *stopped)

    def _settings(self) -> list[str]:
        told = f"compiled under another environment than the baseline ({'; '.join(self.moved)}), so not judged"
        return [f"{told}: set it as it was, or refresh"] if self.moved else []

    def _missing(self) -> tuple[str, ...]:
        """How many launches there were, if a baseline has more: kernels fused into one, or a path that wasn't
        taken."""
        expected, name = self.known.most
        if self.launched >= expected:
            return ()
        return (f"{self.launched} of the {expected} launches that {name} has; {ACCEPT_FEWER}",)

    def _stopped(self) -> str:
        end, accepted, count = self.captured.end, self.accepted, self.launched
        other = f" (the baseline accepts another end, at {accepted})" if accepted and not accepted.between else ""
        if self.captured.ended is None:
            return f"asked in vain at {end}{other}: on a GPU it may launch something else. {ACCEPT_END}"
        launches = f"{count} launch{'es' if count > 1 else ''}"
        return f"stopped after {launches} at {end}{other}; what it launches after that isn't judged. {ACCEPT_END}"

    def _unjudged(self) -> tuple[str, ...]:
        """What changed of a case that passes, though its machine code is another one and nothing was timed."""
        before, after = self.known.launches, self.launches
        pairs = in_both(before, after)
        same = len(pairs) == len(before) and all(a.code == b.code for _, a, b in pairs)
        if self.verdict is not Verdict.PASS or same:
            return ()
        config, options = static_setting_lines([(a, b) for _, a, b in pairs])
        kinds = {"code": any(changed_sources(before, after)), "config": bool(config), "launch options": bool(options)}
        changed = [name for name, found in kinds.items() if found] or ["arguments or compiler"]
        return (f"{' and '.join(changed)} changed; {UNJUDGED}",)

    def _refused_sources(self) -> tuple[str, ...]:
        """The hashes of the sources of launches that can't be compiled; empty text where there is no kernel to ask."""
        captured, failures = self.case.capture.launches, self.case.recorded.failures
        refused = (captured[index].specialized[self.target] for index in failures)
        return tuple(source_hash(x.jit) if isinstance(x, Specialized) else "" for x in refused)

    def _causes(self) -> tuple[str, ...]:
        """What differs from the baseline that the case is held against."""
        reference, series, launches, failures = self.known.reference, self.series, self.launches, self.found.failures
        lacking = f"no static baseline for {self.target} under Triton {series}"
        if reference is None:
            return () if failures else (lacking,)  # where it fails, a baseline would not help
        refused, stored = self._refused_sources(), {x.source for x in reference.launches}
        changed = any(changed_sources(reference.launches, launches)) or any(x and x not in stored for x in refused)
        code = code_cause(changed, reference.triton, series)
        pairs = [(a, b) for _, a, b in in_both(reference.launches, launches)]
        blamed = [launch_cause(a, b, reference.triton, series) for a, b in pairs]
        told = {*chain(*static_setting_lines([p for p, why in zip(pairs, blamed, strict=True) if why]))}
        configs = [x for x in config_causes(*static_setting_lines(pairs)) if x not in told]
        lines = launch_lines(reference.launches, launches)
        moved = [x for x in lines if x.removeprefix(FUSION_CHANGED) not in failures]
        moved += replaced_kernels(reference.launches, launches)
        first = () if self.known.own else (f"{lacking}, held against that of {reference.triton}",)
        if refused:  # of a launch without a binary neither its config is compared nor that it is there
            configs, moved = [], []
        return (*first, code, *configs, *moved, *dict.fromkeys(b for b in blamed if b))


NOTHING_RUNS = "results not compared: nothing runs without a GPU"

ACCEPT_END = (
    'Where a kernel computes that value, give it: autotune(..., values={"kernel.argument": tensor}); if the end is '
    "meant, a refresh (--kerntune-update) accepts it, or outcomes={'INCOMPLETE': 'warn'}"
)

ACCEPT_FEWER = "if that is meant, a refresh (--kerntune-update) accepts it, or outcomes={'INCOMPLETE': 'warn'}"
"""The latter where baselines aren't written: held against another revision."""


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


def _findings(pair: LaunchFindings) -> Iterator[RuleMessage]:
    """The rules' findings on a launch, but for limits that it breaks by itself, which are reported already."""
    over = {v.resource for v in pair.after.metrics.over_limit}
    for finding in pair.findings:
        if finding.rule != "limits" or finding.metric not in over:
            yield RuleMessage(finding.severity, finding.rule, f"{pair.after.kernel}: {finding.text}")


def _since_day(text: str, anchor: StaticBaseline) -> str:
    return f"{text}, since the anchor of {anchor.recorded.partition('T')[0]}"


def _same_code(before: tuple[LaunchStatic, ...], after: tuple[LaunchStatic, ...]) -> bool:
    return [(x.kernel, x.code, x.grid) for x in before] == [(x.kernel, x.code, x.grid) for x in after]


def _moved(before: tuple[LaunchStatic, ...], after: tuple[LaunchStatic, ...]) -> tuple[str, ...]:
    """The environment's settings of the compiler that differ, where code differs; each once."""
    pairs = [(a, b) for _, a, b in in_both(before, after) if a.code != b.code]
    moved = [moved_settings(a.compiler_settings, b.compiler_settings) for a, b in pairs]
    return tuple(dict.fromkeys(text for text in moved if text))


def _kept_end(end: End | None, accepted: End | None, update: Update) -> End | msgspec.UnsetType:
    """What a baseline that is written now accepts: today's end, else what was accepted of the test after the call,
    which isn't known yet; a refresh of all finds out anew."""
    if end is not None:
        return end
    return accepted if accepted is not None and accepted.between and update is not Update.ALL else msgspec.UNSET
