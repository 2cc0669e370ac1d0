"""A store that is asked from this process: what fails is an error."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.store_process import Contents, ReadRequest, StoreFailed, WriteLaterRequest
from kerntune.errors import CacheError
from kerntune.tuning.cache.store_client import DirectClient


def test_what_is_told_is_done_at_the_end(tmp_path: Path) -> None:
    client = DirectClient(f"file://{tmp_path}/store")
    assert client.ask(ReadRequest(("a",), 10)) == Contents((None,))
    client.tell(WriteLaterRequest("a", b"1"))
    client.tell(WriteLaterRequest("b", b"2"))
    client.finish()
    assert client.ask(ReadRequest(("a", "b"), 10)) == Contents((b"1", b"2"))
    client.finish()
    assert not client.is_away


@pytest.mark.parametrize(("reply", "said"), [(None, "no answer"), (StoreFailed("no room"), "no room")])
def test_what_fails_is_an_error_with_the_store(tmp_path: Path, reply: Any, said: str) -> None:
    client = DirectClient(f"file://{tmp_path}/store")
    server: Any = SimpleNamespace(answer=lambda request: reply, finish=lambda: None, failed=said)
    client._server = server
    with pytest.raises(CacheError, match=f"store: {said}"):
        client.ask(ReadRequest(("a",), 10))
    with pytest.raises(CacheError, match=f"store: {said}"):
        client.finish()
