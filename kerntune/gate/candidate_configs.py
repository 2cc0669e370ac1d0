"""Candidate configs of tuned launches without a GPU: what each compiles to, and which of a baseline's are lost.

A config is lost if it isn't in the list any more, or if nothing that it compiles to can be launched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kerntune.base.case_result import LostConfig
from kerntune.base.config import Config, changed_settings
from kerntune.base.device import DeviceSpec
from kerntune.base.failed_candidates import ConfigReport, config_problems
from kerntune.base.policy import StaticPolicy
from kerntune.capture import Capture, Site
from kerntune.capture.recorder import Recorded
from kerntune.compiling.compiler import Compiled
from kerntune.errors import EnvironmentFault, TrialError
from kerntune.gate.static_figures import LaunchStatic, binary_input, in_both
from kerntune.kernels.source import generated
from kerntune.kernels.specialize import Specialized
from kerntune.static.code_rules import RuleMessage
from kerntune.static.metrics import StaticMetrics, metrics_of


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
    return _reports(capture, spec, candidates)


def _reports(capture: Capture, spec: DeviceSpec, candidates: Sequence[CandidateConfig]) -> tuple[ConfigReport, ...]:
    capture.compiler.compile_all([c.launch for c in candidates if isinstance(c.launch, Specialized)])
    compiled = [_compiled(capture, c.launch) for c in candidates]
    inputs = [binary_input(c.binary, c.data, c.asm) for c in compiled if isinstance(c, Compiled)]
    figures = iter(metrics_of(inputs, spec, instructions=False))
    return tuple(
        _report(c, next(figures) if isinstance(made, Compiled) else made)
        for c, made in zip(candidates, compiled, strict=True)
    )


def config_findings(
    reports: tuple[ConfigReport, ...],
    judged: set[tuple[str, Config | None]],
    lost: Iterable[LostConfig],
    rules: StaticPolicy,
) -> Iterator[RuleMessage]:
    """A finding on the candidates that have a problem, once for those that have the same, but for those that are judged
    by themselves; and one on each ``lost`` config."""
    for found in config_problems(r for r in reports if (r.kernel, r.config) not in judged):
        yield from _said("config_limits" if found.broken else "config_spills", str(found), rules)
    for config in lost:
        yield from _said("limits" if config.broken else "config_removed", str(config), rules)


def _candidates(capture: Capture, spec: DeviceSpec, every: bool) -> Iterator[CandidateConfig]:
    for pending in list(capture.launches):
        site = pending.site if every or generated(pending.jit) else None
        if site is not None:
            yield from (_candidate(capture, site, index, spec) for index in range(len(site.candidates)))


def _candidate(capture: Capture, site: Site, index: int, spec: DeviceSpec) -> CandidateConfig:
    launch: Specialized | TrialError
    try:
        launch = capture.probe(site, index, spec.target).specialized
    except TrialError as exc:
        launch = exc
    return CandidateConfig(site.kernel, site.candidates[index].config, launch)


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


# a baseline's configs


def lost_configs(
    before: Sequence[LaunchStatic],
    after: Sequence[LaunchStatic],
    recorded: Recorded,
    capture: Capture,
    spec: DeviceSpec,
) -> Iterator[tuple[int, LostConfig]]:
    """Each config of the baseline in whose place another one is compared, since it can't be launched any more, or isn't
    in the list, with the index of its launch.

    A config that was edited fails if what it became can't be launched: that is the candidate with the fewest other
    settings, where no candidate that can be launched differs from it as little.
    """
    sites = [pending.site for i, pending in enumerate(capture.launches) if i not in recorded.failures]
    for index, old, new in in_both(before, after):
        site, config = sites[index], old.config
        if site is None or config is None or new.config in (None, config) or old.code == new.code:
            continue
        if generated(site.jit):
            continue  # Inductor's list is no one's edit
        listed = [i for i, candidate in enumerate(site.candidates) if candidate.config == config]
        nearest = listed or _nearest(config, site)
        with capture.active():
            candidates = [_candidate(capture, site, i, spec) for i in nearest]
        reports = _reports(capture, spec, candidates)
        broken = ""
        if all(report.broken for report in reports):
            broken = f"{'is listed' if listed else f'became {reports[0].config}'}, but {reports[0].broken}"
        if broken or not listed:
            shown = str(_in_order_of(new.config, config))
            yield index, LostConfig(old.kernel, shown, str(new.config), broken)


def _in_order_of(other: Config, config: Config) -> Config:
    """A config with its parameters in the order that ``other`` has them: files have them sorted by name."""
    names = dict.fromkeys([*(name for name in other.kwargs if name in config.kwargs), *config.kwargs])
    return config.replace(kwargs={name: config.kwargs[name] for name in names})


def _said(rule: str, text: str, rules: StaticPolicy) -> Iterator[RuleMessage]:
    severity = rules.rule(rule).severity
    if severity != "off":
        yield RuleMessage(severity, rule, text)


def _nearest(config: Config, site: Site) -> list[int]:
    """The candidates that differ from a config in the fewest settings."""
    other = [len(changed_settings(config.all_kwargs(), c.config.all_kwargs())) for c in site.candidates]
    return [i for i, count in enumerate(other) if count == min(other)]
