"""The tuner of a combo kernel: blocks for each part from its own family, found group by group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from kerntune import heuristics
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.heuristics import ComboPlan, SubKernel
from kerntune.heuristics.hints import REDUCTION_AXES, HeuristicType
from kerntune.heuristics.proposer import NO_COUNTS, ProposalInputs, Proposer
from kerntune.heuristics.ttir import TtirCounts
from kerntune.kernels import compat
from kerntune.kernels.combined import AXIS_BLOCKS
from kerntune.search import ComboSearch
from kerntune.tuning import context
from kerntune.tuning.api.heuristic_tuner import SOME_BLOCK, HeuristicTuner

TRIALS = 48
"""Configs that a combo's search tries at most. Eight different 1-D pointwise parts have about 20."""


class ComboInputs(NamedTuple):
    """What a combo's proposal depends on in one call: the inputs of each part's. ``empty``: no part has work."""

    parts: tuple[ProposalInputs, ...]
    empty: bool = False

    def __str__(self) -> str:
        """The text in keys of stored winners."""
        return ", ".join(map(str, self.parts))


@dataclass(frozen=True)
class ComboProposer:
    """A :class:`~kerntune.heuristics.proposer.Proposer` of a kernel in which each of ``parts`` has its arguments under
    its own number (``x_ptr_0``), except the ``shared``; ``blocks`` are the kernel's constexprs that are blocks."""

    kernel: str
    parts: tuple[Proposer, ...]
    kernel_blocks: tuple[str, ...]
    shared: frozenset[str]
    preset: heuristics.Preset
    kind: HeuristicType = HeuristicType.USER_AUTOTUNE
    whole_rows: bool = False
    known: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chosen(self) -> tuple[str, ...]:
        """The blocks."""
        return self.kernel_blocks

    @property
    def blocks(self) -> dict[str, str]:
        """The blocks' names."""
        return {name: name for name in self.kernel_blocks}

    @property
    def constexprs(self) -> frozenset[str]:
        """Parameters that are constexprs."""
        own = {self._own(n, i) for i, part in enumerate(self.parts) for n in part.constexprs}
        return frozenset({*own, *self.kernel_blocks})

    @property
    def sizes(self) -> dict[str, tuple[str, ...]]:
        """The arguments that sizes are made of, by part."""
        found: dict[str, tuple[str, ...]] = {}
        for i, part in enumerate(self.parts):
            found[str(i)] = tuple(self._own(n, i) for names in part.sizes.values() for n in names)
        return found

    def inputs(self, arguments: Mapping[str, Any], device: DeviceSpec) -> ComboInputs:
        """What matters of a call; :class:`HintError` as for each part."""
        found = tuple(part.inputs(self._of_part(part, i, arguments), device) for i, part in enumerate(self.parts))
        return ComboInputs(found, all(one.empty for one in found))

    def propose(self, inputs: ComboInputs, device: DeviceSpec, counts: TtirCounts = NO_COUNTS) -> tuple[Config, ...]:
        """Where the plan begins, and its first group's other choices; the search has the rest."""
        plan = self.plan(inputs, device)
        others = (plan.candidates(plan.base, group) for group in plan.groups)
        first = next((found for found in others if found), plan.warp_candidates(plan.base))
        return (plan.base,) if inputs.empty else (plan.base, *first)

    def plan(self, inputs: ComboInputs, device: DeviceSpec) -> ComboPlan:
        """How the combo is tuned for a call."""
        subkernels = [
            SubKernel(part.kind, part.hints_of(one, device)) for part, one in zip(self.parts, inputs.parts, strict=True)
        ]
        found = heuristics.combo(subkernels, device, self.kernel_blocks, self.preset, grouped=True)
        rows: dict[str, Any] = {}
        for i, (part, one) in enumerate(zip(self.parts, inputs.parts, strict=True)):
            for axis in part.blocks if part.whole_rows else ():
                rows |= {f"{AXIS_BLOCKS[axis]}_{i}": dict(one.sizes)[axis]} if axis in REDUCTION_AXES else {}
        base = found.base.replace(kwargs={**found.base.kwargs, **rows})
        return msgspec.structs.replace(found, base=base)

    def hints_of(self, inputs: Any, device: DeviceSpec) -> None:
        """None: there are no hints of the whole."""

    def _of_part(self, part: Proposer, i: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
        named = {name: self._own(name, i) for name in part.parameters}
        return {name: arguments[own] for name, own in named.items() if own in arguments}

    def _own(self, name: str, i: int) -> str:
        return name if name in self.shared else f"{name}_{i}"


class ComboTuner(HeuristicTuner):
    """A combo kernel whose parts' blocks follow from each call, tuned group by group
    (:func:`kerntune.search.combo_search`)."""

    def __init__(self, fn: Any, proposer: ComboProposer, **words: Any) -> None:
        super().__init__(fn, proposer, counts=False, **words)  # type: ignore[arg-type]  # it has all that is asked of it
        self._combo = proposer

    def variety(self) -> list[Any] | None:
        """As in the base class."""
        return [compat.triton_config(Config(dict.fromkeys(self._combo.kernel_blocks, SOME_BLOCK)))]

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
