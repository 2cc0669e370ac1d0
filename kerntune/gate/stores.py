"""The baseline folders of a run: which is read and which written, and what they have of a case."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kerntune.base.case_result import CaseId, End
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec, Target
from kerntune.base.policy import Update
from kerntune.errors import BaselineError
from kerntune.gate.baselines import Argument, BaselineStore, StaticBaseline, TimeBaseline, case_file
from kerntune.gate.case_identity import Renames
from kerntune.gate.static_figures import LaunchStatic
from kerntune.kernels import compat
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
    """The baselines of ``folder``; a case that it lacks is compared with the project's own baseline, unless ``alone``.

    A case that a change adds has a baseline in that change only: a comparison with that says more than none.
    """

    def __init__(self, folder: Path, own: BaselineStore, alone: bool, name: str) -> None:
        super().__init__(folder)
        self._name = name
        self._own = None if alone else own
        self.alone = alone
        """Whether its baselines were recorded for this run: what they keep was accepted by nobody."""

    def time(self, device: DeviceSpec, case: CaseId, fingerprint: str) -> TimeBaseline | None:
        found = super().time(device, case, fingerprint)
        return self._own.time(device, case, fingerprint) if found is None and self._own else found

    def remark(self, device: DeviceSpec, case: CaseId, fingerprint: str) -> str:
        if self._own is None or super().time(device, case, fingerprint) is not None:
            return ""
        if self._own.time(device, case, fingerprint) is None:
            return ""
        return f"{self._name} has no baseline of this case: it was held against this tree's own"

    def static(self, target: Target, triton: str, case: CaseId, fingerprint: str) -> StaticBaseline | None:
        found = super().static(target, triton, case, fingerprint)
        return self._own.static(target, triton, case, fingerprint) if found is None and self._own else found

    def known_arguments(self, target: Target, case: CaseId) -> set[tuple[Argument, ...]]:
        found = super().known_arguments(target, case)
        return self._own.known_arguments(target, case) if not found and self._own else found

    def readable(self, target: Target) -> Mapping[str, bytes]:
        if self._own is None:
            return super().readable(target)
        return ChainMap(super().readable(target), self._own.readable(target))  # type: ignore[arg-type]  # only read


class Damage:
    """Finds artifacts that a later comparison will need and that are damaged or missing. Many cases name the same
    artifacts: an intact one is read once."""

    def __init__(self) -> None:
        self._sound: set[tuple[Path, Target, str]] = set()

    def among(self, store: BaselineStore, target: Target, names: Iterable[str]) -> Iterator[str]:
        """A sentence for each artifact of ``target`` (by checksum) that a baseline of ``store`` can't have."""
        artifacts = store.readable(target)
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
        """Where a call may stop without a GPU, by its baseline: that of this Triton series, else the nearest. Another
        revision's, compiled for this run alone, accepts nothing: the project's own does."""
        alone = isinstance(self.reference, ReferenceStore) and self.reference.alone
        store, key = self.own if alone else self.reference, (target, compat.triton_series(), case, fingerprint)
        known = readable(lambda: store.static(*key) or store.static_elsewhere(*key), update)
        return known.end if known is not None and isinstance(known.end, End) else None


@dataclass(frozen=True)
class KnownCase:
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
        known += [
            (len(t.recording.launches), f"the baseline of {t.device.name}") for t in self.times if t.recorded > since
        ]
        return max(known, default=(0, ""))


def known_figures(launches: Iterable[LaunchStatic], update: Update) -> dict[str, StaticMetrics]:
    """Figures by code identity, so that equal code needs no disassembler. None where all is recorded anew: those that
    are stored may have been made by an older kerntune."""
    return {x.code: x.metrics for x in launches} if update is not Update.ALL else {}


def known_case(stores: Stores, target: Target, case: CaseId, fingerprint: str, update: Update) -> KnownCase:
    """What the folders have of a case for a target."""
    store, anchor, key = stores.reference, stores.anchor, (target, compat.triton_series(), case, fingerprint)
    own = readable(lambda: store.static(*key), update)
    reference = own or readable(lambda: store.static_elsewhere(*key), update)
    times = tuple(_times(store, target, case, fingerprint, update))
    anchored = anchor.static(*key) or anchor.static_elsewhere(*key) if anchor else None
    return KnownCase(own, reference, times, anchored)


def stored_configs(
    store: BaselineStore, target: Target, case: CaseId, fingerprint: str | None, update: Update = Update.NONE
) -> dict[str, list[Config]]:
    """Configs that a case's baselines have, by kernel: winners on real devices first, then static ones."""
    out: dict[str, list[Config]] = {}
    if fingerprint is None:
        return out
    for time in _times(store, target, case, fingerprint, update):
        for launch in time.recording.launches:
            _add(out, launch.kernel, launch.config)
    static = readable(lambda: store.static(target, compat.triton_series(), case, fingerprint), update)
    for entry in static.launches if static else ():
        _add(out, entry.kernel, entry.config)
    return out


def _times(
    store: BaselineStore, target: Target, case: CaseId, fingerprint: str, update: Update
) -> Iterator[TimeBaseline]:
    """A case's baselines on real devices of this target."""
    end = "/" + case_file(case, fingerprint)
    for path in [p for p in store.time_files(target_slug=target.slug) if str(p).endswith(end)]:
        time = readable(lambda path=path: store.read_time(path), update)  # type: ignore[misc]  # mypy: lambda default
        if time is not None:
            yield time


def _add(out: dict[str, list[Config]], kernel: str, config: Config | None) -> None:
    if config is not None and config not in out.setdefault(kernel, []):
        out[kernel].append(config)
