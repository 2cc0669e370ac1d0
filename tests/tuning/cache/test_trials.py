"""Trials on disk: one entry per config, keyed by all that a time depends on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kerntune.base import codec
from kerntune.base.config import Config
from kerntune.tuning.cache import StoredTrial, TrialCache
from kerntune.tuning.cache.winners import SCHEMA
from tuning.cache.made import ENVIRONMENT, LARGE, QUESTION, SMALL, trial

replace = msgspec.structs.replace


@pytest.fixture
def cache(tmp_path: Path) -> TrialCache:
    return TrialCache(tmp_path / "cache")


def test_trials_come_back(cache: TrialCache) -> None:
    failed = trial(LARGE, estimate_ns=None, time_ns=None, timing=None, failure="needs 300000 B shared memory")
    for one in (trial(), failed):
        cache.add(one)
    assert sorted(TrialCache(cache.folder).of(QUESTION), key=lambda t: t.failure) == [trial(), failed]
    assert cache.holds(trial())
    assert not cache.holds(trial(specialization="other"))
    assert cache.damaged == []


@pytest.mark.parametrize("field", QUESTION.__struct_fields__)
def test_every_part_of_the_question_counts(cache: TrialCache, field: str) -> None:
    other = replace(QUESTION, **{field: "other"})
    cache.add(trial())
    assert cache.of(other) == []
    cache.add(trial(key=other))
    assert [len(cache.of(k)) for k in (QUESTION, other)] == [1, 1]


def test_one_entry_per_config_and_specialization(cache: TrialCache) -> None:
    for one in (
        trial(),
        trial(time_ns=5.0),
        trial(LARGE),
        trial(specialization="aligned"),
        trial(SMALL.replace(num_ctas=2)),
    ):
        cache.add(one)
    found = cache.of(QUESTION)
    assert len(found) == 4
    assert [t.time_ns for t in found if t.config == SMALL and t.specialization == "spec"] == [5.0]


def test_a_damaged_trial_is_set_aside_and_the_others_stay(cache: TrialCache) -> None:
    cache.add(trial())
    cache.add(trial(LARGE))
    path = next(cache.folder.glob("trials/**/*.json"))
    path.write_bytes(path.read_bytes()[:40])
    assert len(cache.of(QUESTION)) == 1
    assert len(cache.damaged) == 1
    assert path.with_suffix(".damaged").exists()
    assert TrialCache(cache.folder).entries() == cache.of(QUESTION)


def test_clear(cache: TrialCache) -> None:
    assert cache.clear() == 0
    assert not cache.folder.exists()
    cache.add(trial())
    assert cache.clear() == 1
    assert cache.of(QUESTION) == []


# many processes

WORKER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from tuning.cache.made import QUESTION, Config, trial
from kerntune.tuning.cache import TrialCache
cache, mine = TrialCache(Path(sys.argv[1])), int(sys.argv[2])
for i in range(40):
    cache.add(trial(Config({"BLOCK": i}), time_ns=float(mine)))
    cache.add(trial(Config({"BLOCK": 1000 * (mine + 1) + i})))
    found = cache.of(QUESTION)
    assert len(found) == len({t.config for t in found})
    assert {t.config.kwargs["BLOCK"] for t in found} >= set(range(i + 1))
assert cache.damaged == [], cache.damaged
"""


@pytest.mark.slow
def test_processes_add_to_one_question_at_the_same_time(cache: TrialCache) -> None:
    folders = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3])]
    command = [sys.executable, "-c", WORKER, str(cache.folder)]
    workers = [subprocess.Popen([*command, str(i), *folders], stderr=subprocess.PIPE, text=True) for i in range(3)]
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0], errors
    found = {t.config.kwargs["BLOCK"] for t in cache.of(QUESTION)}
    assert found == {*range(40), *(1000 * w + i for w in (1, 2, 3) for i in range(40))}
    assert {p.suffix for p in cache.folder.rglob("*") if p.is_file()} == {".json"}
    assert Config({"BLOCK": 0}) in {t.config for t in cache.entries()}


def test_a_trial_without_more_is_of_one_program_and_has_no_times() -> None:
    found = StoredTrial(SCHEMA, QUESTION, SMALL, "spec", ENVIRONMENT)
    assert found.grid == (1, 1, 1)
    assert (found.estimate_ns, found.time_ns, found.timing, found.failure, found.code) == (None, None, None, "", "")
    assert len(found.name()) == 32


def test_a_trial_is_held_until_it_is_removed(cache: TrialCache) -> None:
    one = trial()
    assert not cache.holds(one)
    cache.add(one)
    assert cache.holds(one)
    cache.remove(QUESTION, LARGE, one.specialization)
    assert cache.holds(one)
    cache.remove(QUESTION, one.config, one.specialization)
    cache.remove(QUESTION, one.config, one.specialization)
    assert not cache.holds(one)


def test_a_line_on_damage_is_told_once(cache: TrialCache) -> None:
    cache.tell("a")
    cache.tell("a")
    assert cache.damaged == ["a"]


def test_what_is_as_by_default_is_not_stored() -> None:
    found = json.loads(codec.to_json(StoredTrial(SCHEMA, QUESTION, SMALL, "spec", ENVIRONMENT)))
    assert sorted(found) == ["config", "environment", "key", "schema", "specialization"]
