"""Triton's entry points, by which kernels are launched, and what stands in for them while a call is captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerntune.capture.replaced_functions import REPLACED, FunctionLayer, FunctionPlace
from kerntune.kernels.specialize import as_launch


class EntryPoints:
    """``on_launch`` and ``on_tuned`` take a kernel or a tuner, its arguments and its keywords, where
    ``records(kernel)`` is true of that kernel or tuner in the calling thread."""

    def __init__(
        self, on_launch: Callable[..., Any], on_tuned: Callable[..., Any], records: Callable[[Any], bool]
    ) -> None:
        from triton.compiler.compiler import CompiledKernel
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        self._on_launch, self._on_tuned, self._records = on_launch, on_tuned, records
        self.run_jit: Callable[..., Any] = JITFunction.run
        """Makes a launch that is recorded."""

        self._layers: dict[FunctionPlace, FunctionLayer] = {
            (JITFunction, "run"): self._over_jit,
            (Autotuner, "run"): self._over_tuners,
            (CompiledKernel, "__getitem__"): self._over_compiled,
        }

    def replace(self, instead_of: object | None = None) -> None:
        """Launches are the capture's from now on, in the whole process: backward passes run on other threads. A user of
        ``REPLACED`` goes at the same moment."""
        REPLACED.add(self, self._layers, instead_of=instead_of)

    def restore(self) -> None:
        """They are what they were without the capture."""
        REPLACED.remove(self)

    def _over_jit(self, run_jit: Callable[..., Any]) -> Callable[..., Any]:
        on_launch, records = self._on_launch, self._records
        self.run_jit = run_jit

        def jit_run(jit: Any, /, *args: Any, **kwargs: Any) -> Any:
            return on_launch(jit, args, kwargs) if records(jit) else run_jit(jit, *args, **kwargs)

        return jit_run

    def _over_tuners(self, run_tuned: Callable[..., Any]) -> Callable[..., Any]:
        on_tuned, records = self._on_tuned, self._records

        def tuned_run(tuner: Any, /, *args: Any, **kwargs: Any) -> Any:
            return on_tuned(tuner, args, kwargs) if records(tuner) else run_tuned(tuner, *args, **kwargs)

        return tuned_run

    def _over_compiled(self, get_launcher: Callable[..., Any]) -> Callable[..., Any]:
        records = self._records

        def launcher(compiled: Any, grid: Any) -> Any:
            return (as_launch(compiled, grid) if records(compiled) else None) or get_launcher(compiled, grid)

        return launcher
