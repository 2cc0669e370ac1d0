"""Addresses of storages and views."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from kerntune.gpu.fake_cuda.tensors import Addresses

ALIGNMENT = 256


MODE = FakeTensorMode()
DTYPES = st.sampled_from([torch.int8, torch.float16, torch.float32, torch.float64])
SIZES = st.lists(st.tuples(st.integers(1, 1 << 40), DTYPES), min_size=2, max_size=8)
unhurried = settings(deadline=None, max_examples=50)


def fake(size: int, dtype: torch.dtype) -> torch.Tensor:
    with MODE:
        return torch.empty(size, dtype=dtype)


@unhurried
@given(SIZES)
def test_storages_are_aligned_and_apart(sizes: list[tuple[int, torch.dtype]]) -> None:
    addresses = Addresses()
    tensors = [fake(size, dtype) for size, dtype in sizes]
    spans = sorted((addresses.storage(t), addresses.storage(t) + t.numel() * t.element_size()) for t in tensors)
    assert all(start % ALIGNMENT == 0 and start > 0 for start, _ in spans)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


@unhurried
@given(st.integers(0, 999), st.integers(1, 50), DTYPES)
def test_views_show_their_offset(offset: int, step: int, dtype: torch.dtype) -> None:
    addresses = Addresses()
    base = fake(1000, dtype)
    view = base[offset::step]
    assert addresses.storage(view) == addresses.storage(base)
    assert addresses.tensor(view) == addresses.tensor(base) + offset * base.element_size()


def test_an_address_stays_while_its_storage_lives() -> None:
    addresses = Addresses()
    base = fake(10, torch.float32)
    first = addresses.tensor(base)
    others = {addresses.tensor(fake(10, torch.float32)) for _ in range(5)}
    assert addresses.tensor(base) == first
    assert first not in others


@pytest.mark.parametrize("dtype", [torch.int8, torch.float64])
def test_real_and_empty_tensors_answer_as_torch_does(dtype: torch.dtype) -> None:
    real = torch.zeros(8, dtype=dtype)
    assert Addresses().tensor(real[3:]) == real[3:].data_ptr()
    assert Addresses().tensor(fake(4, dtype)[4:]) == real[8:].data_ptr() == 0
