"""What a set of trials knows of its candidates: who was tried, who failed and how, and what of that is stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.config import Config
from kerntune.base.failed_candidates import FailedTrial
from kerntune.errors import TrialError
from kerntune.tuning import trial_set
from kerntune.tuning.trial_set import TrialSet


class Stored:
    """Notes what is kept for later runs, and forgotten."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.forgotten: list[int] = []

    def keep(self, i: int, probe: Any, **words: Any) -> None:
        self.kept.append((i, probe, words))

    def forget(self, i: int, probe: Any) -> None:
        self.forgotten.append(i)


def known(ran: Any = (), failed: Any = ()) -> Any:
    return SimpleNamespace(ran=dict(ran), failed=dict(failed), bad={})


def one_run(time_ns: float | None = None, estimate_ns: float | None = None) -> Any:
    return SimpleNamespace(time_ns=time_ns, estimate_ns=estimate_ns)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> TrialSet:
    """Of five candidates, none of which was tried."""
    made = TrialSet.__new__(TrialSet)
    candidates = [SimpleNamespace(config=Config({"BLOCK": i}), hook=None) for i in range(5)]
    made.site = SimpleNamespace(kernel="k", candidates=candidates, chosen=None, faults={})  # type: ignore[assignment]
    made.pool = SimpleNamespace(probes={i: f"probe {i}" for i in range(5)}, refused={}, known=known())  # type: ignore[assignment]
    made.known, made._stored = known(), Stored()  # type: ignore[assignment]
    made.times, made.slots, made.failures, made._found = {}, {}, {}, {}
    made.incumbent, made.warm, made.believing_wrong, made._first = None, False, True, {}
    made._tried, made._misfits, made._kept, made._put_off = set(), set(), set(), []
    made._faults = SimpleNamespace(indices=lambda: [2, 0, 1])  # type: ignore[assignment]
    monkeypatch.setattr(trial_set, "log_config", lambda *args, **words: None)
    return made


def failed(i: int, why: str) -> FailedTrial:
    return FailedTrial("k", Config({"BLOCK": i}), why)


@pytest.mark.parametrize(("incumbent", "told"), [(4, ""), (0, ", among them the one that was known to work")])
def test_a_call_is_to_blame_with_the_first_fault(trials: TrialSet, incumbent: int, told: str) -> None:
    trials.incumbent, trials.failures = incumbent, {2: failed(2, "hung"), 0: failed(0, "faulted")}
    error = trials._call_is_to_blame()
    assert str(error) == (
        f"kernel k: 2 of 5 configs fail at first launch{told}, so the call is to blame (a kernel's own mistake, "
        "arguments or grid that don't fit), and nothing was remembered: BLOCK=2 num_warps=4 num_stages=3: hung"
    )
    assert list(error.failures) == [failed(2, "hung"), failed(0, "faulted")]


def test_what_earlier_runs_know_is_taken_over(trials: TrialSet) -> None:
    """The time of a race, else an estimate; a refused candidate's reason before an earlier run's."""
    ran = {0: one_run(5.0, 4.0), 1: one_run(None, 4.0), 2: one_run()}
    trials.pool.refused = {3: "left out"}
    trials.pool.known = known(ran, {4: SimpleNamespace(failure="failed before")})
    trials.take_over({3: "refuted"})
    assert trials.times == {0: 5.0, 1: 4.0, 2: 0.0}
    assert trials.failures == {3: failed(3, "left out"), 4: failed(4, "failed before")}
    assert 3 not in trials.pool.probes
    assert trials.remembered() == {0, 1, 2, 4}
    trials._tried = {1, 4}
    assert trials.remembered() == {0, 2}
    assert [trials.estimate_of(i) for i in range(5)] == [4.0, 4.0, None, None, None]
    trials.forget()
    assert trials.remembered() == frozenset()


def test_what_is_tried_anew_has_no_time_and_no_failure(trials: TrialSet) -> None:
    trials.times, trials.failures = {0: 1.0, 1: 2.0}, {2: failed(2, "no"), 3: failed(3, "no")}
    trials.begin([0, 2])
    assert (trials.times, list(trials.failures), trials._tried) == ({1: 2.0}, [3], {0, 2})
    trials.expect([1])
    assert (trials.times, trials._tried) == ({}, {0, 1, 2})


@pytest.mark.parametrize(
    ("misfits", "failures", "all_lack"),
    [(set(), [], False), ({1, 2}, [1, 2], True), ({1}, [1, 2], False), (set(), [1], False)],
)
def test_whether_all_lack_resources(trials: TrialSet, misfits: Any, failures: list[int], all_lack: bool) -> None:
    trials._misfits, trials.failures = misfits, {i: failed(i, "no") for i in failures}
    assert trials.all_lack_resources() is all_lack


@pytest.mark.parametrize(
    ("remember", "kept", "stored", "forgotten"),
    [(True, False, [(1, "probe 1", {"failure": "why", "code": "c"})], []), (False, True, [], [1]),
     (False, False, [], []), (True, True, [(1, "probe 1", {"failure": "why", "code": "c"})], [])],
)  # fmt: skip
def test_a_failure_is_stored_or_takes_back_what_was(
    trials: TrialSet, remember: bool, kept: bool, stored: Any, forgotten: Any
) -> None:
    trials._kept = {1} if kept else set()
    trials._fail(1, "why", remember=remember, code="c")
    assert trials.failures == {1: failed(1, "why")}
    assert (trials._stored.kept, trials._stored.forgotten) == (stored, forgotten)  # type: ignore[union-attr]
    trials._stored = None
    trials._fail(2, "other", remember=remember)
    assert trials.failures[2] == failed(2, "other")


def trial(*same: int, estimated: bool = True, times: Any = ()) -> Any:
    return SimpleNamespace(
        same=list(same), index=same[0], estimated=estimated, times=list(times), time_ns=7.0, estimate=9.0,
        recording=f"recording {same[0]}", slot=SimpleNamespace(protocol="graph"),
    )  # fmt: skip


def test_a_trial_goes_by_the_incumbent_else_by_the_first(trials: TrialSet) -> None:
    a, b = trial(3, 1), trial(4, 0, 2)
    trials._found, trials._recordings = {"a": a, "b": b}, {i: f"of {i}" for i in range(5)}  # type: ignore[dict-item]
    trials.incumbent = 2
    trials.name()
    assert [(t.index, t.recording) for t in (a, b)] == [(1, "of 1"), (2, "of 2")]
    assert trials.estimated_trials() == [a, b]
    assert (trials._trial_of(3), trials._trial_of(0)) == (a, b)
    trials.note_times([a, trial(0, times=(1.0, 2.0))])
    assert (trials.times, trials.slots) == ({1: 7.0, 0: 7.0}, {0: (1.0, 2.0)})


def test_times_of_a_trial_are_stored_for_each_of_its_candidates(
    trials: TrialSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_set, "stored_code", lambda recording: f"code of {recording}")
    trials.keep(trial(3, 1, times=(7.0,)))
    trials.keep(trial(0))
    words = {"timing": "graph", "code": "code of recording 3", "estimate_ns": 9.0, "time_ns": 7.0}
    alone = {"timing": None, "code": "code of recording 0", "estimate_ns": 9.0, "time_ns": None}
    assert trials._stored.kept == [(3, "probe 3", words), (1, "probe 1", words), (0, "probe 0", alone)]  # type: ignore[union-attr]
    trials.note_wrong(trial(2, 4), "wrong", remember=True)
    assert trials.failures == {2: failed(2, "wrong"), 4: failed(4, "wrong")}
    assert [i for i, *_ in trials._stored.kept[3:]] == [2, 4]  # type: ignore[union-attr]


def test_an_equal_of_one_that_could_not_be_launched_fails_as_it_did(trials: TrialSet) -> None:
    trials.failures = {0: failed(0, "too large")}
    for found, i in ((trial(0, estimated=False), 1), (trial(0), 2), (trial(3, estimated=False), 4)):
        trials._fail_like(found, i)
    assert trials.failures == {0: failed(0, "too large"), 1: failed(1, "too large")}


def test_those_that_cannot_be_launched_are_equal_to_none(trials: TrialSet, monkeypatch: pytest.MonkeyPatch) -> None:
    def single(i: int, compiled: Any) -> Any:
        if i:
            raise TrialError("no")
        return "single", ("work", 1)

    monkeypatch.setattr(trials, "_single", single)
    compiled: Any = None
    assert [trials.launched_as(i, compiled) for i in (0, 1)] == ["('work', 1)", ""]
