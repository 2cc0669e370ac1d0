"""Helpers of the tests that need no torch."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec, Target
from kerntune.heuristics import INDUCTOR_2_6, INDUCTOR_2_13, INDUCTOR_2_15, Preset

from .inductor_cases import CASES, Case, ours
from .inductor_random import random_cases

XPU = DeviceSpec(Target("xpu", "pvc"), "Intel Max 1550", 128)


def shape(config: Config) -> str:
    """``X64 R0_8 w4``; stages if they are not 1."""
    blocks = [f"{name.removesuffix('BLOCK')}{value}" for name, value in sorted(config.kwargs.items(), key=_order)]
    stages = [f"s{config.num_stages}"] if config.num_stages != 1 else []
    return " ".join([*blocks, f"w{config.num_warps}", *stages])


def shapes(configs: Iterable[Config]) -> list[str]:
    return [shape(c) for c in configs]


def _order(item: tuple[str, object]) -> tuple[bool, str]:
    return item[0].startswith("R"), item[0]


Flat = tuple[tuple[tuple[str, Any], ...], int, int]
"""A config as sorted constexprs and options, warps, stages."""


def flat(config: Any) -> Flat:
    """Torch's or our config in a form that compares."""
    items = {**config.kwargs, **getattr(config, "options", {})}
    return tuple(sorted(items.items())), config.num_warps, config.num_stages


def flat_all(configs: Iterable[Any]) -> list[Flat]:
    return [flat(c) for c in configs]


RECORDED = Path(__file__).with_name("recorded_2_13.json")
"""Digests of torch 2.13's answers to the sample of each family, and to random hints; ``----`` where we are meant to
differ. ``test_differential`` holds them against torch; where another torch is installed, they stand for it. And of the
presets of 2.6 and 2.15 to a part of those: ``benchmarks/heuristics`` compares them with these torches, which won't
change any more."""

DIGITS = 4
RANDOM = "random"
MEANT = "-" * DIGITS

STRIDES = {
    "pointwise": 61, "reduction": 127, "persistent_reduction": 109, "mix_order": 211, "cooperative_reduction": 101,
    "cooperative_persistent": 83, "split_scan": 101, "matmul": 29, "newer_hints": 31,
}  # fmt: skip
"""Primes, so that a sample runs through every value of every axis of the enumeration."""


@functools.cache
def sample(family: str) -> list[Case]:
    """Some cases of a family, or random ones: untypical devices, odd sizes, all hints at once."""
    if family == RANDOM:
        return list(itertools.islice(random_cases(seed=1), 1500))
    return list(itertools.islice(CASES[family](), 0, None, STRIDES[family]))


def digest(answer: list[Flat] | None) -> str:
    """Of a family's ordered configs; None: it refuses."""
    return hashlib.sha256(repr(answer).encode()).hexdigest()[:DIGITS]


OTHER_PRESETS = (INDUCTOR_2_6, INDUCTOR_2_15)
PART = 7
"""One case of so many is asked under other presets."""


def other_digests(preset: Preset) -> str:
    """Of all families."""
    cases = (case for family in (*CASES, RANDOM) for case in sample(family)[::PART])
    return "".join(digest(answer_of(case, preset)) for case in cases)


def answer_of(case: Case, preset: Preset = INDUCTOR_2_13) -> list[Flat] | None:
    """Ours."""
    configs = ours(*case, preset)
    return None if configs is None else flat_all(configs)
