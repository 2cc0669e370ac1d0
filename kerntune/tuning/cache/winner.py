"""A winner as it is stored, and what it depends on."""

from __future__ import annotations

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.tuning.cache.key import Nanoseconds, Question

SCHEMA = "kerntune.winner/1"


class WinnerKey(Question, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything that may change which config wins: the ``configs`` of a list, and the ``search`` that goes on beyond
    it, if any does."""

    configs: tuple[Config, ...]
    search: str = ""


class Winner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A stored winner: the config, its time in nanoseconds, and the environment it was found in. ``untried`` are the
    configs that were still being compiled when it was needed; ``created`` is when such a winner of several ranks was
    stored, in seconds since 1970."""

    schema: str
    key: WinnerKey
    config: Config
    time_ns: Nanoseconds
    environment: Environment
    untried: tuple[Config, ...] = ()
    created: float = 0.0
