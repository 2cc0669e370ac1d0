"""Shared by the tests of prepared launches."""

from __future__ import annotations

from typing import Any

import pytest

from kerntune.kernels.dispatch import launch_path


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls that took the slow path: the arguments that an entry was made of, for each."""
    seen: list[Any] = []
    below = launch_path.LaunchPath._add_entry

    def noting(self: Any, *args: Any) -> None:
        seen.append(args)
        below(self, *args)

    monkeypatch.setattr(launch_path.LaunchPath, "_add_entry", noting)
    return seen
