"""Tunes a combo kernel, and says whether one launch pays.

Blocks for each part come from the part's own family, and are found group by group. One launch and several launches are
timed as a user sees them, the host's share included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import msgspec

from kerntune import capture as captures
from kerntune import heuristics
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.gpu.probe import captures_graph
from kerntune.heuristics import ComboPlan, SubKernel
from kerntune.heuristics.call_hints import TtirCounts
from kerntune.heuristics.hints import REDUCTION_AXES
from kerntune.heuristics.proposer import NO_COUNTS, ProposalInputs, Proposer
from kerntune.kernels.combined import AXIS_BLOCKS
from kerntune.kernels.compat import tuners
from kerntune.search import ComboSearch
from kerntune.tuning import context
from kerntune.tuning.api.heuristic_tuner import HeuristicTuner

TRIALS = 48
"""Configs that a combo's search tries at most. Eight different 1-D pointwise parts have about 20."""


class ComboInputs(NamedTuple):
    """What a combo's proposal depends on in one call: the inputs of each part's. ``empty``: no part has work."""

    parts: tuple[ProposalInputs, ...]
    empty: bool

    def __str__(self) -> str:
        """The text in keys of stored winners."""
        return ", ".join(map(str, self.parts))


@dataclass(frozen=True)
class ComboProposer:
    """A :class:`~kerntune.heuristics.proposer.Proposer` of a kernel in which each of ``parts`` has its arguments under
    its own number (``x_ptr_0``); ``chosen`` are the kernel's constexprs that are blocks."""

    kernel: str
    parts: tuple[Proposer, ...]
    chosen: tuple[str, ...]
    known: ClassVar[Mapping[str, Any]] = {}

    @property
    def constexprs(self) -> frozenset[str]:
        """Parameters that are constexprs."""
        own = {_own(n, i) for i, part in enumerate(self.parts) for n in part.constexprs}
        return frozenset({*own, *self.chosen})

    @property
    def sizes(self) -> dict[str, tuple[str, ...]]:
        """The arguments that sizes are made of, by part."""
        return {
            str(i): tuple(_own(n, i) for names in part.sizes.values() for n in names)
            for i, part in enumerate(self.parts)
        }

    def inputs(self, arguments: Mapping[str, Any], device: DeviceSpec) -> ComboInputs:
        """What matters of a call; :class:`HintError` as for each part."""
        found = tuple(part.inputs(_of_part(part, i, arguments), device) for i, part in enumerate(self.parts))
        return ComboInputs(found, all(one.empty for one in found))

    def propose(self, inputs: ComboInputs, device: DeviceSpec, counts: TtirCounts = NO_COUNTS) -> tuple[Config, ...]:
        """Where the plan begins, and its first group's other choices; the search has the rest."""
        plan = self.plan(inputs, device)
        others = (plan.candidates(plan.base, group) for group in plan.groups)
        first = next((found for found in others if found), plan.warp_candidates(plan.base))
        return (plan.base,) if inputs.empty else (plan.base, *first)

    def plan(self, inputs: ComboInputs, device: DeviceSpec) -> ComboPlan:
        """How the combo is tuned for a call."""
        pairs = list(zip(self.parts, inputs.parts, strict=True))
        subkernels = [SubKernel(part.kind, part.hints_of(one, device)) for part, one in pairs]
        found = heuristics.combo(subkernels, device, self.chosen, grouped=True)
        rows: dict[str, Any] = {}
        for i, (part, one) in enumerate(pairs):
            for axis in part.blocks if part.whole_rows else ():
                rows |= {f"{AXIS_BLOCKS[axis]}_{i}": dict(one.sizes)[axis]} if axis in REDUCTION_AXES else {}
        base = found.base.replace(kwargs={**found.base.kwargs, **rows})
        return msgspec.structs.replace(found, base=base)


def _of_part(part: Proposer, i: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: _own(name, i) for name in part.parameters}
    return {name: arguments[own] for name, own in named.items() if own in arguments}


def _own(name: str, i: int) -> str:
    return f"{name}_{i}"


class ComboTuner(HeuristicTuner):
    """A combo kernel whose parts' blocks follow from each call, tuned group by group
    (:func:`kerntune.search.combo_search`)."""

    def __init__(self, fn: Any, proposer: ComboProposer, **words: Any) -> None:
        super().__init__(fn, proposer, counts=False, **words)  # type: ignore[arg-type]  # it has all that is asked of it
        self._combo = proposer

    def search_for(self, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> ComboSearch | None:
        """The plan's search, with a descent at its end if one was asked for; None if there is only one config."""
        given = {**named, **kwargs}
        device = context.device_now()
        plan = self._combo.plan(self._combo.inputs(given, device), device)
        if self.descent is None and len(self.listed(named, kwargs)) < 2:
            return None
        trials = TRIALS + (self.descent.trials if self.descent else 0)
        return ComboSearch(plan, trials, descent=self.descent is not None)

    def most_spilled(self, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> int | None:
        """None: nothing is left out."""
        return None


GAIN = 0.02
"""The least that one launch must save. Less is within what such a timing can tell."""

MOST_CHOICES = 4096
"""Kinds of calls that are remembered; then all are forgotten, and decided anew."""


@dataclass(frozen=True)
class ComboChoice:
    """What was chosen for one kind of call: ``together`` or each by itself. ``ratio`` is the time together over the
    time apart, host and device; None where it couldn't be measured."""

    together: bool
    ratio: float | None = None


LaunchAll = Callable[[Sequence[Any]], object]


def choose(together: LaunchAll, apart: LaunchAll, arguments: Sequence[Any]) -> ComboChoice | None:
    """Time both ways on copies of the call's tensors, after each has been tuned. Together where nothing can be timed:
    in a capture, in Triton's interpreter, without a GPU, without memory for copies. None while a CUDA graph is
    captured: decide at a later call."""
    backend = None if captures.current() is not None or tuners.interprets() else context.this_gpu()
    if backend is None or backend.gpu is None:
        return ComboChoice(together=True)
    if captures_graph():
        return None
    from kerntune.tuning.choices import call_copies, deciding  # they load torch

    try:
        copies = call_copies.CallCopies({"": list(arguments)}, grad=False)
    except RuntimeError:  # torch's for a full card
        return ComboChoice(together=True)
    calls = {i: partial(way, copies.values[""]) for i, way in enumerate((apart, together))}
    for call in (*calls.values(), *calls.values()):  # tuned, under the lock of each tuning, compiled and loaded
        call()
    copies.note_written()
    with backend.gpu.lock():
        _, times = deciding.race_calls(backend.gpu, calls, copies.restore, None)
    ratio = times[1] / times[0] if times[0] else 1.0  # nothing is timed on a device without times
    return ComboChoice(ratio < 1 - GAIN, ratio)


def remembered(choices: dict[Any, ComboChoice], key: Any, found: ComboChoice | None) -> ComboChoice:
    """The choice, kept for later calls; together for this call alone where there is none yet."""
    if found is None:
        return ComboChoice(together=True)
    if len(choices) >= MOST_CHOICES:
        choices.clear()
    choices[key] = found
    return found
