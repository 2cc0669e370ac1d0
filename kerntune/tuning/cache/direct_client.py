"""Asks a store from this process, for commands: they wait as long as it takes, and say what goes wrong."""

from __future__ import annotations

from kerntune.base.store_process import StoreServer
from kerntune.base.store_requests import StoreFailed, StoreReply, StoreRequest
from kerntune.base.urls import shown_url
from kerntune.errors import CacheError


class DirectClient:
    """As :class:`kerntune.tuning.cache.store_client.StoreClient`, but :class:`CacheError` says what failed."""

    def __init__(self, url: str) -> None:
        self._server, self._url = StoreServer(url, None), url
        self.is_away = False

    def ask(self, request: StoreRequest) -> StoreReply:
        """The reply."""
        reply = self._server.answer(request)
        if reply is None or isinstance(reply, StoreFailed):
            raise CacheError(f"{shown_url(self._url)}: {getattr(reply, 'message', 'no answer')}")
        return reply

    def tell(self, request: StoreRequest) -> None:
        """Note what is to be done by :meth:`finish`."""
        self._server.answer(request)

    def finish(self) -> None:
        """Do what was noted."""
        while self._server.wait_s() is not None and self._server.work(ending=True):
            pass
        if self._server.failed:
            raise CacheError(f"{shown_url(self._url)}: {self._server.failed}")
