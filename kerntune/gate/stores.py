"""The baseline folders of a run: what is read from which, and what of them can't be read."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from kerntune.base.case_result import CaseId
from kerntune.base.device import DeviceSpec, Target
from kerntune.base.policy import Update
from kerntune.errors import BaselineError
from kerntune.gate.baselines import Argument, BaselineStore, StaticBaseline, TimeBaseline

FromDisk = TypeVar("FromDisk")


def readable(read: Callable[[], FromDisk | None], update: Update) -> FromDisk | None:
    """The baseline; a damaged one counts as none where the run replaces it, as the error's text advises."""
    try:
        return read()
    except BaselineError:
        if update is not Update.ALL:
            raise
        return None


class Yardstick(BaselineStore):
    """The baselines of ``folder``; a case that it doesn't have is held against the project's own, unless ``alone``.

    A case that a change adds has a baseline in that change only: better held against that than against nothing.
    """

    def __init__(self, folder: Path, own: BaselineStore, alone: bool, name: str) -> None:
        super().__init__(folder)
        self._name = name
        self._own = None if alone else own

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
    """Looks for artifacts that a comparison will need one day, and that are damaged or gone. Many cases name the same
    ones: those that are sound are read once."""

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
