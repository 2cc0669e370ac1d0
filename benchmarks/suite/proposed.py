"""Kernels of generated code's families, each with its heuristic and the whole space around what that proposes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any

from benchmarks.suite.case import Call, Shape
from kerntune.base.config import Config

WARPS = (1, 2, 4, 8, 16, 32)
REGISTERS = (None, 24, 32, 40, 48, 64, 96)
"""Limits on registers (``maxnreg``): what generated kernels trade against occupancy beside blocks and warps."""

SETS: dict[str, dict[str, Any]] = {
    "inductor-2.13": {"preset": "inductor-2.13"},
    "max_autotune": {"preset": "inductor-2.13", "max_autotune": True},
    "measured-2026": {"preset": "measured-2026"},
}
"""Options of the decorators whose proposals a sweep always has, by the name that it stores them under. In recorded
sweeps ``default`` is ``inductor-2.13``, which was the default then."""

MOST_A_THREAD = 128
"""Elements: with more, nothing is left in registers, and ptxas takes half a minute for a config that is of no use."""


@dataclass(frozen=True)
class Proposed:
    """One kernel at one shape. ``decorator`` and ``words`` are what its author writes to have configs proposed;
    ``space`` is everything that the proposals could have been."""

    name: str
    kernel: Any
    shape: Shape
    small: Shape
    call: Callable[[Shape, str], Call]
    decorator: Callable[..., Any]
    words: Mapping[str, Any]
    space: Callable[[], Iterable[Config]]
    tolerance: float = 2e-2
    options: Mapping[str, Any] = field(default_factory=dict)
    """What a plain tuner needs beside configs, ``reset_to_zero``."""

    @property
    def family(self) -> str:
        """``pointwise``, ``reduction`` …"""
        return str(self.decorator.__name__)

    def proposals(self, call: Call, **options: Any) -> tuple[Config, ...]:
        """The heuristic's candidates for a call, best guess first."""
        tuner = self.decorator(**{**self.words, **options, **self.options})(self.kernel)
        return tuple(tuner.candidates(*call.arguments))

    def configs(self, call: Call) -> tuple[list[Config], dict[str, list[int]]]:
        """Proposals and space together, each config once, and which of them each set of options proposes."""
        sets = {name: self.proposals(call, **options) for name, options in SETS.items()}
        index: dict[Config, int] = {}
        for config in (*chain(*sets.values()), *self.space()):
            index.setdefault(config, len(index))
        return list(index), {name: [index[c] for c in found] for name, found in sets.items()}


def powers(low: int, high: int) -> list[int]:
    """Powers of two from ``low`` to ``high``, both included."""
    return [1 << e for e in range(low.bit_length() - 1, high.bit_length())]


def one_block(name: str, sizes: Iterable[int], others: Mapping[str, Iterable[int]] | None = None) -> list[Config]:
    """One block with all warps and limits on registers; ``others`` are further parameters with their values.

    A block has half an element a thread at least, :data:`MOST_A_THREAD` at most. No pipelining: without ``tl.dot``
    Triton has nothing to pipeline.
    """
    found = []
    names, values = tuple(others or {}), tuple(map(tuple, (others or {}).values()))
    for size, warps, registers, *rest in product(sizes, WARPS, REGISTERS, *values):
        numel = size * math.prod(rest)
        if 16 * warps <= numel <= MOST_A_THREAD * 32 * warps and warps * 32 * (registers or 0) <= 65536:
            blocks = {name: size, **dict(zip(names, rest, strict=True))}
            found.append(Config(blocks, num_warps=warps, num_stages=1, maxnreg=registers))
    return found


def tiles(names: tuple[str, ...], sizes: tuple[Iterable[int], ...], least: int, most: int) -> list[Config]:
    """All blocks of ``least`` to ``most`` elements, with every number of warps that has an element a thread."""
    found = []
    for blocks in product(*sizes):
        numel = math.prod(blocks)
        if least <= numel <= most:
            kwargs = dict(zip(names, blocks, strict=True))
            found += [Config(kwargs, num_warps=w, num_stages=1) for w in WARPS[:5] if numel >= 32 * w]
    return found


SHARED_BYTES = 232448
"""What a block can have on sm_90 (CUDA C++ Programming Guide, table of technical specifications)."""


def products(names: tuple[str, str, str], **fixed: int) -> list[Config]:
    """Tiles of a 16-bit product that fit shared memory and registers, with warps and pipeline stages."""
    found = []
    for y, x, r, warps, stages in product(powers(32, 256), powers(32, 256), powers(32, 128), (4, 8), (2, 3, 4, 5)):
        fits = (y + x) * r * 2 * stages <= SHARED_BYTES and y * x <= 255 * 32 * warps
        if fits and y * x >= 2048 and not (stages == 2 and r == 32):
            found.append(Config({names[0]: y, names[1]: x, names[2]: r, **fixed}, num_warps=warps, num_stages=stages))
    return found
