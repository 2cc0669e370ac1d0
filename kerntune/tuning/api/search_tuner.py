"""A kernel's tuner whose candidates are a list and what a search chooses beyond it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kerntune.base.config import Config
from kerntune.capture.site import config_of, is_plain
from kerntune.errors import ConfigError
from kerntune.kernels import compat
from kerntune.kernels.source import function_of
from kerntune.search import Search
from kerntune.search.declared_descent import with_neighbour
from kerntune.tuning.api.autotuner import Autotuner

MAX_VARIETY = 4096
"""Points of a space that are gone through."""


class SearchTuner(Autotuner):
    """``configs`` are those of the list and what the search tries beside them whatever comes of it. A call's pruning
    is asked of each config by itself, and decides like a constraint of the space.

    A hook that all configs of the list share is that of the search's configs, too. Raises :class:`ConfigError` for a
    list with several hooks, and for configs that aren't of the space or hold what no space can (dtypes, functions).
    """

    def __init__(
        self, search: Search, fn: Any, arg_names: Sequence[str], configs: Sequence[Any], *args: Any, **kwargs: Any
    ) -> None:
        name = self._name = f"kernel {function_of(fn).__name__}"
        self.search, self._starts = search, [config_of(config, name) for config in configs]
        self._hook = _shared_hook(configs, name)
        _refuse_objects(configs, name)
        outside = [config for config in self._starts if not search.has(config)]
        if outside:
            raise ConfigError(f"{name}: config ({outside[0]}) isn't of the search's space ({search})")
        first = search.begins_with(self._starts)
        if not first:
            raise ConfigError(f"{name}: no config of the search's space satisfies its constraints")
        super().__init__(fn, arg_names, [self._as_tritons(config) for config in first], *args, **kwargs)

    @property
    def searches(self) -> bool:
        """Always: the list is where the search begins."""
        return True

    def search_for(self, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> Search:
        """The search of a call with these arguments by position and these by name."""
        prune = self.early_config_prune
        if prune is None:
            return self.search
        return self.search.among(lambda config: bool(prune([self._as_tritons(config)], dict(named), **kwargs)))

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
        """What the search begins with for the call that is under way; :class:`ConfigError` if that is nothing."""
        first = self.search_for(self.nargs or {}, kwargs).begins_with(self._starts)
        if not first:
            raise ConfigError(f"{self._name}: no configs are left to try: early_config_prune forbids the whole space")
        return [self._as_tritons(config) for config in first]

    def variety(self) -> list[Any] | None:
        """As in the base class, of the whole space."""
        space = self.search.space
        return None if space.size > MAX_VARIETY else [self._as_tritons(config) for config in space.configs()]

    def _as_tritons(self, config: Config) -> Any:
        found = compat.triton_config(config)
        found.pre_hook = self._hook
        return found


def descent_list(configs: Sequence[Any], name: str) -> list[Any]:
    """A list to descend from: with a neighbour, if it has one config only; Triton's default config if it has none.
    :class:`ConfigError` as for a :class:`SearchTuner`."""
    hook = _shared_hook(configs, name)
    _refuse_objects(configs, name)
    if len(configs) > 1:
        return list(configs)
    first = config_of(configs[0], name) if configs else Config()
    found = [compat.triton_config(first), compat.triton_config(with_neighbour(first))]
    for config in found:
        config.pre_hook = hook
    return found


def _shared_hook(configs: Sequence[Any], name: str) -> Any:
    hooks = list(dict.fromkeys(config.pre_hook for config in configs))
    if len(hooks) > 1:
        raise ConfigError(f"{name}: its configs have different hooks, so a search doesn't know which to use")
    return hooks[0] if hooks else None


def _refuse_objects(configs: Sequence[Any], name: str) -> None:
    """A space has the texts of such values, and a kernel launched with a text is another one."""
    for config in configs:
        objects = [key for key, value in config.kwargs.items() if not is_plain(value)]
        if objects:
            raise ConfigError(
                f"{name}: config ({config}) sets {', '.join(objects)} to what a search can't vary; give numbers, texts "
                "or None, from which the kernel chooses, or list the configs"
            )
