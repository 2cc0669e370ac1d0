"""What the capture of a call asks for on the GPU where the call launches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kerntune.base.policy import Update
from kerntune.capture import Capture, Pending, Site, current
from kerntune.capture.inductor.baseline_choices import InductorChoices
from kerntune.compiling.compiler import Compiled
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.call import Call
from kerntune.gate.call_capture import CaptureWishes, winner_first
from kerntune.gate.capture_share import CaptureShare
from kerntune.gate.known_choices import choices_of
from kerntune.gpu.base import Backend, Gpu
from kerntune.tuning.choices.choice_place import forget_prepared
from kerntune.tuning.first_launches import CapturedLaunch
from kerntune.tuning.isolation import Isolation
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.stored_winners import Winners


@dataclass(frozen=True)
class CaptureNeeds:
    """What the run has for one call, by the GPU on which that launches: the baseline of its case, as far as it is known
    before the call is captured; winners of earlier tuning; where first launches run; ``watch`` gets the GPU."""

    baseline: Callable[[Backend], TimeBaseline | None]
    winners: Callable[[Gpu], Winners]
    isolation: Callable[[Backend], Isolation]
    watch: Callable[[Gpu], None]
    update: Update


class GpuCapture:
    """One call's capture, on the GPU where the call launches: that is known once it does, and ``backend`` until
    then."""

    def __init__(self, needs: CaptureNeeds, call: Call, share: CaptureShare, backend: Backend) -> None:
        self._needs, self._call, self._share = needs, call, share
        self.backend = backend

    def wishes(self) -> CaptureWishes:
        """What the capture asks here. Inductor's choices follow those of the case's baseline."""
        known = InductorChoices(
            lambda: choices_of(self._needs.baseline(self.backend)),
            recorded=self._needs.update in (Update.IMPROVED, Update.REGRESSED),
        )
        return CaptureWishes(self.prefer, self.before_launch, self.move, known)

    def call(self) -> Call:
        """The call. Its reference may tune kernels, for which the device is needed alone: what the capture holds of it
        is let go of meanwhile."""
        reference = self._call.reference
        return self._call if reference is None else replace(self._call, reference=lambda: self._beside(reference))

    def _beside(self, reference: Callable[[], Any]) -> Any:
        gpu = self._gpu()
        with self._share.given_up(gpu), gpu.lock_loosely():
            return reference()

    def move(self, backend: Backend) -> None:
        """Go on there."""
        self.backend = backend
        self._share.move(self._gpu())
        self._needs.watch(self._gpu())

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """While a choice is decided that the call has met: the device is held alone, and nothing is recorded."""
        capture = current()
        assert capture is not None
        with self._share.given_up(self._gpu()), capture.suspended():
            try:
                yield
            finally:
                forget_prepared()

    def prefer(self, site: Site) -> Sequence[int]:
        """The order of a site's candidates."""
        return winner_first(self._needs.winners(self._gpu()), self._needs.isolation(self.backend).begin)(site)

    def before_launch(self, capture: Capture, pending: Pending, compiled: Compiled) -> None:
        """Also where nothing is launched elsewhere, for what has faulted is remembered."""
        isolation, trials = self._needs.isolation(self.backend), Trials(self._needs.winners(self._gpu()))
        CapturedLaunch(isolation, trials)(capture, pending, compiled)

    def _gpu(self) -> Gpu:
        assert self.backend.gpu is not None
        return self.backend.gpu
