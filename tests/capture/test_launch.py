"""On which GPU a launch runs, what is noted of one, and what a call's choices are called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from fake_runs import N, by_block, captured, scale, scale_kernel, tuned

from kerntune.base.config import Config
from kerntune.base.device import Target
from kerntune.capture import launch
from kerntune.capture.launch import Pending, RecordedChoices, launch_device, probe_of, refuse_second_device
from kerntune.errors import CaptureError, CompileError
from kerntune.gpu.scripted import FakeBackend


def on(device: int | None) -> Any:
    return SimpleNamespace(device=SimpleNamespace(index=device))


class TensorWrapper:
    """Called as Triton's."""

    def __init__(self, base: Any) -> None:
        self.base, self.device = base, base.device


HOST: Any = SimpleNamespace(
    current=lambda: 1, tensors=SimpleNamespace(is_tensor=lambda value: type(value) is SimpleNamespace)
)


@pytest.mark.parametrize("arguments", [{}, {"x": on(1), "n": 3}, {"x": on(None)}, {"x": TensorWrapper(on(1))}])
def test_a_launch_runs_on_the_current_device(arguments: dict[str, Any]) -> None:
    assert launch_device(HOST, "k", arguments) == 1


@pytest.mark.parametrize(
    ("arguments", "told", "first"),
    [
        ({"x": on(1), "y": on(2), "z": on(0)}, "y on cuda:2, z on cuda:0", 2),
        ({"y": TensorWrapper(on(0))}, "y on cuda:0", 0),
    ],
)
def test_tensors_elsewhere_are_refused_by_name(arguments: dict[str, Any], told: str, first: int) -> None:
    with pytest.raises(CaptureError) as caught:
        launch_device(HOST, "k", arguments)
    assert str(caught.value).startswith(f"kernel k is launched on cuda:1, the current device, with {told}: Triton ")
    assert f"`with torch.cuda.device({first}):`" in str(caught.value)


def test_a_call_stays_on_one_device() -> None:
    refuse_second_device("k", 1, "before", 1)
    with pytest.raises(CaptureError, match=r"before was launched on cuda:0, kernel k on cuda:1; .* autotune for each"):
        refuse_second_device("k", 1, "before", 0)


def test_a_launch_has_its_candidates_config_or_its_own(backend: FakeBackend) -> None:
    (pending,) = captured(backend, lambda: scale(tuned(64, 128)), prefer=lambda site: [1, 0]).launches
    assert (pending.config, pending.kernel) == (Config({"BLOCK": 128}), "scale_kernel")
    settled = Config({"BLOCK": 32})
    assert Pending(scale_kernel, pending.specialized, (1, 1, 1), settled=settled).config == settled
    assert Pending(scale_kernel, pending.specialized, (1, 1, 1)).config is None


def test_a_launch_is_bound_for_the_backend_s_target(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    x, asked = torch.empty(N, device="cuda"), list[Any]()
    words = {"grid": by_block, "BLOCK": 64, "num_warps": 8}
    probe = probe_of(backend, scale_kernel, (x, x, N, 2.0), words)
    assert (probe.specialized.target, probe.specialized.options.num_warps) == (backend.spec.target, 8)
    assert probe.grid == (64, 1, 1)

    def refused(jit: Any, args: Any, words: Any, target: Target) -> Any:
        asked.append((sorted(words), target))
        raise CompileError(f"not for {target}")

    monkeypatch.setattr(launch, "specialize", refused)
    with pytest.raises(CompileError, match=f"not for {backend.spec.target}"):
        probe_of(backend, scale_kernel, (x, x, N, 2.0), words)
    assert asked == [(["BLOCK", "num_warps"], backend.spec.target)], "the grid is none of the kernel's"


@pytest.mark.parametrize(("words", "ctas"), [({}, 1), ({"num_ctas": 2}, 2), ({"num_ctas": None}, 1)])
def test_a_grid_is_checked_with_its_warps_and_ctas(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, words: dict[str, Any], ctas: int
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(launch, "check_grid", lambda grid, **given: asked.append((grid, given)) or (1, 1, 1))
    monkeypatch.setattr(launch, "specialize", lambda *given: SimpleNamespace(bound={"B": 4}, options=OPTIONS))
    probe_of(backend, scale_kernel, (), {"grid": lambda bound: (bound["B"],), **words})
    ((grid, given),) = asked
    assert (grid, given["num_ctas"], given["num_warps"], given["spec"]) == ((4,), ctas, 8, backend.spec)
    assert given["kernel"] == f"scale_kernel ({scale_kernel.fn.__code__.co_filename})"


OPTIONS = SimpleNamespace(num_warps=8)


def test_choices_by_what_decided_them() -> None:
    choices = RecordedChoices()
    choices.add("sort", "n=1", "small", "small at n=1")
    assert (choices.winners, choices.texts) == ({"sort": "small"}, ("small at n=1",))
    choices.add("sort", "n=1", "large", "large at n=1")
    assert (choices.winners, choices.texts) == ({"sort": "large"}, ("large at n=1",))
    choices.add("sort", "n=2", "small", "small at n=2")
    choices.add("scan", "n=2", "fused", "fused")
    assert choices.winners == {"sort (n=1)": "large", "sort (n=2)": "small", "scan": "fused"}
    assert choices.texts == ("large at n=1", "small at n=2", "fused")


def test_wrapped_tensors_are_launched_as_they_are(backend: FakeBackend) -> None:
    x = torch.empty(N, device="cuda", dtype=torch.int8)
    wrapped = triton.reinterpret(x, triton.language.float8e5)
    assert launch_device(backend, "k", {"x": wrapped}) == backend.ordinal
