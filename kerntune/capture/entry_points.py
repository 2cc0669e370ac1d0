"""Triton's entry points, by which kernels are launched, and what stands in for them while a call is captured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerntune.kernels.relaunch import as_launch


class EntryPoints:
    """``on_launch`` and ``on_tuned`` take a kernel or a tuner, its arguments and its keywords, while ``records()`` is
    true of the calling thread."""

    def __init__(
        self, on_launch: Callable[..., Any], on_tuned: Callable[..., Any], records: Callable[[], bool]
    ) -> None:
        from triton.compiler.compiler import CompiledKernel
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        self._owners = (JITFunction, "run"), (Autotuner, "run"), (CompiledKernel, "__getitem__")
        self._originals = tuple(getattr(owner, name) for owner, name in self._owners)
        run_jit, run_tuned, get_launcher = self._originals
        self.run_jit: Callable[..., Any] = run_jit

        def jit_run(jit: Any, /, *args: Any, **kwargs: Any) -> Any:
            return on_launch(jit, args, kwargs) if records() else run_jit(jit, *args, **kwargs)

        def tuned_run(tuner: Any, /, *args: Any, **kwargs: Any) -> Any:
            return on_tuned(tuner, args, kwargs) if records() else run_tuned(tuner, *args, **kwargs)

        def launcher(compiled: Any, grid: Any) -> Any:
            return (as_launch(compiled, grid) if records() else None) or get_launcher(compiled, grid)

        self._replacements = jit_run, tuned_run, launcher

    def replace(self) -> None:
        """Launches are the capture's from now on, in the whole process: backward passes run on other threads."""
        self._set(self._replacements)

    def restore(self) -> None:
        """They are what they were when this was made."""
        self._set(self._originals)

    def _set(self, functions: Sequence[Any]) -> None:
        for (owner, name), function in zip(self._owners, functions, strict=True):
            setattr(owner, name, function)
