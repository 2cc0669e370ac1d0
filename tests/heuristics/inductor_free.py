"""Helpers of the tests that need no torch."""

from __future__ import annotations

from collections.abc import Iterable

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec, Target

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
