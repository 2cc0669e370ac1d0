"""Runs on the scripted GPU: tiny kernels, and the steps from a call to its recording."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from kerntune.base.config import Config
from kerntune.base.device import Target
from kerntune.capture import Capture, Site
from kerntune.capture.entry_points import Suspension
from kerntune.capture.recorder import Recorded, record
from kerntune.compiling.compiler import Compiler
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import Loader, Program
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.kernels.specialize import Specialized, specialize

COMPILER = Compiler()
"""One for all tests of a process: what one test compiled, another needn't."""

N = 4096

SM90 = Target.parse("cuda:90")


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def increment_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def sum_kernel(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total_ptr, tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0), 0))


@triton.jit
def long_kernel(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr, LENGTH: tl.constexpr):
    """A product of tiles, which needs shared memory by its length."""
    i, k = tl.arange(0, BLOCK), tl.arange(0, LENGTH)
    a = tl.load(x_ptr + i[:, None] * LENGTH + k[None, :])
    b = tl.load(y_ptr + k[:, None] * BLOCK + i[None, :])
    tl.store(z_ptr + i[:, None] * BLOCK + i[None, :], tl.dot(a, b))


def by_block(meta: Mapping[str, Any]) -> tuple[int]:
    """The grid of all of them over ``N`` elements."""
    return (triton.cdiv(N, meta["BLOCK"]),)


def configs(*blocks: int, **options: Any) -> list[triton.Config]:
    return [triton.Config({"BLOCK": b}, **options) for b in blocks]


def tuned(*blocks: int, **options: Any) -> Any:
    """``scale_kernel`` under ``triton.autotune`` with these blocks; a new tuner each time."""
    return triton.autotune(configs(*blocks), key=["n"], **options)(scale_kernel)


def scale(kernel: Any, **meta: Any) -> torch.Tensor:
    """Launch ``scale_kernel`` or a decorated one over ``N`` random numbers."""
    x = torch.randn(N, device="cuda")
    y = torch.empty_like(x)
    kernel[by_block](x, y, N, 2.0, **meta)
    return y


def x_of(n: int = N, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, device="cuda", dtype=dtype)


def scaled(x: torch.Tensor, size: int = 64, **options: Any) -> torch.Tensor:
    """A call whose code depends on ``size``, with its constants written out."""
    y = torch.empty_like(x)
    scale_kernel[by_block](x, y, N, 2.0, BLOCK=size, **options)
    return y


def tuned_call(*blocks: int, **options: Any) -> Callable[[torch.Tensor], None]:
    """A call of the tuned kernel."""
    kernel = tuned(*blocks, **options)

    def call(x: torch.Tensor) -> None:
        kernel[by_block](x, torch.empty_like(x), N, 2.0)

    return call


@contextlib.contextmanager
def active(*rules: Rule, **options: Any) -> Iterator[FakeBackend]:
    """A scripted GPU, its stand-ins installed."""
    backend = FakeBackend(Script(rules, **options))
    with backend.activate():
        yield backend


def script(backend: FakeBackend, *rules: Rule, **options: Any) -> FakeGpu:
    """A fresh GPU with another script under the same stand-ins."""
    backend.gpu = FakeGpu(backend.spec, Script(rules, **options), backend.stand_ins)
    return backend.gpu


def block(size: int, time_ns: float = 10_000.0, **more: Any) -> Rule:
    """How launches with ``BLOCK=size`` behave."""
    return Rule(constexprs={"BLOCK": size}, time_ns=time_ns, **more)


THREE = (block(64, 3000.0), block(128, 1000.0), block(256, 2000.0))
"""Blocks of which the second is the fastest."""


class OneStage(Rule):
    """Binaries that were made without pipelining."""

    def matches(self, binary: Any) -> bool:
        return binary.options.get("num_stages") == 1


def lacking(time_ns: float = 500.0) -> list[Rule]:
    """Everything lacks resources, but for binaries that were made with one stage."""
    return [OneStage(time_ns=time_ns), Rule(fails="needs more shared memory")]


def captured(
    backend: Any,
    fn: Callable[[], Any],
    given: Mapping[str, tuple[Config, ...]] | None = None,
    prefer: Callable[[Site], Sequence[int]] | None = None,
) -> Capture:
    """What ``fn`` launches."""
    capture = Capture(backend, COMPILER, given or {})
    if prefer is not None:
        capture.prefer = prefer
    with capture.active():
        fn()
    return capture


def bind(backend: FakeBackend, kernel: Any, *args: Any, target: Target = SM90, **kwargs: Any) -> Specialized:
    """A launch as Triton binds it for a target."""
    with backend.tensors.specializing():
        return specialize(kernel, args, kwargs, target)


def recorded(backend: Any, fn: Callable[[], Any]) -> Recorded:
    """What ``fn`` launches, recorded for the first target."""
    return record(captured(backend, fn))


def program_of(backend: FakeBackend, found: Recorded) -> Program:
    """A recording on memory of its own."""
    memory = Memory(backend.gpu, found.recording.storages, found.sources)
    return Program(Loader(backend.gpu), found.recording, memory, found.artifacts)


def wait_until_blocked(thread: threading.Thread) -> None:
    """Until the thread waits for the end of a suspension; an error if it ends before."""
    end = time.monotonic() + 60.0
    while not _waits(thread):
        assert thread.is_alive(), "it doesn't wait"
        assert time.monotonic() < end, "it neither waits nor ends"
        time.sleep(0.01)


def _waits(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code is Suspension.wait.__code__:
            return True
        frame = frame.f_back
    return False
