"""Winners that are known while a graph is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_runs import THREE, N, by_block, configs, scale_kernel, script

import kerntune
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.torch_compile import launch_arguments
from kerntune.tuning.torch_compile.launch_arguments import winner_of


@pytest.fixture
def backend(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> FakeBackend:
    """The GPU on which tuning happens; winners are kept in a folder of the test's own."""
    script(this_gpu, *THREE)
    monkeypatch.setattr(launch_arguments, "WinnerCache", lambda: WinnerCache(tmp_path))
    return this_gpu


def make(**options: Any) -> Any:
    return kerntune.autotune(configs(64, 128, 256), key=["n"], **options)(scale_kernel)


def tuned(kernel: Any) -> Any:
    x, y = (torch.empty(N, device="cuda") for _ in range(2))
    kernel[by_block](x, y, N, 2.0)
    return {"x_ptr": x, "y_ptr": y, "n": N, "factor": 2.0}


def test_the_winner_of_this_process(backend: FakeBackend) -> None:
    kernel = make()
    named = tuned(kernel)
    assert winner_of(kernel, named, hints=False) is kernel.configs[1]
    assert winner_of(kernel, {**named, "n": N + 1}, hints=False) is None
    assert winner_of(kernel, {**named, "x_ptr": named["x_ptr"].half()}, hints=False) is None


def test_the_stored_winner_of_an_earlier_process(backend: FakeBackend) -> None:
    kernel = make()
    named = tuned(kernel)
    later = make()
    assert winner_of(later, named, hints=False) is later.configs[1]
    assert later.cache, "the next call finds it at once"
    assert winner_of(make(), {**named, "factor": 3.0}, hints=False) is None


def test_nothing_is_stored_that_must_not_be(backend: FakeBackend) -> None:
    named = tuned(make(cache_results=False))
    assert winner_of(make(cache_results=False), named, hints=False) is None


@pytest.mark.parametrize("mode", ["force", "frozen"])
def test_modes(backend: FakeBackend, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``force`` asks no earlier winner; ``frozen`` takes it, and says of a missing one when the graph runs."""
    named = tuned(make())
    monkeypatch.setenv("KERNTUNE_TUNE", mode)
    later = make()
    assert (winner_of(later, named, hints=False) is None) == (mode == "force")
    assert winner_of(make(), {**named, "n": 5}, hints=False) is None


def test_pruning_that_needs_more_than_a_graph_has_is_no_error(backend: FakeBackend) -> None:
    def prune(found: Any, named: Any, **words: Any) -> Any:
        return [c for c in found if named["x_ptr"][0] == named["x_ptr"].tolist()[0]]

    named = tuned(make())
    assert winner_of(make(prune_configs_by={"early_config_prune": prune}), named, hints=False) is None


def symbol(hint: int) -> Any:
    """A size as far as it is asked here; torch makes none of stand-ins' tensors."""
    return SimpleNamespace(node=SimpleNamespace(expr="s0", hint=hint, is_constant=lambda: False, has_hint=lambda: True))


def test_sizes_that_differ_from_call_to_call(backend: FakeBackend) -> None:
    """Without hints only what the key has must be known."""
    kernel = make()
    tuned(kernel)
    x = SimpleNamespace(dtype=torch.float32, shape=(symbol(N),), stride=lambda: (1,))
    named = {"x_ptr": x, "y_ptr": x, "n": symbol(N), "factor": 2.0}
    assert winner_of(kernel, named, hints=False) is None
    assert winner_of(kernel, {**named, "n": N}, hints=False) is kernel.configs[1]
    assert winner_of(kernel, named, hints=True) is kernel.configs[1]
    assert winner_of(make(), named, hints=True) is not None, "on disk"
    assert winner_of(make(), {**named, "n": N}, hints=False) is None, "on disk winners are of whole calls"
