"""The steps of one launch's tuning, each alone: stages, the pause, the race, the verification, the end."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.config import Config
from kerntune.errors import TrialError
from kerntune.tuning import tuner as module
from kerntune.tuning.race import Screening
from kerntune.tuning.tune_options import DEFAULTS, Patience
from kerntune.tuning.tuner import _Tuning
from kerntune.tuning.verification import Verification, Verify


def trial(index: int, time_ns: float = 1.0) -> Any:
    return SimpleNamespace(index=index, time_ns=time_ns, program=f"program {index}")


class Trials:
    """A set of trials that notes what it is told."""

    def __init__(self, *alive: Any) -> None:
        self.did: list[Any] = []
        listed = [SimpleNamespace(config=Config({"BLOCK": i}, num_stages=3)) for i in range(3)]
        self.site = SimpleNamespace(kernel="k", candidates=listed, listed=listed, search=None, searched=False)
        self.pool = SimpleNamespace(stages=lambda: ([0, 1], [2], [3]), rejoin=lambda: [], probes={0: "probe 0"})
        self.memory = SimpleNamespace(give_back=lambda: self.did.append("memory"))
        self.elsewhere: Any = SimpleNamespace(close=lambda: self.did.append("elsewhere"), notes=lambda: ("a process",))
        self.capture = SimpleNamespace(compiler=SimpleNamespace(flush=lambda: self.did.append("compiler")))
        self.incumbent, self.alive, self.lack, self.index = 2, list(alive), False, 1

    def forget(self) -> None:
        self.did.append("forgotten")

    def all_lack_resources(self) -> bool:
        return self.lack

    def keep(self, one: Any) -> None:
        self.did.append(one.index)

    def note_times(self, alive: Any) -> None:
        self.did.append([t.index for t in alive])

    def note_wrong(self, one: Any, why: str, remember: bool) -> None:
        self.did.append((one.index, why, remember))

    def estimated_trials(self) -> list[Any]:
        return self.alive


def tuning(trials: Trials, **words: Any) -> Any:
    said: list[str] = []
    prescreen: Any = SimpleNamespace(readmitted=lambda: [4])
    given: Any = (
        trials,
        prescreen,
        DEFAULTS,
        False,
        False,
        said.append,
        lambda index: trials.did.append(("ahead", index)),
    )
    made: Any = _Tuning(*given)
    made.said = said
    vars(made).update(words)
    return made


@pytest.mark.parametrize("fails", [False, True])
def test_at_the_end_all_is_as_it_was_whatever_happens(fails: bool) -> None:
    trials = Trials()
    made = tuning(trials)
    if fails:
        trials.memory.give_back = lambda: 1 / 0  # type: ignore[assignment, return-value]
        with pytest.raises(ZeroDivisionError):
            made.close()
        assert trials.did == ["elsewhere", "compiler"]
    trials, trials.elsewhere = Trials(), None
    tuning(trials).close()
    assert trials.did == ["memory", "compiler"]


@pytest.mark.parametrize(("last", "stages"), [(None, []), (7, [[7]]), (0, [])])
def test_stages_are_the_likely_the_slower_the_failed_and_those_left_out(last: int | None, stages: Any) -> None:
    """Earlier failures count until the failed are tried again."""
    trials = Trials()
    made, found = tuning(trials, _with_one_stage=lambda: last), list[Any]()
    for stage in made.stages():
        found.append((stage, list(trials.did)))
    assert found == [
        ([0, 1], []),
        ([2], []),
        ([3], ["forgotten"]),
        ([4], ["forgotten"]),
        *[(s, ["forgotten"]) for s in stages],
    ]


@pytest.mark.parametrize(
    ("lack", "stages", "usable", "found"),
    [(True, 3, True, 5), (False, 3, True, None), (True, 1, True, None), (True, 3, False, None)],
)
def test_where_all_lack_resources_the_last_has_one_more_try(
    lack: bool, stages: int, usable: bool, found: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials, added = Trials(), list[Any]()
    trials.lack = lack
    trials.site.candidates[2].config = Config({"BLOCK": 2}, num_stages=stages)
    trials.capture.add_candidate = lambda *given: added.append(given) or 5  # type: ignore[attr-defined]
    pool = SimpleNamespace(probes={5: "probe 5"} if usable else {})
    monkeypatch.setattr(module, "pool_of", lambda capture, site, among: pool if among == {5} else None)
    assert tuning(trials)._with_one_stage() == found
    tried = lack and stages == 3
    assert added == [(trials.site, 2, Config({"BLOCK": 2}, num_stages=1))] * tried
    assert trials.pool.probes == {0: "probe 0", **({5: "probe 5"} if found else {})}


def test_the_winner_of_the_race_that_follows_wrong_ones_counts_and_all_are_stored() -> None:
    alive = [trial(0), trial(1), trial(2)]
    trials = Trials()
    outcomes = iter([None, alive[1]])

    def winner(left: list[Any]) -> Any:
        found = next(outcomes)
        if found is None:
            left.pop(0)
        return found

    made = tuning(trials, _estimated=lambda candidates: alive, _winner=winner)
    assert made.best_of([0, 1, 2]).index == 1
    assert made.said == ["k: timing 3 of 3 configs"]
    assert sorted(trials.did) == [1, 2], "not those that were wrong"


@pytest.mark.parametrize("late", [[3], []])
def test_where_none_is_left_stragglers_are_waited_for(late: list[int]) -> None:
    trials, asked = Trials(), list[Any]()
    rounds = iter([late])
    trials.pool.rejoin = lambda: next(rounds, [])

    def estimated(candidates: Any) -> list[Any]:
        asked.append((list(candidates), made.options.patience))
        return [trial(i) for i in candidates if i == 3]

    made = tuning(trials, options=replace(DEFAULTS, patience=Patience(1.0, 0.0)), _estimated=estimated)
    made._winner = lambda alive: alive[0]
    best = made.best_of([0, 1])
    assert (best and best.index) == (3 if late else None)
    assert asked == [([0, 1], Patience(1.0, 0.0)), *[([3], None)] * bool(late)]
    assert trials.did == late


@pytest.mark.parametrize(
    ("alive", "patience", "waits"), [(0, 0.0, True), (1, 0.0, False), (2, 0.0, False), (2, None, True), (2, 50.0, True)]
)
def test_in_a_pause_those_that_are_there_are_raced(alive: int, patience: float | None, waits: bool) -> None:
    """Who has patience waits so long from the first pause on, and for ever for the first candidate."""
    trials, raced = Trials(*map(trial, range(alive))), list[Any]()
    made = tuning(trials, options=replace(DEFAULTS, patience=None if patience is None else Patience(patience)))
    made.screening = SimpleNamespace(finalists_of=raced.append)
    pause = made._pause_of()
    first = pause()
    assert (first > time.monotonic()) is waits
    assert math.isinf(first) is (patience is None or not alive)
    assert raced == [trials.alive] * (alive > 1)
    if alive and patience is not None:
        assert pause() == first


# the race and the verification


@pytest.fixture
def racing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of three trials the first two are finalists, and the second wins; notes who is verified."""
    alive = [trial(0, 2.0), trial(1, 1.0), trial(2, 9.0)]
    trials = Trials(*alive)
    made = tuning(trials)
    made.screening = SimpleNamespace(finalists_of=lambda alive: alive[:2])
    made.wrong, made.verified = set(), []

    def drop_wrong(left: list[Any], suspects: list[Any]) -> bool:
        made.verified.append([t.index for t in suspects])
        return any(t.index in made.wrong for t in suspects)

    made._drop_wrong = drop_wrong
    monkeypatch.setattr(
        module, "decided", lambda finalists, incumbent, limited: [finalists[1], finalists[0]] if incumbent == 2 else []
    )
    monkeypatch.setattr(module, "log_race", lambda site, *given: trials.did.append(("logged", *given)))
    return made


@pytest.mark.parametrize(
    ("mode", "verified"),
    [(Verify.WINNER, [[1]]), (Verify.OFF, [[]]), (Verify.FINALISTS, [[0, 1], [1]]), (Verify.ALL, [[0, 1, 2], [1]]),
     (Verify.BITWISE, [[0, 1, 2], [1]])],
)  # fmt: skip
def test_who_is_verified(racing: Any, mode: Verify, verified: list[list[int]]) -> None:
    racing.options = replace(DEFAULTS, verification=Verification(mode))
    alive = racing.trial_set.alive
    assert racing._winner(list(alive)) is alive[1]
    assert racing.verified == verified
    assert racing.trial_set.did == [("ahead", 1), ("logged", alive, alive[:2], alive[1])]


@pytest.mark.parametrize(
    ("mode", "wrong", "did"),
    [(Verify.WINNER, 1, 2), (Verify.FINALISTS, 0, 1), (Verify.ALL, 2, 0), (Verify.BITWISE, 2, 0)],
)
def test_a_wrong_one_ends_a_race_without_a_winner(racing: Any, mode: Verify, wrong: int, did: int) -> None:
    racing.options, racing.wrong = replace(DEFAULTS, verification=Verification(mode)), {wrong}
    assert racing._winner(list(racing.trial_set.alive)) is None
    assert len(racing.trial_set.did) == did


@pytest.mark.parametrize(
    ("confirmed", "bitwise", "remember"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_wrong_ones_leave_the_race_and_are_remembered_where_that_is_clear(
    confirmed: bool, bitwise: bool, remember: bool
) -> None:
    alive = [trial(0), trial(1), trial(2)]
    trials = Trials()
    made = tuning(trials)
    asked: list[Any] = []
    consensus = SimpleNamespace(
        wrong=lambda suspects, alive: asked.append((list(suspects), list(alive))) or {0: "other", 2: "values"},
        verifier=SimpleNamespace(confirmed=confirmed, bitwise=bitwise),
    )
    made._consensus = lambda alive: consensus
    screening, left = made.screening, list(alive)
    assert made._drop_wrong(left, alive[:2]) is True
    assert (left, asked) == ([alive[1]], [(alive[:2], alive)])
    assert trials.did == [[0, 1, 2], (0, "other", remember), (2, "values", remember)]
    assert made.screening == Screening()
    assert made.screening is not screening, "a wrong one may have dropped others"


def test_without_suspects_or_wrong_ones_nothing_changes() -> None:
    alive, trials = [trial(0)], Trials()
    made = tuning(trials)
    screening = made.screening
    assert made._drop_wrong(alive, []) is False
    made._consensus = lambda alive: SimpleNamespace(wrong=lambda suspects, alive: {})
    assert made._drop_wrong(alive, alive) is False
    assert (len(alive), trials.did) == (1, [[0], [0]])
    assert made.screening is screening


@pytest.mark.parametrize(
    ("captured", "proven", "trusted", "mode", "reference", "name", "settled", "confirmed"),
    [
        ("captured", False, False, Verify.WINNER, "captured", "the captured run", False, False),
        ("captured", True, True, Verify.WINNER, "captured", "the captured run", True, True),
        ("captured", False, False, Verify.BITWISE, "captured", "the captured run", True, False),
        (None, True, False, Verify.WINNER, "program 2", "the winner", True, False),
        (None, False, False, Verify.WINNER, "program 1", "the first candidate", False, False),
        (None, False, True, Verify.BITWISE, "program 1", "the first candidate", True, False),
    ],
)
def test_whom_candidates_are_held_against(
    captured: str | None, proven: bool, trusted: bool, mode: Verify, reference: str, name: str, settled: bool,
    confirmed: bool,
) -> None:  # fmt: skip
    made = tuning(Trials(), proven=proven, trusted=trusted, _captured_program=lambda: captured)
    made.options = replace(DEFAULTS, verification=Verification(mode, ("k.x",)))
    found = made._consensus([trial(2), trial(1), trial(3)])
    verifier = found.verifier
    assert (verifier.reference, verifier.name) == (reference, name)
    assert (verifier.settled, verifier.confirmed, verifier.bitwise) == (settled, confirmed, mode is Verify.BITWISE)
    assert (verifier.ignored("x"), verifier.ignored("y")) == (True, False)
    assert (found.kernel, found.asked) == ("k", made.options.verification)
    assert made._consensus([]) is found, "one for the whole tuning"


@pytest.mark.parametrize(
    ("ran", "faulty", "loads", "found"),
    [(True, False, True, True), (False, False, True, False), (True, True, True, False), (True, False, False, False)],
)
def test_the_captured_run_is_a_reference_if_it_ran_and_can_run_again(
    ran: bool, faulty: bool, loads: bool, found: bool
) -> None:
    def program(recording: str) -> str:
        if not loads:
            raise TrialError("it can't be loaded")
        return f"the program of {recording}"

    trials: Any = Trials()
    trials.capture.launches = [None, SimpleNamespace(ran=ran)]
    only = lambda index: SimpleNamespace(pruned=lambda: f"launch {index}")  # noqa: E731
    trials.recorded = SimpleNamespace(recording=SimpleNamespace(only=only))
    trials.is_faulty, trials.program = lambda recording: faulty, program
    assert tuning(trials)._captured_program() == ("the program of launch 1" if found else None)


@pytest.mark.parametrize(("gpu", "limited"), [(False, False), (True, True), (True, False)])
def test_the_clock_is_limited_as_the_device_says(gpu: bool, limited: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    trials: Any = Trials()
    environment = SimpleNamespace(throttle="power")
    device = SimpleNamespace(environment=lambda: environment) if gpu else None
    trials.capture.backend = SimpleNamespace(gpu=device)
    monkeypatch.setattr(module, "is_limited", lambda throttle: limited and throttle == "power")
    assert tuning(trials)._clock_is_limited() is limited


@pytest.mark.parametrize("compared", [False, True])
def test_the_outcome_has_what_was_found_and_what_is_to_be_said(compared: bool) -> None:
    trials: Any = Trials()
    best = trial(1)
    best.recording = SimpleNamespace(launches=("the launch",), binary_of=lambda launch: f"binary of {launch}")
    trials.recorded = SimpleNamespace(recording=SimpleNamespace(with_launch=lambda *given: given))
    trials.times, trials.failures, trials.slots = {1: 5.0}, {0: "failed"}, {1: (5.0,)}
    trials.remembered = lambda: frozenset({2})
    trials.pool.take_stragglers = lambda: "stragglers"
    made = tuning(trials, prescreen=SimpleNamespace(left_out={3: "spills"}))
    if compared:
        made.consensus = SimpleNamespace(partly=True, notes=lambda: ("x is not compared",))
    found = made.outcome(best)
    assert (found.winner, found.recording) == (1, (1, "the launch", "binary of the launch"))
    assert (found.times_ns, found.failures, found.remembered) == ({1: 5.0}, ("failed",), {2})
    assert (found.slots_ns, found.stragglers, found.left_out) == ({1: (5.0,)}, "stragglers", {3: "spills"})
    assert (found.partly, found.notes) == (compared, ("x is not compared", "a process") if compared else ("a process",))


@pytest.mark.parametrize(("asks", "searched"), [(True, False), (True, True), (False, False)])
def test_candidates_are_compiled_estimated_and_judged_in_turn(
    asks: bool, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials: Any = Trials(trial(0))
    for name in ("begin", "admit_all", "admit_put_off", "judge_faults", "name"):
        setattr(trials, name, lambda *given, name=name: trials.did.append((name, *given)))
    trials.site.searched = searched
    trials.pool.compiled = lambda candidates, pause: (i for i in candidates)
    search = SimpleNamespace(run=lambda: trials.did.append("searched"))
    monkeypatch.setattr(module, "Searching", lambda *given: search)
    made = tuning(trials, options=replace(DEFAULTS, search="a search" if asks else None))  # type: ignore[arg-type]
    made.prescreen = SimpleNamespace(groups=lambda stream: ([i] for i in stream))
    before = made.screening
    assert made._estimated([0, 2]) is trials.alive
    assert made.screening is not before
    assert trials.did == [
        ("begin", [0, 2]), ("admit_all", [0]), ("admit_all", [2]), ("admit_put_off",),
        *["searched"] * (asks and not searched), ("judge_faults",), ("name",),
    ]  # fmt: skip
    assert made.said == ["k: compiling 2 configs"]
    made._estimated([])
    assert len(made.said) == 1, "of none nothing is told"
