"""The memory of an emulated launch, by itself: where storages lie, what is loaded and stored, and damage."""

from __future__ import annotations

import itertools
import random
from typing import Any

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


@pytest.mark.parametrize("offset", [0, 8], ids=["aligned to storages", "aligned to elements"])
@pytest.mark.parametrize(
    ("element", "value"), [("i32", -7), ("f32", 1.5), ("i8", 100), ("f16", -2.0), ("i64", 1 << 40)]
)
def test_what_was_stored_is_loaded(offset: int, element: str, value: float) -> None:
    found = memory()
    at = found.address(3) + offset + 64 * np.arange(3)
    found.store(at, np.array([value, 1, 0], np.float64 if element.startswith("f") else np.int64), element)
    assert found.load(at, element).tolist() == [value, 1, 0]
    assert found.damage() == 0


@pytest.mark.parametrize(
    ("offset", "element"), [(4, "i64"), (1, "i32"), (2, "f32"), (3, "bf16"), (4, "f64"), (4, "ptr"), (1, "f16")]
)
def test_addresses_are_multiples_of_the_elements_size(offset: int, element: str) -> None:
    """A GPU's program ends at others (CUDA C++ Programming Guide, "Device Memory Accesses")."""
    found, told = memory(), rf"^byte {64 + offset} of storage 3 is (read|written) as [248] bytes"
    at = found.address(3) + 64 + np.array([0, offset])
    with pytest.raises(KernelFault, match=told):
        found.load(at, element)
    with pytest.raises(KernelFault, match=told):
        found.store(at, np.zeros(2), element)
    found.load(np.array([found.address(3) + offset]), "i8")


@pytest.mark.parametrize(
    ("places", "values", "element", "kept"),
    [
        ([0, 0, 0], [1, 2, 3], "i32", False), ([0, 0, 4], [1, 1, 2], "i32", True),
        ([0, 4, 0], [0.0, 1, -0.0], "f32", False), ([4, 4], [np.nan, np.nan], "f32", True),
        ([0, 0], [1.0, 1.001], "bf16", True), ([1, 1], [True, False], "i1", False),
    ],
)  # fmt: skip
def test_of_several_values_to_one_address_any_may_stay(places: Any, values: Any, element: str, kept: bool) -> None:
    found = memory()
    at, new = found.address(1) + np.array(places), np.array(values)
    new = new.astype(np.float32) if element[0] == "b" else new
    if not kept:
        with pytest.raises(KernelFault, match=rf"^a race: one store writes several values to byte {places[0]} of stor"):
            found.store(at, new, element)
        return
    found.store(at, new, element)
    assert found.holds(at, new, element).all()


def test_places_are_told_by_their_storage() -> None:
    found = memory()
    assert found.told(found.address(1) - found.base + 3) == "byte 3 of storage 1"
    assert found.told(found.address(1) - found.base + 16) == found.told(0) == "memory beside all storages"
    assert found.size % 8 == 0
    found.load(np.array([found.base, found.base + found.size - 8]), "i64")


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


def test_a_race_names_the_first_place_that_lost_a_value() -> None:
    found = memory()
    at = found.address(3) + np.array([64, 8, 8, 8, 4, 4])
    with pytest.raises(KernelFault, match=r"writes several values to byte 8 of storage 3$"):
        found.store(at, np.array([9, 1, 2, 3, 1, 2]), "i32")


def test_a_fault_names_the_first_wrong_address() -> None:
    found = memory()
    far = found.base + found.size
    with pytest.raises(KernelFault, match=f"memory at {far:#x} is read"):
        found.load(np.array([found.address(3), far, far + 64]), "i32")
    found.load(np.array([far - 4]), "i32")
    with pytest.raises(KernelFault, match=f"memory at {far - 2:#x} is read"):
        found.load(np.array([far - 2]), "i32")
    odd = found.address(3) + np.array([4, 2, 1])
    with pytest.raises(
        KernelFault, match=r"^byte 2 of storage 3 is read as 4 bytes, which need an address that is a m"
    ):
        found.load(odd, "i32")
