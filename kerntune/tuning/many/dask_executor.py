"""Dask's executor, which can be asked to have a job done by one worker if that is no detriment."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any


class DaskExecutor:
    """Around what ``Client.get_executor()`` gives (``distributed.cfexecutor.ClientExecutor``).

    Dask's scheduler decides: ``workers=`` with ``allow_other_workers=True`` is a preference, which its work stealing
    overrides, and so does the loss of that worker.
    """

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Have ``function(*arguments)`` done by any worker."""
        return self._executor.submit(function, *arguments)

    def submit_on(self, worker: str, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Have it done by the worker with this address if possible."""
        return self._executor.submit(function, *arguments, workers=[worker], allow_other_workers=True)

    def workers(self) -> int:
        """How many there are now; 0 if that can't be known, or if the user has said which ones are to work."""
        if "workers" in getattr(self._executor, "_kwargs", {"workers": "unknown"}):
            return 0
        with contextlib.suppress(Exception):  # of another version of Dask, or of its connection
            return len(self._executor._client.nthreads())
        return 0


def with_affinity(executor: Any) -> Any:
    """The same executor, or a :class:`DaskExecutor` around Dask's."""
    package = type(executor).__module__.partition(".")[0]
    return DaskExecutor(executor) if package == "distributed" else executor


def dask_worker() -> str:
    """The address of the Dask worker whose task this thread does; empty if it does none."""
    distributed = sys.modules.get("distributed")
    with contextlib.suppress(Exception):  # no task of a worker; a package of another kind with this name
        return str(distributed.get_worker().address) if distributed else ""
    return ""
