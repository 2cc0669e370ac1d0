"""The memory of an interpreted launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kerntune.errors import KernelFault
from kerntune.gpu.interpreter.launches import TensorMemory


def memory_of(**tensors: torch.Tensor) -> TensorMemory:
    return TensorMemory((name, tensor.untyped_storage()) for name, tensor in tensors.items())


def test_tensors_share_a_storage_and_get_what_was_written() -> None:
    x, y = torch.arange(6, dtype=torch.int32), torch.zeros(2)
    memory = memory_of(x=x[1:], again=x.view(2, 3).t(), y=y)
    assert memory.count == 2
    assert memory.address_of(x[1:]) == memory.address_of(x) + 4
    memory.store(np.array([memory.address_of(x[1:])]), np.array([9], np.int32), "i32")
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    memory.write_back()
    assert x.tolist() == [0, 9, 2, 3, 4, 5]
    assert abs(memory.address_of(x) - memory.address_of(y)) > 1 << 20
    place = memory.address_of(x[2:]) - memory.base
    assert memory.told(place) == "byte 8 of the memory of x"


def checked(memory: TensorMemory, addresses: Any, element: str = "i32", how: str = "read") -> str:
    """What is wrong; empty if nothing is."""
    try:
        memory.check(np.asarray(addresses, np.int64), element, how)
    except KernelFault as exc:
        return str(exc)
    return ""


def test_an_access_lies_within_one_storage() -> None:
    tensor = torch.zeros(4, dtype=torch.int32)
    memory = memory_of(x=tensor)
    x = memory.address_of(tensor)
    assert checked(memory, [x, x + 12]) == checked(memory, [x + 8], "i64") == checked(memory, []) == ""
    told = "it {} {} elements of 4 bytes outside of its tensors: {}"
    end = "; a mask is missing or wrong, or an offset is"
    behind = "0 bytes after the end of a tensor"
    for addresses, how, does, count, places in (
        ([x - 4], "read", "reads", 1, "4 bytes before a tensor"),
        ([x + 16], "written", "writes", 1, behind),
        ([x, x + 20, x - 8], "updated", "updates", 2, "4 bytes after the end of a tensor, 8 bytes before a tensor"),
        ([x + 16] * 3, "read", "reads", 3, ", ".join([behind] * 3)),
        ([x + 16] * 4, "read", "reads", 4, ", ".join([behind] * 3) + ", ..."),
    ):
        assert checked(memory, addresses, how=how) == told.format(does, count, places) + end
    assert "reads 1 elements of 8 bytes outside" in checked(memory, [x + 12], "i64")
    assert "need an address that is a multiple" in checked(memory, [x + 2])


def test_a_place_is_told_by_the_nearest_tensor() -> None:
    x, y = torch.zeros(4), torch.zeros(8)
    memory = memory_of(x=x, y=y)
    low, high = sorted([(memory.address_of(x), 16), (memory.address_of(y), 32)])
    for address, place in (
        (low[0] + low[1] + 8, "8 bytes after the end"), (high[0] - 8, "8 bytes before"),
        (high[0] + high[1] + 4, "4 bytes after the end"),
    ):  # fmt: skip
        assert f": {place} of a tensor" in checked(memory, [address]).replace("before a", "before of a")
    assert "0xff;" in checked(memory_of(), [255])


def test_numbers_lead_to_copies() -> None:
    x, y = torch.zeros(4), torch.zeros(8)
    memory = memory_of(x=x, y=y)
    numbers = np.array([y.data_ptr() + 8, x.data_ptr(), 12345, memory.address_of(y)])
    expected = [memory.address_of(y) + 8, memory.address_of(x), 12345, memory.address_of(y)]
    assert memory.pointer(numbers).tolist() == expected
    assert memory_of().pointer(numbers).tolist() == numbers.tolist()
