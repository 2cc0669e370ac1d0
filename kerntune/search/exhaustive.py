"""Tries every config of a list."""

from __future__ import annotations

from collections.abc import Iterable

from kerntune.base.config import Config
from kerntune.search.history import Found, History, Measure


def exhaustive(measure: Measure, configs: Iterable[Config]) -> Found:
    """Every config once, in order."""
    history = History(measure)
    for config in configs:
        history.time_of(config)
    return history.found()
