"""Which candidates are looked at together and which aren't: what static figures say, where they say anything."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from doubles import raising
from fake_runs import block, captured, scale, script, tuned
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import H100

from kerntune.base.policy import StaticPrune
from kerntune.capture.recorder import record
from kerntune.compiling.compiler import Compiled
from kerntune.errors import StoreError, TargetError, TuningError
from kerntune.gpu.program import Loader
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.search import Descent
from kerntune.static import resource_model
from kerntune.static.resource_model import Figures
from kerntune.tuning.candidates import CandidatePool, pool_of
from kerntune.tuning.tune_options import TuneOptions
from kerntune.tuning.tuner import Prescreen, Searching, tune
from kerntune.tuning.tuning_result import TuningResult

BLOCKS = (32, 64, 128, 256, 512)
TIMES = (10_000.0, 10_020.0, 10_300.0, 14_000.0, 9e6)
COSTS = st.lists(st.floats(0, 100) | st.just(math.inf), min_size=5, max_size=5)
NO_SHARE = st.builds(StaticPrune, st.booleans(), st.booleans(), st.booleans())


def foreseen(figures: Mapping[int, Figures]) -> Any:
    """In place: these figures by BLOCK, none for others."""

    def figures_of(compiled: Compiled, grid: object, spec: object) -> Figures | None:
        return figures.get(int(compiled.binary.constexprs["BLOCK"]))

    return patch.multiple(resource_model, figures_of=figures_of)


def costing(*costs: float) -> dict[int, Figures]:
    return {b: Figures(c, 0, 1.0) for b, c in zip(BLOCKS, costs, strict=True)}


def raced(
    backend: FakeBackend,
    *rules: Rule | float,
    prune: StaticPrune | None = None,
    incumbent: int | None = None,
    seed: int = 0,
) -> TuningResult:
    """A tuning of scale_kernel. ``rules`` are times by BLOCKS, or whole rules."""
    scripted = [r if isinstance(r, Rule) else block(b, r) for b, r in zip(BLOCKS, rules, strict=True)]
    gpu = script(backend, *scripted, seed=seed)
    capture = captured(backend, lambda: scale(tuned(*BLOCKS)))
    loader, options = Loader(gpu), TuneOptions(static_prune=prune or StaticPrune())
    try:
        with capture.active(), patch.object(CandidatePool, "ready", lambda self: True):
            recorded = record(capture)
            return tune(capture, recorded, 0, loader, options, incumbent=incumbent)
    finally:
        loader.close()


# in groups


def arriving(order: list[int]) -> Any:
    """In place: compiled candidates come in this order."""
    compiled = CandidatePool.compiled

    def permuted(pool: CandidatePool, indices: Any, *pause: Any) -> Iterator[Any]:
        yield from sorted(compiled(pool, indices), key=lambda result: order.index(result[0]))

    return patch.object(CandidatePool, "compiled", permuted)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(5)), times=st.permutations(TIMES), seed=st.integers(0, 1000))
def test_no_order_changes_the_winner(shared: FakeBackend, order: list[int], times: list[float], seed: int) -> None:
    with arriving(order):
        ordered = raced(shared, *times, seed=seed)
    plain = raced(shared, *times, seed=seed)
    assert ordered.winner == plain.winner
    assert set(ordered.times_ns) == set(plain.times_ns)


def test_what_is_compiled_meanwhile_is_ready(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: scale(tuned(*BLOCKS)))
    site = capture.launches[0].site
    assert site is not None
    with capture.active():
        pool = pool_of(capture, site)
        assert not pool.ready()
        results = pool.compiled(range(len(BLOCKS)))
        taken = [next(results)[0]]
        for _ in range(1, len(BLOCKS)):
            end = time.monotonic() + 60
            while not pool.ready():
                assert time.monotonic() < end
            taken.append(next(results)[0])
        assert next(results, None) is None
    assert sorted(taken) == list(range(len(BLOCKS)))
    assert not pool.ready()


@pytest.mark.parametrize("error", [StoreError("damaged"), TargetError("unknown")])
@pytest.mark.parametrize("prune", [None, StaticPrune(spills=True, share=0.1)])
def test_where_nothing_can_be_foreseen_candidates_are_tuned_as_they_come(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, error: Exception, prune: StaticPrune | None
) -> None:
    monkeypatch.setattr(resource_model, "quick_candidate", raising(error))
    found = raced(backend, 30.0, 20.0, 10.0, 20.0, 30.0, prune=prune)
    assert (found.winner, found.failures, found.left_out) == (2, (), {})


# candidates that are left out


def spilling(*spills: int) -> dict[int, Figures]:
    return {b: Figures(1.0, s, 1.0) for b, s in zip(BLOCKS, spills, strict=True)}


def test_who_spills_is_named_and_not_run(backend: FakeBackend) -> None:
    with foreseen(spilling(8, 0, 16, 0, 0)):
        found = raced(backend, 1.0, 20.0, 1.0, 10.0, 30.0, prune=StaticPrune(spills=True))
    assert found.winner == 3
    assert set(found.times_ns) == {1, 3, 4}
    assert found.failures == ()
    why = "bytes a thread, others none"
    assert found.left_out == {0: f"spills 8 {why}", 2: f"spills 16 {why}"}


def test_a_share_of_the_list_is_run(backend: FakeBackend) -> None:
    with foreseen(costing(5, 4, 3, 2, 1)):
        found = raced(backend, *[10_000.0] * 5, prune=StaticPrune(share=0.4))
    assert set(found.times_ns) == {3, 4}
    assert found.winner == 3


def test_nobody_is_left_out_unasked(backend: FakeBackend) -> None:
    with foreseen({**spilling(8, 0, 8, 0, 8), 512: Figures(1e9, 4096, 0.01)}):
        found = raced(backend, 30.0, 20.0, 30.0, 20.0, 10.0)
    assert (found.winner, found.left_out) == (4, {})


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    costs=COSTS,
    spills=st.lists(st.sampled_from([0, 8]), min_size=5, max_size=5),
    rules=NO_SHARE,
    share=st.none() | st.floats(0.01, 1),
    incumbent=st.integers(0, 4),
)
def test_the_incumbent_is_always_run(
    shared: FakeBackend, costs: list[float], spills: list[int], rules: StaticPrune, share: float | None, incumbent: int
) -> None:
    figures = {b: Figures(c, s, 1.0) for b, c, s in zip(BLOCKS, costs, spills, strict=True)}
    prune = StaticPrune(rules.spills, rules.occupancy, rules.model, share)
    with foreseen(figures):
        found = raced(shared, *[10_000.0] * 5, prune=prune, incumbent=incumbent)
    assert found.winner == incumbent, "a tie"
    assert len(found.left_out) + len(found.times_ns) == len(BLOCKS)


def test_if_nobody_else_can_be_used_they_are_run_after_all(backend: FakeBackend) -> None:
    refused = [block(b, fails="refused") for b in (64, 256, 512)]
    with foreseen(spilling(8, 0, 16, 0, 0)):
        found = raced(
            backend, block(32, 20.0), refused[0], block(128, 10.0), *refused[1:], prune=StaticPrune(spills=True)
        )
    assert found.winner == 2
    assert found.left_out == {}
    assert [f.reason for f in found.failures] == ["refused"] * 3


def test_if_nobody_at_all_can_be_used_every_reason_is_listed(backend: FakeBackend) -> None:
    with foreseen(costing(5, 4, 3, 2, 1)), pytest.raises(TuningError) as caught:
        raced(backend, *(block(b, fails=f"refused {b}") for b in BLOCKS), prune=StaticPrune(share=0.2))
    assert all(f"refused {b}" in str(caught.value) for b in BLOCKS)


@given(st.lists(st.booleans(), max_size=30))
def test_what_is_there_together_comes_together_in_the_order_of_arrival(ready: list[bool]) -> None:
    """Up to eight; nothing that is there waits for what isn't."""
    made, taken = prescreen(None, {}), list[int]()
    made._pool.ready = lambda: ready[taken[-1]]

    def results() -> Iterator[tuple[int, Any]]:
        for i in range(len(ready)):
            taken.append(i)
            yield i, StoreError("no")

    groups = [[i for i, _ in group] for group in made.groups(results())]
    assert [i for group in groups for i in group] == taken == list(range(len(ready)))
    for group in groups:
        assert all(ready[i] for i in group[:-1])
        assert len(group) == 8 or not ready[group[-1]] or group[-1] == len(ready) - 1
        assert len(group) <= 8


# those that spill


def prescreen(most: int | None, spills: Mapping[int, int], ran: Any = (), incumbent: int | None = None) -> Any:
    """Each candidate's grid is its index."""
    probes = {i: SimpleNamespace(grid=i) for i in range(3)}
    pool: Any = SimpleNamespace(known=SimpleNamespace(ran=dict.fromkeys(ran)), ready=lambda: False, probes=probes)
    made: Any = Prescreen(pool, H100, StaticPrune(), incumbent, most)
    made._figures_by_grid = {i: Figures(1.0, 8 * n, 1.0) for i, n in spills.items()}
    return made


def told(made: Any, *indices: int) -> list[list[int]]:
    compiled = Compiled.__new__(Compiled)
    with patch.multiple(resource_model, figures_of=lambda compiled, grid, spec: made._figures_by_grid.get(grid)):
        groups = list(made.groups(iter([(i, compiled) for i in indices])))
    return [[i for i, _ in group] for group in groups]


@pytest.mark.parametrize(
    ("most", "spills", "ran", "incumbent", "groups", "left_out"),
    [
        pytest.param(None, {0: 99, 1: 0}, (), None, [[0], [1]], [], id="no rule"),
        pytest.param(4, {0: 4, 1: 0}, (), None, [[0], [1]], [], id="as many as may be"),
        pytest.param(4, {0: 5, 1: 0}, (), None, [[], [1]], [0], id="one too many"),
        pytest.param(4, {0: 5, 1: 9}, (), None, [[], [], [0, 1]], [], id="all of them"),
        pytest.param(4, {0: 5, 1: 0}, (0,), None, [[0], [1]], [], id="that ran before"),
        pytest.param(4, {0: 5, 1: 0}, (), 0, [[0], [1]], [], id="the incumbent"),
        pytest.param(4, {1: 0}, (), None, [[0], [1]], [], id="of which nothing is known"),
        pytest.param(0, {0: 1, 1: 0}, (), None, [[], [1]], [0], id="none at all"),
    ],
)
def test_those_that_spill_more_than_may_be_come_last(
    most: int | None, spills: Mapping[int, int], ran: Any, incumbent: int | None, groups: list[list[int]],
    left_out: list[int],
) -> None:  # fmt: skip
    made = prescreen(most, spills, ran, incumbent)
    assert told(made, 0, 1) == groups
    texts = {i: f"spills {spills[i]} registers a thread, more than {most}, and others don't" for i in left_out}
    assert made.left_out == texts


def test_those_that_were_left_out_may_be_taken_back() -> None:
    made = prescreen(4, {0: 5, 1: 0, 2: 7})
    told(made, 2, 0, 1)
    assert made.readmitted() == [0, 2]
    assert (made.left_out, told(made, 0, 1, 2)) == ({}, [[0], [1], [2]])


# further configs that a search chooses


class Trials:
    """A set of trials whose list has two configs; it notes what it is told."""

    def __init__(self, search: Any) -> None:
        self.did: list[Any] = []
        listed = [SimpleNamespace(config=f"config {i}") for i in range(2)]
        self.site = SimpleNamespace(kernel="k", candidates=listed, search=search, searched=False)
        self.capture = SimpleNamespace(add_candidate=self.add_candidate)
        self.pool = SimpleNamespace(compiled=self.compiled, probes={0: None, 1: None, 2: None, 3: None})
        self.failures: dict[int, Any] = {}

    def add_candidate(self, site: Any, like: int, config: str) -> int:
        self.site.candidates.append(SimpleNamespace(config=config))
        self.did.append(("added", like, config))
        return len(self.site.candidates) - 1

    def compiled(self, indices: Any) -> Iterator[Any]:
        self.did.append(("compiled", list(indices)))
        yield from ((i, Compiled.__new__(Compiled) if i != 1 else StoreError("no")) for i in indices)

    def join(self, indices: list[int]) -> list[int]:
        self.did.append(("joined", indices))
        return [i for i in indices if i != 3]

    def expect(self, indices: Any) -> None:
        self.did.append(("expected", list(indices)))

    def paused(self) -> None:
        self.did.append("paused")

    def admit_all(self, group: Any) -> None:
        self.did.append(("admitted", [i for i, _ in group]))

    def worth_repeating(self) -> list[int]:
        return [0]

    def estimate_of(self, i: int) -> float | None:
        return None if i in self.failures else 10.0 * i

    def registers_of(self, i: int) -> int:
        return 32 + i

    def launched_as(self, i: int, compiled: Any) -> str:
        return f"code {i}"


class Descends(Descent):
    """Asks for three configs, of which one is listed, and for what is known of each."""

    def run(self, measure: Any, prepare: Any, starts: Any, spent: float) -> Any:
        self.found.append((list(starts), spent))
        for configs in (["config 0", "config 2", "config 3"], ["config 1"]):
            prepare(configs)
        self.found.extend(measure(f"config {i}") for i in range(4))


def searched(search: Any) -> tuple[Any, list[str]]:
    trials, said = Trials(search), list[str]()
    trials.failures[1] = SimpleNamespace(reason="too large")
    by_fours: Any = SimpleNamespace(groups=lambda stream: iter([list(stream)]))
    Searching(trials, by_fours, said.append).run()  # type: ignore[arg-type]
    return trials, said


@pytest.mark.parametrize("asks", [True, False], ids=["a descent", "another search"])
def test_what_a_search_chooses_is_compiled_estimated_and_told_to_it(asks: bool) -> None:
    """A descent also hears of the code of each config that can be used; others don't ask."""
    found: list[Any] = []
    kind = Descends if asks else SimpleNamespace
    search: Any = kind.__new__(kind)
    object.__setattr__(search, "found", found)
    if not asks:
        search.run = lambda *given: Descends.run(search, *given)
    trials, said = searched(search)
    first = [("compiled", [0])] if asks else []
    code = [("compiled", [2, 3])] if asks else []
    assert trials.did == [
        *first,
        ("added", 0, "config 2"), ("added", 0, "config 3"), ("joined", [2, 3]), ("expected", [2]), "paused",
        ("compiled", [2]), ("admitted", [2]), *code,
        ("expected", [0]), "paused", ("compiled", [0]), ("admitted", [0]),
    ]  # fmt: skip
    assert said == ["k: searching, 4 configs so far"]
    assert trials.site.searched
    (starts, spent), *told = found
    assert starts == ["config 0", "config 1"]
    assert 0 <= spent < 60
    codes = ["code 0", "", "code 2", "code 3"] if asks else [""] * 4
    assert [(m.time_ns, m.reason, m.registers, m.code) for m in told] == [
        (0.0, "", 32, codes[0]), (None, "too large", 33, codes[1]), (20.0, "", 34, codes[2]), (30.0, "", 35, codes[3]),
    ]  # fmt: skip
