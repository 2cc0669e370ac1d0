"""Whether a run saw every test of the project: only then can a baseline's case be said to be gone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

NARROWING = (
    "keyword",
    "markexpr",
    "lf",
    "stepwise",
    "deselect",
    "ignore",
    "ignore_glob",
    "shard_id",  # pytest-shard
    "group",  # pytest-split
)
"""Destinations of options that leave tests out; some do so without a ``pytest_deselected`` call."""


def narrowed(config: pytest.Config) -> bool:
    """Whether options or arguments leave out tests that a bare ``pytest`` would collect."""
    return any(_given(config, name) for name in NARROWING) or not covers(_arguments(config), _wanted(config))


def covers(given: Iterable[Path] | None, wanted: Iterable[Path]) -> bool:
    """Whether every wanted path lies in or under a given one; None given is everything."""
    if given is None:
        return True
    roots = list(given)
    return all(any(w == g or g in w.parents for g in roots) for w in wanted)


def _given(config: pytest.Config, dest: str) -> bool:
    value = getattr(config.option, dest, None)
    return bool(value)


def _arguments(config: pytest.Config) -> list[Path] | None:
    """The paths on the command line, None if there are none; a test inside a file covers nothing."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        return None
    base = config.invocation_params.dir
    whole = [a for a in config.args if "::" not in a]
    return [Path(os.path.abspath(base / a)) for a in whole]


def _wanted(config: pytest.Config) -> list[Path]:
    root = config.rootpath
    paths = [path for pattern in config.getini("testpaths") for path in root.glob(pattern)]
    return paths or [root]
