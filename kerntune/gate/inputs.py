"""What tells a call that takes no tensors itself (a closure) from others: the tensors that its kernels read."""

from __future__ import annotations

from collections.abc import Collection

from kerntune.base.case_result import CaseId
from kerntune.base.device import Target
from kerntune.base.recording import Recording
from kerntune.gate.baselines import Argument, BaselineStore, inputs_of

Inputs = tuple[Argument, ...]


def case_inputs(store: BaselineStore, target: Target, case: CaseId, recording: Recording) -> Inputs:
    """The inputs under which a closure's baseline is, or would be.

    An edit that adds or drops an input, or a kernel that isn't compiled any more, leaves the case what it was.
    """
    today = inputs_of(recording)
    return _known_as(today, store.known_arguments(target, case))


def _known_as(today: Inputs, known: Collection[Inputs]) -> Inputs:
    """The stored inputs that have all of today's or are among them; today's if these are stored, or if that is
    ambiguous. Another shape, dtype or stride of an input is another case."""
    if today in known:
        return today
    alike = [other for other in known if set(other) <= set(today) or set(today) <= set(other)]
    return alike[0] if len(alike) == 1 else today
