"""What a set of trials knows of its candidates: who was tried, who failed and how, and what of that is stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from doubles import raising

from kerntune.base.config import Config
from kerntune.base.failed_candidates import FailedTrial
from kerntune.compiling.compiler import Compiled
from kerntune.errors import (
    BackendError,
    CompileError,
    LaunchFault,
    LaunchTimeout,
    OutOfResourcesError,
    TrialError,
    TuningError,
)
from kerntune.tuning import trial_set
from kerntune.tuning.admission import FirstLaunchFault, FirstLaunchFaults
from kerntune.tuning.trial_set import TrialSet

WORK: Any = ("code", (1, 1, 1), ())
NEW: Any = SimpleNamespace(binary=None, data=b"")
"""A compiled config."""


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


def fault(*same: int, why: str = "it faulted", work: Any = WORK, code: str = "code", **more: bool) -> FirstLaunchFault:
    return FirstLaunchFault(why, None, work, code, [*same], **more)  # type: ignore[arg-type]


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
    monkeypatch.setattr(trial_set, "stored_code", lambda recording: f"code of {recording}")
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
    trials._put_off, trials.warm = [(4, None)], True  # type: ignore[list-item]
    trials.begin([0, 2])
    assert (trials._put_off, trials._estimates.warm) == ([], True)
    trials.paused()
    assert not trials._estimates.warm
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


def test_times_of_a_trial_are_stored_for_each_of_its_candidates(trials: TrialSet) -> None:
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
    assert [trials.launched_as(i, None) for i in (0, 1)] == ["('work', 1)", ""]


# who is admitted, and who waits


@pytest.fixture
def admitted(trials: TrialSet, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Those that are launched, in their order; nothing has run before."""
    seen: list[int] = []
    monkeypatch.setattr(trials, "_admit", lambda i, compiled: seen.append(i))
    monkeypatch.setattr(trials, "_has_run", lambda i: False)
    monkeypatch.setattr(trials, "_good", lambda: 0)
    return seen


@pytest.mark.parametrize(
    ("incumbent", "first"), [(None, 0), (0, 0), (3, 3), (4, 4)], ids=["none", "the first", "in between", "the last"]
)
def test_those_that_were_put_off_come_after_the_incumbent(
    trials: TrialSet, admitted: list[int], incumbent: int | None, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_set, "spread", list)
    trials.incumbent = incumbent
    trials._faults = SimpleNamespace(without_hope=lambda good, count: False)  # type: ignore[assignment]
    trials._put_off = [(i, None) for i in range(5)]  # type: ignore[misc]
    trials.admit_put_off()
    assert admitted == [first, *(i for i in range(5) if i != first)]
    assert trials._put_off == []
    trials.admit_put_off()
    assert len(admitted) == 5, "once"


def test_the_call_is_to_blame_when_those_that_were_put_off_are_without_hope(
    trials: TrialSet, admitted: list[int]
) -> None:
    asked: list[tuple[int, int]] = []
    trials._faults = SimpleNamespace(  # type: ignore[assignment]
        without_hope=lambda good, count: asked.append((good, count)) or len(asked) == 3, indices=lambda: [0]
    )
    trials.failures = {0: failed(0, "faulted")}
    trials._put_off = [(i, None) for i in range(5)]  # type: ignore[misc]
    with pytest.raises(TuningError, match="so the call is to blame"):
        trials.admit_put_off()
    assert (len(admitted), asked) == (2, [(0, 5)] * 3)


@pytest.mark.parametrize(
    ("compiled", "ran", "doubt", "waits"),
    [(True, False, True, True), (True, True, True, False), (True, False, False, False), (False, False, True, False)],
)
def test_in_doubt_those_wait_that_have_not_run(
    trials: TrialSet, admitted: list[int], monkeypatch: pytest.MonkeyPatch, compiled: bool, ran: bool, doubt: bool,
    waits: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(trials, "_has_run", lambda i: ran)
    trials._faults = SimpleNamespace(in_doubt=lambda good: doubt)  # type: ignore[assignment]
    given: Any = Compiled.__new__(Compiled) if compiled else TrialError("no")
    trials.admit(2, given)
    assert (trials._put_off == [(2, given)], admitted == [2]) == (waits, not waits)


def test_faults_that_are_settled_are_failures_of_all_that_are_the_same(trials: TrialSet) -> None:
    """They are stored, but for what another run may not find."""
    trials._faults = FirstLaunchFaults()
    trials._faults.add(fault(1, 3, code="code a"))
    trials._faults.add(fault(4, why="it was killed", code="code b", passing=True))
    trials._good = lambda: 9  # type: ignore[method-assign]
    trials.judge_faults()
    reasons = {i: failure.reason for i, failure in trials.failures.items()}
    assert reasons == {1: "it faulted", 3: "it faulted", 4: "it was killed"}
    kept = [(i, words) for i, _, words in trials._stored.kept]  # type: ignore[union-attr]
    assert kept == [(i, {"failure": "it faulted", "code": "code a"}) for i in (1, 3)]
    trials.failures.clear()
    trials.judge_faults()
    assert trials.failures == {}, "once"


@pytest.mark.parametrize(("error", "hung"), [(LaunchFault("it faulted"), False), (LaunchTimeout("it hung"), True)])
@pytest.mark.parametrize("passing", [False, True])
def test_a_fault_is_noted_and_is_a_failure(
    trials: TrialSet, error: LaunchFault, hung: bool, passing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is stored yet."""
    compiled: Any = "the compiled"
    error.passing = passing
    trials._faults = FirstLaunchFaults()
    monkeypatch.setattr(trials, "_single", lambda i, compiled: (f"single {i}", WORK))
    trials._note_fault(2, compiled, error)
    assert trials._faults._open == [
        FirstLaunchFault(str(error), compiled, WORK, "code of single 2", [2], hung=hung, passing=passing)
    ]
    assert trials.failures == {2: failed(2, str(error))}
    assert trials._stored.kept == []  # type: ignore[union-attr]


def test_what_hung_is_launched_once_more_before_it_counts(trials: TrialSet, monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []
    trials._faults = FirstLaunchFaults()
    trials._faults.add(fault(1, 3, why="it hung", hung=True))
    trials.failures = {1: failed(1, "it hung"), 3: failed(3, "it hung")}
    monkeypatch.setattr(trials, "_good", lambda: 9)
    monkeypatch.setattr(trials, "admit", lambda i, compiled: again.append(i))
    trials.judge_faults()
    assert (again, trials.failures, trials._tried) == ([1, 3], {}, {1, 3})


def test_an_equal_of_a_trial_is_one_with_it(trials: TrialSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that could not be launched it is a failure as well."""
    first = trial(0, estimated=False)
    trials._found, trials._recordings, trials.failures = {WORK: first}, {}, {0: failed(0, "too large")}
    monkeypatch.setattr(trials, "_single", lambda i, compiled: (f"single {i}", WORK))
    assert trials._trial(2, NEW) is None
    assert first.same == [0, 2]
    assert trials.failures[2] == failed(2, "too large")
    assert trials._recordings == {2: "single 2"}
    first.estimated = True
    assert trials._trial(3, NEW) is None
    assert (first.same, 3 in trials.failures) == ([0, 2, 3], False)


# first launches of several at once


class Elsewhere:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def run(self, *given: Any) -> None:
        self.given.append(given)

    run_ahead = run


@pytest.fixture
def ahead(trials: TrialSet, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """Candidate ``i`` is the work ``i % 3``."""
    made = Elsewhere()
    trials.elsewhere, trials._singles = made, {9: None}  # type: ignore[assignment, dict-item]
    trials.loader = SimpleNamespace(gpu=SimpleNamespace(spec=None))  # type: ignore[assignment]
    trials.recorded = SimpleNamespace(artifacts="artifacts")  # type: ignore[assignment]
    trials._faults = FirstLaunchFaults()
    monkeypatch.setattr(trials, "_good", lambda: 0)
    monkeypatch.setattr(trials, "_has_run", lambda i: False)
    monkeypatch.setattr(trials, "_begin", lambda i: f"begin {i}")
    monkeypatch.setattr(trials, "_single", lambda i, compiled: (f"single {i}", (f"work {i % 3}", (1, 1, 1), ())))
    monkeypatch.setattr(trial_set, "misfit", lambda binary, data, spec: "")
    return made


def compiled_results(*indices: int) -> list[Any]:
    found = [(i, Compiled.__new__(Compiled)) for i in indices]
    for _, compiled in found:
        object.__setattr__(compiled, "binary", None)
        object.__setattr__(compiled, "data", b"")
    return found


def test_several_that_are_unknown_are_launched_elsewhere_together(trials: TrialSet, ahead: Elsewhere) -> None:
    """Each work once."""
    trials._look_ahead(compiled_results(0, 1, 3))
    assert ahead.given == [([("single 0", "begin 0"), ("single 1", "begin 1")], "artifacts")]
    assert trials._singles == {}


def test_one_alone_is_launched_when_it_is_admitted(trials: TrialSet, ahead: Elsewhere) -> None:
    trials._look_ahead(compiled_results(0, 3))
    assert ahead.given == []


@pytest.mark.parametrize("known", ["ran", "found", "fault", "bad", "misfit", "site", "error"])
def test_those_of_which_something_is_known_are_not_launched_ahead(
    trials: TrialSet, ahead: Elsewhere, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three works one is known: the two others go."""
    work: Any = ("work 0", (1, 1, 1), ())
    results = compiled_results(0, 1, 2)
    if known == "ran":
        monkeypatch.setattr(trials, "_has_run", lambda i: i == 0)
    elif known == "found":
        trials._found = {work: trial(4)}
    elif known == "fault":
        trials._faults.add(fault(4, work=work))
        trials._good = lambda: 1  # type: ignore[method-assign]
    elif known == "bad":
        trials.known.bad["code of single 0", (1, 1, 1)] = "wrong"
    elif known == "misfit":
        monkeypatch.setattr(trial_set, "misfit", lambda binary, data, spec: "" if binary is None else "too large")
        object.__setattr__(results[0][1], "binary", "large")
    elif known == "site":
        trials.site.faults[0] = None  # type: ignore[assignment]
    else:
        results[0] = (0, TrialError("no"))
    trials._look_ahead(results)
    assert ahead.given == [([("single 1", "begin 1"), ("single 2", "begin 2")], "artifacts")]


def test_in_doubt_nothing_is_launched_ahead(
    trials: TrialSet, ahead: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials._faults, "in_doubt", lambda good: True)
    trials._look_ahead(compiled_results(0, 1))
    trials._faults, trials.elsewhere = FirstLaunchFaults(), None
    trials._look_ahead(compiled_results(0, 1))
    assert ahead.given == []


@pytest.mark.parametrize(
    ("error", "misfits", "remembered"),
    [
        (OutOfResourcesError("too large"), {1}, True),
        (CompileError("no such instruction"), set(), True),
        (TrialError("no"), set(), False),
        (BackendError("busy"), set(), False),
    ],
)
def test_how_one_fails_is_noted(
    trials: TrialSet, error: Exception, misfits: set[int], remembered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_trial", raising(error))
    trials._singles = {1: ("single", None)}  # type: ignore[dict-item]
    given: Any = SimpleNamespace(seconds=1.0, binary=SimpleNamespace(shared=0))
    trials._admit(1, given)
    assert (trials._misfits, trials.failures) == (misfits, {1: failed(1, str(error))})
    stored = [(i, words) for i, _, words in trials._stored.kept]  # type: ignore[union-attr]
    assert stored == [(1, {"failure": str(error), "code": "code of single"})] * remembered


def test_what_has_failed_is_known_by_code_and_grid_on_whatever_contents(
    trials: TrialSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials._faults = FirstLaunchFaults()
    trials._faults.add(fault(0, work=("code", (1, 1, 1), ((0, 7),))))
    monkeypatch.setattr(trial_set, "work_of_single", lambda single, first: (*single, first))
    recordings: Any = [("code", (1, 1, 1)), ("code", (2, 1, 1)), ("other", (1, 1, 1))]
    assert [trials.is_faulty(single) for single in recordings] == [True, False, False]


@pytest.mark.parametrize(
    ("ran", "chosen", "captured", "past"),
    [({2: None}, None, False, True), ({}, 2, True, True), ({}, 2, False, False), ({}, 1, True, False)],
)
def test_whose_first_launch_is_past(trials: TrialSet, ran: Any, chosen: int, captured: bool, past: bool) -> None:
    """In an earlier run, or in the captured one."""
    trials.pool.known, trials.site.chosen, trials.index = known(ran), chosen, 1
    trials.capture = SimpleNamespace(launches=[None, SimpleNamespace(ran=captured)])  # type: ignore[assignment]
    assert trials._has_run(2) is past


@pytest.mark.parametrize(
    ("estimated", "fails", "kept"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_a_first_estimate_is_stored_at_once(trials: TrialSet, estimated: bool, fails: bool, kept: bool) -> None:
    """For all that may be wrong with it later: then it is forgotten."""
    trials._found = {"a": trial(3, 1, estimated=estimated)}  # type: ignore[dict-item]
    trials.failures = {1: failed(1, "no")} if fails else {}
    trials._keep_estimate(1)
    stored: Any = trials._stored
    assert stored.kept == [(1, "probe 1", {"estimate_ns": 9.0, "code": "code of recording 3"})] * kept
    assert trials._kept == ({1} if kept else set())
    trials._stored = None
    trials._keep_estimate(1)


def test_registers_are_those_of_the_trial_that_a_candidate_is_part_of(trials: TrialSet) -> None:
    made = trial(3, 1)
    made.program = SimpleNamespace(functions=[SimpleNamespace(registers=40)])
    trials._found = {"a": made}  # type: ignore[dict-item]
    assert [trials.registers_of(i) for i in (1, 2, 3)] == [40, None, 40]


@pytest.mark.parametrize(("hook", "content"), [("a", "first"), ("b", "second"), ("c", {})])
def test_a_candidate_that_was_added_finds_what_its_hook_leaves(trials: TrialSet, hook: str, content: Any) -> None:
    for i, its in enumerate(["a", "b", "a", hook]):
        trials.site.candidates[i].hook = its  # type: ignore[misc]
    trials._first = {0: "first", 1: "second", 2: "third"}  # type: ignore[dict-item]
    assert [trials._begin(i) for i in (1, 2, 3)] == ["second", "third", content]


@pytest.mark.parametrize("known", [False, True], ids=["a trial of its own", "the same as another"])
def test_one_that_is_admitted_is_estimated_and_stored(
    trials: TrialSet, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, taken, logged = trial(1), list[Any](), list[Any]()
    monkeypatch.setattr(trials, "_trial", lambda i, compiled: None if known else made)
    monkeypatch.setattr(trials, "_keep_estimate", lambda i: taken.append(("kept", i)))
    monkeypatch.setattr(trial_set, "log_config", lambda site, *given, **words: logged.append((*given, words)))
    trials._estimates = SimpleNamespace(take=lambda one: taken.append(one), best=6.0)  # type: ignore[assignment]
    given: Any = SimpleNamespace(seconds=1.5, binary=SimpleNamespace(shared=64))
    trials._admit(1, given)
    assert taken == [*[made] * (not known), ("kept", 1)]
    first = ("first launch", 1, {"estimate_ns": 9.0, "ratio": 1.5})
    assert logged == [("compiled", 1, {"seconds": 1.5, "shared_bytes": 64}), *[first] * (not known)]


@pytest.fixture
def one_trial(trials: TrialSet, ahead: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> TrialSet:
    """Candidate 1 is new, and would be launched elsewhere first."""
    trials._recordings = {}
    monkeypatch.setattr(trials, "program", lambda single, begin: (single, begin))
    return trials


@pytest.mark.parametrize(("past", "elsewhere"), [(False, True), (True, True), (False, False)])
def test_one_that_is_new_is_launched_elsewhere_first(
    one_trial: TrialSet, past: bool, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_trial, "_has_run", lambda i: past)
    runs: Any = one_trial.elsewhere
    if not elsewhere:
        one_trial.elsewhere = None
    made = one_trial._trial(1, NEW)
    assert made is not None
    assert (made.index, made.recording, made.program, made.same) == (1, "single 1", ("single 1", "begin 1"), [1])
    assert one_trial._found == {("work 1", (1, 1, 1), ()): made}
    assert runs.given == [("single 1", "artifacts", "begin 1")] * (elsewhere and not past)


def test_one_that_was_wrong_before_is_so_again_unless_hooks_leave_other_contents(one_trial: TrialSet) -> None:
    one_trial.known.bad["code of single 1", (1, 1, 1)] = "it wrote other values"
    assert one_trial._trial(1, NEW) is None
    assert one_trial.failures == {1: failed(1, "it wrote other values")}
    stored: Any = one_trial._stored
    assert stored.kept == [(1, "probe 1", {"failure": "it wrote other values", "code": "code of single 1"})]
    one_trial._first = {0: {}}
    assert one_trial._trial(1, NEW) is not None


def test_one_that_faults_as_another_did_shares_its_fault(one_trial: TrialSet) -> None:
    known = fault(4, work=("work 1", (1, 1, 1), ()))
    one_trial._faults.add(known)
    assert one_trial._trial(1, NEW) is None
    assert (known.same, one_trial.failures) == ([4, 1], {1: failed(1, "it faulted")})


def test_one_that_does_not_fit_or_has_faulted_in_the_call_is_not_launched(
    one_trial: TrialSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_trial.site.faults[1] = LaunchFault("it faulted")
    monkeypatch.setattr(trial_set, "misfit", lambda binary, data, spec: "too large")
    with pytest.raises(OutOfResourcesError, match="too large"):
        one_trial._trial(1, NEW)
    monkeypatch.setattr(trial_set, "misfit", lambda binary, data, spec: "")
    with pytest.raises(LaunchFault, match="it faulted"):
        one_trial._trial(1, NEW)
    assert one_trial.site.faults == {}, "once"
    assert one_trial.elsewhere.given == []  # type: ignore[union-attr]
    assert one_trial._found == {}


def test_first_launches_of_a_group_come_before_any_estimate(trials: TrialSet, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []
    monkeypatch.setattr(trials, "_look_ahead", lambda results: did.append(results))
    monkeypatch.setattr(trials, "admit", lambda i, compiled: did.append((i, compiled)))
    group: Any = [(2, "a"), (0, "b")]
    trials.admit_all(group)
    assert did == [group, *group]
