"""Which stored winner counts, which stands beside another process's, and which is near: on a cache that is scripted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import ENVIRONMENT

from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.errors import CacheError, CacheMissError
from kerntune.tuning import stored_winners as module
from kerntune.tuning.cache import Winner
from kerntune.tuning.cache.keys import SCHEMA
from kerntune.tuning.stored_winners import NearestWinner, Winners, nearest
from tuning.cache.made import WINNER

CONFIGS = [Config({"BLOCK": i}) for i in range(3)]


class Cache:
    """One folder's winners by key; what others store meanwhile stands."""

    damaged: Any = ()

    def __init__(self) -> None:
        self.held: dict[str, Winner] = {}
        self.others: list[Winner] = []
        self.standing: Winner | None = None
        self.offered: list[Any] = []
        self.fails = False
        self.folder = Path("folder")

    def get(self, key: Any) -> Winner | None:
        return self.held.get(key)

    def of_other_configs(self, key: Any) -> list[Winner]:
        return self.others

    def offer(self, found: Winner, before: Any, first_stands: bool) -> Winner:
        if self.fails:
            raise CacheError("a full disk")
        self.offered.append((found, before, first_stands))
        return self.standing or found

    def add(self, found: Winner) -> None:
        self.offered.append(found)


def stored(block: int, untried: Any = (), created: float = 0.0) -> Winner:
    rest = tuple(CONFIGS[i] for i in untried)
    return Winner(SCHEMA, WINNER, CONFIGS[block], 1.0, ENVIRONMENT, rest, created)


@pytest.fixture
def winners(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of one process; a key is its rules' text."""
    made: Any = Winners.__new__(Winners)
    made.cache, made.mode, made.lax, made.shared_cache, made._seen = Cache(), TuneMode.AUTO, "", None, {}
    made.key = lambda site, lax=None: SimpleKey(made.lax if lax is None else lax)
    made.environment, made.why_missed = lambda: ENVIRONMENT, lambda site: ["n: 1 -> 2", "m: 3 -> 4"]
    monkeypatch.setattr(module, "several_ranks", lambda: False)
    monkeypatch.setattr(module, "index_of", lambda site, config: CONFIGS.index(config) if config in CONFIGS else None)
    monkeypatch.setattr(module, "Winner", lambda *given: SimpleNamespace(key=given[1], given=given))
    monkeypatch.setattr(Winners, "_warned", False)
    return made


class SimpleKey(str):
    """A key that is its own digest."""

    def digest(self) -> str:
        return str(self)


def site(candidates: int = 3, search: Any = None) -> Any:
    return SimpleNamespace(
        kernel="k", candidates=[SimpleNamespace(config=c) for c in CONFIGS[:candidates]], search=search
    )


@pytest.mark.parametrize(
    ("mode", "untried", "agrees", "this_run", "unfinished", "counts"),
    [
        (TuneMode.AUTO, (), False, False, False, True),
        (TuneMode.AUTO, (2,), False, False, False, False),
        (TuneMode.AUTO, (2,), False, False, True, True),
        (TuneMode.FROZEN, (2,), False, False, False, True),
        (TuneMode.NEAREST, (2,), False, False, False, True),
        (TuneMode.AUTO, (2,), True, True, False, True),
        (TuneMode.AUTO, (2,), True, False, True, False),
        (TuneMode.FORCE, (), False, False, True, False),
    ],
)
def test_which_stored_winner_counts(
    winners: Any, mode: TuneMode, untried: Any, agrees: bool, this_run: bool, unfinished: bool, counts: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "several_ranks", lambda: agrees)
    monkeypatch.setattr(module, "of_this_run", lambda created: this_run and created == 5.0)
    winners.mode, winners.cache.held[""] = mode, stored(1, untried, created=5.0)
    assert winners.find(site(), unfinished) == (1 if counts else None)
    assert winners.arrived(site(), unfinished) == (1 if counts else None)
    assert winners.settles(site()) is (agrees and bool(untried))
    assert winners.agrees is agrees


def test_one_candidate_is_its_own_winner_unless_it_may_be_searched_from(winners: Any) -> None:
    assert winners.find(site(1)) == 0
    assert winners.find(site(1, "a search")) is None
    winners.cache.held[""] = stored(2)
    assert winners.find(site(1, "a search")) == 2
    winners.mode = TuneMode.FROZEN
    winners.cache.held.clear()
    assert winners.find(site(1, "a search")) == 0
    with pytest.raises(CacheMissError) as caught:
        winners.find(site())
    assert str(caught.value) == (
        "kernel k: no stored winner for these arguments under --kerntune-tune=frozen (or KERNTUNE_TUNE=frozen); run "
        "once with --kerntune-tune=auto\n  n: 1 -> 2\n  m: 3 -> 4"
    )


@pytest.mark.parametrize(
    ("lax", "own", "strict", "found"),
    [
        ("", None, None, None),
        ("; verify=off", 0, 1, 0),
        ("; verify=off", None, 1, 1),
        ("; verify=bitwise", None, 1, None),
        ("; verify=bitwise", 0, 1, 0),
    ],
)
def test_lax_rules_also_take_what_strict_ones_have_found(
    winners: Any, lax: str, own: int | None, strict: int | None, found: int | None
) -> None:
    winners.lax = lax
    for key, block in (("", strict), (lax, own)):
        if block is not None:
            winners.cache.held[key] = stored(block)
    assert winners.find(site()) == found


@pytest.mark.parametrize("ask", [True, False])
def test_a_store_is_asked_for_the_very_key(winners: Any, ask: bool) -> None:
    asked: list[Any] = []
    winners.shared_cache = SimpleNamespace(refresh=asked.append)
    winners.arrived(site(), False, *([] if ask else [False]))
    assert asked == [""] * ask
    assert winners.agrees


@pytest.mark.parametrize(
    ("mode", "block", "untried", "others", "incumbent"),
    [(TuneMode.AUTO, 1, (2,), [], 1), (TuneMode.AUTO, 1, (), [], None), (TuneMode.AUTO, None, (), [7, 2, 0], 2),
     (TuneMode.FORCE, 1, (2,), [2], None)],
)  # fmt: skip
def test_who_wins_ties(
    winners: Any, mode: TuneMode, block: int | None, untried: Any, others: list[int], incumbent: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "candidate_of", lambda site, block: block if block < 3 else None)
    winners.mode, winners.cache.others = mode, [SimpleNamespace(config=one) for one in others]
    if block is not None:
        winners.cache.held[""] = stored(block, untried)
    assert winners.incumbent(site()) == incumbent


@pytest.mark.parametrize(
    ("agrees", "untried", "created"), [(True, (2, 0), 1234.568), (False, (2, 0), 0.0), (True, (), 0.0)]
)
def test_what_is_stored_of_a_winner(
    winners: Any, agrees: bool, untried: Any, created: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "several_ranks", lambda: agrees)
    monkeypatch.setattr(module.time, "time", lambda: 1234.56789)
    assert winners.keep(site(), 1, 7.0, untried) == 1
    ((found, before, first_stands),) = winners.cache.offered
    rest = tuple(CONFIGS[i] for i in sorted(untried))
    assert found.given == (module.SCHEMA, "", CONFIGS[1], 7.0, ENVIRONMENT, rest, created)
    assert (before, first_stands) == (None, agrees)


@pytest.mark.parametrize(
    ("seen", "agrees", "this_run", "before"),
    [(True, False, False, True), (True, True, False, True), (True, True, True, False), (False, False, False, False)],
)
def test_what_was_known_before_is_replaced_unless_others_go_on_with_it(
    winners: Any, seen: bool, agrees: bool, this_run: bool, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "several_ranks", lambda: agrees)
    monkeypatch.setattr(module, "of_this_run", lambda created: this_run)
    one = winners.cache.held[""] = stored(0)
    if seen:
        winners.stored(site())
    winners.keep(site(), 1, 7.0)
    assert winners.cache.offered[0][1] == (one if before else None)


@pytest.mark.parametrize(("other", "stands"), [(2, 2), (None, 1)])
def test_a_winner_that_another_process_stored_meanwhile_stands_if_it_is_a_candidate(
    winners: Any, other: int | None, stands: int
) -> None:
    winners.cache.standing = stored(2) if other else msgspec.structs.replace(stored(2), config=Config({"BLOCK": 99}))
    assert winners.keep(site(), 1, 7.0) == stands
    assert len(winners.cache.offered) == (1 if other else 2), "else it is replaced"
    winners.mode = TuneMode.FORCE
    assert winners.keep(site(), 1, 7.0) == 1


def test_a_folder_that_can_not_be_written_is_told_once(winners: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(module, "tell_user", told.append)
    winners.cache.fails = True
    assert [winners.keep(site(), i, 7.0) for i in (1, 2)] == [1, 2]
    assert told == ["winners can't be kept for the next run: a full disk"]


# near winners


KEY = msgspec.structs.replace(WINNER, arguments="n=64; m=64")


def near(arguments: str, block: int = 0, **changes: Any) -> Winner:
    key = msgspec.structs.replace(KEY, arguments=arguments, **changes)
    return Winner(SCHEMA, key, CONFIGS[block], 1.0, ENVIRONMENT)


@pytest.mark.parametrize(
    ("stored", "found", "distance", "other"),
    [
        ([near("n=129; m=64")], 0, 1.0, ()),
        ([near("n=129; m=129"), near("n=64; m=129", 1)], 1, 1.0, ()),
        ([near("n=64; m=64", source="x"), near("n=259; m=64", 1)], 1, 2.0, ()),
        ([near("n=64; m=64", source="x", triton="0"), near("n=129; m=64", 1, source="x")], 1, 1.0, ("source",)),
        ([near("n=64; m=64", source="x", triton="0")], 0, 0.0, ("source", "triton")),
        ([near("n=64; m=129", 0), near("n=129; m=64", 1)], 1, 1.0, ()),
        ([near("n=64; m=64", 2), near("n=129; m=64", 1)], 1, 1.0, ()),
        ([near("n=64; m=64", **{name: "x"}) for name in ("kernel", "device", "target")], None, 0.0, ()),
    ],
    ids=["one", "nearer", "of this code", "of this Triton", "of another", "by the text", "usable", "none"],
)
def test_the_nearest_winner(
    stored: list[Winner], found: int | None, distance: float, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_all", lambda cache: stored[:1])
    monkeypatch.setattr(module.winners, "shipped_of_device", lambda target, device, tell: stored[2:])
    cache: Any = SimpleNamespace(tell=None, mirror=SimpleNamespace())
    monkeypatch.setattr(module, "_all", lambda one: stored[:1] if one is cache else stored[1:2])
    one = nearest(cache, KEY, lambda config: config != CONFIGS[2])
    if found is None:
        assert one is None
        return
    assert one is not None
    assert (one.winner.config, one.distance, one.other) == (CONFIGS[found], pytest.approx(distance), other)


def test_a_near_winner_says_how_far_it_is_and_in_what_it_differs() -> None:
    one = NearestWinner(near("n=129; m=64"), 1.0, ("source", "triton"))
    assert str(one) == f"{CONFIGS[0]}, the winner of n=129; m=64 (distance 1.00, of another source and triton)"
    assert str(replace(one, distance=0.126, other=())).endswith("(distance 0.13)")


def test_a_folder_is_read_again_when_a_winner_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_known", {})
    read: list[int] = []
    cache: Any = SimpleNamespace(folder=tmp_path, entries=lambda: read.append(1) or [len(read)])
    assert [module._all(cache), module._all(cache)] == [[1], [1]]
    (tmp_path / "winners" / "a" / "b").mkdir(parents=True)
    assert [module._all(cache), module._all(cache)] == [[2], [2]]


def test_heuristics_that_depend_on_the_config_are_told_by_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(words: Any) -> int:
        raise ValueError("a user's")

    layers = [("", {"EVEN": lambda words: words["BLOCK"] % 2 == 0, "SAME": lambda words: 7}),
              ("", {"LATER": lambda words: words["SAME"] + 1, "FAILS": fails})]  # fmt: skip
    monkeypatch.setattr(module.tuners, "heuristic_layers", lambda fn: (layers, None))
    listed = [SimpleNamespace(words=lambda i=i: {"BLOCK": i}) for i in range(2)]
    one: Any = SimpleNamespace(tuner=SimpleNamespace(fn=None), arguments={"n": 3, "FAILS": 9}, listed=listed)
    found = dict(module._heuristics(one))
    assert list(found) == ["EVEN", "FAILS", "LATER", "SAME"]
    assert (found["SAME"], found["LATER"], found["FAILS"], len(found["EVEN"])) == ("7", "8", "None", 16)
    one.tuner = None
    assert list(module._heuristics(one)) == []


@pytest.mark.parametrize(
    ("config", "searched", "ambiguous", "candidate", "index"),
    [
        (CONFIGS[1], (), (), 1, 1),
        (CONFIGS[1], (), (1,), None, None),
        (Config({"BLOCK": 9}), (), (), None, None),
        (Config({"BLOCK": 9}), (9,), (), (0, 9), (0, 9)),
        (Config({"BLOCK": 2}, num_stages=1), (), (), None, (2, 2)),
        (Config({"BLOCK": 1}, num_stages=1), (), (), None, None),
    ],
    ids=["listed", "with two hooks", "another", "searched", "the last with one stage", "another with one stage"],
)
def test_whose_place_among_the_candidates_a_config_has(
    config: Config, searched: Any, ambiguous: Any, candidate: Any, index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is added finds what the hook of the first leaves, or of the last, which it is."""
    add = SimpleNamespace(add_candidate=lambda site, like, config: (like, config.kwargs["BLOCK"]))
    monkeypatch.setattr(module, "Capture", add)
    search = SimpleNamespace(has=lambda config: config.kwargs["BLOCK"] in searched)
    one = site(search=search if searched else None)
    one.listed, one.ambiguous = one.candidates, lambda: set(ambiguous)
    assert module.candidate_of(one, config) == candidate
    assert module.index_of(one, config) == index
