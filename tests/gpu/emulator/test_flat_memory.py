"""The memory of an emulated launch, by itself: where storages lie, what is loaded and stored, and damage."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from kerntune.errors import KernelFault
from kerntune.gpu.emulator.flat_memory import FlatMemory

POISON = bytes(range(1, 9))
SIZES = (100, 16, 0, 4096)


def memory(seed: int = 0) -> FlatMemory:
    contents = [np.full(size, 200 + i, np.uint8) for i, size in enumerate(SIZES)]
    return FlatMemory(contents, POISON, random.Random(seed))


@pytest.mark.parametrize("seed", range(20))
def test_storages_lie_apart_and_aligned(seed: int) -> None:
    """At least 16 KiB on either side, and 32 KiB more at most between two."""
    found = memory(seed)
    places = sorted((found.address(i), SIZES[i]) for i in range(4))
    assert all(1 << 40 <= at < 1 << 47 for at, _ in places)
    assert all(at % 512 == 0 for at, _ in places)
    gaps = [b - a - size for (a, size), (b, _) in itertools.pairwise(places)]
    assert all(1 << 14 <= gap < (1 << 14) + 512 + 64 * 512 for gap in gaps)
    first, (last, size) = places[0][0], places[-1]
    found.load(np.array([first - (1 << 14)]), "i8")
    found.load(np.array([last + size + (1 << 14) - 1]), "i8")
    with pytest.raises(KernelFault, match=f"memory at {first - (1 << 14) - 1:#x} is read, and no tensor is near"):
        found.load(np.array([first, first - (1 << 14) - 1]), "i8")


def test_places_are_drawn() -> None:
    drawn = [memory(seed).address(0) for seed in range(40)]
    assert len(set(drawn)) == 40
    assert 1 << 45 < max(drawn) < (1 << 46) + (1 << 20), "anywhere up to 64 TiB"
    orders = {tuple(np.argsort([memory(seed).address(i) for i in range(4)])) for seed in range(40)}
    assert len(orders) > 10


def test_what_is_not_written_is_poison() -> None:
    found = memory()
    assert [bytes(found.content(i)) for i in range(4)] == [bytes([200 + i]) * size for i, size in enumerate(SIZES)]
    beside = found.load(np.array([found.address(0) + 104]), "i64")
    assert beside.tolist() == [int.from_bytes(POISON, "little")]
    assert int(found.undefined("i32")) == int.from_bytes(POISON[:4], "little")


@pytest.mark.parametrize("offset", [0, 4, 1, 3], ids=["aligned", "aligned to less", "odd", "off by three"])
@pytest.mark.parametrize(
    ("element", "value"), [("i32", -7), ("f32", 1.5), ("i8", 100), ("f16", -2.0), ("i64", 1 << 40)]
)
def test_what_was_stored_is_loaded(offset: int, element: str, value: float) -> None:
    found = memory()
    at = found.address(3) + offset + 64 * np.arange(3)
    found.store(at, np.array([value, 1, 0], np.float64 if element.startswith("f") else np.int64), element)
    assert found.load(at, element).tolist() == [value, 1, 0]
    assert found.damage() == 0


def test_of_several_to_one_address_the_last_one_stays() -> None:
    found = memory()
    found.store(np.array([found.address(1)] * 3), np.array([1, 2, 3]), "i32")
    assert found.load(np.array([found.address(1)]), "i32").tolist() == [3]


def test_damage_is_what_changes_beside_storages() -> None:
    found = memory()
    end = found.address(1) + 16
    found.store(np.array([end - 1, end, end + 1]), np.array([1, 2, 3]), "i8")
    assert found.damage() == 2
    unchanged = found.load(np.array([end + 8]), "i8")
    found.store(np.array([end + 8]), unchanged, "i8")
    assert found.damage() == 2


def test_a_write_that_is_near_no_tensor_is_a_fault() -> None:
    found = memory()
    for wrong in (0, (1 << 62), found.address(0) - (1 << 22)):
        with pytest.raises(KernelFault, match=f"memory at {wrong:#x} is written, and no tensor is near"):
            found.store(np.array([wrong]), np.array([1]), "i32")
    found.store(np.array([], np.int64), np.array([], np.int64), "i32")
