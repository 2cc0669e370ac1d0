"""Judges a captured call without a GPU: its static figures against the stored ones, per target."""

from __future__ import annotations

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
from kerntune.check.causes import code_cause, config_causes
from kerntune.check.results import launch_reports, should_write
from kerntune.config import Config
from kerntune.device import Target, typical_device
from kerntune.judge import Evidence, decide
from kerntune.policy import Outcome, Update, Verdict
from kerntune.recorder import record
from kerntune.result import CaseResult
from kerntune.static.launches import LaunchStatic, launch_statics
from kerntune.static.rules import Finding, compare_static


@dataclass(frozen=True)
class Found:
    """What the static rules say of a case: sentences that fail it, and others."""

    failures: tuple[str, ...]
    notes: tuple[str, ...]


def check_static(
    store: BaselineStore, call: Call, capture: Capture, target: Target, arguments: tuple[Argument, ...], update: Update
) -> tuple[CaseResult, Pending]:
    """One target's verdict on a call, and the baseline that may be written."""
    recorded = record(capture, target)
    spec = typical_device(target)
    arguments = arguments or inputs_of(recorded.recording)
    fingerprint = fingerprint_of(arguments)
    series = compat.triton_series()
    baseline = store.static(target, series, call.case, fingerprint)
    launches = launch_statics(recorded, spec)
    found = _found(baseline, launches, _over_limits(launches, target))
    broken = tuple(f"can't be compiled: {exc}" for exc in recorded.failures.values())
    found = Found((*broken, *found.failures), found.notes)
    verdict = _verdict(baseline, launches, len(recorded.failures), found, call)
    today = StaticBaseline(STATIC_SCHEMA, call.case, fingerprint, arguments, target, series, now(), launches)
    outcome = call.policy.outcome(verdict)
    write = should_write(verdict, update, outcome, call.policy.missing.value) and not broken
    if write and update is Update.ALL:
        outcome = Outcome.PASS
    reasons = _reasons(baseline, launches, target, series)
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
        baseline_path=store.shown(store.static_path(target, series, call.case, fingerprint)),
    )
    return result, Pending(today, {} if broken else recorded.artifacts, write)


def stored_configs(
    store: BaselineStore, call: Call, target: Target, fingerprint: str | None
) -> dict[str, list[Config]]:
    """Configs that baselines of this case remember, by kernel: winners on real devices first, then static ones."""
    out: dict[str, list[Config]] = {}
    pattern = store.time_files(target_slug=target.slug)
    for path in [p for p in pattern if _is_of(p, store, call, fingerprint)]:
        time = store.read_time(path)
        for launch in time.recording.launches if time else ():
            _add(out, launch.kernel, launch.config)
    if fingerprint is not None:
        static = store.static(target, compat.triton_series(), call.case, fingerprint)
        for entry in static.launches if static else ():
            _add(out, entry.kernel, entry.config)
    return out


def _is_of(path: object, store: BaselineStore, call: Call, fingerprint: str | None) -> bool:
    from kerntune.baseline import case_file

    return fingerprint is not None and str(path).endswith("/" + case_file(call.case, fingerprint))


def _add(out: dict[str, list[Config]], kernel: str, config: Config | None) -> None:
    if config is not None and config not in out.setdefault(kernel, []):
        out[kernel].append(config)


def _over_limits(launches: tuple[LaunchStatic, ...], target: Target) -> list[str]:
    return [f"{x.kernel} can't be launched on {target}: {v}" for x in launches for v in x.metrics.over_limit]


def _found(baseline: StaticBaseline | None, launches: tuple[LaunchStatic, ...], over: list[str]) -> Found:
    failures, notes = list(over), list[str]()
    for before, after in zip(baseline.launches if baseline else (), launches, strict=False):
        if before.code == after.code and before.metrics == after.metrics:
            continue
        for finding in compare_static(before.metrics, after.metrics):
            (failures if finding.severity == "fail" else notes).append(_sentence(after.kernel, finding))
    return Found(tuple(failures), tuple(notes))


def _sentence(kernel: str, finding: Finding) -> str:
    return f"{kernel}: {finding.text}"


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


def _reasons(
    baseline: StaticBaseline | None, launches: tuple[LaunchStatic, ...], target: Target, series: str
) -> tuple[str, ...]:
    if baseline is None:
        return (f"no static baseline for {target} under Triton {series}",)
    code = code_cause([x.source for x in baseline.launches], [x.source for x in launches], baseline.triton, series)
    configs = config_causes([(x.kernel, x.config) for x in baseline.launches], [(x.kernel, x.config) for x in launches])
    return (code, *configs)
