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


SIDE = {"waves": 4096, "scores": 512}
"""A square input's side: launches so long that other work on the device matters little, products made soon."""

TEMPLATES = 2
"""Configs of a template among which ``max-autotune`` chooses: each is compiled, timed, and fused with what follows."""

CHECKS = 3
"""A check that meets another program's work on the device is not conclusive, and is made again."""


def waves(x: Any) -> Any:
    return torch.cos(torch.sin(x) * 2) + x.sum(-1, keepdim=True)


def scores(x: Any) -> Any:
    return torch.softmax(x @ x, -1)


def triton_launches(function: Callable[..., Any], *args: Any) -> int:
    """By torch's profiler, whose first step may miss launches: the second one counts."""
    for _ in range(3):
        function(*args)
    torch.cuda.synchronize()
    steps = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    counts: list[int] = []

    def count(profile: Any) -> None:
        counts.append(sum(event.name.startswith("triton_") for event in profile.events()))

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA], schedule=steps, on_trace_ready=count, acc_events=True
    ) as profile:
        for _ in range(2):
            function(*args)
            torch.cuda.synchronize()
            profile.step()
    (number,) = counts
    return number


def checks_again(session: Any, call: Call) -> list[Any]:
    """The results of later checks, the last of which passes unless none did."""
    results: list[Any] = []
    while len(results) < CHECKS and not (results and results[-1].verdict.value == "PASS"):
        torch._dynamo.reset()  # what an earlier call has compiled is not what the next one finds
        result = session.check(call).result
        results.append(result)
    return results


@pytest.mark.parametrize("mode", [None, "reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("function", [waves, scores])
def test_every_launch_is_captured_and_a_second_run_passes(
    function: Callable[..., Any], mode: str | None, tmp_path: Path
) -> None:
    from torch._inductor import config

    side = SIDE[function.__name__]
    compiled, x = torch.compile(function, mode=mode), torch.randn(side, side, device="cuda")
    call = Call("test_it.py::test", "0", compiled, (x,))
    session = open_session(Settings(tmp_path, tmp_path / "baselines", cache_dir=tmp_path / "cache"))
    session.start()
    try:
        with config.patch({"test_configs.max_mm_configs": TEMPLATES}):
            first = session.check(call)
            first.commit()
            later = checks_again(session, call)
    finally:
        session.close()
    recorded, messages = first.result, [result.message for result in later]
    assert (recorded.verdict.value, later[-1].verdict.value) == ("NEW", "PASS"), (recorded.message, messages)
    for again in later:  # what a disturbed time doesn't excuse
        assert {"code unchanged", "config unchanged"} <= set(again.causes), messages
        assert [launch.kernel for launch in again.launches] == [launch.kernel for launch in recorded.launches]
    templates = mode == "max-autotune" and function is scores  # a template, or cuBLAS and a kernel
    assert len(recorded.launches) == triton_launches(torch.compile(function), x) or templates
    assert bool(recorded.elsewhere) == (function is scores) or templates
    assert all(count == 1 for count in recorded.elsewhere.values()), "what Inductor times isn't counted"
    torch.testing.assert_close(first.value, function(x), rtol=1e-3, atol=1e-3)


def doubled_softmax(x: Any) -> Any:
    return (torch.softmax(x, -1) * 2).sum(-1)


def two_sizes(x: Any) -> Any:
    return torch.sin(x), torch.cos(x[:100])


def unaligned(x: Any) -> Any:
    return torch.relu(x @ x.t())


TIMED: dict[str, tuple[Callable[..., Any], tuple[int, int], dict[str, Any]]] = {
    "multi_kernel": (doubled_softmax, (2048, 512), {"triton.multi_kernel": 1}),
    "combo kernels": (two_sizes, (2048, 512), {"combo_kernels": True, "benchmark_combo_kernel": True}),
    "padding": (unaligned, (2047, 4095), {}),
}
"""Functions for which Inductor decides by a time, their input's shape, and options."""


@pytest.mark.parametrize("name", TIMED)
def test_what_inductor_times_is_decided_by_the_baselines_times(name: str, tmp_path: Path) -> None:
    """Also with empty caches, in another folder."""
    function, shape, options = TIMED[name]
    dtype = torch.float16 if name == "padding" else torch.float32
    x = torch.randn(shape, device="cuda").to(dtype)
    call = Call("test_it.py::test", "0", torch.compile(function, options=options), (x,))
    found: list[Any] = []
    for caches in ("first", "second"):
        session = open_session(Settings(tmp_path, tmp_path / "baselines", cache_dir=tmp_path / caches))
        session.start()
        try:
            checked = session.check(call)
            checked.commit()
        finally:
            session.close()
        found.append(checked.result)
    told = [(result.message, result.warnings) for result in found]
    recorded, again = found
    assert recorded.verdict.value == "NEW", told
    assert [launch.kernel for launch in again.launches] == [launch.kernel for launch in recorded.launches], told
    assert "config unchanged" in again.causes, told
    assert "anew" not in str(told[1]), told
    texts = [path.read_text() for path in (tmp_path / "baselines").rglob("*.json")]
    assert any("inductor_times" in text for text in texts), "something was timed"
