"""Processes that tune the same keys at once: one winner a key for all of them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kerntune.base.config import Config
from kerntune.tuning.cache import TrialCache, Winner, WinnerCache
from kerntune.tuning.cache.keys import SCHEMA
from tuning.cache.made import ENVIRONMENT, QUESTION, WINNER, trial

PROCESSES, KEYS = 4, 25
replace = msgspec.structs.replace


def key(number: int) -> Any:
    return replace(WINNER, arguments=f"n={number}")


def work(folder: Path, process: int, begin: Any, told: Any) -> None:
    """All keys, in the order of all others; what this process goes on with, by key."""
    winners, trials, found = WinnerCache(folder), TrialCache(folder), {}
    begin.wait(60)
    for number in range(KEYS):
        trials.add(trial(Config({"BLOCK": process}), key=replace(QUESTION, arguments=f"n={number}")))
        mine = Winner(SCHEMA, key(number), Config({"BLOCK": process}), 1.0, ENVIRONMENT)
        found[number] = winners.offer(mine).config.kwargs["BLOCK"]
    told.put((found, [*winners.damaged, *trials.damaged]))


@pytest.mark.slow
def test_one_winner_a_key_and_nothing_lost(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    begin, told = context.Barrier(PROCESSES), context.Queue()
    crowd = [context.Process(target=work, args=(tmp_path, p, begin, told)) for p in range(PROCESSES)]
    for process in crowd:
        process.start()
    answers = [told.get(timeout=120) for _ in crowd]
    for process in crowd:
        process.join()
    stored = {w.key.digest(): w.config.kwargs["BLOCK"] for w in WinnerCache(tmp_path).entries()}
    assert len(stored) == KEYS
    for found, damaged in answers:
        assert damaged == []
        assert found == {number: stored[key(number).digest()] for number in range(KEYS)}
    assert len(TrialCache(tmp_path).entries()) == KEYS * PROCESSES
    fewer = replace(key(0), configs=())
    assert len(WinnerCache(tmp_path).of_other_configs(fewer)) == 1
    files = [p for p in tmp_path.rglob("*") if p.is_file() and p.parent.name != "questions"]
    assert {p.suffix for p in files} == {".json"}
    assert not [p for p in files if p.name.startswith(".")]
