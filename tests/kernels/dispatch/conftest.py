"""Shared by the tests of prepared launches."""

from __future__ import annotations

from typing import Any

import pytest

from kerntune.kernels.dispatch import launch_path


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls that took the long way, as what was learned of each."""
    seen: list[Any] = []
    below = launch_path.LaunchPath._learn

    def learn(self: Any, *args: Any) -> None:
        seen.append(args)
        below(self, *args)

    monkeypatch.setattr(launch_path.LaunchPath, "_learn", learn)
    return seen
