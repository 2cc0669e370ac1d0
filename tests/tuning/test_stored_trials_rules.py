"""What is known of candidates from earlier runs, and what is kept, on a cache that is scripted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import ENVIRONMENT

from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.errors import CacheError
from kerntune.tuning import stored_trials as module
from kerntune.tuning.stored_trials import NOTHING, KnownTrials, SiteTrials, Trials
from tuning.cache.made import QUESTION, trial

CONFIGS = [Config({"BLOCK": i}) for i in range(4)]
WRONG = "it wrote other values than the first candidate into y"


class Cache:
    """Notes what is added, removed and told."""

    damaged: Any = ()

    def __init__(self, *held: Any) -> None:
        self.held, self.added, self.removed, self.told, self.fails = (
            list(held),
            list[Any](),
            list[Any](),
            list[str](),
            False,
        )

    def of(self, key: Any) -> list[Any]:
        return list(self.held)

    def holds(self, one: Any) -> bool:
        return one in self.held

    def add(self, one: Any) -> None:
        if self.fails:
            raise CacheError("a full disk")
        self.added.append(one)

    def remove(self, *given: Any) -> None:
        self.removed.append(given)

    def tell(self, text: str) -> None:
        self.told.append(text)


def site(*ambiguous: int) -> Any:
    candidates = [SimpleNamespace(config=config) for config in CONFIGS]
    return SimpleNamespace(candidates=candidates, ambiguous=lambda: set(ambiguous))


PROBES: Any = {i: SimpleNamespace(name=f"spec {i}", grid=(i + 1, 1, 1)) for i in range(4)}


@pytest.fixture(autouse=True)
def specializations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "specialization_of", lambda probe: probe.name)


def known_of(i: int, spec: str = "", failure: str = "", **environment: Any) -> Any:
    changed = msgspec.structs.replace(ENVIRONMENT, **environment)
    words = {"specialization": spec or f"spec {i}", "failure": failure, "environment": changed, "code": f"code {i}"}
    return trial(CONFIGS[i], grid=(i + 1, 1, 1), **words)


def trials_of(cache: Any, *ambiguous: int, blind: bool = False) -> SiteTrials:
    return SiteTrials(cache, site(*ambiguous), QUESTION, lambda: ENVIRONMENT, blind)


def test_trials_are_known_by_config_and_specialization() -> None:
    cache: Any = Cache(known_of(0), known_of(1, "another"), known_of(2, failure="no"), known_of(3, failure=WRONG))
    found = trials_of(cache).known(PROBES)
    assert found.ran == {0: cache.held[0]}
    assert found.failed == {2: cache.held[2], 3: cache.held[3]}
    assert found.bad == {("code 2", (3, 1, 1)): "no", ("code 3", (4, 1, 1)): WRONG}
    right = found.without_wrong()
    assert (right.ran, right.failed, right.bad) == (found.ran, {2: cache.held[2]}, {("code 2", (3, 1, 1)): "no"})
    assert trials_of(cache, 0, 2).known(PROBES).ran == {}
    assert list(trials_of(cache, 0, 2).known(PROBES).failed) == [3]
    assert trials_of(cache, blind=True).known(PROBES) == trials_of(Cache()).known(PROBES) == NOTHING == KnownTrials()


@pytest.mark.parametrize(
    ("changes", "times", "failures"),
    [
        ({}, True, True),
        ({"python": "1", "torch": "1", "kerntune": "1"}, True, True),
        ({"throttle": "power"}, False, True),
        *(({name: "1"}, False, False) for name in ("triton", "assembler", "driver", "device")),
    ],
)
def test_a_trial_holds_where_nothing_differs_that_it_depends_on(changes: Any, times: bool, failures: bool) -> None:
    cache = Cache(known_of(0, **changes), known_of(1, failure="no", **changes))
    found = trials_of(cache).known(PROBES)
    assert (list(found.ran), list(found.failed), list(found.bad)) == (
        [0] * times, [1] * failures, [("code 1", (2, 1, 1))] * failures,
    )  # fmt: skip


def test_what_is_stored_is_read_once() -> None:
    cache = Cache(known_of(0))
    trials = trials_of(cache)
    assert list(trials.known(PROBES).ran) == [0]
    cache.held.clear()
    assert list(trials.known(PROBES).ran) == [0]


def test_a_trial_is_kept_with_all_that_it_depends_on() -> None:
    cache = Cache()
    trials = trials_of(cache, 3)
    trials.keep(1, PROBES[1], estimate_ns=7.0, code="c")
    trials.keep(2, PROBES[2], time_ns=5.0, failure="no")
    trials.keep(3, PROBES[3], time_ns=5.0)
    one, two = cache.added
    assert (one.config, one.specialization, one.grid, one.key, one.environment) == (
        CONFIGS[1], "spec 1", (2, 1, 1), QUESTION, ENVIRONMENT,
    )  # fmt: skip
    assert (one.schema, one.estimate_ns, one.time_ns, one.timing, one.failure, one.code) == (
        module.TRIAL_SCHEMA, 7.0, None, None, "", "c",
    )  # fmt: skip
    assert (two.estimate_ns, two.time_ns, two.failure, two.code) == (None, 5.0, "no", "")
    trials.forget(1, PROBES[1])
    trials.forget(3, PROBES[3])
    assert cache.removed == [(QUESTION, CONFIGS[1], "spec 1")]
    cache.fails = True
    trials.keep(1, PROBES[1])
    assert (len(cache.added), cache.told) == (2, ["a full disk"])


# a store that machines share


@pytest.fixture
def shared() -> Any:
    """Trials with a store that has two of a question, of which one is here already."""
    made: Any = Trials.__new__(Trials)
    here, there = known_of(0), known_of(1)
    asked, shared = list[Any](), list[Any]()
    made._cache, made._fetched = Cache(here), set()
    made._store = SimpleNamespace(trials_of=lambda key: asked.append(key) or [here, there], add_trials=shared.append)
    made._winners = SimpleNamespace(mode=TuneMode.AUTO, environment=lambda: ENVIRONMENT)
    made.key, made.asked, made.shared, made.there = lambda site: QUESTION, asked, shared, there
    return made


def test_what_other_machines_have_stored_is_fetched_once(shared: Any) -> None:
    assert shared.any(site())
    found = shared.at(site())
    assert (len(shared.asked), shared._cache.added) == (1, [shared.there])
    assert (found.blind, found.today(), found.key) == (False, ENVIRONMENT, QUESTION)
    shared.share(site())
    assert shared.shared == [shared._cache.held]


@pytest.mark.parametrize("store", [True, False])
def test_by_force_nothing_is_fetched_and_nothing_known(shared: Any, store: bool) -> None:
    shared._winners.mode = TuneMode.FORCE
    if not store:
        shared._store = None
        shared.share(site())
    assert not shared.any(site())
    assert shared.at(site()).blind
    assert (shared.asked, shared.shared) == ([], [])


def test_without_a_store_the_folder_is_asked(shared: Any) -> None:
    shared._store = None
    assert shared.any(site())
    shared._cache.held.clear()
    assert not shared.any(site())


def test_a_store_that_has_nothing_or_a_full_disk_ends_nothing(shared: Any) -> None:
    shared._cache.fails = True
    assert shared.any(site())
    shared._fetched.clear()
    shared._store = SimpleNamespace(trials_of=lambda key: None)
    assert shared.any(site())
    assert shared._fetched == {QUESTION.digest()}


def test_a_folder_has_trials_beside_its_winners(tmp_path: Path) -> None:
    winners: Any = SimpleNamespace(cache=SimpleNamespace(folder=tmp_path), shared_cache=None)
    assert Trials(winners)._store is None
    winners.shared_cache = SimpleNamespace(store="a store")
    made = Trials(winners)
    assert (made._store, made._cache.folder) == ("a store", tmp_path)
