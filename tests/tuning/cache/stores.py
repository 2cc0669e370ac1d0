"""Stores for tests: asked from this process, and away when a test says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kerntune.base.store_process import StoreServer
from kerntune.tuning.cache.shared_store import SharedStore, SharedWinnerCache


class ScriptedClient:
    """A :class:`~kerntune.tuning.cache.store_client.StoreClient` without a process."""

    def __init__(self, url: str) -> None:
        self.server = StoreServer(url, None)
        self.is_away = False
        self.requests: list[Any] = []

    def ask(self, request: Any) -> Any:
        self.requests.append(request)
        return None if self.is_away else self.server.answer(request)

    def tell(self, request: Any) -> None:
        if not self.is_away:
            self.server.answer(request)

    def finish(self) -> None:
        self.server.finish()


def machine(tmp_path: Path, name: str) -> SharedWinnerCache:
    """The cache of one machine, all with the same store."""
    client: Any = ScriptedClient(f"file://{tmp_path}/store")
    return SharedWinnerCache(tmp_path / name, SharedStore(client.server._url, tmp_path / name / "mirror", client))
