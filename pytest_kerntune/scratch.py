"""Folders that are made beside a run before it begins: once, by xdist's controller for all its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kerntune.base.temporary_folders import TemporaryFolder


class Aside:
    """The folders of this process. A worker is handed what its controller made."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._given: Mapping[str, Any] | None = getattr(config, "workerinput", None)
        self.made: dict[str, str] = {}
        """By name, for the workers' ``workerinput``."""

    @property
    def place(self) -> tuple[int, int]:
        """Which of the processes that share the run's tests this is, from 0, and of how many."""
        if self._given is None:
            return 0, 1
        return int(self._given["workerid"].removeprefix("gw")), int(self._given["workercount"])

    def folder(self, name: str, make: Callable[[Path], Path]) -> Path:
        """The folder that ``make`` gives, which may write under the path that it is called with until pytest ends."""
        if self._given is not None:
            return Path(self._given[name])
        folder = make(self._scratch())
        self.made[name] = str(folder)
        return folder

    def _scratch(self) -> Path:
        scratch = TemporaryFolder("run")
        self._config.add_cleanup(scratch.remove)
        return scratch.folder
