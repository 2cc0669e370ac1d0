"""Tuned kernels in compiled functions without a GPU: launches are done in Python on CPU tensors, winners by a rule."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo
import torch.utils._triton
import triton
import triton.language as tl

import kerntune
from kerntune.kernels.compat import tuners
from kerntune.tuning import tuned_call
from kerntune.tuning.torch_compile.graph_launch import GraphLaunch
from kerntune.tuning.torch_compile.launch_arguments import ArgumentPlan, KnownValue


@triton.jit
def scaled(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def doubled_in_place(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def accumulated(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def shifted(x_ptr, y_ptr, n, shift=3, BLOCK: tl.constexpr = 64, TWICE: tl.constexpr = False):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n) + shift
    tl.store(y_ptr + i, x + x if TWICE else x, mask=i < n)


def _scaled(x_ptr: Any, y_ptr: Any, n: int, factor: float, **_: Any) -> None:
    y_ptr.view(-1)[:n] = x_ptr.reshape(-1)[:n] * factor


def _doubled(x_ptr: Any, n: int, **_: Any) -> None:
    x_ptr.view(-1)[:n] *= 2


def _accumulated(x_ptr: Any, total_ptr: Any, n: int, **_: Any) -> None:
    total_ptr.view(-1)[:n] += x_ptr.reshape(-1)[:n]


def _shifted(x_ptr: Any, y_ptr: Any, n: int, shift: int = 3, TWICE: bool = False, **_: Any) -> None:
    y_ptr.view(-1)[:n] = (x_ptr.reshape(-1)[:n] + shift) * (2 if TWICE else 1)


IN_PYTHON: dict[Any, Callable[..., None]] = {
    scaled: _scaled,
    doubled_in_place: _doubled,
    accumulated: _accumulated,
    shifted: _shifted,
}
"""What each kernel does."""


def configs(*blocks: int, **options: Any) -> list[triton.Config]:
    return [triton.Config({"BLOCK": b}, **options) for b in blocks]


def make(kernel: Any = scaled, **options: Any) -> Any:
    """A tuned kernel, whose winner is found by ``n``."""
    return kerntune.autotune(configs(64, 128, 256), key=["n"], **options)(kernel)


ONE_BLOCK = KnownValue((1,))


def launch_in_graph(
    kernel: Any, *args: ArgumentPlan, grid: ArgumentPlan = ONE_BLOCK, **kwargs: ArgumentPlan
) -> GraphLaunch:
    return GraphLaunch(kernel, args, tuple(kwargs.items()), grid)


def doubling(kernel: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def f(x: torch.Tensor) -> torch.Tensor:
        y, n = torch.empty_like(x), x.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 2.0)
        return y

    return f


def fits(tuner: Any, named: dict[str, Any], found: list[Any]) -> Any:
    """The largest block that isn't above ``n``, else the smallest."""
    ordered = sorted(found, key=lambda c: c.kwargs["BLOCK"])
    below = [c for c in ordered if c.kwargs["BLOCK"] <= named["n"]]
    return (below or ordered[:1])[-1]


@dataclass
class Launched:
    """A launch that reached the kernel."""

    kernel: str
    grid: tuple[int, ...]
    block: int
    n: int


@dataclass
class Runs:
    """What was launched and tuned. ``choose`` is the rule of winners."""

    choose: Callable[[Any, dict[str, Any], list[Any]], Any] = fits
    launches: list[Launched] = field(default_factory=list)
    tuned: list[tuple[Any, ...]] = field(default_factory=list)

    def blocks(self) -> list[int]:
        """The blocks of all launches so far, which are forgotten."""
        found = [launch.block for launch in self.launches]
        self.launches.clear()
        return found


@contextlib.contextmanager
def in_python(monkeypatch: Any) -> Iterator[Runs]:
    """Kernels run in Python, and tuning is a rule; torch's compiler begins anew."""
    runs = Runs()
    run = type(scaled).run

    def launch(jit: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        if jit not in IN_PYTHON:
            return run(jit, *args, grid=grid, warmup=warmup, **kwargs)
        words = inspect.signature(jit.fn).bind_partial(*args).arguments | kwargs
        asked = tuple(int(n) for n in (grid(words) if callable(grid) else grid))
        runs.launches.append(Launched(jit.fn.__name__, asked, words["BLOCK"], int(words["n"])))
        assert isinstance(words["n"], int), "a graph hands over numbers, no symbols"
        return IN_PYTHON[jit](**words)

    def tune(call: Any, plain: Any) -> Any:
        found = tuners.prune_configs(call.tuner, call.args, call.kwargs)
        runs.tuned.append(call.key)
        config = runs.choose(call.tuner, {**call.named, **call.kwargs}, found)
        call.tuner.cache[call.key] = config
        call.tuner.pre_hook({**call.named, **call.kwargs, **config.all_kwargs()}, reset_only=True)
        return call.launch(config)

    monkeypatch.setattr(type(scaled), "run", launch)
    monkeypatch.setattr(tuned_call._Call, "tune", tune)
    monkeypatch.setattr(torch.utils._triton, "has_triton", lambda *args, **kwargs: True)  # it asks for a GPU
    torch._dynamo.reset()
    yield runs
    torch._dynamo.reset()
