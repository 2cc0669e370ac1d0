"""One call of a tuner, whose parts are scripted: what is launched, told, kept and left for later."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.config import Config
from kerntune.base.failed_candidates import FailedTrial
from kerntune.base.policy import TuneMode
from kerntune.errors import MeasurementError, TuningError
from kerntune.kernels.compat import tuners
from kerntune.kernels.dispatch import LaunchOutcome
from kerntune.tuning import tuned_call
from kerntune.tuning.admission import LAUNCHES_NOTHING
from kerntune.tuning.tune_options import DEFAULTS, Patience
from kerntune.tuning.tuned_call import _Call, run_tuned

KEY = (4096,)


class Listed:
    """A ``triton.Config``."""

    def __init__(self, name: str, hook: Callable[[Any], None] | None = None) -> None:
        self.name, self.pre_hook = name, hook

    def all_kwargs(self) -> dict[str, Any]:
        return {"BLOCK": self.name}


ORIGINALS = [Listed(name) for name in "abcd"]
CONFIGS = [Config({"BLOCK": i}) for i in range(4)]


@dataclass
class Site:
    """Of four candidates; notes the one that it is settled with."""

    kernel = "k"
    originals = ORIGINALS
    candidates = [SimpleNamespace(config=config) for config in CONFIGS]
    settled: int | None = None

    def settle(self, index: int) -> None:
        self.settled = index


class Winners:
    """Notes what is kept; another process may have stored another winner."""

    def __init__(self, **words: Any) -> None:
        self.mode, self.agrees, self.unfinished, self.stands = TuneMode.AUTO, False, False, None
        self.found: Any = None
        self.kept: list[Any] = []
        vars(self).update(words)

    def incumbent(self, site: Any) -> int:
        return 2

    def settles(self, site: Any) -> bool:
        return self.unfinished

    def keep(self, site: Any, winner: int, time_ns: float, untried: Any) -> int:
        self.kept.append((winner, time_ns, tuple(untried)))
        return winner if self.stands is None else self.stands

    def key(self, site: Any) -> str:
        return "the key"

    def stored(self, site: Any) -> Any:
        return self.found


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the engine says of a call, and to whom."""
    seen: list[Any] = []
    for name in (
        "note_chosen",
        "leave_for_later",
        "tell_failed",
        "tell_unraced",
        "warn_of",
        "log_config",
        "tell_tuned",
        "tell_unfit",
    ):
        monkeypatch.setattr(tuned_call, name, lambda *given, name=name, **words: seen.append((name, given, words)))
    monkeypatch.setattr(tuned_call, "timings_of", lambda site, tuned: "the times")
    monkeypatch.setattr(
        tuned_call, "Trials", lambda winners: SimpleNamespace(share=lambda site: seen.append(("share", (), {})))
    )
    monkeypatch.setattr(tuned_call, "noting", lambda: False)
    return seen


def names(told: list[Any]) -> list[str]:
    return [name for name, *_ in told]


def call(keep: bool = True, **words: Any) -> Any:
    made = _Call.__new__(_Call)
    made.tuner = SimpleNamespace(cache={}, configs=ORIGINALS, pre_hook=lambda words, reset_only: None)
    made.args, made.kwargs, made.named, made.key, made.keep = (1, 2), {"n": 3}, {"x": 1, "y": 2}, KEY, keep
    made.options = DEFAULTS
    vars(made).update(words)
    return made


def result(**words: Any) -> Any:
    found = {"winner": 1, "times_ns": {1: 5.0, 3: 7.0}, "failures": ["a failure"], "unraced": "", "stragglers": None}
    found["left_out"] = {2: "it spills"}
    return SimpleNamespace(**{**found, **words})


# the race


def raced(made: Any, winners: Any, tuned: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Any, Any]:
    """The winner, the site, and what :func:`tune_call` was given."""
    given: list[Any] = []

    def tune_call(capture: Any, site: Any, options: Any, **words: Any) -> Any:
        given.append((options, words))
        if isinstance(tuned, Exception):
            raise tuned
        return tuned

    monkeypatch.setattr(tuned_call, "tune_call", tune_call)
    site = Site()
    return made._race("the capture", site, winners), site, given[0]


@pytest.mark.parametrize("keep", [True, False])
def test_a_race_tells_the_tuner_and_keeps_its_winner(
    keep: bool, told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, winners = call(keep), Winners()
    winner, site, (options, words) = raced(made, winners, result(), monkeypatch)
    assert (winner, site.settled, options, words["incumbent"]) == (1, 1, DEFAULTS, 2)
    assert (words["trials"] is not None) is keep
    assert (made.tuner.configs_timings, made.tuner.left_out) == ("the times", {ORIGINALS[2]: "it spills"})
    assert winners.kept == [(1, 5.0, ())] * keep
    assert names(told) == ["tell_failed", *["note_chosen", "share"] * keep, "warn_of"]
    assert told[0][1][2] == ["a failure"]
    if keep:
        assert told[1][1] == ("the key", CONFIGS[1])


@pytest.mark.parametrize(
    ("agrees", "stands", "winner"), [(False, 3, 3), (False, 2, 1), (True, 2, 2), (True, None, 1)]
)  # fmt: skip
def test_another_process_s_winner_stands_if_it_was_timed_or_is_agreed_upon(
    agrees: bool, stands: int | None, winner: int, told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, site, _ = raced(call(), Winners(agrees=agrees, stands=stands), result(), monkeypatch)
    assert (found, site.settled) == (winner, winner)
    assert told[1][1] == ("the key", CONFIGS[winner])


@pytest.mark.parametrize("agrees", [False, True])
def test_stragglers_are_left_for_later_unless_others_go_on_with_the_same(
    agrees: bool, told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, winners, stragglers = call(), Winners(agrees=agrees), SimpleNamespace(indices=(0, 3))
    _, site, _ = raced(made, winners, result(stragglers=stragglers), monkeypatch)
    assert winners.kept == [(1, 5.0, (0, 3))]
    left = [given for name, given, _ in told if name == "leave_for_later"]
    assert left == [(made.tuner, KEY, site, 1, (0, 3), stragglers)] * (not agrees)


@pytest.mark.parametrize(
    ("keep", "unfinished", "patient"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_ranks_wait_for_all_where_an_earlier_run_did_not(
    keep: bool, unfinished: bool, patient: bool, told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(DEFAULTS, patience=Patience(3.0))
    _, _, (given, _) = raced(call(keep, options=options), Winners(unfinished=unfinished), result(), monkeypatch)
    assert (given.patience is None) is patient


def test_a_tuning_that_fails_tells_each_failure(told: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    failure = FailedTrial("k", CONFIGS[0], "no")
    with pytest.raises(TuningError):
        raced(call(), Winners(), TuningError("none is left", [failure]), monkeypatch)
    assert [(name, list(given[2])) for name, given, _ in told] == [("tell_failed", [failure])]


@pytest.mark.parametrize(("why", "settled"), [("it is large", 1), (LAUNCHES_NOTHING, None)])
def test_what_could_not_be_raced_is_settled_unless_it_launches_nothing(
    why: str, settled: int | None, told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, winners = call(), Winners()
    winner, site, _ = raced(made, winners, result(unraced=why), monkeypatch)
    assert (winner, site.settled, winners.kept) == (1, settled, [])
    assert names(told) == ["tell_failed", *["tell_unraced"] * (settled is not None)]


# a winner that was stored


@pytest.mark.parametrize(
    ("mode", "noting", "agrees", "untried", "left"),
    [(TuneMode.AUTO, False, False, (0, 3), True), (TuneMode.FROZEN, False, False, (0,), False),
     (TuneMode.NEAREST, False, False, (0,), False), (TuneMode.AUTO, True, False, (0,), False),
     (TuneMode.AUTO, False, True, (0,), False), (TuneMode.AUTO, False, False, (), False)],
)  # fmt: skip
def test_a_stored_winner_is_told_and_what_it_was_not_held_against_is_left(
    mode: TuneMode, noting: bool, agrees: bool, untried: Any, left: bool, told: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(tuned_call, "noting", lambda: noting)
    made, site = call(), Site()
    stored = SimpleNamespace(time_ns=2e6, untried=[CONFIGS[i] for i in untried])
    made._reuse(site, 1, Winners(mode=mode, agrees=agrees, found=stored))
    assert (site.settled, made.tuner.configs_timings) == (1, {ORIGINALS[1]: [2.0, 2.0, 2.0]})
    assert told[:2] == [
        ("note_chosen", ("the key", CONFIGS[1]), {}),
        ("log_config", (site, "stored winner", 1), {"time_ns": 2e6}),
    ]
    assert told[2:] == [("leave_for_later", (made.tuner, KEY, site, 1, list(untried)), {})] * left


def test_of_a_winner_that_is_not_stored_nothing_is_told(told: list[Any]) -> None:
    site = Site()
    call()._reuse(site, 1, Winners())
    assert (site.settled, names(told)) == (1, ["note_chosen"])


# launches


def launching(made: Any, *errors: Any) -> list[str]:
    """The configs that are launched; each of the first has its error."""
    seen: list[str] = []
    left = list(errors)

    def launch(config: Listed) -> str:
        seen.append(config.name)
        if left and (error := left.pop(0)) is not None:
            raise error
        return f"launched {config.name}"

    made.launch = launch
    return seen


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> type[Exception]:
    monkeypatch.setattr(tuners, "launch_errors", lambda: (ValueError,))
    return ValueError


@pytest.mark.parametrize(
    ("fails", "near", "unfit"),
    [(0, True, False), (1, True, True), (1, False, False), (2, True, True), (3, False, False)],
)
def test_the_first_config_that_can_be_launched_is_kept(
    fails: int, near: bool, unfit: bool, refused: type[Exception], told: list[Any]
) -> None:
    made = call()
    seen = launching(made, *(refused(f"no {i}") for i in range(fails)))
    assert made._launch_one_of(ORIGINALS, near) == f"launched {'abcd'[fails]}"
    assert seen == list("abcd"[: fails + 1])
    assert made.tuner.cache == {KEY: ORIGINALS[fails]}
    assert [(name, given[:2], str(given[2])) for name, given, _ in told] == [
        ("tell_unfit", (made.tuner, ORIGINALS[0]), "no 0")
    ] * unfit


def test_without_one_that_can_be_launched_the_last_error_is_raised(refused: type[Exception], told: list[Any]) -> None:
    made = call()
    launching(made, *(refused(f"no {i}") for i in range(4)))
    with pytest.raises(refused, match="no 3"):
        made._launch_one_of(ORIGINALS)
    assert (made.tuner.cache, told) == ({}, [])


def test_a_first_launch_begins_with_what_is_reset(told: list[Any]) -> None:
    made, seen = call(), list[Any]()
    launching(made)
    made.tuner.pre_hook = lambda words, reset_only: seen.append((words, reset_only))
    made.tuner.cache[KEY] = ORIGINALS[2]
    assert made._launch_first(Site(), 2, 1.5) == "launched c"
    assert seen == [({"x": 1, "y": 2, "n": 3, "BLOCK": "c"}, True)]
    assert made.tuner.bench_time == 1.5
    assert [(name, given[2:]) for name, given, _ in told] == [("tell_tuned", (KEY, 1.5, 0))]
    made.tuner.cache.clear()
    assert made._launch_first(Site(), 1, 1.5) == "launched b"
    assert len(seen) == len(told) == 1, "of an empty grid nothing is told"


@pytest.mark.parametrize(("listed", "known"), [(ORIGINALS[:1], ORIGINALS[0]), (ORIGINALS, None)])
def test_one_config_needs_no_winner(listed: list[Listed], known: Any) -> None:
    made = call()
    made.tuner.configs = listed
    assert made.known() is known
    made.tuner.cache[KEY] = ORIGINALS[3]
    assert made.known() is (known or ORIGINALS[3])


def test_a_launch_runs_the_configs_hook_with_all_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNTUNE_DUMP", raising=False)
    monkeypatch.setattr(tuned_call, "launch_observed", lambda seen, run: (seen, run()))
    made, heard = call(), list[Any]()
    made.tuner.fn = SimpleNamespace(run=lambda *args, **words: (args, words))
    config = Listed("e", heard.append)
    seen, ran = made.launch(config)
    assert heard == [{"x": 1, "y": 2, "n": 3, "BLOCK": "e"}]
    assert (ran, made.tuner.best_config) == (((1, 2), {"n": 3, "BLOCK": "e"}), config)
    assert (seen.tuner, seen.key, seen.config) == (made.tuner, KEY, config)


@pytest.mark.parametrize("captures", [False, True])
def test_nothing_is_tuned_while_a_graph_is_captured(captures: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned_call, "captures_graph", lambda: captures)
    if captures:
        with pytest.raises(MeasurementError, match=r"kernel k has no winner yet .* call it once before the capture"):
            tuned_call._refuse_graph_capture("k")
    else:
        tuned_call._refuse_graph_capture("k")


# configs that came too late


class Lock:
    def __init__(self, free: bool = True) -> None:
        self.free, self.released = free, 0

    def acquire(self, blocking: bool) -> bool:
        assert not blocking
        return self.free

    def release(self) -> None:
        self.released += 1


@pytest.mark.parametrize(
    ("keep", "mode", "captures", "free", "gpu", "tries"),
    [(True, TuneMode.AUTO, False, True, True, True), (True, TuneMode.FROZEN, False, True, True, False),
     (True, TuneMode.NEAREST, False, True, True, False), (False, TuneMode.FROZEN, False, True, True, True),
     (True, TuneMode.AUTO, True, True, True, False), (True, TuneMode.AUTO, False, False, True, False),
     (True, TuneMode.AUTO, False, True, False, False)],
)  # fmt: skip
def test_when_late_configs_are_tried(
    keep: bool, mode: TuneMode, captures: bool, free: bool, gpu: bool, tries: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, lock = list[Any](), Lock(free)
    backend = SimpleNamespace(gpu="the GPU" if gpu else None)
    monkeypatch.setattr(tuned_call, "TUNING_LOCK", lock)
    monkeypatch.setattr(tuned_call, "mode_of", lambda tuner: mode)
    monkeypatch.setattr(tuned_call, "captures_graph", lambda: captures)
    monkeypatch.setattr(tuned_call.context, "this_gpu", lambda: backend)
    monkeypatch.setattr(tuned_call.context, "open_capture", lambda backend: "the capture")
    monkeypatch.setattr(tuned_call, "try_late_configs", lambda *given: tried.append(given))
    made = call(keep, winners_on=lambda gpu: "the winners")
    made.tuner.cache[KEY] = ORIGINALS[1]
    found = made.try_late()
    assert tried == [(made.tuner, KEY, (1, 2), {"n": 3}, "the capture", "the winners", DEFAULTS)] * tries
    reached = tries or not gpu
    assert (found, lock.released) == ((ORIGINALS[1], 1) if reached else (None, 0))


@pytest.fixture
def late_call(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tuner whose call has a winner, ``a``; late ones may replace it by ``b``."""
    made = call()
    made.known = lambda: ORIGINALS[0]
    launching(made)
    made.try_late = lambda: ORIGINALS[1]
    made.tuner.base_fn = SimpleNamespace(__name__="k")
    monkeypatch.setattr(tuned_call, "_Call", lambda tuner, args, kwargs, keep: made)
    monkeypatch.setattr(tuned_call.captures, "wait_while_suspended", lambda name: None)
    monkeypatch.setattr(tuned_call, "is_exporting", lambda: False)
    monkeypatch.setattr(tuned_call, "watch_environment", lambda: None)
    monkeypatch.setattr(tuned_call, "outside_graph_pool", lambda work: work())
    return made


@pytest.mark.parametrize(
    ("late", "after", "warmup", "launched", "config"),
    [
        pytest.param(None, None, False, "a", 0, id="none"),
        pytest.param(True, None, False, "b", 1, id="tried now"),
        pytest.param(True, True, False, "b", None, id="still due"),
        pytest.param(False, False, False, "a", 0, id="not due"),
        pytest.param(True, True, True, "a", None, id="a warm-up"),
    ],
)
def test_what_a_call_with_late_configs_launches(
    late_call: Any, late: bool | None, after: bool | None, warmup: bool, launched: str, config: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What is still due isn't prepared for: the next call must come this way, too."""
    one = None if late is None else SimpleNamespace(due=late)
    answers = iter([one, one if after is not None else None])
    monkeypatch.setattr(tuned_call, "late_of", lambda tuner, key: next(answers))
    words = {"warmup": True} if warmup else {}
    found = run_tuned(late_call.tuner, (), words, keep=True, plain=lambda: None)
    assert found == LaunchOutcome(f"launched {launched}", None if config is None else ORIGINALS[config])


def test_a_call_whose_late_configs_can_not_be_tried_now_goes_on(
    late_call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = SimpleNamespace(due=True)
    monkeypatch.setattr(tuned_call, "late_of", lambda tuner, key: one)
    late_call.try_late = lambda: None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = run_tuned(late_call.tuner, (), {}, keep=True, plain=lambda: None)
    assert found == LaunchOutcome("launched a", None)
