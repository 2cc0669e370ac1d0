"""A kernel of the suite: how it is called, tuned and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import triton

Shape = Mapping[str, int]


@dataclass(frozen=True)
class Call:
    """One call. ``expected()`` gives, by argument position, what the arguments must hold afterwards; ask it before the
    launch, since kernels may work in place."""

    grid: Callable[[Mapping[str, Any]], tuple[int, ...]]
    arguments: tuple[Any, ...]
    expected: Callable[[], dict[int, torch.Tensor]]

    def off(self, expected: Mapping[int, torch.Tensor], tolerance: float) -> float:
        """The largest difference from what was expected, in units of ``tolerance`` (absolute and relative at once)."""
        off = 0.0
        for position, wanted in expected.items():
            got, wide = self.arguments[position].double(), wanted.double()
            share = (got - wide).abs() / (tolerance * (1 + wide.abs()))
            off = max(off, share.nan_to_num(torch.inf).max().item())
        return off


@dataclass(frozen=True)
class Case:
    """A kernel with the shapes it is tuned at. ``configs(shape)`` is its list, ``options`` what its author gives the
    tuner beside it; ``small`` is a shape for checking numerics, with remainders in every dimension."""

    name: str
    kernel: Any
    shapes: tuple[Shape, ...]
    small: Shape
    call: Callable[[Shape, str], Call]
    configs: Callable[[Shape], list[triton.Config]]
    key: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 2e-2

    def label(self, shape: Shape) -> str:
        """``matmul[M=4096 N=4096 K=4096]``."""
        return f"{self.name}[{shape_text(shape)}]"

    def tuned(self, decorator: Callable[..., Any], configs: list[triton.Config]) -> Any:
        """The kernel under ``triton.autotune`` or ``kerntune.autotune``, decorated as its author would."""
        return decorator(configs=configs, key=list(self.key), **self.options)(self.kernel)


def shape_text(shape: Shape) -> str:
    """``M=4096 N=4096``."""
    return " ".join(f"{k}={v}" for k, v in shape.items())


def config_text(config: triton.Config) -> str:
    """A config as one line, the same for both tuners: what is equal compiles to the same binary."""
    parts = [f"{k}={v}" for k, v in config.kwargs.items()]
    parts += [f"num_warps={config.num_warps}", f"num_stages={config.num_stages}"]
    parts += [f"maxnreg={config.maxnreg}"] if config.maxnreg is not None else []
    return " ".join(parts)


def randn(*shape: int, device: str, dtype: torch.dtype = torch.float16, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers, made where they are used; a factor keeps long sums within fp16."""
    return torch.randn(*shape, device=device, dtype=dtype).mul_(scale)
