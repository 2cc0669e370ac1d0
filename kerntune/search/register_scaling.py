"""Reduction blocks halved where registers limit occupancy: further candidates, once registers are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.heuristics import Preset, scale_reductions, scaled_down
from kerntune.heuristics.hints import BLOCK_NAMES, HeuristicType, KernelHints
from kerntune.search.budgeted import Prepare
from kerntune.search.trial_history import Found, History, Measured


@dataclass(frozen=True)
class RegisterScaling:
    """The rule of :func:`kerntune.heuristics.scale_reductions` for a kernel whose ``blocks`` have other names, by axis,
    from the configs ``listed``. Each halved config is compiled, and may be halved again."""

    listed: tuple[Config, ...]
    blocks: Mapping[str, str]
    hints: KernelHints
    device: DeviceSpec
    family: HeuristicType
    preset: Preset

    def __str__(self) -> str:
        """Empty: a winner is the answer to its list's question, as Inductor keys it too."""
        return ""

    def has(self, config: Config) -> bool:
        """Whether a config of the list becomes this one with reduction blocks halved."""
        return any(self._halved(start, config) for start in self.listed)

    def may_help(self, registers: Mapping[Config, int | None]) -> bool:
        """Whether any config of the list would be halved if it took so many registers a thread."""
        pairs = ((self._canonical(c), registers.get(c)) for c in self.listed)
        return any(scaled_down(c, count, self.hints, self.device) is not None for c, count in pairs)

    def run(
        self, measure: Callable[[Config], Measured], prepare: Prepare, starts: Sequence[Config], spent: float = 0.0
    ) -> Found:
        """Have the halved configs prepared; ``measure`` gives the registers of each."""
        history, known = History(measure), {self._canonical(c): c for c in starts}

        def registers_of(canonical: Config) -> int | None:
            if canonical not in known:
                known[canonical] = self._own(canonical)
                prepare([known[canonical]])
            return measure(known[canonical]).registers

        for canonical in scale_reductions(list(known), registers_of, self.hints, self.device, self.family, self.preset):
            if canonical not in known:
                registers_of(canonical)
            history.time_of(known[canonical])
        return history.found()

    def _canonical(self, config: Config) -> Config:
        """With Inductor's names of blocks."""
        names = {name: BLOCK_NAMES[axis] for axis, name in self.blocks.items()}
        return config.replace(kwargs={names.get(name, name): value for name, value in config.kwargs.items()})

    def _own(self, canonical: Config) -> Config:
        """With the kernel's."""
        names = {BLOCK_NAMES[axis]: name for axis, name in self.blocks.items()}
        return canonical.replace(kwargs={names.get(name, name): value for name, value in canonical.kwargs.items()})

    def _halved(self, start: Config, config: Config) -> bool:
        reduced = [name for axis, name in self.blocks.items() if axis in ("r0", "r1") and name in start.kwargs]
        if config.replace(kwargs={}) != start.replace(kwargs={}) or config.kwargs.keys() != start.kwargs.keys():
            return False
        same = all(config.kwargs[name] == value for name, value in start.kwargs.items() if name not in reduced)
        return same and all(_is_half(start.kwargs[name], config.kwargs[name]) for name in reduced)


def _is_half(before: object, after: object) -> bool:
    """Whether a block is another, halved any number of times."""
    if not isinstance(before, int) or not isinstance(after, int) or not 0 < after <= before:
        return False
    ratio, rest = divmod(before, after)
    return rest == 0 and ratio & (ratio - 1) == 0
