"""The result of every timer: slots that are enqueued in any order and read later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

PROTOCOL_VERSION = 2
"""Raised whenever a change of the measurement makes its times incomparable with stored ones."""

Reading = Callable[[], float]
"""Waits for a slot's work and returns its time in nanoseconds per execution of the recording."""


class TimingProtocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How times were taken. Times are comparable only by the same timer of the same version."""

    timer: str
    runs_per_slot: int
    replicas: int
    version: int = PROTOCOL_VERSION

    def differences(self, today: TimingProtocol) -> list[str]:
        """Why times under this protocol can't be compared with today's; empty if they can."""
        pairs = (("timer", self.timer, today.timer), ("timing protocol", self.version, today.version))
        return [f"{what} {then} -> {now}" for what, then, now in pairs if then != now]


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Raw times of one recording, a slot each, in nanoseconds per execution, in the order they were taken."""

    protocol: TimingProtocol
    times_ns: tuple[float, ...]


class Slot(Protocol):
    """A prepared piece of work: a number of executions of one recording between two events."""

    protocol: TimingProtocol

    late: bool
    """Of the last piece that was enqueued: whether the device had reached its first event before everything up to the
    last one was enqueued. Then its time may contain some of the host's, which always adds."""

    def enqueue(self) -> Reading:
        """Enqueue the piece once, with the restores that it needs before the first event."""
