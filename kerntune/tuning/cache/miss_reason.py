"""Says why the cache had no answer: what differs from the nearest entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import Environment

SHORT = 12
"""Hex digits of a hash that a person can compare."""


def why_missed(
    noun: str,
    key: msgspec.Struct,
    environment: Environment | None,
    stored: Iterable[tuple[msgspec.Struct, Environment]],
    folder: Path,
) -> list[str]:
    """Lines ``field: stored -> asked`` against the entry of the same kernel with the fewest differences.

    Empty if an entry is the same in everything. ``noun`` is what the entries are.
    """
    kernel = getattr(key, "kernel", "")
    explained = (_lines(k, key) + _environment(e, environment) for k, e in stored if getattr(k, "kernel", "") == kernel)
    nearest = min(explained, key=len, default=None)
    return [f"no {noun} of kernel {kernel} is stored in {folder}"] if nearest is None else nearest


def _lines(stored: msgspec.Struct, asked: msgspec.Struct) -> list[str]:
    out = []
    for name in asked.__struct_fields__:
        before, after = getattr(stored, name), getattr(asked, name)
        if before != after:
            out += _field(name, before, after)
    return out


def _field(name: str, before: Any, after: Any) -> list[str]:
    if name == "source":
        return [
            f"source: {before[:SHORT]} -> {after[:SHORT]} (the kernel, a function that it calls, or a constant changed)"
        ]
    if name == "specialization":
        return [f"specialization: {before[:SHORT]} -> {after[:SHORT]} (types, alignment, options or grid changed)"]
    if name == "arguments":
        return _parts(before.split("; "), after.split("; "))
    if name == "configs":
        return _configs(before, after)
    if name == "search":
        return [f"search: {before or 'none'} -> {after or 'none'}"]
    return [f"{name}: {before} -> {after}"]


def _parts(before: Sequence[str], after: Sequence[str]) -> list[str]:
    old, new = (dict(part.partition("=")[::2] for part in parts) for parts in (before, after))
    names = [n for n in dict.fromkeys([*old, *new]) if old.get(n) != new.get(n)]
    return [f"argument {n}: {old.get(n, 'not given')} -> {new.get(n, 'not given')}" for n in names]


def _configs(before: Sequence[Config], after: Sequence[Config]) -> list[str]:
    added = [str(c) for c in after if c not in before]
    gone = [str(c) for c in before if c not in after]
    lines = [f"configs: {len(added)} added ({added[0]}{', ...' if added[1:] else ''})"] if added else []
    lines += [f"configs: {len(gone)} removed ({gone[0]}{', ...' if gone[1:] else ''})"] if gone else []
    return lines or ["configs: the same in another order"]


def _environment(stored: Environment, asked: Environment | None) -> list[str]:
    return [] if asked is None else [f"environment {line}" for line in stored.differences(asked)]
