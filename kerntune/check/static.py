"""Judges a captured call without a GPU: its static figures against the stored ones, per target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kerntune import compat
from kerntune.baseline import (
    STATIC_SCHEMA,
    Argument,
    BaselineStore,
    StaticBaseline,
    fingerprint_of,
    inputs_of,
    now,
)
from kerntune.capture import Capture
from kerntune.check.call import Call, Pending
from kerntune.check.causes import attribution, code_cause, config_causes
from kerntune.check.configs import config_findings, config_reports
from kerntune.check.results import launch_reports, readable, should_write
from kerntune.config import Config
from kerntune.device import Target, typical_device
from kerntune.judge import Evidence, decide
from kerntune.policy import Outcome, StaticPolicy, Update, Verdict
from kerntune.recorder import record
from kerntune.result import CaseResult, ConfigReport
from kerntune.static.launches import LaunchStatic, launch_statics, paired
from kerntune.static.rules import compare_static


@dataclass(frozen=True)
class Found:
    """What the static rules say of a case: sentences that fail it, and others."""

    failures: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """What is remembered of a case: its own baseline, and what it is held against, which may be another Triton's."""

    own: StaticBaseline | None
    reference: StaticBaseline | None

    @property
    def launches(self) -> tuple[LaunchStatic, ...]:
        """The launches that today's are held against."""
        return self.reference.launches if self.reference else ()


def check_static(
    store: BaselineStore, call: Call, capture: Capture, target: Target, arguments: tuple[Argument, ...], update: Update
) -> tuple[CaseResult, Pending]:
    """One target's verdict on a call, and the baseline that may be written."""
    recorded = record(capture, target)
    spec, rules = typical_device(target), call.policy.static
    arguments = arguments or inputs_of(recorded.recording)
    fingerprint = fingerprint_of(arguments)
    series = compat.triton_series()
    known = _known(store, target, series, call, fingerprint, update)
    launches = launch_statics(recorded, spec)
    configs = config_reports(capture, spec) if rules.every_config else ()
    broken = tuple(f"can't be compiled: {exc}" for exc in recorded.failures.values())
    found = _found(known, launches, configs, broken, target, rules)
    verdict = _verdict(known.own, launches, len(recorded.failures), found, call)
    today = StaticBaseline(STATIC_SCHEMA, call.case, fingerprint, arguments, target, series, now(), launches)
    outcome = call.policy.outcome(verdict)
    write = should_write(verdict, update, outcome, call.policy.missing.value) and not broken
    if write and update in (Update.ALL, Update.NEW):
        outcome = Outcome.PASS
    reasons = _reasons(known, launches, target, series)
    result = CaseResult(
        case=call.case,
        fingerprint=fingerprint,
        verdict=verdict,
        outcome=outcome,
        message=", ".join([f"{verdict.value} {call.case} ({target}, static only)", *found.failures, *reasons]),
        target=str(target),
        launches=launch_reports(launches),
        rung="static",
        causes=reasons,
        findings=(*found.failures, *found.notes),
        configs=configs,
        baseline_path=store.shown(store.static_path(target, series, call.case, fingerprint)),
    )
    return result, Pending(today, {} if broken else recorded.artifacts, write)


def _known(store: BaselineStore, target: Target, series: str, call: Call, fingerprint: str, update: Update) -> Known:
    own = readable(lambda: store.static(target, series, call.case, fingerprint), update)
    return Known(own, own or readable(lambda: store.static_elsewhere(target, series, call.case, fingerprint), update))


def stored_configs(
    store: BaselineStore, call: Call, target: Target, fingerprint: str | None, update: Update = Update.NONE
) -> dict[str, list[Config]]:
    """Configs that baselines of this case remember, by kernel: winners on real devices first, then static ones."""
    out: dict[str, list[Config]] = {}
    pattern = store.time_files(target_slug=target.slug)
    for path in [p for p in pattern if _is_of(p, store, call, fingerprint)]:
        time = readable(lambda path=path: store.read_time(path), update)  # type: ignore[misc]  # mypy: lambda default
        for launch in time.recording.launches if time else ():
            _add(out, launch.kernel, launch.config)
    if fingerprint is not None:
        series = compat.triton_series()
        static = readable(lambda: store.static(target, series, call.case, fingerprint), update)
        for entry in static.launches if static else ():
            _add(out, entry.kernel, entry.config)
    return out


def _is_of(path: object, store: BaselineStore, call: Call, fingerprint: str | None) -> bool:
    from kerntune.baseline import case_file

    return fingerprint is not None and str(path).endswith("/" + case_file(call.case, fingerprint))


def _add(out: dict[str, list[Config]], kernel: str, config: Config | None) -> None:
    if config is not None and config not in out.setdefault(kernel, []):
        out[kernel].append(config)


def _found(
    known: Known,
    launches: tuple[LaunchStatic, ...],
    configs: tuple[ConfigReport, ...],
    broken: tuple[str, ...],
    target: Target,
    rules: StaticPolicy,
) -> Found:
    judged = {(x.kernel, x.config) for x in launches}
    said = [("fail", text) for text in broken]
    said += [(rules.rule("limits").severity, text) for text in _over_limits(launches, target)]
    for before, after in paired(known.launches, launches):
        if before is not None and after is not None and before.code != after.code:
            said += _findings(before, after, rules)
    said += config_findings(configs, judged, rules)
    return Found(
        tuple(text for severity, text in said if severity == "fail"),
        tuple(text for severity, text in said if severity not in ("fail", "off")),
    )


def _over_limits(launches: tuple[LaunchStatic, ...], target: Target) -> list[str]:
    return [f"{x.kernel} can't be launched on {target}: {v}" for x in launches for v in x.metrics.over_limit]


def _findings(before: LaunchStatic, after: LaunchStatic, rules: StaticPolicy) -> Iterator[tuple[str, str]]:
    """What the rules say of a launch; what it breaks by itself is said already."""
    over = {v.resource for v in after.metrics.over_limit}
    other = before.config != after.config
    for finding in compare_static(before.metrics, after.metrics, rules=rules, other_config=other):
        if finding.rule != "limits" or finding.metric not in over:
            yield finding.severity, f"{after.kernel}: {finding.text}"


def _verdict(
    baseline: StaticBaseline | None, launches: tuple[LaunchStatic, ...], broken: int, found: Found, call: Call
) -> Verdict:
    evidence = Evidence(
        launched=len(launches) + broken,
        expected=len(baseline.launches) if baseline else None,
        static_failure=bool(found.failures),
        timed=False,
    )
    return decide(evidence, call.policy)


def _reasons(known: Known, launches: tuple[LaunchStatic, ...], target: Target, series: str) -> tuple[str, ...]:
    reference = known.reference
    if reference is None:
        return (f"no static baseline for {target} under Triton {series}",)
    elsewhere = f"no static baseline for {target} under Triton {series}, held against that of {reference.triton}"
    code = code_cause([x.source for x in reference.launches], [x.source for x in launches], reference.triton, series)
    pairs = [(a, b) for a, b in paired(reference.launches, launches) if a and b]
    configs = config_causes([(a.kernel, a.config) for a, _ in pairs], [(b.kernel, b.config) for _, b in pairs])
    blamed = [attribution(a, b, reference.triton, series) for a, b in pairs]
    first = () if known.own else (elsewhere,)
    return (*first, code, *configs, *dict.fromkeys(b for b in blamed if b))
