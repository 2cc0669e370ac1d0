"""Says what a stored answer depends on, and why there was none.

A winner has a key of its own, and a question that it shares with winners among other configs. A miss is explained by
what differs from the nearest entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import Environment

Nanoseconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e15)]
"""A stored time: eleven days at most. Anything else is damage."""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel by name and source, what it is compiled for and by which Triton, where it runs, and on what:
    ``arguments`` describes shapes, strides, dtypes and scalars."""

    kernel: str
    source: str
    target: str
    device: str
    triton: str
    arguments: str

    @property
    def subject(self) -> tuple[str, str, str, str, str]:
        """All but the arguments."""
        return self.kernel, self.source, self.target, self.device, self.triton

    def digest(self) -> str:
        """SHA-256 over the whole question; entries are filed under it."""
        return hashlib.sha256(_ENCODER.encode(self)).hexdigest()


_ENCODER = msgspec.json.Encoder(order="sorted")

SCHEMA = "kerntune.winner/1"


class WinnerKey(Question, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything that may change which config wins: the ``configs`` of a list, and the ``search`` that goes on beyond
    it, if any does."""

    configs: tuple[Config, ...]
    search: str = ""

    @property
    def question(self) -> str:
        """The digest of the question, whatever is chosen from."""
        return msgspec.structs.replace(self, configs=(), search="").digest()


class Winner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A stored winner: the config, its time in nanoseconds, and the environment it was found in. ``untried`` are the
    configs that were still being compiled when it was needed; ``created`` is when such a winner of several ranks was
    stored, in seconds since 1970."""

    schema: str
    key: WinnerKey
    config: Config
    time_ns: Nanoseconds
    environment: Environment
    untried: tuple[Config, ...] = ()
    created: float = 0.0


SHORT = 12
"""Hex digits of a hash that a person can compare."""


def why_missed(key: WinnerKey, environment: Environment | None, stored: Iterable[Winner], folder: Path) -> list[str]:
    """Lines ``field: stored -> asked`` against the winner of the same kernel with the fewest differences.

    Empty if one is the same in everything.
    """
    mine = (winner for winner in stored if winner.key.kernel == key.kernel)
    explained = (_lines(w.key, key) + _environment(w.environment, environment) for w in mine)
    nearest = min(explained, key=len, default=None)
    return [f"no winner of kernel {key.kernel} is stored in {folder}"] if nearest is None else nearest


def _lines(stored: WinnerKey, asked: WinnerKey) -> list[str]:
    out = []
    for name in asked.__struct_fields__:
        before, after = getattr(stored, name), getattr(asked, name)
        if before != after:
            out += _field(name, before, after)
    return out


def _field(name: str, before: Any, after: Any) -> list[str]:
    if name == "source":
        what = "the kernel, a function that it calls, or a constant changed"
        return [f"source: {before[:SHORT]} -> {after[:SHORT]} ({what})"]
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
