"""Choices that Inductor makes by timing candidates, where there is nothing to time them on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from kerntune.gpu.fake_cuda.patches import replace
from kerntune.kernels.compat.inductor_parts import INDUCTOR, inductor_part


class TimedChoices:
    """The choices of one capture, in words, each once. Each is made without a measurement so that the rest of the call
    can be seen; what is generated for it may be another kernel than on the GPU."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def note(self, text: str) -> None:
        """Add a choice."""
        if text not in self.made:
            self.made.append(text)

    def install(self, stack: contextlib.ExitStack) -> None:
        """Until ``stack`` closes, Inductor's timed choices are noted."""
        replace(stack, *INDUCTOR["select"].owner(), self._select(inductor_part("select")))
        replace(stack, *INDUCTOR["time_fusion"].owner(), self._time_fusion(inductor_part("time_fusion")))
        replace(stack, *INDUCTOR["multi_kernel"].owner(), self._multi_kernel())
        replace(stack, *INDUCTOR["time_combo"].owner(), self._time_combo(inductor_part("time_combo")))
        if INDUCTOR["padding_known"].exists():
            replace(stack, *INDUCTOR["padding_known"].owner(), self._padding)

    def _select(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def select(cache: Any, name: str, choices: Any, *args: Any, **kwargs: Any) -> Any:
            if len(choices) > 1:
                self.note(f"max-autotune times {len(choices)} candidates for {name}")
            return original(cache, name, choices[:1], *args, **kwargs)

        return select

    def _time_fusion(self, original: Callable[..., Any]) -> Callable[..., Any]:
        config = inductor_part("config")

        def speedup(scheduler: Any, *nodes: Any, **kwargs: Any) -> Any:
            if config.benchmark_fusion:
                self.note("benchmark_fusion times what is fused")
            with config.patch(benchmark_fusion=False):
                return original(scheduler, *nodes, **kwargs)

        return speedup

    def _time_combo(self, original: Callable[..., Any]) -> Callable[..., Any]:
        config = inductor_part("config")

        def speedup(scheduler: Any, *nodes: Any, **kwargs: Any) -> Any:
            if config.benchmark_combo_kernel:
                self.note("benchmark_combo_kernel times which kernels are combined")
            with config.patch(benchmark_combo_kernel=False):
                return original(scheduler, *nodes, **kwargs)

        return speedup

    def _padding(self, key: str) -> bool:
        """Inductor's question whether it has timed a matrix product before: it is taken as it is."""
        self.note("shape_padding times whether a matrix product of these sizes is padded")
        return False

    def _multi_kernel(self) -> Callable[..., Any]:
        def run(call: Any, *args: Any, **kwargs: Any) -> Any:
            names = ", ".join(str(k.inductor_meta.get("kernel_name")) for k in call.kernels)
            self.note(f"multi_kernel times {names}")
            for i, kernel in enumerate(call.kernels[:1]):
                kernel.run(*call._get_filtered_args(args, i), **kwargs)

        return run
