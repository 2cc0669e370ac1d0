"""Which words may be addresses, and which tensors hold the memory there."""

from __future__ import annotations

import gc
import re
import struct
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_runs import active

from kerntune.capture.memory_plan import holders, possible_addresses, whose
from kerntune.gpu.scripted import FakeBackend

LOWEST_ADDRESS = 1 << 32
HIGHEST_ADDRESS = 1 << 57


@pytest.fixture(scope="module")
def backend() -> Iterator[FakeBackend]:
    with active() as made:
        yield made


def test_words_are_those_in_reach_once_and_in_their_order() -> None:
    words = [5, HIGHEST_ADDRESS, 1 << 50, LOWEST_ADDRESS, -1, 1 << 50, LOWEST_ADDRESS - 1, 1 << 40]
    assert possible_addresses(struct.pack("<8q", *words) + b"half") == [1 << 50, LOWEST_ADDRESS, 1 << 40]
    assert possible_addresses(b"\xff" * 7) == []


def test_holders_are_named_once_in_the_order_of_the_addresses(backend: FakeBackend) -> None:
    first, second = torch.empty(64, device="cuda"), torch.empty(8, device="cuda", dtype=torch.int64)
    at, then = (backend.tensors.address(t) for t in (second, first))
    found, nobodys = holders(backend.tensors, [at + 63, then, then + 255, at])
    assert [backend.tensors.storage_address(t) for t in found] == [at, then]
    assert nobodys == []


@pytest.mark.slow
def test_one_past_the_end_is_nobodys(backend: FakeBackend) -> None:
    x = torch.empty(64, device="cuda")
    end = backend.tensors.address(x) + 256
    assert holders(backend.tensors, [end])[1] == [end]


def test_a_view_of_it_holds_a_storage_as_well(backend: FakeBackend) -> None:
    view = torch.empty(64, device="cuda")[32:]
    (found,), _ = holders(backend.tensors, [backend.tensors.storage_address(view)])
    assert found.untyped_storage().nbytes() == 256


@pytest.mark.slow
def test_a_dead_tensors_memory_is_nobodys_and_was_somebodys(backend: FakeBackend) -> None:
    x = torch.empty(64, device="cuda")
    address = backend.tensors.address(x)
    del x
    assert holders(backend.tensors, [address]) == ([], [address])
    assert backend.gpu.reaches(address)
    assert not backend.gpu.reaches(1 << 55)


@pytest.fixture
def frozen() -> Iterator[None]:
    """Takes back a :func:`gc.freeze`."""
    gc.unfreeze()  # of an earlier test
    yield
    gc.unfreeze()


KEPT_OBJECTS: list[Any] = []
NEWER = pytest.mark.skipif(sys.version_info < (3, 13), reason="asking for locals would keep them alive")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["module", "object", pytest.param("local", marks=NEWER)])
def test_frozen_tensors_are_found_through_what_refers_to_them(
    backend: FakeBackend, frozen: None, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    x: Any = torch.empty(64, device="cuda")
    address = backend.tensors.address(x)
    if where != "local":
        monkeypatch.setitem(
            globals(), "KEPT_OBJECTS", [x if where == "module" else SimpleNamespace(inside={"deep": (x,)})]
        )
        x = None
    gc.freeze()
    found, nobodys = holders(backend.tensors, [address])
    assert [backend.tensors.storage_address(t) for t in found] == [address]
    assert nobodys == []


def test_the_reason_names_frozen_objects(backend: FakeBackend, frozen: None) -> None:
    assert whose(1 << 40) == "the address 0x10000000000 lies in memory of no tensor that Python knows"
    gc.freeze()
    assert re.search(r"that Python knows \(of [\d,]+ objects under gc.freeze\(\)", whose(1 << 40))
