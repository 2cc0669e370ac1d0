"""Static figures of both sides of every edit, kept so that rules can be tried without a compiler."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kerntune.gate.static_figures import LaunchStatic

Sides = tuple[tuple[LaunchStatic, ...], tuple[LaunchStatic, ...]]
"""What a kernel launches before and after an edit."""


def write(path: Path, environment: Mapping[str, Any], found: Mapping[str, Sides]) -> None:
    """Each kernel's own figures are kept once. ``found`` is by the key of an edit."""
    kernels = {key.partition(":")[0]: _plain(before) for key, (before, _) in found.items()}
    edits = {key: _plain(after) for key, (_, after) in found.items()}
    lines = [
        f'"environment": {json.dumps(environment)}',
        *(_block(n, x) for n, x in (("kernels", kernels), ("edits", edits))),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{" + ",\n".join(lines) + "}\n")


def read(path: Path) -> dict[str, Sides]:
    """By the key of an edit."""
    kept = json.loads(path.read_text())
    kernels = {name: _launches(x) for name, x in kept["kernels"].items()}
    return {key: (kernels[key.partition(":")[0]], _launches(x)) for key, x in kept["edits"].items()}


def _block(name: str, entries: Mapping[str, Any]) -> str:
    """A line an entry, so that a change of one is a change of a line."""
    inside = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in entries.items()
    )
    return f'"{name}": {{\n{inside}\n}}'


def _plain(launches: Sequence[LaunchStatic]) -> list[Any]:
    return [msgspec.to_builtins(msgspec.structs.replace(x, stages={}, compile_seconds=None)) for x in launches]


def _launches(plain: list[Any]) -> tuple[LaunchStatic, ...]:
    return tuple(msgspec.convert(x, LaunchStatic) for x in plain)
