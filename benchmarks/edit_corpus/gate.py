"""The gate without a GPU on edits: what ``pytest --kerntune --kerntune-target=cuda:90`` runs, in this process."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.edit_corpus.edit import Edit
from benchmarks.edit_corpus.tables import equal_code
from benchmarks.harness import module_of
from kerntune.base.case_result import CaseResult
from kerntune.gate.api import Call, Checked, Session, Settings, open_session
from kerntune.gate.baselines import StaticBaseline
from kerntune.gate.static_figures import LaunchStatic

DIRECTIONS = ("made", "undone")
"""An edit from the kernel as it is, and the way back."""


class Gate:
    """A session on stand-ins with baselines in ``folder``."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session, self._folder = session, folder

    def rows(self, edit: Edit) -> Iterator[dict[str, Any]]:
        """A row a direction: the verdict and all findings on it."""
        sides = [module_of(text, edit.kernel, self._folder) for text in (edit.before(), edit.after())]
        for direction, (before, after) in zip(DIRECTIONS, (sides, sides[::-1]), strict=True):
            about = {"edit": edit.key, "direction": direction}
            try:
                yield {
                    **about,
                    **self._judged(f"tests/test_{edit.kernel}.py::test_{direction}[{edit.name}]", before, after),
                }
            except Exception as exc:  # a test that fails for another reason
                yield {**about, "verdict": "ERROR", "findings": [f"{type(exc).__name__}: {exc}"], "notes": []}

    def held(self, name: str, before: str, edited: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """A row for each of the ``edited`` texts by its name, all held against one baseline, of ``before``."""
        nodeid = f"tests/test_{name}.py::test_{name}"
        self._check(nodeid, module_of(before, name, self._folder)).commit()
        rows = []
        for edit, text in edited:
            try:
                rows.append({"edit": edit, **_said(self._check(nodeid, module_of(text, name, self._folder)).result)})
            except Exception as exc:  # a test that fails for another reason
                rows.append({"edit": edit, "verdict": "ERROR", "findings": [f"{type(exc).__name__}: {exc}"]})
        return rows

    def launches(self, kernel: str, text: str) -> tuple[LaunchStatic, ...]:
        """What a side launches, as a baseline would have it."""
        return _figures(self._check(f"tests/test_{kernel}.py::test_figures", module_of(text, kernel, self._folder)))

    def _judged(self, nodeid: str, before: ModuleType, after: ModuleType) -> dict[str, Any]:
        recorded = self._check(nodeid, before)
        if not recorded.commit().recorded:
            return {"verdict": "NO BASELINE", "findings": list(recorded.result.findings), "notes": []}
        checked = self._check(nodeid, after)
        before, after = _figures(recorded), _figures(checked)
        return {**_said(checked.result), "equal_code": equal_code(before, after), "figures": (before, after)}

    def _check(self, nodeid: str, side: ModuleType) -> Checked:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inputs = side.inputs(self._session.device)
            return self._session.check(Call(nodeid, "0", side.run, inputs))


@contextlib.contextmanager
def gate(folder: Path, target: str) -> Iterator[Gate]:
    """A gate for ``target`` that keeps all its files in ``folder``."""
    settings = Settings(root=folder, baselines=folder / "baselines", targets=(target,), cache_dir=folder / "cache")
    session = open_session(settings)
    session.start()
    try:
        yield Gate(session, folder)
    finally:
        session.close()


def _said(result: CaseResult) -> dict[str, Any]:
    failed = result.outcome.value == "fail"
    failures = [f for f in result.findings if failed and f in result.message]
    notes = [f for f in result.findings if f not in failures]
    about = {"verdict": result.verdict.value, "failed": failed, "findings": failures, "notes": notes}
    told = {name: list(getattr(result, name)) for name in ("causes", "remarks", "warnings")}
    return {**about, **told, "message": result.message}


def _figures(checked: Checked) -> tuple[LaunchStatic, ...]:
    baseline = checked.pending.baseline if checked.pending is not None else None
    return baseline.launches if isinstance(baseline, StaticBaseline) else ()
