"""Which words may be addresses, and which tensors hold the memory there."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
import torch
from fake_runs import active

from kerntune.backend.addresses import HIGHEST_ADDRESS, holders, possible_addresses
from kerntune.backend.fake import FakeBackend
from kerntune.recording import LOWEST_ADDRESS


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


def test_one_past_the_end_is_nobodys(backend: FakeBackend) -> None:
    x = torch.empty(64, device="cuda")
    end = backend.tensors.address(x) + 256
    assert holders(backend.tensors, [end])[1] == [end]


def test_a_view_of_it_holds_a_storage_as_well(backend: FakeBackend) -> None:
    view = torch.empty(64, device="cuda")[32:]
    (found,), _ = holders(backend.tensors, [backend.tensors.storage_address(view)])
    assert found.untyped_storage().nbytes() == 256


def test_a_dead_tensors_memory_is_nobodys_and_was_somebodys(backend: FakeBackend) -> None:
    x = torch.empty(64, device="cuda")
    address = backend.tensors.address(x)
    del x
    assert holders(backend.tensors, [address]) == ([], [address])
    assert backend.gpu.reaches(address)
    assert not backend.gpu.reaches(1 << 55)
