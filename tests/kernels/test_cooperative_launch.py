"""The barrier's count, arrival by arrival, and the memory that its launches get."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerntune.errors import ConfigError
from kerntune.kernels import cooperative_launch
from kerntune.kernels.cooperative_launch import LaunchBuffers, dtype_named, grid_barrier


@pytest.mark.parametrize(
    ("programs", "tickets", "polls"),
    [
        pytest.param(4, [0, 2, 3, 4], 3, id="the first of a first launch"),
        pytest.param(4, [3, 4], 1, id="the last"),
        pytest.param(4, [5, 6, 7, 8], 3, id="of a later launch"),
        pytest.param(4, [7, 9], 1, id="the next launch's may have come already"),
        pytest.param(2, [-1, 0], 1, id="where the count has wrapped around"),
        pytest.param(2, [-4, -3, -2], 2, id="below zero"),
        pytest.param(1, [], 0, id="alone"),
    ],
)
def test_a_program_waits_until_all_of_its_launch_have_come(
    monkeypatch: pytest.MonkeyPatch, programs: int, tickets: list[int], polls: int
) -> None:
    """The ticket is how many came before; the group is complete at the next multiple of ``programs``."""
    did: list[Any] = []
    answers = iter(tickets)

    def atomic_add(semaphore: str, value: int, sem: str) -> int:
        did.append((semaphore, value, sem))
        return next(answers)

    monkeypatch.setattr(
        cooperative_launch, "tl", SimpleNamespace(debug_barrier=lambda: did.append("block"), atomic_add=atomic_add)
    )
    grid_barrier.fn("semaphore", programs)
    arrival = [("semaphore", 1, "acq_rel")] if tickets else []
    assert did == ["block", *arrival, *[("semaphore", 0, "acquire")] * polls, "block"]
    assert list(answers) == []


@pytest.mark.parametrize(("asked", "made"), [(0, 1), (1, 1), (5, 5)])
def test_a_launch_gets_semaphores_of_zero_and_workspaces(asked: int, made: int) -> None:
    buffers = LaunchBuffers("counts", {"sums": "float32", "places": "int64"})
    assert buffers.names == ("counts", "sums", "places")
    found = buffers.made(torch.empty(3), asked, 7, "k")
    assert list(found) == ["counts", "sums", "places"]
    assert found["counts"].tolist() == [0] * made
    assert {name: (x.dtype, x.shape) for name, x in found.items()} == {
        "counts": (torch.int32, (made,)), "sums": (torch.float32, (7,)), "places": (torch.int64, (7,)),
    }  # fmt: skip
    assert LaunchBuffers("counts").made(torch.empty(3), 2, 7, "k").keys() == {"counts"}


@pytest.mark.parametrize("name", ["float31", "zeros", ""])
def test_a_workspace_is_of_a_dtype_of_torch_s(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^kernel k: workspace of {name!r}: torch has no such dtype; float32 is one"):
        dtype_named(name, "k")
