"""Cases of a run that another process has made, and that isn't believed: decided anew, here.

What is claimed of code is not read: figures are those of the TTIR that came with a case, compiled anew, or those of the
baseline where the TTIR is the baseline's. A claim that a case fails is believed, since nothing is gained by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple, Union

from kerntune.base.case_result import CaseId, CaseResult, End, incomplete_result
from kerntune.base.device import Target, typical_device
from kerntune.base.formatting import visible
from kerntune.base.policy import Outcome, Policy, Update, Verdict
from kerntune.base.recording_check import case_problems
from kerntune.base.strict import StrictStruct
from kerntune.compiling.binary.identity import STAGES, first_stage_of, stage_hashes
from kerntune.compiling.compiler import binary_from, ttir_text
from kerntune.compiling.farm import Farm
from kerntune.compiling.protocol import ASSEMBLY
from kerntune.errors import BaselineError, KerntuneError
from kerntune.gate.baselines import StaticBaseline, operators_of
from kerntune.gate.bundle import check_identity, decode_bundle, unpacked
from kerntune.gate.code_changes import options_of
from kerntune.gate.report import OUTCOMES, RunReport
from kerntune.gate.static_figures import LaunchStatic, LaunchStatics, binary_input, compiler_for, compiler_of
from kerntune.gate.static_verdict import RunOfCase, judge_launches
from kerntune.gate.stores import KnownCase, Stores, known_case
from kerntune.kernels.compat import launch_environment, versions
from kerntune.static.metrics import StaticMetrics, metrics_of

MOST_CODE = 1 << 28
"""Bytes of all TTIR of a run, unpacked: 256 MiB, some ten thousand kernels."""

CaseKey = tuple[CaseId, str, str]
"""A case, its fingerprint, and its target."""


@dataclass
class ClaimedCase:
    """What is claimed of a case: the ``results`` (more than one only if the claim contradicts itself), and its code.

    ``problem`` says why its code can't be read; a case without code is not decided.
    """

    results: list[CaseResult] = field(default_factory=list)
    today: StaticBaseline | None = None
    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    problem: str = ""
    known: KnownCase | str | None = None
    """What is stored of it, or why that can't be read; None until its baselines are asked for."""

    @property
    def decidable(self) -> bool:
        """Whether its code came with it."""
        return self.today is not None and not self.problem


def claimed_cases(run: RunReport, targets: Iterable[Target]) -> dict[CaseKey, ClaimedCase]:
    """The cases of a run's JSON for ``targets``, as far as what they say can be."""
    found: dict[CaseKey, ClaimedCase] = {}
    known = {"", *map(str, targets)}  # none: a case that ended before it was compiled for any
    for result in run.results:
        sound = next(case_problems(result.case), "") == "" and result.target in known
        if sound and result.verdict is not Verdict.STALE:
            found.setdefault((result.case, result.fingerprint, result.target), ClaimedCase()).results.append(result)
    room = MOST_CODE
    for name, value in run.baselines.items():
        where = f"of {visible(name[:200])}"
        try:
            bundle = decode_bundle(value, where)
            check_identity(bundle, where)
            today = bundle.static
            if today is None or (key := (today.case, today.fingerprint, str(today.target))) not in found:
                continue
            artifacts = unpacked(bundle, where) if room > 0 else {}
        except BaselineError as exc:
            for key, case in found.items():
                if name == f"{key[0]} ({key[2]})":
                    case.problem = visible(str(exc)[:500])
            continue
        room -= sum(map(len, artifacts.values()))
        found[key].today, found[key].artifacts = today, artifacts
    return found


# figures of code


class CodeRequest(StrictStruct, frozen=True):
    """A TTIR, and the compile options that a launch had."""

    target: Target
    kernel: str
    ttir: bytes
    options: dict[str, Union[bool, int, float, str, None]]


class CodeFigures(StrictStruct, frozen=True):
    """What a TTIR compiles to: as the fields of :class:`~kerntune.gate.static_figures.LaunchStatic`. ``refused`` says
    why it doesn't."""

    code: str = ""
    compiler: str = ""
    stages: dict[str, str] = {}
    compiler_settings: dict[str, str] = {}
    metrics: Union[StaticMetrics, None] = None
    refused: str = ""


OF_CODE = ("code", "compiler", "stages", "compiler_settings", "metrics")
"""Fields that a launch has as well, and that follow from its code."""


def figures_of(requests: Sequence[CodeRequest]) -> list[CodeFigures]:
    """Compile each TTIR, one after the other, and read what it became. For a process that has nothing to lose: MLIR
    reads texts of strangers."""
    with closing(Farm()) as farm:
        return [_figures(farm, request) for request in requests]


def _figures(farm: Farm, request: CodeRequest) -> CodeFigures:
    try:
        binary, made = binary_from(farm, request.target, request.ttir, request.options, request.kernel)
        assembly, machine_code = ASSEMBLY[request.target.backend]
        (metrics,) = metrics_of(
            [binary_input(binary, made[machine_code], made[assembly].decode())], typical_device(request.target)
        )
    except KerntuneError as exc:
        return CodeFigures(refused=visible(str(exc)[:500]))
    text = ttir_text(request.ttir, request.kernel)
    texts = {first_stage_of(text): text, **{n: made[n].decode() for n in STAGES if n in made}}
    return CodeFigures(
        code=binary.code,
        compiler=compiler_of(binary),
        stages=stage_hashes(texts),
        compiler_settings=dict(binary.settings),
        metrics=metrics,
    )


Compile = Callable[[Sequence[CodeRequest]], Sequence[CodeFigures]]
"""Has requests answered by :func:`figures_of` in a process of its own."""


# decisions


class Judge(NamedTuple):
    """Decides claimed cases: by the baselines of ``stores``, under ``policy`` of a test, with code that ``compile``
    compiles."""

    stores: Stores
    policy: Callable[[CaseId], Policy]
    compile: Compile

    def results(self, claimed: Mapping[CaseKey, ClaimedCase]) -> list[CaseResult]:
        """A result for each claimed case, in their order."""
        for key, case in claimed.items():
            if case.decidable and case.today is not None:
                case.known = self._known(key, case.today)
        asked = dict(request for case in claimed.values() for request in _requests(case))
        made = dict(zip(asked, self.compile(list(asked.values())), strict=True)) if asked else {}
        return [self._decided(key, case, made) for key, case in claimed.items()]

    def _known(self, key: CaseKey, today: StaticBaseline) -> KnownCase | str:
        try:
            return known_case(self.stores, today.target, key[0], key[1], Update.NONE)
        except BaselineError as exc:
            return str(exc)

    def _decided(self, key: CaseKey, case: ClaimedCase, made: Mapping[object, CodeFigures]) -> CaseResult:
        name, _, target = key
        known, today = case.known, case.today
        if known is None or today is None:
            return self._without_code(key, case)
        if isinstance(known, str):
            return incomplete_result(name, f" ({target}): {known}", Outcome.FAIL, target)
        launches = []
        for launch in today.launches:
            found = _stored_like(launch, known, today.target) or made[_job(launch, today.target)]
            if found.metrics is None:
                why = found.refused or "it has no figures"
                text = f" ({target}): the TTIR of {visible(launch.kernel[:80])} is not compiled: {why}"
                return incomplete_result(name, text, Outcome.FAIL, target)
            own = {name: getattr(found, name) for name in OF_CODE}
            launches.append(launch.but(**own, compile_seconds=None, lines=()))
        own_result = judge_stored(self.stores, known, today, tuple(launches), self.policy(name))
        return with_claims(own_result, case.results)

    def _without_code(self, key: CaseKey, case: ClaimedCase) -> CaseResult:
        """A case that nothing was launched in or that broke off: INCOMPLETE. One that claims anything better has
        withheld its code."""
        name, _, target = key
        if case.problem or any(
            x.verdict is not Verdict.INCOMPLETE and x.outcome is not Outcome.FAIL for x in case.results
        ):
            text = f" ({target}): {case.problem or 'it was reported without its code, so it was not decided'}"
            return incomplete_result(name, text, Outcome.FAIL, target)
        own = incomplete_result(name, "", self.policy(name).outcome(Verdict.INCOMPLETE), target)
        return with_claims(own.but(message=visible(case.results[0].message)), case.results)


def _requests(case: ClaimedCase) -> Iterator[tuple[object, CodeRequest]]:
    if not isinstance(case.known, KnownCase) or case.today is None:
        return
    target = case.today.target
    for launch in case.today.launches:
        if _stored_like(launch, case.known, target) is None:
            ttir, options = case.artifacts.get(launch.ttir_sha256, b""), options_of(launch)
            yield _job(launch, target), CodeRequest(target, launch.kernel, ttir, options)  # type: ignore[arg-type]


def judge_stored(
    stores: Stores, known: KnownCase, today: StaticBaseline, launches: LaunchStatics, policy: Policy
) -> CaseResult:
    """The verdict on ``launches``, whose figures are believed; of ``today`` only what no figure depends on is read."""
    case, target, fingerprint = today.case, today.target, today.fingerprint
    end = today.end if isinstance(today.end, End) and not today.end.between else None
    accepted = stores.accepted_end(target, case, fingerprint, Update.NONE)
    run = RunOfCase(len(launches), end, accepted, operators_of(today))
    judged = judge_launches(known, launches, run, target, policy)
    series = versions.triton_series()
    unreviewed = stores.unreviewed(judged.verdict, stores.own.static_path(target, series, case, fingerprint))
    stopped = (f"stopped at {visible(str(end))}; what it launches after that isn't judged",) if run.cut_off else ()
    named = today.but(triton=series)
    return judged.result(stores, named, policy, unreviewed, (*filter(None, [unreviewed.said]), *stopped))


def with_claims(own: CaseResult, claimed: Iterable[CaseResult]) -> CaseResult:
    """Our result, or the claim's verdict if that is worse: configs that can't run, say, of which we have no code."""
    worst = min(claimed, key=lambda x: OUTCOMES.index(x.outcome), default=own)
    if OUTCOMES.index(worst.outcome) >= OUTCOMES.index(own.outcome):
        return own
    told = tuple(visible(text) for text in worst.findings)
    return own.but(verdict=worst.verdict, outcome=worst.outcome, message=visible(worst.message), findings=told)


def _stored_like(launch: LaunchStatic, known: KnownCase, target: Target) -> LaunchStatic | None:
    """The baseline's launch of the very code, made by the compiler and under the settings of today: the same TTIR,
    options, and claimed identity. Options that no baseline has are in the latter alone."""
    settings = launch_environment.compiler_settings(target.backend)
    for stored in known.launches:
        same_code = (stored.ttir_sha256, stored.code) == (launch.ttir_sha256, launch.code)
        today = (stored.compiler, stored.compiler_settings) == (compiler_for(target), settings)
        if same_code and today and options_of(stored) == options_of(launch):
            return stored
    return None


def _job(launch: LaunchStatic, target: Target) -> object:
    return str(target), launch.ttir_sha256, repr(sorted(options_of(launch).items()))


# what should have been reported


def unreported(stores: Stores, targets: Iterable[Target], reported: Iterable[CaseKey]) -> list[CaseResult]:
    """A failing result for each case of the reference's static baselines that no result is of.

    Baselines of today's Triton count, or of all where there are none of today's.
    """
    seen, out = set(reported), []
    for target in targets:
        store, slug = stores.reference, target.slug
        paths = store.static_files(slug, versions.triton_series()) or store.static_files(slug)
        for path, baseline in store.summaries(paths):
            if not isinstance(baseline, StaticBaseline):
                text = f" ({target}): its baseline can't be read: {baseline}"
                out.append(incomplete_result(CaseId(store.shown(path), ""), text, Outcome.FAIL, str(target)))
            elif (key := (baseline.case, baseline.fingerprint, str(target))) not in seen:
                seen.add(key)
                text = f" ({target}): the base has a baseline of it, and this run reported nothing of it"
                out.append(incomplete_result(baseline.case, text, Outcome.FAIL, str(target)))
    return out
