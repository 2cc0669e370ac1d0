"""Cache entries for tests."""

from __future__ import annotations

from typing import Any

import msgspec
from samples import ENVIRONMENT

from kerntune.base.config import Config
from kerntune.timing.timers import TimingProtocol
from kerntune.tuning.cache import StoredTrial, TrialKey, Winner, WinnerKey
from kerntune.tuning.cache.keys import SCHEMA
from kerntune.tuning.cache.winners import TRIAL_SCHEMA

SMALL, LARGE = Config({"BLOCK": 128}), Config({"BLOCK": 1024}, num_warps=8)
WINNER = WinnerKey(
    "add_kernel", "abc", "cuda:90", "NVIDIA H100", "3.9.0", "n=1024; x=float32(1024,)(1,)", (SMALL, LARGE)
)
QUESTION = TrialKey("add_kernel", "abc", "cuda:90", "NVIDIA H100", "3.9.0", "n=1024; x=float32(1024,)(1,)", "race/1")


def won(config: Config = SMALL, **changes: Any) -> Winner:
    return msgspec.structs.replace(Winner(SCHEMA, WINNER, config, 1.0, ENVIRONMENT), **changes)


def trial(config: Config = SMALL, **changes: Any) -> StoredTrial:
    made = StoredTrial(
        TRIAL_SCHEMA, QUESTION, config, "spec", ENVIRONMENT, estimate_ns=1100.5, time_ns=1000.25,
        timing=TimingProtocol("graph", 200, 3), code="c0de", grid=(8, 1, 1),
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)
