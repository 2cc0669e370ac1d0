"""An AMD target alone: its warps are wider and its grids are counted in threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from fake_runs import N, captured, scale, scale_kernel

from kerntune.base.device import Target
from kerntune.capture.recorder import record
from kerntune.errors import GridError
from kerntune.gpu.fake_cuda.static_backend import StaticBackend

GFX942 = Target.parse("hip:gfx942")


@pytest.fixture(scope="module")
def backend() -> Iterator[StaticBackend]:
    backend = StaticBackend(GFX942)
    with backend.activate():
        yield backend


def test_launches_are_bound_for_waves_of_64(backend: StaticBackend) -> None:
    capture = captured(backend, lambda: scale(scale_kernel, BLOCK=64))
    (binary,) = record(capture).recording.binaries
    assert (binary.kind, binary.warp_size, binary.num_warps) == ("hsaco", 64, 4)


def test_backend_options_of_amd_are_known(backend: StaticBackend) -> None:
    capture = captured(backend, lambda: scale(scale_kernel, BLOCK=64, waves_per_eu=2))
    assert record(capture).recording.binaries[0].options["waves_per_eu"] == 2


BLOCKS = 2**23
"""Of 256 threads each they are within HIP's 2^32 - 1 threads along x; of 1024 they aren't."""


def test_a_grid_over_the_limit(backend: StaticBackend) -> None:
    x = torch.empty(N, device="cuda")
    with pytest.raises(GridError, match=r"scale_kernel .*axis x"):
        captured(backend, lambda: scale_kernel[(2 * BLOCKS,)](x, x, N, 2.0, BLOCK=64))


def test_a_grid_over_the_limit_of_a_launch_with_many_warps(backend: StaticBackend) -> None:
    x = torch.empty(N, device="cuda")
    captured(backend, lambda: scale_kernel[(BLOCKS,)](x, x, N, 2.0, BLOCK=64))
    with pytest.raises(GridError, match=r"scale_kernel .*axis x"):
        captured(backend, lambda: scale_kernel[(BLOCKS,)](x, x, N, 2.0, BLOCK=64, num_warps=16))
