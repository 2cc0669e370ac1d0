"""Helpers of the tests that need no torch."""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec, Target
from kerntune.heuristics import INDUCTOR_2_6, INDUCTOR_2_13, INDUCTOR_2_15, MEASURED_2026, Preset, neighbourhood
from kerntune.heuristics.call_hints import inferred_read, inner_split, outer_split, read_of, reduction_split
from kerntune.heuristics.hints import HeuristicType

from .inductor_cases import B200, CASES, H100, MI300, RX7900, T4, Case, ours
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
change any more. The default preset's list is in the keys of stored winners: a change of it throws these away. Splits
and steps of a descent are compared with torch 2.13 at run time."""

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


def digest(answer: object) -> str:
    """Of a family's ordered configs, for one; None: it refuses."""
    return hashlib.sha256(repr(answer).encode()).hexdigest()[:DIGITS]


OTHER_PRESETS = (INDUCTOR_2_6, INDUCTOR_2_15, MEASURED_2026)
PART = 3
"""One case of so many is asked under other presets."""


def other_digests(preset: Preset) -> str:
    """Of the random hints, and of families that are enumerated quickly."""
    quick = ("cooperative_reduction", "split_scan", "matmul", "newer_hints", RANDOM)
    cases = (case for family in quick for case in sample(family)[::PART])
    return "".join(digest(answer_of(case, preset)) for case in cases)


def answer_of(case: Case, preset: Preset = INDUCTOR_2_13) -> list[Flat] | None:
    """Ours."""
    configs = ours(*case, preset)
    return None if configs is None else flat_all(configs)


def split_digests() -> str:
    """Of splits of long reductions, and of hints and splits of random reads."""
    found: list[object] = []
    lengths = sorted({(1 << n) + d for n in range(3, 27, 2) for d in (-1, 0, 1, (1 << n) // 3)})
    for device, preset in itertools.product((H100, B200, MI300, RX7900, T4), (INDUCTOR_2_13, INDUCTOR_2_15)):
        for r, outputs in itertools.product(lengths, (1, 2, 31, 129, 1000, 4096)):
            found.append((inner_split(r, outputs, device, preset), outer_split(r, outputs, device)))
    rng = random.Random(28)
    for _ in range(600):
        shape = [rng.choice((1, 2, 31, 32, 33, 1000, 8449, 40000)) for _ in range(rng.choice((2, 3)))]
        device, cut = rng.choice((H100, B200, MI300)), rng.randint(1, len(shape) - 1)
        outputs, r = prod(shape[:cut]), prod(shape[cut:])
        strides = [[0 if rng.random() < 0.15 else prod(shape[i + 1 :]) for i in range(len(shape))] for _ in range(3)]
        reads = [read_of(shape, one, range(cut, len(shape))) for one in strides[: rng.randint(1, 3)]]
        reads += [read_of(shape[::-1], one, range(cut - len(shape), 0)) for one in strides[: rng.randint(0, 2)]]
        found.append(inferred_read(shape, strides[0], outputs, r))
        splits = (reduction_split(reads, outputs, r, device, may_split=may) for may in (True, False))
        found += [(split.hint.name, split.parts) for split in splits]
    return "".join(digest(one) for one in found)


def step_digests() -> str:
    """Of a descent's steps from the first config of some cases."""
    found: list[object] = []
    for kind, hints, device in sample(RANDOM):
        configs = ours(kind, hints, device)
        if configs and kind.upper() in HeuristicType.__members__:
            around = neighbourhood(configs[0], device, hints, HeuristicType[kind.upper()])
            fields = [(field.name, flat_all(around.neighbours(configs[0], field))) for field in around.fields]
            found.append((fields, flat_all(around.two_fields(configs[0])), around.is_legal(configs[-1])))
    return "".join(digest(one) for one in found)
