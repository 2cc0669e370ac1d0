"""Calls that are recorded as one graph follow each other, and wait for nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch

from kerntune.gpu.cuda import CALL_STREAMS, TorchGraph


class Stream:
    """What a stream that is captured does next comes after what is in ``after``."""

    def __init__(self) -> None:
        self.after: set[int] = set()

    def wait_stream(self, other: Stream) -> None:
        self.after |= other.after


@pytest.mark.parametrize("own", [None, 0, 3])
@pytest.mark.parametrize("count", [1, 2, CALL_STREAMS, 3 * CALL_STREAMS])
def test_each_call_waits_for_the_one_before(count: int, own: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And for no others, but for an earlier one of its stream. The stream that captures may be one of those that are
    asked for (``own``), since torch has 32. At the end it has waited for all."""
    streams = [Stream() for _ in range(CALL_STREAMS)]
    capturing = Stream() if own is None else streams[own]
    current, edges = [capturing], list[set[int]]()

    @contextlib.contextmanager
    def within(stream: Stream) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    def call() -> None:
        edges.append(current[-1].after)
        current[-1].after = {len(edges) - 1}

    asked = iter(streams)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: next(asked))
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: current[-1])
    TorchGraph(*[call] * count)
    for number, before in enumerate(edges):
        assert before <= {number - 1, number - CALL_STREAMS}
        assert number == 0 or number - 1 in before
    assert count - 1 in capturing.after
