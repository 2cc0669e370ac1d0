"""Workers of pytest-xdist on the GPUs of a host: each begins with another one, and those that share one take turns."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from kerntune.errors import MeasurementError
from pytest_kerntune.stash import concerns

if TYPE_CHECKING:
    import pytest

    from kerntune.gate.api import Session

CROWDED = "kerntune_crowded"
"""In the ``workerinput`` of xdist's workers: whether several of them begin with the same GPU."""

GPU_MARKS = ("gpu", "cuda")
"""Markers by which projects tell tests that need a GPU."""


class TurnTaking(str, Enum):
    """Which tests wait while another worker measures on their GPU: all, those that use ``autotune`` or are marked
    ``gpu`` or ``cuda``, or none."""

    ALL = "all"
    MARKED = "marked"
    OFF = "off"


class Spread:
    """On xdist's controller: which worker begins with which GPU."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._crowded: dict[str, bool] = {}

    def turn(self, specs: Sequence[Any], seen: int) -> None:
        """Give each worker of this host its list of the GPUs that are ``seen``, before it starts; without any, of the
        AMD GPUs that torch sees, on which nothing is measured. One whose list is given already (by another plugin, or
        with ``--tx popen//env:CUDA_VISIBLE_DEVICES=1``) keeps that, and so does one of another host."""
        from kerntune.gpu.probe import amd_gpus
        from kerntune.gpu.rotation import rotated, turned_by_others, visible_count

        local = [spec for spec in specs if spec.popen and not turned_by_others(spec.env)]
        amd = amd_gpus() if not seen else 0
        count = amd or visible_count(seen)
        for turns, spec in enumerate(local):
            if self._wanted:
                spec.env.update(rotated(os.environ, count, turns, amd=bool(amd)))
            crowded = len(local) > count if self._wanted else len(local) > 1
            self._crowded[str(spec.id)] = bool(seen) and crowded

    def input_of(self, node: Any) -> dict[str, bool]:
        """What goes into a worker's ``workerinput``. One that takes the place of another has the other's list."""
        return {CROWDED: self._crowded.get(str(node.gateway.id), any(self._crowded.values()))}


@contextlib.contextmanager
def in_turn(session: Session, item: pytest.Item, turns: TurnTaking, crowded: bool) -> Iterator[None]:
    """Run a test, on one of several workers, while no other one measures on the GPUs that it uses: its first one, if
    it shares that (``crowded``), and others on which it has made tensors before. What it measures itself comes in
    between. If the others don't end, it runs all the same: it fails no test."""
    marked = concerns(item) or any(item.get_closest_marker(name) for name in GPU_MARKS)
    with contextlib.ExitStack() as stack:
        if turns is TurnTaking.ALL or (turns is TurnTaking.MARKED and marked):
            with contextlib.suppress(MeasurementError):
                stack.enter_context(session.in_turn(crowded))
        yield
