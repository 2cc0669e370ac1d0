"""The recording of ``benchmarks/``, on a scripted GPU whose launches take longer by the planted steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.recording import Param, same_work
from kerntune.compiling.compiler import Compiler
from kerntune.gpu.foreign_work import SYMBOL
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeBackend, FakeGpu

PER_STEP = 1e-4


ROWS = 4096


class Slowing(FakeGpu):
    """Each planted step makes a launch a ten-thousandth longer, each program by its share of all."""

    def prepare(self, function: Any, grid: Any, params: Sequence[Param], addresses: Any) -> Any:
        if function.binary.symbol == SYMBOL:  # which looks for other processes' work
            return super().prepare(function, grid, params, addresses)
        (spin,) = (int(p.value or 0) for p in params if p.name == "spin")
        slower = grid[0] / ROWS - 1 + PER_STEP * (spin if spin != ROWS else 0)
        script, self.script = self.script, Script([Rule(time_ns=10_000 * (1 + slower))], noise=0.0002)
        try:
            return super().prepare(function, grid, params, addresses)
        finally:
            self.script = script


class Local:
    """A process that is none."""

    started = 0

    def __init__(self, request: Any, backend: FakeBackend) -> None:
        from benchmarks.verdicts.verdict_process import Bench

        Local.started += 1
        script = Script(noise=0.0002, seed=Local.started)
        self._bench = Bench(request, lambda: Slowing(backend.spec, script, backend.stand_ins))
        self.stopped = False

    def begin(self, **command: Any) -> None:
        self._answer = json.loads(json.dumps(self._bench.answer(command)))

    def end(self) -> dict[str, Any]:
        return self._answer

    def ask(self, **command: Any) -> dict[str, Any]:
        self.begin(**command)
        return self.end()

    def stop(self) -> None:
        self.stopped = True

    def wait(self) -> None:
        assert self.stopped


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    made = FakeBackend(Script(noise=0.0002))
    with made.activate():
        yield made


@pytest.fixture(params=["steps", "programs"])
def prepared(backend: FakeBackend, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    from benchmarks.verdicts.verdict_bench import prepare
    from benchmarks.verdicts.verdict_kernels import EDITS, Case, variant_module

    spin = 64 if request.param == "steps" else ROWS
    case = Case("small", "softmax", lambda make: (make(ROWS, 256),), request.param, spin)
    modules = {variant: variant_module(variant, tmp_path) for variant in EDITS}
    compiler = Compiler()
    yield prepare(backend, compiler, modules, case)
    compiler.close()


@pytest.mark.slow
def test_forms_are_other_code_for_the_same_launch(prepared: Any) -> None:
    base, twin, slowed = (prepared.sides[x] for x in ("base", "twin", "slowed"))
    assert not same_work(base, twin)
    assert not same_work(base, slowed)
    assert base.storages[0].nbytes == twin.storages[0].nbytes == slowed.storages[0].nbytes == ROWS * 256 * 4
    assert [x.grid for x in base.launches] == [x.grid for x in slowed.launches] == [(ROWS, 1, 1)]


def test_a_request_carries_what_is_planted(prepared: Any) -> None:
    request = prepared.request("slowed", 300)
    (before,), (after,) = request.a.launches, request.b.launches
    spins = [[p.value for p in x.params if p.name == "spin"] for x in (before, after)]
    if prepared.case.plant == "steps":
        assert (spins, after.grid) == ([[0], [300]], before.grid)
    else:
        assert (spins, after.grid) == ([[0], [ROWS]], (ROWS + 300, 1, 1))


def test_slowdowns_are_planted_and_recorded(prepared: Any, backend: FakeBackend, tmp_path: Path) -> None:
    from benchmarks.verdicts import verdict_record as module

    record = module.Record(tmp_path / "out.json", backend)

    def start(request: Any) -> Local:
        return Local(request, backend)

    module.plant(record, prepared, start)
    planted = record.case("small")["planted"]
    assert planted["slow_3"]["true"] == pytest.approx(0.031, abs=0.001)
    assert planted["slow_1_5"]["true"] == pytest.approx(0.0155, abs=0.0005)
    assert len(planted["slow_3"]["processes"]) == module.TRUE_PROCESSES

    module.run(record, module.plan(record, [prepared], 2), backend, float("inf"), start)
    stored = json.loads((tmp_path / "out.json").read_text())["cases"]["small"]["variants"]
    assert {v: len(rows) for v, rows in stored.items()} == dict.fromkeys(module.VARIANTS, 2)
    row = stored["slow_3"][0]
    assert {len(row[x]) for x in ("a", "b")} == {module.MORE_BLOCKS}
    other = stored["slow_3"][1]
    assert [len(x) for x in (row["a_host"], row["a_event"], other["b_host"], other["b_event"])] == [module.PLAIN] * 4
    assert "b_event" not in row
    assert sum(row["b"]) / sum(row["a"]) == pytest.approx(1.031, abs=0.002)


def test_what_can_t_be_slowed_is_told() -> None:
    from benchmarks.verdicts.verdict_bench import NotSlowedError, steps_for

    with pytest.raises(NotSlowedError, match=r"don't slow this kernel by 3\.0%"):
        steps_for(0.03, lambda steps: 0.001, {})


def test_a_second_call_adds_what_is_missing(prepared: Any, backend: FakeBackend, tmp_path: Path) -> None:
    from benchmarks.verdicts import verdict_record as module

    record = module.Record(tmp_path / "out.json", backend)
    record.case("small")["variants"] = {"same": [{}] * 10, "twin": [{}] * 24}
    only = [(s.variant, s.count) for s in module.plan(record, [prepared], 24)]
    assert only == [("same", 2), ("same", 12)], "no slowdown is recorded that was not planted"
    record.case("small")["planted"] = {name: {"steps": 1} for name in module.TARGETS}
    steps = module.plan(record, [prepared], 24)
    assert [(s.variant, s.count) for s in steps] == [
        ("same", 2), ("slow_1_5", 12), ("slow_3", 12), ("same", 12), ("slow_1_5", 12), ("slow_3", 12),
    ]  # fmt: skip


@given(st.floats(1e-6, 1e-2), st.floats(0.3, 3), st.integers(0, 2000), st.sampled_from([0.031, 0.0155]))
def test_the_search_finds_steps(slope: float, power: float, hidden: int, target: float) -> None:
    from benchmarks.verdicts.verdict_bench import steps_for

    def seen(steps: int) -> float:
        return slope * max(0, steps - hidden) ** power / 50

    if seen(1 << 21) < target:
        return
    known: dict[int, float] = {}
    found = steps_for(target, seen, known)
    nearest = min(abs(x - target) for x in known.values())
    assert abs(seen(found) - target) == nearest
    assert len(known) < 40
