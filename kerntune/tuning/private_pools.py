"""Tuning in the warm-up of a CUDA graph, without leaving anything in the graph's memory pool."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from kerntune.gpu.probe import current_thread_state, device_in_use
from kerntune.kernels.compat import torch_private

T = TypeVar("T")


def outside_graph_pool(work: Callable[[], T]) -> T:
    """What ``work`` returns. While ``mode="reduce-overhead"`` warms a CUDA graph up, torch gives this thread's
    allocations to the graph's private pool, where nothing of ours may stay: the work is done in another thread then, on
    the same device and stream."""
    device = None if isinstance(threading.current_thread(), _Outside) else device_in_use()
    if device is None or not torch_private.warms_up_for_graph(device):
        return work()
    return _in_thread(work, current_thread_state())


class _Outside(threading.Thread):
    """A thread whose allocations are no graph's. What it tunes meanwhile for a hook, it tunes itself: it holds the lock
    on tuning."""


def _in_thread(work: Callable[[], T], state: Callable[[], contextlib.AbstractContextManager[Any]]) -> T:
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with state():
                found.append(work())
        except BaseException as exc:
            failed.append(exc)

    thread = _Outside(target=run, name="kerntune-warm-up")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
