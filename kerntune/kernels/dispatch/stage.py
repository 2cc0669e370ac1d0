"""Launches in two steps: a config's hook or ``@triton.heuristics`` run first, and may change what is launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Layer = tuple[Sequence[str], Mapping[str, Callable[[dict[str, Any]], Any]]]
"""A ``@triton.heuristics``: the names of positional arguments, and its functions by the name that they set."""


@dataclass(frozen=True)
class Plain:
    """A config without its hook, which has already run."""

    words: Mapping[str, Any]
    pre_hook: None = None

    def all_kwargs(self) -> Mapping[str, Any]:
        """As the method of Triton's configs."""
        return self.words


class Fixed:
    """A kernel with its config, in the place of a tuner."""

    def __init__(self, jit: Any, words: Mapping[str, Any]) -> None:
        self.fn, self.arg_names = jit, jit.arg_names
        self.configs = [Plain(words)]
        self.best_config = self.configs[0]
        self.cache: dict[Any, Any] = {}

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Launch through Triton."""
        return self.fn.run(*args, **{**self.configs[0].words, **kwargs})


@dataclass(frozen=True)
class Stage:
    """The first step for one config; ``path`` launches the result."""

    config: Any
    layers: Sequence[Layer]
    names: Sequence[str]
    path: Any
    words: Mapping[str, Any] = field(default_factory=dict)

    def launch(self, grid: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """As ``Autotuner.run`` once the config is known, then ``Heuristics.run``: each hook and function gets the same
        arguments as from Triton."""
        launching = {"grid": grid, "warmup": False}
        if self.config.pre_hook is not None:
            self.config.pre_hook({**dict(zip(self.names, args, strict=False)), **launching, **kwargs, **self.words})
        for names, values in self.layers:
            for name, value in values.items():
                shown = {**dict(zip(names, args, strict=False)), **launching, **self.words, **kwargs}
                kwargs[name] = value(shown)
        return self.path.front(grid, *args, **kwargs)
