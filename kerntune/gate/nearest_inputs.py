"""What tells a call's tensors from those of its nearest stored case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kerntune.gate.baselines import Argument
from kerntune.gate.case_identity import Inputs

SHOWN = 2
"""Tensors that a line names; the others are counted."""


def nearest_difference(today: Inputs, stored: Iterable[Inputs]) -> str:
    """How ``today`` differs from the nearest of ``stored``, as "tensor 0 has shape (41,) stored and (37,) today".

    The nearest is the one with the fewest tensors that differ, in the fewest ways, among those of as many tensors.
    Empty if there is none, and if ``today`` is itself stored.
    """
    return _fewest((today, other) for other in stored)


def nearest_of_run(stored: Inputs, met: Iterable[Inputs]) -> str:
    """The same of one stored case and the nearest of those that a run has ``met``, equal ones left out."""
    return _fewest((today, stored) for today in met if today != stored)


def _fewest(pairs: Iterable[tuple[Inputs, Inputs]]) -> str:
    alike = (differences(today, stored) for today, stored in pairs if len(stored) == len(today))
    found = min(alike, key=lambda lines: (len(lines), sum(map(len, lines)), lines), default=[])
    more = [f"{len(found) - SHOWN} more differ"] if len(found) > SHOWN else []
    return ", ".join([*found[:SHOWN], *more])


def differences(today: Inputs, stored: Inputs) -> list[str]:
    """A phrase for each tensor that differs; of as many tensors."""
    pairs = enumerate(zip(stored, today, strict=True))
    return [f"tensor {i} has {' and '.join(_parts(old, new))}" for i, (old, new) in pairs if old != new]


def _parts(old: Argument, new: Argument) -> Iterator[str]:
    if old.dtype != new.dtype:
        yield f"dtype {old.dtype} stored and {new.dtype} today"
    if old.shape != new.shape:
        yield f"shape {old.shape} stored and {new.shape} today"
    elif old.strides != new.strides:
        yield f"strides {old.strides} stored and {new.strides} today"
