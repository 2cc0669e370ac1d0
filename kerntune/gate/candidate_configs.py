"""Every candidate config of tuned kernels, compiled for a target: which can't be launched there, which spill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kerntune.base.case_result import ConfigReport
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.policy import StaticPolicy
from kerntune.capture import Capture
from kerntune.compiling.compiler import Compiled
from kerntune.errors import EnvironmentFault, TrialError
from kerntune.gate.static_figures import binary_input
from kerntune.kernels.specialize import Specialized
from kerntune.static.finding import Said
from kerntune.static.metrics import StaticMetrics, metrics_of


@dataclass(frozen=True)
class CandidateConfig:
    """A candidate of a launch site: what would be compiled for it, or why nothing can be."""

    kernel: str
    config: Config
    launch: Specialized | TrialError


def config_reports(capture: Capture, spec: DeviceSpec) -> tuple[ConfigReport, ...]:
    """A report on each candidate of each launch whose config was open, equal ones once, in order."""
    with capture.active():
        candidates = _distinct(_candidates(capture, spec))
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
    """What is said of each candidate that has a problem, but for those that are judged by themselves."""
    for report in reports:
        rule = "config_limits" if report.broken else "config_spills"
        severity = rules.rule(rule).severity
        if report.problem and severity != "off" and (report.kernel, report.config) not in judged:
            yield Said(severity, rule, f"{report.kernel} with {report.config}: {report.problem}")


def _candidates(capture: Capture, spec: DeviceSpec) -> Iterator[CandidateConfig]:
    for pending in list(capture.launches):
        site = pending.site
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
