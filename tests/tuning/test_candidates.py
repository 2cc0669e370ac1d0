"""Compilations of a site's candidates: begun ahead, taken, left, taken up again; each ended once, or another's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.failed_candidates import FIRST_LAUNCH
from kerntune.capture import Probe
from kerntune.errors import TrialError
from kerntune.tuning import candidates as module
from kerntune.tuning.candidates import Batch, BatchState, BatchWait, CandidatePool, pool_of, wait_for_all
from kerntune.tuning.stored_trials import NOTHING, KnownTrials


class Coming:
    """What a compiler gives for launches, all but those that are held; whether it was stopped."""

    def __init__(self, launches: Sequence[Any], held: Collection[Any]) -> None:
        self.launches, self.held, self.stopped = list(launches), held, 0

    def wait(self, seconds: float | None = None) -> bool:
        return not self.launches or self.launches[0] not in self.held

    def __next__(self) -> tuple[Any, str]:
        if not self.launches:
            raise StopIteration
        return self.launches.pop(0), "compiled"

    def __iter__(self) -> Coming:
        return self

    def stop(self) -> None:
        self.stopped += 1


class Compiler:
    farm = SimpleNamespace(queued=0)

    def __init__(self) -> None:
        self.begun, self.held = list[Coming](), set[str]()

    def compile_aside(self, launches: Sequence[Any], made: object) -> Coming:
        self.begun.append(Coming(sorted(launches, key=lambda name: name in self.held), self.held))
        return self.begun[-1]


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
def one(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> CandidatePool:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    capture: Any = SimpleNamespace(compiler=compiler)
    made = CandidatePool(capture, None, None)  # type: ignore[arg-type]
    for i in range(8):
        launch = SimpleNamespace(without_arguments=lambda i=i: f"launch {i}")
        made.probes[i] = SimpleNamespace(specialized=launch)  # type: ignore[assignment]
    return made


def indices(results: Any) -> list[int]:
    return [i for i, _ in results]


def hold(compiler: Compiler, *candidates: int) -> None:
    compiler.held.clear()
    compiler.held.update(f"launch {i}" for i in candidates)


def leave(one: CandidatePool, compiler: Compiler) -> list[int]:
    """Take the results of all candidates, of which two are left."""
    hold(compiler, 2, 3)
    return indices(one.compiled(range(8), lambda: 0.0))


def test_what_was_begun_is_taken_and_not_compiled_again(one: CandidatePool, compiler: Compiler) -> None:
    begun = one.begin([0, 1])
    assert begun is one.begin([0, 1])
    assert one.has_results
    assert not one.ready()
    stream = one.compiled([0, 1])
    assert next(stream) == (0, "compiled")
    assert one.ready()
    assert not one.has_results
    assert indices(stream) == [1]
    assert [c.stopped for c in compiler.begun] == [1], "ended where all results are taken, and only then"


def test_early_results_come_again(one: CandidatePool, compiler: Compiler) -> None:
    assert next(one.first_compiled([0, 1, 2])) == (0, "compiled")  # type: ignore[call-overload]
    assert indices(one.compiled([0, 1, 2])) == [0, 1, 2]
    assert len(compiler.begun) == 1


def test_other_candidates_end_what_was_begun(one: CandidatePool, compiler: Compiler) -> None:
    one.begin([0, 1])
    assert indices(one.compiled([2])) == [2]
    assert [c.stopped for c in compiler.begun] == [1, 1]


def test_stragglers_go_on_and_are_the_callers(one: CandidatePool, compiler: Compiler) -> None:
    assert leave(one, compiler) == [0, 1, 4, 5, 6, 7]
    late = one.take_stragglers()
    assert isinstance(late, Batch)
    assert (late.indices, late.state) == ((2, 3), BatchState.LEFT)
    assert one.take_stragglers() is None
    one.close()
    assert [c.stopped for c in compiler.begun] == [0]


def test_stragglers_that_no_caller_takes_are_ended(one: CandidatePool, compiler: Compiler) -> None:
    leave(one, compiler)
    one.close()
    one.close()
    assert [c.stopped for c in compiler.begun] == [1]
    assert one.take_stragglers() is None


def test_stragglers_may_be_waited_for_after_all(one: CandidatePool, compiler: Compiler) -> None:
    leave(one, compiler)
    assert one.rejoin() == [2, 3]
    assert one.rejoin() == []
    assert one.take_stragglers() is None
    hold(compiler)
    assert indices(one.compiled([2, 3])) == [2, 3]
    assert len(compiler.begun) == 1


def test_a_stream_that_is_closed_early_is_ended(one: CandidatePool, compiler: Compiler) -> None:
    stream = one.compiled(range(8), lambda: math.inf)
    next(stream)
    stream.close()
    assert [c.stopped for c in compiler.begun] == [1]
    assert not one.ready()


def test_what_is_compiled_behind_is_the_callers(one: CandidatePool, compiler: Compiler) -> None:
    behind = one.compile_behind()
    one.close()
    assert behind.indices == tuple(range(8))
    assert [c.stopped for c in compiler.begun] == [0]


# waiting for stragglers


LATER = 60.0


class Pauses:
    """Results that are there after so many pauses."""

    def __init__(self, pauses: float = math.inf) -> None:
        self.pauses, self.waited = pauses, list[float]()

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return len(self.waited) > self.pauses


def waiting(candidates: int, pause: Callable[[], Any] = wait_for_all, queued: int = 0) -> BatchWait:
    return BatchWait(candidates, lambda: queued, pause)


@pytest.mark.parametrize(
    ("one", "missing", "pauses", "left"),
    [
        pytest.param(waiting(16, lambda: 0.0), 4, math.inf, True, id="a share, once patience ends"),
        pytest.param(waiting(16), 1, 5, False, id="all without a pause"),
        pytest.param(waiting(16, lambda: 0.0), 1, 1, False, id="a result of the last moment"),
        pytest.param(
            waiting(16, lambda: pytest.fail("no turn"), queued=1), 1, 2, False, id="jobs that wait for a processor"
        ),
    ],
)
def test_which_are_left(one: BatchWait, missing: int, pauses: float, left: bool) -> None:
    assert one.gives_up(missing, Pauses(pauses)) is left  # type: ignore[arg-type]


def test_none_is_left_before_it_ends() -> None:
    pauses = list[int]()
    one = waiting(16, lambda: pauses.append(1) or time.monotonic() + LATER)  # type: ignore[func-returns-value]
    assert not one.gives_up(4, Pauses(pauses=3))
    assert len(pauses) == 3


@pytest.mark.parametrize(("candidates", "late", "told"), [(16, 5, False), (8, 3, True), (4, 4, True)])
def test_more_than_the_share_are_waited_for(candidates: int, late: int, told: bool) -> None:
    """Few of a short list leave time for a race of the others all the same."""
    pauses = list[int]()
    one = waiting(candidates, lambda: pauses.append(1) or 0.0)  # type: ignore[func-returns-value]
    assert not one.gives_up(late, Pauses(pauses=4))
    assert bool(pauses) == told


def test_a_pause_is_short_once_patience_has_ended() -> None:
    one, coming = waiting(16, lambda: time.monotonic() - 1.0), Pauses()
    assert one.gives_up(2, coming)
    assert coming.waited[:1] == [0.05]
    again = Pauses()
    assert one.gives_up(1, again)
    assert again.waited[0] == 0.005


# what is known before anything is compiled


def a_pool(known: Any = None, stored: Any = None) -> Any:
    """Of six candidates; the last two can't be specialized."""

    def probe_all(site: Any, indices: Any) -> dict[int, Any]:
        found = {i: Probe.__new__(Probe) if i < 4 else TrialError(f"no {i}") for i in indices}
        for i, probe in found.items():
            if isinstance(probe, Probe):
                object.__setattr__(probe, "specialized", f"launch {i}")
        return found

    asked: list[Any] = []
    compiler = SimpleNamespace(missing=lambda launches: asked.append(list(launches)) or 7)
    capture: Any = SimpleNamespace(probe_all=probe_all, compiler=compiler)
    site: Any = SimpleNamespace(candidates=[None] * 6)
    made = pool_of(capture, site, stored)
    if known is not None:
        made.known = known
    return made, asked


def test_a_pool_knows_what_each_candidate_would_launch_or_why_not() -> None:
    seen: list[Any] = []
    stored: Any = SimpleNamespace(known=lambda probes: seen.append(sorted(probes)) or "known")
    made, _ = a_pool(stored=stored)
    assert (sorted(made.probes), made.refused) == ([0, 1, 2, 3], {4: "no 4", 5: "no 5"})
    assert (made.known, seen) == ("known", [[0, 1, 2, 3]])
    one = pool_of(made.capture, made.site, among={2, 5})
    assert (sorted(one.probes), list(one.refused), one.known, one.stored) == ([2], [5], NOTHING, None)


def ran(ns: float | None) -> Any:
    return SimpleNamespace(estimate_ns=ns, time_ns=None, timing=None)


def test_what_is_known_decides_what_is_tried_and_compiled() -> None:
    """Slower ones of earlier runs come second, then failures; never what has faulted."""
    failed: Any = {
        0: SimpleNamespace(failure="too large"),
        3: SimpleNamespace(failure=f"{FIRST_LAUNCH} failed: it trapped"),
    }
    known: Any = KnownTrials({1: ran(10.0), 2: ran(90.0)}, failed)
    made, asked = a_pool(known)
    assert list(made.stages()) == [[1], [2], [0]]
    assert (made.to_compile(), asked) == (7, [[]])
    made.known = KnownTrials({1: ran(10.0)}, {})
    assert list(made.stages()) == [[0, 1, 2, 3], [], []]
    assert (made.to_compile(), asked[1]) == (7, ["launch 0", "launch 2", "launch 3"])
