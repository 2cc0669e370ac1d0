"""What stands beside the protocols of a GPU: tensors among an operator's arguments."""

from __future__ import annotations

import torch

from kerntune.gpu.base import tensors_in


def test_tensors_are_found_in_order_and_in_lists_of_any_depth() -> None:
    a, b, c, d = (torch.empty(n) for n in range(4))
    found = list(tensors_in((a, 1, None, [b, (c, "text")]), {"out": d}.values()))
    assert [id(tensor) for tensor in found] == [id(tensor) for tensor in (a, b, c, d)]


def test_storages_and_sizes_are_no_tensors() -> None:
    tensor = torch.empty(2, 3)
    assert list(tensors_in((tensor.shape, tensor.untyped_storage(), tensor.dtype))) == []
