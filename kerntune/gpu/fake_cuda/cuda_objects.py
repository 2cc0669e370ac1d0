"""Streams, events, graphs, generators of a device that doesn't exist: all work is always complete."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

ELAPSED_MS = 1000.0
"""The elapsed time of every event pair: so long that benchmark loops, which divide a budget by it, call once or
twice."""


class Event:
    """``torch.cuda.Event``: recorded and done."""

    cuda_event = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def record(self, stream: Any = None) -> None:
        """Does nothing: no work runs."""

    def wait(self, stream: Any = None) -> None:
        """Already done."""

    def synchronize(self) -> None:
        """Already done."""

    def query(self) -> bool:
        """Whether the event is done: always."""
        return True

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds, made up: see :data:`ELAPSED_MS`."""
        return ELAPSED_MS


class Stream:
    """``torch.cuda.Stream``: an empty queue."""

    cuda_stream = 0
    stream_id = 0
    priority = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())

    @property
    def device_index(self) -> int:
        """The number of the device that was current."""
        return int(self.device.index)

    def synchronize(self) -> None:
        """Nothing is queued."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing is queued there."""

    def wait_event(self, event: Any) -> None:
        """Already done."""

    def record_event(self, event: Any = None) -> Any:
        """The event given, or a new one."""
        return event or Event()

    def query(self) -> bool:
        """Whether all work is done: always."""
        return True

    def is_capturing(self) -> bool:
        """Whether a graph is captured: never, since code inside of a capture runs as usual."""
        return False

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0


class StreamContext(contextlib.nullcontext[None]):
    """``torch.cuda.stream`` and ``torch.cuda.graph``: code inside runs (and launches) as it does outside."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()


class CUDAGraph:
    """``torch.cuda.CUDAGraph``: launches in a capture are recorded once, a replay does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: launches are recorded when they are made."""

    def capture_end(self) -> None:
        """Does nothing: no launch was deferred."""

    def replay(self) -> None:
        """Nothing runs."""

    def reset(self) -> None:
        """Does nothing: the graph holds no launches."""

    def pool(self) -> tuple[int, int]:
        """A memory pool's handle."""
        return (0, 0)


class Generator(torch.Generator):  # type: ignore[misc]  # torch's types are skipped
    """``torch.Generator`` that accepts the device CUDA; it is then a CPU generator whose ``device`` is CUDA."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        requested = torch.device(device)
        made: Generator = super().__new__(cls, device="cpu" if requested.type == "cuda" else requested)
        made._device = requested
        return made

    def __init__(self, device: Any = "cpu") -> None: ...

    @property
    def device(self) -> torch.device:
        """The device that the generator was made for."""
        return self._device
