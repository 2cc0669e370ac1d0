"""Races of an emulated launch: which accesses to one place may be in any order, and which are ordered."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from kerntune.errors import KernelFault
from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.races import Races, RunningProgram

UNORDERED = "nothing orders them"
NO_BARRIER = "no barrier is between"
ROW, BACK, ONE = [0, 1, 2, 3], [3, 2, 1, 0], [0]


def played(*steps: tuple[Any, ...], unit: int = 4, written: tuple[bool, ...] = (True, True)) -> None:
    """Each step is an action, its program, and places in units of 4 bytes; then what is special of it."""
    memory = FlatMemory([np.zeros(256, np.uint8)] * 2, b"\xf1\x7f", random.Random(1))
    races = Races(memory, unit, written)
    programs = {n: RunningProgram(n, (n, 0, 0)) for n in range(9)}
    for action, number, *more in steps:
        program = programs[number]
        if action == "barrier":
            races.barrier(program)
            continue
        places, *special = more
        said = dict(special)
        at = memory.address(said.get("storage", 0)) + 4 * np.array(places)
        size, mask = said.get("size", 4), said.get("mask", np.ones(len(places), np.bool_))
        tma = said.get("tma", False)
        if action == "load":
            races.load(program, at, size, mask, tma)
        elif action == "volatile":
            races.volatile_load(program, at, size, mask)
        elif action == "store":
            races.store(program, at, size, mask, tma, partial(np.full, len(places), said.get("same", False)))
        else:
            races.atomic(program, at, size, mask, said.get("order", "acq_rel"), said.get("scope", "gpu"))


RELAXED, CTA, SAME, VIA_TMA = ("order", "relaxed"), ("scope", "cta"), ("same", True), ("tma", True)
ACQUIRE, RELEASE = ("order", "acquire"), ("order", "release")
OTHER, FLAG = ("storage", 1), [9]

RACES: dict[str, tuple[str, tuple[tuple[Any, ...], ...]]] = {
    "a read of what another program wrote": (UNORDERED, (("store", 0, ROW), ("load", 1, [2]))),
    "a write of what another wrote": (UNORDERED, (("store", 0, ROW), ("store", 1, [2]))),
    "a write of what another has read": (UNORDERED, (("load", 0, ROW), ("store", 1, [2]))),
    "a write of what others have read": ("others read", (("load", 0, ROW), ("load", 2, ROW), ("store", 1, [2]))),
    "a barrier orders no programs": (UNORDERED, (("store", 0, ROW), ("barrier", 0), ("barrier", 1), ("load", 1, ROW))),
    "an update of what another wrote": (UNORDERED, (("store", 0, ROW), ("atomic", 1, [2]))),
    "an update of what another has read": (UNORDERED, (("load", 0, ROW), ("atomic", 1, [2], RELAXED))),
    "a read of what another updated": (UNORDERED, (("atomic", 0, ROW), ("load", 1, [2]))),
    "a write of what another updated": (UNORDERED, (("atomic", 0, ROW), ("store", 1, [2], SAME))),
    "a volatile read of a flag that was stored": (UNORDERED, (("store", 0, FLAG), ("volatile", 1, FLAG))),
    "updates of single programs": (UNORDERED, (("atomic", 0, ONE, CTA), ("atomic", 1, ONE, CTA))),
    "an update after a single program's": (UNORDERED, (("atomic", 0, ONE, CTA), ("atomic", 1, ONE))),
    "a single program's update after one": (UNORDERED, (("atomic", 0, ONE), ("atomic", 1, ONE, CTA))),
    "nothing is released": (
        UNORDERED, (("store", 0, ROW), ("atomic", 0, FLAG, RELAXED), ("atomic", 1, FLAG), ("load", 1, ROW))),
    "an acquiring update releases nothing": (
        UNORDERED, (("store", 0, ROW), ("atomic", 0, FLAG, ACQUIRE), ("atomic", 1, FLAG), ("load", 1, ROW))),
    "nothing is acquired": (
        UNORDERED, (("store", 0, ROW), ("atomic", 0, FLAG), ("atomic", 1, FLAG, RELAXED), ("load", 1, ROW))),
    "a releasing update acquires nothing": (
        UNORDERED, (("store", 0, ROW), ("atomic", 0, FLAG), ("atomic", 1, FLAG, RELEASE), ("load", 1, ROW))),
    "what is released within one program": (
        UNORDERED, (("store", 0, ROW), ("atomic", 0, FLAG), ("atomic", 1, [8], CTA), ("load", 1, ROW))),
    "released too early": (UNORDERED, (("atomic", 0, FLAG), ("store", 0, ROW), ("atomic", 1, FLAG), ("load", 1, ROW))),
    "acquired too early": (UNORDERED, (("atomic", 1, FLAG), ("store", 0, ROW), ("atomic", 0, FLAG), ("load", 1, ROW))),
    "a third released before it acquired": (
        UNORDERED, (("store", 0, ROW), ("atomic", 2, [8]), ("atomic", 0, FLAG), ("atomic", 2, FLAG), ("atomic", 1, [8]),
                    ("load", 1, ROW))),
    "another flag": (UNORDERED, (("store", 0, ROW), ("atomic", 0, FLAG), ("atomic", 1, [8]), ("load", 1, ROW))),
    "half of the elements are another's": (UNORDERED, (("store", 0, [1]), ("load", 1, ONE, ("size", 8)))),
    "a read by another thread": (NO_BARRIER, (("store", 0, ROW), ("load", 0, BACK))),
    "a write by another thread": (NO_BARRIER, (("store", 0, ROW), ("store", 0, BACK))),
    "a write of what another thread reads": (NO_BARRIER, (("load", 0, ROW), ("store", 0, BACK))),
    "a write of what several threads read": (NO_BARRIER, (("load", 0, [0, 0, 0]), ("store", 0, ONE))),
    "a write of what threads read one by one": (NO_BARRIER, (("load", 0, ROW), ("load", 0, BACK), ("store", 0, ROW))),
    "the barrier came before": (NO_BARRIER, (("barrier", 0), ("store", 0, ROW), ("load", 0, BACK))),
    "the same numbers in another shape": (
        NO_BARRIER, (("store", 0, ROW), ("load", 0, ROW, ("mask", np.ones((2, 2), np.bool_))))),
    "elements behind a mask": (NO_BARRIER, (("store", 0, [0], ("mask", np.array([False, True]))), ("load", 0, ROW))),
    "a descriptor's read of what was stored": (
        "a fence", (("store", 0, ROW), ("barrier", 0), ("load", 0, ROW, VIA_TMA))),
    "a descriptor's write of what another wrote": (UNORDERED, (("store", 0, ROW), ("store", 1, ROW, VIA_TMA))),
    "a descriptor's write of what another read": (UNORDERED, (("load", 0, ROW), ("store", 1, ROW, VIA_TMA))),
}  # fmt: skip

ORDERED: dict[str, tuple[tuple[Any, ...], ...]] = {
    "each has its own": (("store", 0, [0]), ("store", 1, [1]), ("load", 0, [0]), ("load", 1, [1])),
    "both read": (("load", 0, ROW), ("load", 1, BACK)),
    "both update": (("atomic", 0, ROW), ("atomic", 1, BACK), ("atomic", 0, [0, 0], RELAXED)),
    "both write the same": (("store", 0, ROW), ("store", 1, ROW, SAME)),
    "one writes what another has read and stays": (("load", 0, ROW), ("store", 1, ROW, SAME)),
    "released and acquired": (("store", 0, ROW), ("atomic", 0, FLAG), ("atomic", 1, FLAG), ("load", 1, BACK)),
    "in the narrowest words": (
        ("store", 0, ROW), ("atomic", 0, FLAG, RELEASE), ("atomic", 1, FLAG, ACQUIRE), ("store", 1, BACK)),
    "a read before": (("load", 0, ROW), ("atomic", 0, FLAG), ("atomic", 1, FLAG), ("store", 1, BACK)),
    "several read before": (
        ("load", 0, ROW), ("atomic", 0, FLAG), ("load", 2, ROW), ("atomic", 2, FLAG), ("atomic", 1, FLAG),
        ("store", 1, BACK)),
    "waited for by a volatile read": (("store", 0, ROW), ("atomic", 0, FLAG), ("volatile", 1, FLAG), ("load", 1, ROW)),
    "a volatile read is no access of its own": (("volatile", 1, FLAG), ("atomic", 0, FLAG), ("volatile", 1, FLAG)),
    "the last of many": (
        *((what, n, at) for n in range(4) for what, at in (("store", [n]), ("atomic", FLAG))), ("load", 3, ROW)),
    "through a third": (
        ("store", 0, ROW), ("atomic", 0, FLAG), ("atomic", 2, FLAG), ("atomic", 2, [8]), ("atomic", 1, [8]),
        ("load", 1, ROW)),
    "a flag among others": (("store", 0, ROW), ("atomic", 0, [8, 9]), ("atomic", 1, [9, 10]), ("load", 1, ROW)),
    "what was updated": (("atomic", 0, ROW), ("atomic", 0, FLAG), ("atomic", 1, FLAG), ("load", 1, ROW)),
    "one thread in place": (("load", 0, ROW), ("store", 0, ROW), ("load", 0, ROW), ("store", 0, ROW)),
    "one thread of a column": (("store", 0, ROW), ("load", 0, ROW, ("mask", np.ones((1, 4, 1), np.bool_)))),
    "a barrier between": (("store", 0, ROW), ("barrier", 0), ("load", 0, BACK), ("barrier", 0), ("store", 0, ROW)),
    "an atomic is a barrier": (("store", 0, ROW), ("atomic", 0, FLAG, CTA), ("load", 0, BACK)),
    "all threads write one number": (("store", 0, [0, 0, 0]), ("load", 0, [0, 0, 0]), ("store", 0, [0, 0, 0])),
    "another thread writes the same": (("store", 0, ROW), ("store", 0, BACK, SAME)),
    "one thread behind a mask": (
        ("store", 0, [0], ("mask", np.array([False, True]))), ("load", 0, [0], ("mask", np.array([False, True])))),
    "a descriptor after loads": (("load", 0, ROW, VIA_TMA), ("barrier", 0), ("store", 0, BACK, VIA_TMA)),
    "a descriptor after a barrier": (("store", 0, ROW, VIA_TMA), ("barrier", 0), ("load", 0, BACK)),
    "a descriptor after a descriptor": (("store", 0, ROW, VIA_TMA), ("barrier", 0), ("load", 0, BACK, VIA_TMA)),
    "other storages": (("store", 0, ROW), ("load", 1, ROW, OTHER)),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_races_are_found(name: str) -> None:
    told, steps = RACES[name]
    with pytest.raises(KernelFault, match=f"^a race: .*{told}"):
        played(*steps)


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_is_no_race(name: str) -> None:
    played(*ORDERED[name])


def test_a_race_says_where_and_between_whom() -> None:
    told = "^a race: program 1 reads byte 8 of storage 0, which program 5 uses in the same launch; nothing orders them$"
    with pytest.raises(KernelFault, match=told):
        played(("store", 5, ROW), ("load", 1, [2]))


def test_memory_that_is_only_read_is_not_looked_at() -> None:
    """That is what makes it cheap: most of a launch's loads."""
    played(("store", 0, ROW), ("load", 1, ROW), written=(False, True))


@pytest.mark.parametrize("seed", range(4))
def test_of_an_access_to_several_storages_what_may_be_written_is_looked_at(seed: int) -> None:
    memory = FlatMemory([np.zeros(256, np.uint8)] * 3, b"\xf1\x7f", random.Random(seed))
    races = Races(memory, 4, (True, False, True))
    at, mask = np.array([memory.address(i) + 8 for i in (0, 1, 2)]), np.ones(3, np.bool_)
    one, other = (RunningProgram(n, (n, 0, 0)) for n in range(2))
    races.store(one, at, 4, mask, False, mask.copy)
    races.load(other, at[1:2], 4, mask[:1], False)
    races.load(other, at - 4, 4, mask, False)
    for storage in (0, 2):
        with pytest.raises(KernelFault, match=f"reads byte 8 of storage {storage}, which program 0 uses"):
            races.load(other, at[[1, storage]], 4, mask[:2], False)
    races.store(other, at, 4, mask, False, mask.copy)
    races.store(one, at, 4, mask, False, lambda: np.array([True, False, True]))
    with pytest.raises(KernelFault):
        races.store(other, at, 4, mask, False, lambda: np.array([True, True, False]))


def test_memory_is_noted_where_it_may_be_written() -> None:
    """A sealed process has bounded memory."""
    memory = FlatMemory([np.zeros(1 << 20, np.uint8), np.zeros(64, np.uint8)], b"\xf1\x7f", random.Random(1))
    assert len(Races(memory, 4, (False, False))._writer) == 0
    assert len(Races(memory, 4, (False, True))._writer) < 1 << 15
    assert len(Races(memory, 4, (True, False))._writer) >= 1 << 18


@pytest.mark.parametrize("unit", [1, 2, 4])
def test_places_are_as_small_as_the_smallest_access(unit: int) -> None:
    played(("store", 0, ROW), ("store", 1, [4, 5]), ("load", 0, ROW), ("load", 1, [4, 5]), unit=unit)
    with pytest.raises(KernelFault):
        played(("store", 0, ROW), ("load", 1, [3]), unit=unit)


def test_more_shapes_than_are_told_apart() -> None:
    shapes = [(("load", 0, [0] * n)) for n in range(2, 600)]
    played(*shapes)
