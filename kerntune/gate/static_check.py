"""Judges a captured call without a GPU: its static figures against the stored ones, per target."""

from __future__ import annotations

import msgspec

from kerntune.base.case_result import CaseResult, End, word_of
from kerntune.base.device import Target, typical_device
from kerntune.base.failed_candidates import told_once
from kerntune.base.numerics import NumericsReport
from kerntune.base.policy import Update
from kerntune.capture import Capture
from kerntune.capture.recorder import Recorded
from kerntune.errors import CompileError, EnvironmentFault
from kerntune.gate.baselines import (
    STATIC_SCHEMA,
    StaticBaseline,
    now,
)
from kerntune.gate.call import PendingBaseline, outcome_of, should_write
from kerntune.gate.call_capture import CapturedCall
from kerntune.gate.candidate_configs import config_findings, config_reports, lost_configs
from kerntune.gate.static_figures import launch_reports, launch_statics
from kerntune.gate.static_verdict import RunOfCase, judge_launches, unjudged_remarks
from kerntune.gate.stores import KnownCase, Stores, known_case, known_figures
from kerntune.kernels import compat
from kerntune.kernels.source import source_hash
from kerntune.kernels.specialize import Specialized


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
    run = RunOfCase(
        launched,
        cut_off,
        case.operators,
        tuple(config_findings(configs, own, dict.fromkeys(lost.values()), policy.static)),
        lost,
        broken,
        _refused_sources(recorded, case.capture, target),
    )
    judged = judge_launches(known, launches, run, target, policy)
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


NOTHING_RUNS = "results not compared: nothing runs without a GPU"


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


def _refused_sources(recorded: Recorded, capture: Capture, target: Target) -> tuple[str, ...]:
    """The hashes of the sources of launches that can't be compiled; empty text where there is no kernel to ask."""
    refused = (capture.launches[index].specialized[target] for index in recorded.failures)
    return tuple(source_hash(x.jit) if isinstance(x, Specialized) else "" for x in refused)
