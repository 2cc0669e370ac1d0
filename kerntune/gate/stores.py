"""The baseline folders of a run: which is read and which written, and what they have of a case.

At a run's end they tell which baselines the run could have met, which of these are stale, and which can't be read.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from kerntune.base.case_result import CaseId, CaseResult, End
from kerntune.base.config import Config
from kerntune.base.device import Target
from kerntune.base.policy import Outcome, Policy, Update, Verdict
from kerntune.errors import BaselineError, StoreError
from kerntune.gate.baseline_files import BaselineStore, case_file
from kerntune.gate.baselines import Baseline, StaticBaseline, TimeBaseline, configs_by_kernel
from kerntune.gate.case_identity import Inputs, Renames, nearest_of_run, renamed_to
from kerntune.gate.static_figures import LaunchStatic
from kerntune.gpu.base import Backend
from kerntune.kernels.compat import versions
from kerntune.static.metrics import StaticMetrics

FromDisk = TypeVar("FromDisk")


def readable(read: Callable[[], FromDisk | None], update: Update) -> FromDisk | None:
    """The baseline; a damaged one counts as none where the run replaces it, as the error's text advises."""
    try:
        return read()
    except BaselineError:
        if update is not Update.ALL:
            raise
        return None


class ReferenceStore(BaselineStore):
    """The baselines of ``folder``, as the revision ``name`` has them. No file of the working tree takes their place:
    a case that the revision lacks is NEW, whatever baseline a change brings of it. ``alone`` says that baselines of
    the working tree mean nothing at all, since the revision's code was recorded today.
    """

    def __init__(self, folder: Path, name: str, alone: bool = False) -> None:
        super().__init__(folder)
        self.name, self.alone = name, alone


class Damage:
    """Finds artifacts that a later comparison will need and that are damaged or missing. Many cases name the same
    artifacts: an intact one is read once."""

    def __init__(self) -> None:
        self._sound: set[tuple[Path, Target, str]] = set()

    def among(self, store: BaselineStore, target: Target, names: Iterable[str]) -> Iterator[str]:
        """A sentence for each artifact of ``target`` (by checksum) that a baseline of ``store`` can't have."""
        artifacts = store.artifacts(target)
        for sha in dict.fromkeys(names):
            key = (store.folder, target, sha)
            problem = "" if key in self._sound else _problem(artifacts, sha)
            if problem:
                yield problem
            else:
                self._sound.add(key)


def _problem(artifacts: Mapping[str, bytes], sha: str) -> str:
    try:
        artifacts[sha]
    except BaselineError as exc:
        return str(exc)
    except KeyError:
        return f"the folder lacks artifact {sha}, which the baseline names; restore it or record the case anew"
    return ""


@dataclass(frozen=True)
class Stores:
    """The baseline folders of a run: ``own`` is written, cases are compared with the baselines of ``reference`` (the
    same folder as a rule), and with those of ``anchor`` as well. ``renames`` finds what a case was called before."""

    own: BaselineStore
    reference: BaselineStore
    anchor: BaselineStore | None = None
    renames: Renames = field(default_factory=lambda: Renames(()))
    damage: Damage = field(default_factory=Damage)

    def accepted_end(self, target: Target, case: CaseId, fingerprint: str, update: Update) -> End | None:
        """Where a call may stop without a GPU, by its baseline: that of this Triton series, else the nearest.

        Another revision's, compiled for this run alone, wasn't accepted. There the project's own baseline has to
        keep the end, and the revision's call has to stop there too, since a change may bring any file.
        """
        key = (target, versions.triton_series(), case, fingerprint)

        def kept(store: BaselineStore) -> End | None:
            known = readable(lambda: store.static(*key) or store.static_elsewhere(*key), update)
            return known.end if known is not None and isinstance(known.end, End) else None

        end = kept(self.reference)
        alone = isinstance(self.reference, ReferenceStore) and self.reference.alone
        return end if not alone or end == kept(self.own) else None

    def unreviewed(self, verdict: Verdict, own_path: Path) -> Unreviewed:
        """What is to be said of a case with this verdict whose own baseline would be at ``own_path``, since it is held
        against another revision."""
        if verdict is not Verdict.NEW or not isinstance(self.reference, ReferenceStore):
            return Unreviewed()
        brought = not self.reference.alone and own_path.is_file()
        why = "; the baseline that this tree has of it decides nothing" if brought else ""
        return Unreviewed(f"not in {self.reference.name}{why}", brought)


class Unreviewed(NamedTuple):
    """A case that the revision lacks which a run is held against: the sentence, and whether the change brings a
    baseline of it. Then it warns where a case without a baseline fails, and its file stays as it is."""

    said: str = ""
    brought: bool = False

    def outcome(self, found: Outcome) -> Outcome:
        """What the case does to its test, where its verdict alone would do ``found``."""
        return Outcome.WARN if self.brought and found is Outcome.FAIL else found

    def writes(self, wanted: bool, update: Update) -> bool:
        """Whether its baseline is written, if its verdict alone says so."""
        return wanted and not (self.brought and update not in (Update.ALL, Update.NEW))


class KnownCase(NamedTuple):
    """What is stored of a case without a GPU: its own baseline; the ``reference`` that it is compared with, maybe
    one of another Triton series; its time baselines on devices; what the anchor's folder has."""

    own: StaticBaseline | None
    reference: StaticBaseline | None
    times: tuple[TimeBaseline, ...] = ()
    anchor: StaticBaseline | None = None
    """What today's figures are compared with as well, so that small steps don't add up."""

    @property
    def launches(self) -> tuple[LaunchStatic, ...]:
        """The launches that today's are compared with."""
        return self.reference.launches if self.reference else ()

    @property
    def most(self) -> tuple[int, str]:
        """The most launches that a baseline has, and which. Another one than its own doesn't count if it is older: that
        there are fewer now was accepted when its own was recorded."""
        known = []
        if self.reference:
            known.append((len(self.launches), f"the static baseline under Triton {self.reference.triton}"))
        since = self.own.recorded if self.own else ""
        later = (time for time in self.times if time.recorded > since)
        known += [(len(time.launches), f"the baseline of {time.device.name}") for time in later]
        return max(known, default=(0, ""))


def known_figures(launches: Iterable[LaunchStatic], update: Update) -> dict[str, StaticMetrics]:
    """Figures by code identity, so that equal code needs no disassembler. None where all is recorded anew: those that
    are stored may have been made by an older kerntune."""
    return {x.code: x.metrics for x in launches} if update is not Update.ALL else {}


def known_case(stores: Stores, target: Target, case: CaseId, fingerprint: str, update: Update) -> KnownCase:
    """What the folders have of a case for a target."""
    store, anchor = stores.reference, stores.anchor
    key = (target, versions.triton_series(), case, fingerprint)
    own = readable(lambda: store.static(*key), update)
    reference = own or readable(lambda: store.static_elsewhere(*key), update)
    times = tuple(_times(store, target, case, fingerprint, update))
    anchored = anchor.static(*key) or anchor.static_elsewhere(*key) if anchor else None
    return KnownCase(own, reference, times, anchored)


def stored_configs(
    store: BaselineStore, target: Target, case: CaseId, fingerprint: str | None, update: Update = Update.NONE
) -> dict[str, list[Config]]:
    """Configs that a case's baselines have, by kernel: winners on real devices first, then static ones."""
    if fingerprint is None:
        return {}
    times = list(_times(store, target, case, fingerprint, update))
    static = readable(lambda: store.static(target, versions.triton_series(), case, fingerprint), update)
    return configs_by_kernel([*times, *filter(None, [static])])


def _times(
    store: BaselineStore, target: Target, case: CaseId, fingerprint: str, update: Update
) -> Iterator[TimeBaseline]:
    end = "/" + case_file(case, fingerprint)
    for path in [p for p in store.time_files(target_slug=target.slug) if str(p).endswith(end)]:
        time = readable(partial(store.read, path), update)
        if isinstance(time, TimeBaseline):
            yield time


RUN_JSON = "run.json"
"""What messages call a run's JSON, where the run wrote none."""

TEST_GONE = "its test is gone"
"""Which ``kerntune baselines prune`` finds by itself; what a test calls shows only in a run."""

CALL_GONE = "its test ran, but not with this call, shape, dtype or stride"


class RunBaselines:
    """Those in ``store`` for ``backend``, and which cases the run has met so far."""

    def __init__(self, store: BaselineStore, backend: Backend, targets: Sequence[Target]) -> None:
        self._store, self._backend, self._targets = store, backend, targets
        self._seen: dict[CaseId, dict[str, Inputs]] = {}

    def note(self, case: CaseId, fingerprint: str, inputs: Inputs = ()) -> None:
        """The run has met ``case`` with this fingerprint, which these inputs have."""
        self._seen.setdefault(case, {})[fingerprint] = inputs

    def stale(self, ran: Collection[str], policy: Policy, *, selected_all: bool) -> list[CaseResult]:
        """A result of each baseline whose case's test ran without it, or whose test is gone.

        ``ran`` are the node ids that ran; ``selected_all`` tells that the run was not narrowed.
        """
        found = [(path, b) for path, b in self._read() if not isinstance(b, StoreError)]  # the others' case is unknown
        living = [b for _, b in found if b.case.nodeid in ran]
        out = []
        for path, baseline in found:
            case, shown = baseline.case, self._store.shown(path)
            if case.nodeid in ran and baseline.fingerprint not in self._seen.get(case, {}):
                told = nearest_of_run(baseline.arguments, self._seen.get(case, {}).values())
                why = CALL_GONE + (f" ({told})" if told else "")
                out.append(_stale(baseline, shown, f"{why}; {removal(by_run=True)}", policy))
            elif selected_all and case.nodeid not in ran:
                why = TEST_GONE + renamed_to(baseline, living)
                out.append(_stale(baseline, shown, f"{why}; {removal(by_run=False)}", policy))
        return out

    def unreadable(self) -> dict[Path, str]:
        """Why some can't be read, by path."""
        return {path: str(found) for path, found in self._read() if isinstance(found, StoreError)}

    def _read(self) -> Iterator[tuple[Path, Baseline | StoreError]]:
        if self._backend.gpu is not None:
            spec = self._backend.spec
            return self._store.summaries(self._store.time_files(spec.slug, spec.target.slug))
        series = versions.triton_series()
        paths = [p for t in self._targets for p in self._store.static_files(t.slug, series)]
        return self._store.summaries(paths)


def prune_command(by_run: bool, report: str = RUN_JSON) -> str:
    """The command that removes stale baselines: by what a run wrote to ``report``, or of tests that are gone."""
    command = "kerntune baselines prune"
    return f"{command} --stale-from {shlex.quote(report)}" if by_run else command


def removal(*, by_run: bool) -> str:
    """What removes a baseline; it is said before the baseline's path."""
    first = f"`pytest --kerntune --kerntune-json={RUN_JSON}` and then " if by_run else ""
    return f"{first}`{prune_command(by_run)}` removes"


def _stale(baseline: Baseline, path: str, why: str, policy: Policy) -> CaseResult:
    return CaseResult(
        case=baseline.case,
        fingerprint=baseline.fingerprint,
        verdict=Verdict.STALE,
        outcome=policy.outcome(Verdict.STALE),
        message=f"STALE {baseline.case}: {why} {path}",
        target=str(baseline.target),
        baseline_path=path,
    )
