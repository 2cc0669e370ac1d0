"""Baselines that are read from one folder and written to another, so that a change can't move its own yardstick."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path

from kerntune.base.case_result import CaseId
from kerntune.base.device import DeviceSpec, Target
from kerntune.gate.baselines import Argument, BaselineStore, StaticBaseline, TimeBaseline


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
