"""What decides about verdicts, kept when a run begins: code under test that replaces it is named at the end.

Code of the same process can do anything, so this notices the plain form alone (``SECURITY.md``).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

DECIDING: tuple[tuple[str, str], ...] = (
    ("kerntune.base.policy", "_FIXED"),
    ("kerntune.base.policy", "STATIC_RULES"),
    ("kerntune.base.policy", "METRIC_TOLERANCES"),
    ("kerntune.base.policy", "Policy.outcome"),
    ("kerntune.base.policy", "Policy.level_of"),
    ("kerntune.base.policy", "StaticPolicy.rule"),
    ("kerntune.gate.decision", "decide"),
    ("kerntune.gate.decision", "settled"),
    ("kerntune.gate.decision", "with_anchor"),
    ("kerntune.gate.comparison", "decide"),
    ("kerntune.gate.comparison", "judge"),
    ("kerntune.gate.static_check", "decide"),
    ("kerntune.gate.static_check", "check_static"),
    ("kerntune.gate.static_check", "outcome_of"),
    ("kerntune.gate.gpu_check", "outcome_of"),
    ("kerntune.gate.gpu_check", "judge"),
    ("kerntune.gate.session", "Session.check"),
    ("pytest_kerntune.conclude", "conclude"),
    ("pytest_kerntune.conclude", "conclude_teardown"),
    ("pytest_kerntune.conclude", "_settle"),
    ("pytest_kerntune.session", "conclude"),
)
"""Tables and functions, by module and name. A user's ``outcomes=`` goes into a policy, and changes none of them."""


class DecisionWatch:
    """The tables and functions of the decision as they were when a run began."""

    def __init__(self) -> None:
        self._kept = _present()

    def changed(self) -> list[str]:
        """The names of those that are others now; those that were loaded later are kept from then on."""
        now = _present()
        found = [name for name, kept in self._kept.items() if name not in now or not _same(now[name], kept)]
        self._kept = {**now, **self._kept}
        return found


def _present() -> dict[str, Any]:
    found = {}
    for module, name in DECIDING:
        holder: Any = sys.modules.get(module)
        for part in name.split("."):
            holder = getattr(holder, part, None)
        if holder is not None:
            found[f"{module}.{name}"] = _snapshot(holder)
    return found


def _snapshot(value: Any) -> Any:
    """A table's content; a function with what it runs."""
    if isinstance(value, Mapping):
        return dict(value)
    return value, getattr(value, "__code__", None), getattr(value, "__defaults__", None)


def _same(now: Any, kept: Any) -> bool:
    if isinstance(kept, dict) or isinstance(now, dict):
        return bool(now == kept)
    return all(a is b for a, b in zip(now, kept, strict=True))
