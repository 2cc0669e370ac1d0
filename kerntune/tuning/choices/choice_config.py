"""The config that stands for an implementation in the store of winners."""

from __future__ import annotations

from kerntune.base.config import Config

NAME, CODE = "implementation", "code"
"""Its words: the implementation's name, and the begin of a hash of its code."""


def config_for(name: str, code: str) -> Config:
    """Another config as soon as the code is another."""
    return Config({NAME: name, CODE: code})


def implementation_in(config: Config) -> str | None:
    """The name of the implementation that a config stands for; None for a kernel's config."""
    return str(config.kwargs[NAME]) if set(config.kwargs) == {NAME, CODE} else None
