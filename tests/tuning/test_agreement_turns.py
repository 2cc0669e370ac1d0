"""One process's wait for a key, on a clock that is scripted: whom it asks, how often, and for how long."""

from __future__ import annotations

import itertools
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.tuning import agreement
from kerntune.tuning.agreement import tuning_turn

CONFIGS = [Config({"BLOCK": i}) for i in range(3)]
SITE: Any = SimpleNamespace(kernel="k", candidates=[SimpleNamespace(config=config) for config in CONFIGS])


class World:
    """A device that is busy until a time, a lease that others have until a time, a winner that is there from one on."""

    def __init__(self, busy: float = 0.0, taken: float = 0.0, stored: float = 1e9) -> None:
        self.now, self.busy, self.taken, self.there = 1000.0, 1000.0 + busy, 1000.0 + taken, 1000.0 + stored
        self.mode, self.looked, self.asked, self.released, self.kept = (
            TuneMode.AUTO,
            list[float](),
            list[Any](),
            list[Any](),
            list[Any](),
        )
        self.before: Any = None
        self.known: int | None = None
        self.near: Any = None

    @property
    def elapsed(self) -> float:
        return round(self.now - 1000.0, 6)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def idle(self, limit_s: float) -> bool:
        self.looked.append(limit_s)
        return self.now >= self.busy

    def lease(self, site: Any) -> World:
        return self

    def take(self) -> bool:
        return self.now >= self.taken

    def release(self, done: bool) -> None:
        self.released.append(done)

    def arrived(self, site: Any, unfinished: bool, ask: bool = True) -> int | None:
        if ask:
            self.asked.append((self.elapsed, unfinished))
        return 2 if self.now >= self.there else None

    def stored(self, site: Any) -> Any:
        return self.before

    def incumbent(self, site: Any) -> int | None:
        return self.known

    def nearest(self, site: Any) -> Any:
        return self.near

    def keep(self, site: Any, index: int, time_ns: float, untried: Any) -> int:
        self.kept.append((index, time_ns, untried))
        return index


def turn(world: Any, monkeypatch: pytest.MonkeyPatch, ranks: bool = False, **words: Any) -> int | None:
    monkeypatch.setattr(agreement, "time", SimpleNamespace(monotonic=lambda: world.now, sleep=world.sleep))
    monkeypatch.setattr(agreement, "several_ranks", lambda: ranks)
    with tuning_turn(world, SITE, world, unfinished=True, **words) as found:
        return found


@pytest.mark.parametrize(
    ("words", "found", "seconds"),
    [
        pytest.param({}, None, 0.0, id="at once"),
        pytest.param({"stored": 0.0}, 2, 0.0, id="there is a winner"),
        pytest.param({"taken": 7.0}, None, 7.0, id="others give up"),
        pytest.param({"taken": 1e9, "stored": 7.0}, 2, 7.0, id="others find a winner"),
        pytest.param({"taken": 1e9}, None, 120.0, id="others take too long"),
        pytest.param({"busy": 7.0}, None, 7.0, id="the device becomes idle"),
        pytest.param({"busy": 1e9, "stored": 7.0}, 2, 7.0, id="busy while others find a winner"),
        pytest.param({"busy": 1e9}, None, 30.0, id="busy for too long"),
    ],
)
def test_how_a_wait_ends(words: Any, found: int | None, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(**words)
    assert turn(world, monkeypatch) == found
    assert world.elapsed == pytest.approx(seconds, abs=0.051)
    assert world.released[-1] is True
    assert set(world.looked) == {1.0}, "a second at a time"
    assert len(world.looked) == pytest.approx(1 + seconds / 0.05, abs=1.1)


def test_the_store_is_asked_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(taken=1e9, stored=1.9)
    assert turn(world, monkeypatch) == 2
    times = [at for at, _ in world.asked]
    assert [b - a for a, b in itertools.pairwise(times)] == pytest.approx([0.5] * 3, abs=0.051)
    assert times[0] == 0.0
    assert {unfinished for _, unfinished in world.asked} == {True}


def test_a_tuning_that_fails_leaves_nothing_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world: Any = World()
    monkeypatch.setattr(agreement, "time", SimpleNamespace(monotonic=lambda: world.now, sleep=world.sleep))
    with pytest.raises(KeyError), tuning_turn(world, SITE, world, unfinished=False):
        raise KeyError
    assert world.released == [False]
    world.mode = TuneMode.FORCE
    with tuning_turn(world, SITE, None, unfinished=False) as found:  # type: ignore[arg-type]
        assert found is None
    assert world.released == [False], "by force nothing is asked"


@pytest.mark.parametrize(
    ("before", "known", "near", "kept"),
    [
        (None, None, None, (0, 0.0, [1, 2])),
        (None, None, SimpleNamespace(other=(), winner=SimpleNamespace(config=CONFIGS[1])), (1, 0.0, [0, 2])),
        (None, None, SimpleNamespace(other=("source",), winner=SimpleNamespace(config=CONFIGS[1])), (0, 0.0, [1, 2])),
        (None, 2, None, (2, 0.0, [0, 1])),
        (SimpleNamespace(untried=(CONFIGS[0],), time_ns=7.0), 2, None, (2, 7.0, [0])),
    ],
    ids=["the first", "the nearest", "not of other code", "a known one", "an unfinished one"],
)
def test_a_rank_whose_device_stays_busy_goes_on_untuned(
    before: Any, known: int | None, near: Any, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(busy=1e9)
    world.before, world.known, world.near = before, known, near
    monkeypatch.setattr(agreement, "index_of", lambda site, config: CONFIGS.index(config))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert turn(world, monkeypatch, ranks=True) == kept[0]
    assert world.kept == [kept]
    assert [str(w.message) for w in told] == [
        "kernel k: not tuned, since the device was busy for 30 s with work that seems to wait for another rank; config "
        f"{CONFIGS[kept[0]]} is used, and the next start tunes it"
    ]
    assert world.released[-1] is True
    assert not any(world.released[:-1]), "nothing is held while the device is busy"


def test_who_says_what_is_untuned_is_given_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    world, asked = World(busy=1e9), list[Any]()
    world.near = SimpleNamespace(other=(), winner=SimpleNamespace(config=CONFIGS[1]))
    monkeypatch.setattr(agreement, "index_of", lambda site, config: CONFIGS.index(config))
    with pytest.warns(RuntimeWarning, match="not tuned"):
        assert turn(world, monkeypatch, ranks=True, untuned=lambda near: asked.append(near) or 2) == 2  # type: ignore[func-returns-value]
    assert asked == [1]
