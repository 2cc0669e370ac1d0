"""A choice over two kernels that double, and checks of calls that go to it on the scripted GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from fake_runs import N, scale_kernel

import kerntune
from gate.project import Project
from kerntune.gpu.script import Rule
from kerntune.tuning.choices.decided_keys import DecidedKeys


@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    loaded = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, loaded + loaded, mask=i < n)


class Doubling:
    """A choice over two kernels, and how long a call of each takes the scripted GPU while they are raced."""

    def __init__(self) -> None:
        self.run: Any = None
        self.ns = {"scaled": 1000.0, "added": 3000.0}

        def scaled(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            scale_kernel[(N // 128,)](x, y, N, 2.0, BLOCK=128)
            self.spend("scaled")
            return y

        def added(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            add_kernel[(N // 128,)](x, y, N, BLOCK=128)
            self.spend("added")
            return y

        self.double = kerntune.choice([scaled, added], key=["x"])(lambda x: None)

    def tuned_inside(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """An implementation whose kernel has two configs, so it is tuned first."""
        tuned = kerntune.autotune([triton.Config({"BLOCK": b}) for b in (64, 128)], key=["n"])(add_kernel)

        def own(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            tuned[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](x, y, N)
            self.spend("added")
            return y

        return own

    def forget(self) -> None:
        """As in another process: nothing is decided."""
        self.double.operation.known = DecidedKeys()

    def spend(self, name: str) -> None:
        self.run.gpu._clock += self.ns[name]


def checked(project: Project, doubling: Doubling, call: Callable[..., Any], **options: Any) -> Any:
    rules = (Rule("scale_kernel", time_ns=1000.0), Rule("add_kernel", time_ns=3000.0))
    with project.run(*rules, **options) as run:
        doubling.run = run
        return run.judge(call, torch.empty(N, device="cuda"))
