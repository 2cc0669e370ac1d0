"""Configs that came too late for a first call: what is remembered of them, when they are tried, what follows."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.config import Config
from kerntune.compiling.compiler import Compiled
from kerntune.errors import CaptureError, CompileError, MeasurementError, TuningError
from kerntune.tuning import tune_call as module
from kerntune.tuning.stored_trials import KnownTrials
from kerntune.tuning.tune_call import LateConfigs, late_of, leave_for_later, try_late_configs
from kerntune.tuning.tune_options import DEFAULTS, Patience
from kerntune.tuning.tuning_result import TuningResult

KEY = (4096,)
CONFIGS = [Config({"BLOCK": i}) for i in range(4)]


class Tuner:
    """One that can be referred to weakly."""

    def __init__(self) -> None:
        self.cache: dict[Any, Any] = {}
        self.base_fn = SimpleNamespace(__name__="k")


def site_of(*places: int, ambiguous: tuple[int, ...] = ()) -> Any:
    """A site of some of the configs, in this order."""
    settled: list[int] = []
    return SimpleNamespace(
        kernel="k",
        candidates=[SimpleNamespace(config=CONFIGS[i]) for i in places],
        originals=[f"original {i}" for i in places],
        ambiguous=lambda: set(ambiguous),
        settle=settled.append,
        settled=settled,
    )


def batch() -> Any:
    return SimpleNamespace(coming=SimpleNamespace(done=Future()))


@pytest.mark.parametrize(("compiled", "ready", "due"), [(None, False, True), (False, False, False), (True, True, True)])
def test_late_configs_are_due_when_none_is_compiled_or_all_are(compiled: bool | None, ready: bool, due: bool) -> None:
    stragglers = None if compiled is None else batch()
    if stragglers is not None and compiled:
        stragglers.coming.done.set_result(None)
    late = LateConfigs([], frozenset(), CONFIGS[0], stragglers)
    assert (late.ready, late.due) == (ready, due)


def test_what_is_left_for_later_is_the_configs_as_the_user_wrote_them() -> None:
    tuner, site = Tuner(), site_of(0, 1, 2, 3)
    assert late_of(tuner, KEY) is None
    leave_for_later(tuner, KEY, site, 1, (3, 0))
    late = late_of(tuner, KEY)
    assert late == LateConfigs(["original 0", "original 3"], frozenset({CONFIGS[0], CONFIGS[3]}), CONFIGS[1], None)
    leave_for_later(tuner, (1,), site, 2, (3,))
    assert late_of(tuner, KEY) is late, "beside those of another key"


def test_once_all_are_compiled_the_winner_becomes_another_object() -> None:
    """A prepared launch is of the very object, so the next call comes the slow way."""
    tuner, stragglers, won = Tuner(), batch(), SimpleNamespace(name="won")
    tuner.cache[KEY] = won
    leave_for_later(tuner, KEY, site_of(0, 1, 2), 1, (2,), stragglers)
    assert late_of(tuner, KEY).stragglers is stragglers  # type: ignore[union-attr]
    assert tuner.cache[KEY] is won
    stragglers.coming.done.set_result(None)
    assert tuner.cache[KEY] is not won
    assert tuner.cache[KEY] == won


@pytest.mark.parametrize("gone", ["tuner", "late", "cache"])
def test_nothing_becomes_of_late_configs_that_nobody_waits_for(gone: str) -> None:
    tuner, stragglers, won = Tuner(), batch(), SimpleNamespace(name="won")
    cache = tuner.cache
    cache[KEY] = won
    leave_for_later(tuner, KEY, site_of(0, 1, 2), 1, (2,), stragglers)
    if gone == "late":
        leave_for_later(tuner, KEY, site_of(0, 1, 2), 1, (0,))
    elif gone == "cache":
        cache.clear()
    else:
        del tuner
    stragglers.coming.done.set_result(None)
    assert cache == ({} if gone == "cache" else {KEY: won})
    assert gone == "cache" or cache[KEY] is won


# when they are tried


class Gpu:
    """Whose lock another process may hold."""

    def __init__(self, busy: bool = False) -> None:
        self.busy, self.waited, self.free = busy, list[float](), True

    @contextlib.contextmanager
    def lock(self, wait_s: float) -> Iterator[None]:
        self.waited.append(wait_s)
        if self.busy:
            raise MeasurementError("another process measures")
        self.free = False
        yield
        self.free = True


def tried(gpu: Any, tuner: Any, step: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The steps that were taken."""
    taken: list[Any] = []

    def next_step(*given: Any) -> Any:
        taken.append(given)
        assert not gpu.free
        return step()

    monkeypatch.setattr(module, "_next_step", next_step)
    capture: Any = SimpleNamespace(
        backend=SimpleNamespace(gpu=gpu), site_of=lambda tuner, args, kwargs: (tuner, args, kwargs)
    )
    try_late_configs(tuner, KEY, (1,), {"n": 2}, capture, "winners", DEFAULTS)  # type: ignore[arg-type]
    return taken


@pytest.mark.parametrize(
    ("left", "due", "busy", "steps"),
    [(True, True, False, 1), (True, False, False, 0), (False, True, False, 0), (True, True, True, 0)],
)
def test_late_configs_are_tried_when_they_are_due_and_nobody_else_measures(
    left: bool, due: bool, busy: bool, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, tuner, warned = Gpu(busy), Tuner(), list[Any]()
    monkeypatch.setattr(module, "warn_of", lambda site, tuned: warned.append((site, tuned)))
    if left:
        leave_for_later(tuner, KEY, site_of(0, 1), 1, (0,), None if due else batch())
    taken = tried(gpu, tuner, lambda: "tuned", monkeypatch)
    assert len(taken) == steps
    assert gpu.waited == [0.0] * (left and due), "it is not waited for"
    assert warned == [((tuner, (1,), {"n": 2}), "tuned")] * steps
    assert gpu.free
    assert (late_of(tuner, KEY) is not None) is left


def test_what_goes_wrong_is_told_once_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, tuner = Gpu(), Tuner()
    leave_for_later(tuner, KEY, site_of(0, 1, 2), 1, (0, 2))

    def fail() -> None:
        raise ValueError("a user's hook")

    with pytest.warns(RuntimeWarning) as told:
        assert len(tried(gpu, tuner, fail, monkeypatch)) == 1
    assert [str(w.message) for w in told] == ["kernel k: 2 configs could not be tried later: a user's hook"]
    assert late_of(tuner, KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tried(gpu, tuner, fail, monkeypatch) == []


class Winners:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, site: Any, winner: int, time_ns: float) -> None:
        self.kept.append((winner, time_ns))

    def key(self, site: Any) -> str:
        return "the key"


@pytest.fixture
def stepping(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes a step, and notes what came of it."""
    found = SimpleNamespace(tuner=Tuner(), winners=Winners(), seen=[], settled=None, batch=batch())
    for name in ("tell_failed", "tell_tuned", "note_chosen"):
        monkeypatch.setattr(module, name, lambda *given, name=name: found.seen.append((name, *given)))
    monkeypatch.setattr(module, "compile_late", lambda *given: found.seen.append(("compiled", *given)) or found.batch)
    monkeypatch.setattr(
        module, "settle_call", lambda *given, **words: found.seen.append(("settled", *given, words)) or found.settled
    )
    monkeypatch.setattr(module, "timings_of", lambda site, tuned: "the times")
    monkeypatch.setattr(module, "merged_timings", lambda *given: given)
    monkeypatch.setattr(module, "Trials", lambda winners: "the trials")

    def step(site: Any, keep: bool = True) -> Any:
        late = late_of(found.tuner, KEY)
        options = replace(DEFAULTS, keep=keep)
        return module._next_step(found.tuner, KEY, late, "capture", site, found.winners, options)  # type: ignore[arg-type]

    found.step = step
    return found


@pytest.mark.parametrize(
    "site",
    [site_of(0, 2), site_of(1, 2), site_of(0, 1, 2, ambiguous=(1,)), site_of(0, 1, 2, ambiguous=(0,))],
    ids=["no winner", "no late one", "two winners", "two late ones"],
)
def test_without_a_winner_or_late_ones_there_is_nothing_to_compare(stepping: Any, site: Any) -> None:
    leave_for_later(stepping.tuner, KEY, site_of(0, 1), 1, (0,), stepping.batch)
    assert stepping.step(site) is None
    assert (late_of(stepping.tuner, KEY), stepping.seen) == (None, [])


@pytest.mark.parametrize("begun", [True, False], ids=["not for these arguments", "by an ended process"])
def test_what_is_not_compiled_is_compiled_while_the_caller_goes_on(stepping: Any, begun: bool) -> None:
    leave_for_later(stepping.tuner, KEY, site_of(0, 1, 2), 1, (0,), batch() if begun else None)
    site = site_of(2, 1, 0)
    assert stepping.step(site) is None
    assert [name for name, *_ in stepping.seen] == ["settled"] * begun + ["compiled"]
    assert stepping.seen[-1] == ("compiled", "capture", site, {1, 2})
    late = late_of(stepping.tuner, KEY)
    assert late is not None
    assert late.stragglers is stepping.batch


@pytest.mark.parametrize("keep", [True, False])
def test_a_faster_late_one_takes_over(stepping: Any, keep: bool) -> None:
    leave_for_later(stepping.tuner, KEY, site_of(0, 1, 2), 1, (0,), stepping.batch)
    stepping.settled = SimpleNamespace(winner=2, times_ns={2: 7.0}, failures=["failed"], left_out={0: "spills"})
    stepping.tuner.left_out = {"before": "why"}
    stepping.tuner.configs_timings = "before"
    site = site_of(2, 1, 0)
    assert stepping.step(site, keep) is stepping.settled
    assert (late_of(stepping.tuner, KEY), site.settled) == (None, [2])
    assert stepping.winners.kept == [(2, 7.0)] * keep
    settled, failed, *chosen, tuned = stepping.seen
    assert settled == (
        "settled",
        "capture",
        site,
        1,
        [2],
        replace(DEFAULTS, keep=keep),
        {"trials": "the trials" if keep else None},
    )
    assert failed == ("tell_failed", "capture", site, ["failed"])
    assert chosen == [("note_chosen", "the key", CONFIGS[0])] * keep
    assert tuned[:4] == ("tell_tuned", stepping.tuner, site, KEY)
    assert 0 <= tuned[4] < 60
    assert stepping.tuner.left_out == {"before": "why", "original 2": "spills"}
    assert stepping.tuner.configs_timings == ("before", "the times", "original 1")


# how they are held against the winner


@pytest.fixture
def settling(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Everything is compiled, and the grids are full."""
    pool = SimpleNamespace(known=KnownTrials({1: None}, {}, {("c", (1, 1, 1)): "wrong"}), left=0, closed=0, among=None)  # type: ignore[dict-item]
    pool.probes = {i: SimpleNamespace(grid=(1, 1, 1)) for i in (0, 1)}
    pool.to_compile = lambda: pool.left
    pool.close = lambda: setattr(pool, "closed", pool.closed + 1)
    pool.tuned, pool.given = SimpleNamespace(unraced=""), None

    def pool_of(capture: Any, site: Any, stored: Any = None, among: Any = None) -> Any:
        pool.among, pool.stored = among, stored
        return pool

    def tuned(capture: Any, pool: Any, loader: Any, options: Any, **words: Any) -> Any:
        assert not pool.closed
        pool.given = (options, words)
        return pool.tuned

    monkeypatch.setattr(module, "pool_of", pool_of)
    monkeypatch.setattr(module, "_tuned", tuned)
    monkeypatch.setattr(module, "_loading", lambda capture: contextlib.nullcontext("loader"))
    monkeypatch.setattr(
        module, "KEPT_ISOLATION", SimpleNamespace(lent=lambda gpu, mode: contextlib.nullcontext("isolation"))
    )
    return pool


CAPTURE: Any = SimpleNamespace(backend=SimpleNamespace(gpu="the GPU"), active=contextlib.nullcontext)


def test_the_winner_of_an_earlier_call_is_proven_and_nothing_is_waited_for(settling: Any) -> None:
    options, trials = replace(DEFAULTS, patience=Patience(1.0)), SimpleNamespace(at=lambda site: f"stored of {site}")
    assert module.settle_call(CAPTURE, "site", 1, [0], options, trials=trials) is settling.tuned  # type: ignore[arg-type]
    assert (settling.among, settling.stored, settling.closed) == ({0, 1}, "stored of site", 1)
    assert settling.given == (DEFAULTS, {"proven": True, "incumbent": 1, "isolation": "isolation"})
    assert settling.known == KnownTrials(bad={("c", (1, 1, 1)): "wrong"}), "earlier times are not believed"


@pytest.mark.parametrize("why", ["compile", "empty"])
def test_nothing_is_settled_that_would_be_waited_for_or_launches_nothing(settling: Any, why: str) -> None:
    settling.left = int(why == "compile")
    settling.probes[1].grid = (1, 0, 1) if why == "empty" else (1, 1, 1)
    assert module.settle_call(CAPTURE, "site", 1, [0], DEFAULTS, trials=None) is None  # type: ignore[arg-type]
    assert (settling.given, settling.stored) == (None, None)


def test_what_can_not_be_put_back_is_an_error_of_a_late_one(settling: Any) -> None:
    settling.tuned = SimpleNamespace(unraced="it changes a queue")
    with pytest.raises(MeasurementError, match="it changes a queue"):
        module.settle_call(CAPTURE, "site", 1, [0], DEFAULTS, trials=None)  # type: ignore[arg-type]


def test_late_ones_of_an_earlier_process_are_compiled_behind(settling: Any) -> None:
    settling.compile_behind = lambda: "the batch"
    site: Any = "site"
    assert module.compile_late(CAPTURE, site, [2, 3]) == "the batch"  # type: ignore[comparison-overlap]
    assert settling.among == [2, 3]


# a call that can't be raced


@pytest.mark.parametrize("found", ["unraced", "recorded", "failed"])
def test_a_call_that_can_not_be_raced_takes_its_first_config(
    settling: Any, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraced = TuningResult.__new__(TuningResult)

    def recorded(capture: Any, pool: Any, incumbent: Any) -> Any:
        assert (pool.among, incumbent) == ({0}, None)
        if found == "failed":
            raise TuningError("none can be used")
        return unraced if found == "unraced" else "a recording"

    monkeypatch.setattr(module, "_recorded", recorded)
    site: Any = "site"
    assert module.unraced_call(CAPTURE, site) is (unraced if found == "unraced" else None)
    assert settling.closed == 1


@pytest.mark.parametrize(
    ("unsaved", "error", "why"),
    [
        ("", None, None),
        ("it changes a queue", None, "it changes a queue"),
        ("", CaptureError("no such memory"), "no such memory"),
    ],
)
def test_a_call_is_recorded_or_says_why_it_is_not_raced(
    unsaved: str, error: Exception | None, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, staged = SimpleNamespace(unsaved=unsaved), list[Any]()

    def record(capture: Any) -> Any:
        if error is not None:
            raise error
        return made

    monkeypatch.setattr(module, "record", record)
    monkeypatch.setattr(module, "_stage_first", lambda capture, pool: staged.append(pool))
    monkeypatch.setattr(module, "unraced", lambda capture, pool, incumbent, why: (pool, incumbent, why))
    capture: Any = "capture"
    pool: Any = "pool"
    assert module._recorded(capture, pool, 3) == (made if why is None else ("pool", 3, why))
    assert staged == ["pool"]


def test_the_first_config_that_compiles_is_staged() -> None:
    compiled, staged = Compiled.__new__(Compiled), list[Any]()
    results = {
        "stage 0": [(0, CompileError("no 0"))],
        "stage 1": [(2, CompileError("no 2")), (1, compiled), (3, compiled)],
    }
    pool: Any = SimpleNamespace(site=site_of(0, 1, 2, 3), probes={1: "probe 1"}, refused={3: "refused"})
    pool.stages, pool.first_compiled = lambda: iter(results), results.__getitem__
    capture: Any = SimpleNamespace(stage=lambda *given: staged.append(given))
    module._stage_first(capture, pool)
    assert staged == [(pool.site, 1, "probe 1", compiled)]
    results["stage 1"] = results["stage 1"][:1]
    with pytest.raises(TuningError) as caught:
        module._stage_first(capture, pool)
    assert [(f.config, f.reason) for f in caught.value.failures] == [
        (CONFIGS[3], "refused"), (CONFIGS[0], "no 0"), (CONFIGS[2], "no 2"),
    ]  # fmt: skip
