"""Compiled functions on a real GPU: every launch that torch's profiler sees is captured, and a second run passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_warnings import ignore_torchs_own

from kerntune.gate.api import Call, Settings, open_session
from kerntune.gpu.probe import has_cuda

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="needs a CUDA GPU"), *ignore_torchs_own]


def waves(x: Any) -> Any:
    return torch.cos(torch.sin(x) * 2) + x.sum(-1, keepdim=True)


def scores(x: Any) -> Any:
    return torch.softmax(x @ x, -1)


def triton_launches(function: Callable[..., Any], *args: Any) -> int:
    for _ in range(3):
        function(*args)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function(*args)
        torch.cuda.synchronize()
    return sum(event.name.startswith("triton_") for event in profile.events())


@pytest.mark.parametrize("mode", [None, "reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("function", [waves, scores])
def test_every_launch_is_captured_and_a_second_run_passes(
    function: Callable[..., Any], mode: str | None, tmp_path: Path
) -> None:
    compiled, x = torch.compile(function, mode=mode), torch.randn(1024, 1024, device="cuda")
    session = open_session(Settings(tmp_path, tmp_path / "baselines", cache_dir=tmp_path / "cache"))
    session.start()
    try:
        first = session.check(Call("test_it.py::test", "0", compiled, (x,)))
        first.commit()
        torch._dynamo.reset()  # what an earlier call has compiled is not what the next one finds
        second = session.check(Call("test_it.py::test", "0", compiled, (x,)))
    finally:
        session.close()
    (recorded,), (again,) = first.results, second.results
    assert (recorded.verdict.value, again.verdict.value) == ("NEW", "PASS")
    assert [launch.kernel for launch in again.launches] == [launch.kernel for launch in recorded.launches]
    templates = mode == "max-autotune" and function is scores  # a template, or cuBLAS and a kernel
    assert len(recorded.launches) == triton_launches(torch.compile(function), x) or templates
    assert bool(recorded.elsewhere) == (function is scores) or templates
    assert all(count == 1 for count in recorded.elsewhere.values()), "what Inductor times isn't counted"
    torch.testing.assert_close(first.value, function(x), rtol=1e-3, atol=1e-3)
