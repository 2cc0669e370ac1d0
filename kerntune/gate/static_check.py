"""Judges a captured call without a GPU: its static figures against the stored ones, per target."""

from __future__ import annotations

import msgspec

from kerntune.base.case_result import CaseResult, End
from kerntune.base.device import Target, typical_device
from kerntune.base.failed_candidates import told_once
from kerntune.base.policy import Update
from kerntune.capture import Capture
from kerntune.capture.recorder import Recorded
from kerntune.errors import CompileError, EnvironmentFault
from kerntune.gate.baselines import STATIC_SCHEMA, StaticBaseline, now
from kerntune.gate.call import PendingBaseline, outcome_of, should_write
from kerntune.gate.call_capture import CapturedCall
from kerntune.gate.candidate_configs import config_findings, config_reports, lost_configs
from kerntune.gate.static_figures import launch_statics
from kerntune.gate.static_verdict import RunOfCase, judge_launches
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
    run = RunOfCase(
        len(case.capture.launches),
        captured.end,
        stores.accepted_end(target, case.id, fingerprint, update),
        case.operators,
        tuple(config_findings(configs, own, dict.fromkeys(lost.values()), policy.static)),
        lost,
        broken,
        _refused_sources(recorded, case.capture, target),
    )
    judged = judge_launches(known, launches, run, target, policy)
    verdict, stored = judged.verdict, tuple(x.without_lines() for x in launches)
    today = StaticBaseline(STATIC_SCHEMA, case.id, fingerprint, case.arguments, target, series, now(), stored)
    kept = _kept_end(captured.end, run.accepted, update)
    listed = case.operators.without_places() if case.operators else msgspec.UNSET
    today = msgspec.structs.replace(today, end=kept, operators=listed)
    unreviewed = stores.unreviewed(verdict, stores.own.static_path(target, series, case.id, fingerprint))
    write = should_write(verdict, update, policy, known_otherwise=renamed.edited) and not broken
    write = unreviewed.writes(write, update)
    fewer = known.most[0] > run.launched  # accepted by a baseline that is later than the one with more
    pending = PendingBaseline(today, {} if broken else recorded.artifacts, write, anew=fewer)
    stopped = _stopped(captured, run.accepted) if run.cut_off else ()
    result = judged.result(stores, today, policy, unreviewed, (*filter(None, [renamed.said]), *stopped))
    result = msgspec.structs.replace(
        result,
        outcome=unreviewed.outcome(outcome_of(verdict, policy, pending, update)),
        remarks=(*result.remarks, *renamed.remarks),
        configs=told_once(configs),
        recorded=renamed.taken,
        code=case.code_changes(stores.reference, known.launches, launches) if code else (),
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
