"""Candidates that are compiled together, and how long to wait for the last of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Union

from kerntune.compiling.compiler import Compiled
from kerntune.compiling.prefetch import Pulled
from kerntune.errors import TrialError
from kerntune.kernels.specialize import Specialized

CandidateResult = tuple[int, Union[Compiled, TrialError]]
"""A candidate's index and what its compilation came to."""

FEW, QUIET_SECONDS = 4, 0.05
"""With so few candidates left to be compiled, none of them waiting for a processor, a pause this long means stragglers:
one of 30 configs takes a third of all compile time where a thread holds 256 elements."""

LEAST_SECONDS = 0.005
"""Once patience has ended, this long a pause is enough."""

LATE_SHARE = 0.25
"""Of all candidates, no more than this may be left: the fastest of few would often not stay the winner."""


class BatchState(Enum):
    """A batch was begun ahead, its results are being taken, or those that were missing were left."""

    BEGUN = "begun"
    TAKEN = "taken"
    LEFT = "left"


@dataclass(frozen=True)
class Batch:
    """Compilations of the candidates ``indices`` that were begun together; ``coming`` goes on with them, and keeps no
    tensors. ``launches`` are by candidate, also of those whose result has been taken."""

    state: BatchState
    indices: tuple[int, ...]
    launches: Mapping[int, Specialized]
    coming: Pulled[tuple[Specialized, Union[Compiled, TrialError]]]

    def results(self) -> Iterator[CandidateResult]:
        """Results as they come, each with its candidate."""
        candidate = {id(launch): i for i, launch in self.launches.items()}
        return ((candidate[id(launch)], found) for launch, found in self.coming)


def wait_for_all() -> float:
    """What is done in a pause where nothing else is to be done: nothing, and wait on."""
    return math.inf


@dataclass
class Waiting:
    """For the results of one batch of ``total`` candidates; ``queued()`` compilations wait for a processor.

    ``pause()`` is called again and again where only stragglers are missing, and says until when
    (:func:`time.monotonic`) to wait for them.
    """

    total: int
    queued: Callable[[], int]
    pause: Callable[[], float] = wait_for_all
    until: float = math.inf

    def gives_up(self, missing: int, coming: Pulled[Any]) -> bool:
        """Wait for the next result; whether a pause has ended the wait for those that are ``missing``."""
        may_leave = missing <= LATE_SHARE * self.total
        while not coming.wait(self._quiet() if may_leave else QUIET_SECONDS):
            if (may_leave or missing <= FEW) and not self.queued():
                self.until = self.pause()
                if may_leave and time.monotonic() >= self.until and not coming.wait(0):
                    return True
        return False

    def _quiet(self) -> float:
        return max(LEAST_SECONDS, min(QUIET_SECONDS, self.until - time.monotonic()))
