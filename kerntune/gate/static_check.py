"""Judges a captured call without a GPU: its static figures against the stored ones.

Each candidate config of a tuned launch is compiled if that is asked for. A baseline's config is lost if it isn't in the
list any more, or if nothing that it compiles to can be launched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from kerntune.base.case_result import CaseResult, End, LostConfig
from kerntune.base.config import Config, changed_settings
from kerntune.base.device import DeviceSpec
from kerntune.base.failed_candidates import ConfigReport, config_problems, told_once
from kerntune.base.policy import StaticPolicy, Update
from kerntune.capture import Capture, Site
from kerntune.capture.recorder import Recorded
from kerntune.compiling.compiler import Compiled
from kerntune.errors import CompileError, EnvironmentFault, TrialError
from kerntune.gate.baselines import STATIC_SCHEMA, StaticBaseline, now
from kerntune.gate.call import PendingBaseline, outcome_of, should_write
from kerntune.gate.call_capture import CapturedCall
from kerntune.gate.static_figures import LaunchStatics, binary_input, compiler_for, in_both, launch_statics
from kerntune.gate.static_verdict import RunOfCase, judge_launches, rule_messages
from kerntune.gate.stores import KnownCase, Stores, known_case, known_figures
from kerntune.kernels.compat import versions
from kerntune.kernels.source import generated, source_hash
from kerntune.kernels.specialize import Specialized
from kerntune.static.code_rules import RuleMessage
from kerntune.static.metrics import StaticMetrics, metrics_of


def check_static(
    stores: Stores, captured: CapturedCall, update: Update, *, code: bool
) -> tuple[CaseResult, PendingBaseline]:
    """The verdict on a call, and the baseline that may be written. ``code``: with hunks of changed code."""
    case = captured.recorded(stores.reference)
    policy, spec = captured.call.policy, captured.capture.backend.spec
    target = spec.target
    recorded, fingerprint, series = case.recorded, case.fingerprint, versions.triton_series()
    own_path = stores.reference.static_path(target, series, case.id, fingerprint)
    renamed = stores.renames.settle(case.id, fingerprint, case.recording, own_path, case.arguments)
    known = known_case(stores, target, case.id, fingerprint, update)
    _refuse_known(known, recorded, case.capture)
    launches = launch_statics(recorded, spec, known_figures(known.launches, update))
    configs = config_reports(case.capture, spec, every=bool(policy.static.every_config))
    broken = tuple(dict.fromkeys(f"can't be compiled: {exc}" for exc in recorded.failures.values()))
    lost = dict(lost_configs(known.launches, launches, recorded, case.capture, spec))
    own = {(x.kernel, x.config) for x in launches}
    run = RunOfCase(
        len(case.capture.launches),
        captured.end,
        stores.accepted_end(target, case.id, fingerprint, update),
        case.operators,
        tuple(config_findings(configs, own, dict.fromkeys(lost.values()), policy.static)),
        lost,
        broken,
        tuple(source_hash(case.capture.launches[index].jit) for index in recorded.failures),
    )
    judged = judge_launches(known, launches, run, target, policy)
    verdict, stored = judged.verdict, tuple(x.without_lines() for x in launches)
    today = StaticBaseline(STATIC_SCHEMA, case.id, fingerprint, case.arguments, target, series, now(), stored)
    kept: End | msgspec.UnsetType = captured.end or msgspec.UNSET
    if captured.end is None and run.accepted is not None and run.accepted.between and update is not Update.ALL:
        kept = run.accepted  # of the test after the call, which isn't known yet; a refresh of all finds out anew
    listed = case.operators.without_places() if case.operators else msgspec.UNSET
    today = today.but(end=kept, operators=listed)
    unreviewed = stores.unreviewed(verdict, stores.own.static_path(target, series, case.id, fingerprint))
    write = should_write(verdict, update, policy, known_otherwise=renamed.edited) and not broken
    write = unreviewed.writes(write, update)
    fewer = known.most[0] > run.launched  # accepted by a later baseline than the one with more
    pending = PendingBaseline(today, {} if broken else recorded.artifacts, write, anew=fewer)
    stopped = _stopped(captured, run.accepted) if run.cut_off else ()
    result = judged.result(stores, today, policy, unreviewed, (*renamed.remarks, *stopped))
    result = result.but(
        outcome=unreviewed.outcome(outcome_of(verdict, policy, pending, update)),
        remarks=(*result.remarks, *renamed.remarks),
        configs=told_once(configs),
        recorded=renamed.taken,
        code=case.code_changes(stores.reference, known.launches, launches) if code else (),
    )
    return result, pending


def _refuse_known(known: KnownCase, recorded: Recorded, capture: Capture) -> None:
    """:class:`EnvironmentFault` for a launch that can't be compiled, though the baseline has the same one: the same
    TTIR, compiled for the same arguments and options by the same compiler. The code is not the cause then."""
    for index, error in recorded.failures.items():
        if not isinstance(error, CompileError):
            continue
        launch, target = capture.launches[index].specialized, recorded.recording.target
        for before in known.launches:
            same_job = (before.compiler, before.compiled_for) == (compiler_for(target), launch.compiled_for())
            if error.ttir_sha256 and before.ttir_sha256 == error.ttir_sha256 and same_job:
                raise EnvironmentFault(
                    f"{error}\nThe baseline has the same code, compiled for the same arguments and options by the same "
                    "compiler, so this machine is to blame: look at its memory, its load, HOME, TRITON_CACHE_DIR and "
                    "TMPDIR, and run again"
                )


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


class CandidateConfig(NamedTuple):
    """A candidate of a launch site: what would be compiled for it, or why nothing can be."""

    kernel: str
    config: Config
    launch: Specialized | TrialError


def config_reports(capture: Capture, spec: DeviceSpec, *, every: bool) -> tuple[ConfigReport, ...]:
    """A report on each candidate of each launch whose config was open, equal ones once, in order. Without ``every`` of
    kernels alone that Inductor generated: it chooses among its list on the GPU, so any of them may run there."""
    found: dict[tuple[str, Config, str], CandidateConfig] = {}
    sites = [p.site for p in capture.launches if p.site is not None and (every or generated(p.jit))]
    with capture.active():
        for c in (_candidate(capture, site, index) for site in sites for index in range(len(site.candidates))):
            key = c.launch.key() if isinstance(c.launch, Specialized) else str(c.launch)
            found.setdefault((c.kernel, c.config, key), c)  # once for each of a kernel's specializations
    return _reports(capture, spec, list(found.values()))


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
        rule = "config_limits" if found.broken else "config_spills"
        yield from rule_messages(rule, [str(found)], rules)
    for config in lost:
        rule = "limits" if config.broken else "config_removed"
        yield from rule_messages(rule, [str(config)], rules)


def _candidate(capture: Capture, site: Site, index: int) -> CandidateConfig:
    launch: Specialized | TrialError
    try:
        launch = capture.probe(site, index).specialized
    except TrialError as exc:
        launch = exc
    return CandidateConfig(site.kernel, site.candidates[index].config, launch)


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
        spill_bytes=made.spill_bytes,
        shared_bytes=made.shared_bytes,
        broken="; ".join(f"can't be launched: {v}" for v in made.over_limit),
    )


# a baseline's configs


def lost_configs(
    before: LaunchStatics, after: LaunchStatics, recorded: Recorded, capture: Capture, spec: DeviceSpec
) -> Iterator[tuple[int, LostConfig]]:
    """Each config of the baseline in whose place another one is compared, since it can't be launched any more, or isn't
    in the list, with the index of its launch.

    A config that was edited fails if what it became can't be launched: that is the candidate with the fewest other
    settings, where no candidate that can be launched differs from it as little.
    """
    sites = [p.site for i, p in enumerate(capture.launches) if i not in recorded.failures]
    for index, old, new in in_both(before, after):
        site, config = sites[index], old.config
        if site is None or config is None or new.config in (None, config) or old.code == new.code:
            continue
        if generated(site.jit):
            continue  # Inductor's list is no one's edit
        listed = [i for i, candidate in enumerate(site.candidates) if candidate.config == config]
        other = [len(changed_settings(config.all_kwargs(), c.config.all_kwargs())) for c in site.candidates]
        nearest = listed or [i for i, count in enumerate(other) if count == min(other)]
        with capture.active():
            candidates = [_candidate(capture, site, i) for i in nearest]
        reports = _reports(capture, spec, candidates)
        broken = ""
        if all(report.broken for report in reports):
            broken = f"{'is listed' if listed else f'became {reports[0].config}'}, but {reports[0].broken}"
        if broken or not listed:
            # in the order of today's config: files have parameters sorted by name
            names = dict.fromkeys([*(n for n in new.config.kwargs if n in config.kwargs), *config.kwargs])
            shown = str(config.replace(kwargs={name: config.kwargs[name] for name in names}))
            yield index, LostConfig(old.kernel, shown, str(new.config), broken)
