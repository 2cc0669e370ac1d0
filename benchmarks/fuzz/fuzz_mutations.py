"""Mutations of whole files, and values that can't be: what the fuzzers of decoders and of commands have in common."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import msgspec

HOSTILE: list[Any] = [
    -1, 0, 1, 2**31, 2**63, 2**64, 1e308, -1e308, 0.5, "", "..", "../../../../etc/passwd", "/etc/passwd", "a\0b",
    "x" * 300, "\udcff", None, True, [], {}, [[]], {"": {}}, "0" * 64, "inf", "nan",
    10**5, -(10**5), 10**4000, 1e-308, "9" * 5000, "\x1b[31m", "\n::error::x", "\u202e", "\udbff", "=1+1",
    "<script>", "kerntune.time/2",
]  # fmt: skip
"""Numbers of every size, paths, texts that a terminal, a CI system or a page obeys, and values of other kinds."""


def mutated(seeds: tuple[bytes, ...], rng: random.Random) -> bytes:
    """A seed with other values, or other bits."""
    whole = rng.choice(seeds)
    chance = rng.random()
    if chance < 0.75 and whole[:1] == b"{":
        return replaced(whole, rng)
    if chance < 0.8 and whole[:1] == b"{":
        return _twice(whole, rng)
    return flipped(whole, rng)


def _twice(whole: bytes, rng: random.Random) -> bytes:
    """With a key a second time."""
    at = rng.choice([i for i, x in enumerate(whole) if x == 0x7B])
    return whole[: at + 1] + b'"schema": "other", "kind": 1, ' + whole[at + 1 :]


def replaced(whole: bytes, rng: random.Random) -> bytes:
    """A whole input with one to three other values in it."""
    is_json = whole.startswith(b"{")
    try:
        value = msgspec.json.decode(whole) if is_json else msgspec.msgpack.decode(whole)
    except msgspec.MsgspecError:  # an artifact or a frame, which have no values
        return flipped(whole, rng)
    for _ in range(rng.randint(1, 3)):
        put(value, rng)
    try:
        return msgspec.json.encode(value) if is_json else msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(value).encode() if is_json else flipped(whole, rng)


def flipped(whole: bytes, rng: random.Random) -> bytes:
    """With a bit or two the other way round, or cut off."""
    out = bytearray(whole[: rng.randint(1, len(whole))] if rng.random() < 0.2 else whole)
    for _ in range(rng.randint(1, 2)):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def put(value: Any, rng: random.Random) -> None:
    """Replace a value somewhere within, or remove it, or add one."""
    while True:
        places = list(value) if isinstance(value, dict) else range(len(value))
        if not places:
            return
        place = rng.choice(list(places))
        if isinstance(value[place], (dict, list)) and rng.random() < 0.85:
            value = value[place]
            continue
        chance = rng.random()
        if chance < 0.1:
            del value[place]
        elif chance < 0.15 and isinstance(value, dict):
            value["added"] = copy.deepcopy(rng.choice(HOSTILE))
        else:
            value[place] = copy.deepcopy(rng.choice(HOSTILE))
        return


def resident_mb(field: str) -> int:
    """Memory of this process in MB: ``VmHWM`` at most, ``VmRSS`` now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) >> 10
