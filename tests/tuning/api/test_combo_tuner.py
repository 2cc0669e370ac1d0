"""How a combo is tuned and timed, with what calls and the device are replaced."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kerntune
from kerntune.gpu.scripted import FakeBackend
from kerntune.search import ComboSearch
from kerntune.tuning.api import combo_tuner
from kerntune.tuning.api.combo_tuner import TRIALS, ComboChoice, choose, ratio_of, remembered

from .combo_parts import SCALE, SOFTMAX, SUMS

X, Y = (torch.empty(4096, device="meta") for _ in range(2))


def named(**sizes: int) -> dict[str, Any]:
    """Arguments of a combo of :data:`SCALE` and :data:`SUMS` by name."""
    sizes = {"n_0": 1 << 16, "rows_1": 64, "cols_1": 512, **sizes}
    return {**dict.fromkeys(("x_ptr_0", "y_ptr_0", "x_ptr_1", "y_ptr_1"), X), "factor_0": 2.0, **sizes}


@pytest.mark.parametrize(("words", "more"), [({}, None), ({"descend": 20}, 20)])
def test_a_plan_is_searched_with_a_descent_on_request(
    this_gpu: FakeBackend, words: dict[str, Any], more: int | None
) -> None:
    tuner = kerntune.combo([SCALE, SUMS], **words).tuner
    found = tuner.search_for(named(), {})
    assert isinstance(found, ComboSearch)
    assert (found.trials, found.descent) == (TRIALS + (more or 0), more is not None)
    assert found.plan.base == tuner.listed(named(), {})[0]
    assert tuner.most_spilled(named(), {}) is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_one_config_there_is_no_search(this_gpu: FakeBackend, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = kerntune.combo([SCALE, SUMS]).tuner
    monkeypatch.setattr(tuner, "listed", lambda *given: [None] * count)
    assert (tuner.search_for(named(), {}) is None) is (count == 1)
    descends = kerntune.combo([SCALE, SUMS], descend=True).tuner
    monkeypatch.setattr(descends, "listed", lambda *given: [None] * count)
    assert descends.search_for(named(), {}) is not None


def test_what_matters_of_a_call_is_that_of_each_part(this_gpu: FakeBackend) -> None:
    tuner = kerntune.combo([SCALE, SUMS]).tuner
    proposer: Any = tuner._proposer
    assert proposer.sizes == {"0": ("n_0",), "1": ("rows_1", "cols_1")}
    assert proposer.constexprs == {"BLOCK_0", "ROWS_1", "STEP_1", "XBLOCK_0", "XBLOCK_1", "R0_BLOCK_1"}
    found = proposer.inputs(named(), this_gpu.spec)
    assert [dict(part.sizes) for part in found.parts] == [{"x": 1 << 16}, {"x": 64, "r0": 512}]
    assert str(found) == f"{found.parts[0]}, {found.parts[1]}"
    some, none = named(n_0=0), named(n_0=0, rows_1=0, cols_1=0)
    assert [proposer.inputs(given, this_gpu.spec).empty for given in (named(), some, none)] == [False, False, True]
    assert [len(proposer.propose(proposer.inputs(g, this_gpu.spec), this_gpu.spec)) > 1 for g in (some, none)] == [
        True, False,
    ]  # fmt: skip


def test_a_part_that_holds_rows_has_them_as_its_block(this_gpu: FakeBackend) -> None:
    proposer: Any = kerntune.combo([SCALE, SOFTMAX]).tuner._proposer
    plan = proposer.plan(proposer.inputs(named(cols_1=300), this_gpu.spec), this_gpu.spec)
    assert (plan.base.kwargs["R0_BLOCK_1"], set(plan.base.kwargs)) == (512, {"XBLOCK_0", "R0_BLOCK_1"})


# which way


class Gpu:
    """A device that is busy with what was called, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = self.waiting = 0.0
        self.calls: list[str] = []
        monkeypatch.setattr(combo_tuner.time, "perf_counter", lambda: self.clock)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        self.calls.append("lock")
        yield
        self.calls.append("free")

    def synchronize(self) -> None:
        self.clock, self.waiting = self.clock + self.waiting, 0.0

    def taking(self, name: str, seconds: float) -> Any:
        def call() -> None:
            self.calls.append(name)
            self.waiting += seconds

        return call


def test_eleven_pairs_are_timed_and_their_order_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = Gpu(monkeypatch)
    assert ratio_of(gpu, gpu.taking("one", 5e-6), gpu.taking("other", 1e-5)) == pytest.approx(0.5)
    groups = [(name, len(list(several))) for name, several in itertools.groupby(gpu.calls)]
    assert groups[:5] == [("one", 1), ("other", 1), ("one", 1), ("other", 1), ("lock", 1)]
    runs = 64  # the fewest, doubled from one on, that take half a millisecond
    assert groups[5:7] == [("other", 2 * runs - 1 + runs), ("one", 2 * runs)]
    assert groups[7:-2] == [("other", 2 * runs), ("one", 2 * runs)] * 4 + [("other", 2 * runs)]
    assert groups[-2:] == [("one", runs), ("free", 1)]


def test_a_call_that_takes_nothing_is_repeated_at_most_1024_times(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = Gpu(monkeypatch)
    assert combo_tuner._runs(gpu, gpu.taking("one", 0.0)) == 1024
    assert combo_tuner._runs(gpu, gpu.taking("one", 1.0)) == 1
    assert combo_tuner._seconds(gpu, gpu.taking("one", 3.0), 4) == 3.0


@pytest.mark.parametrize(("ratio", "together"), [(0.97, True), (0.98, False), (1.5, False)])
def test_one_launch_must_save_two_percent(
    this_gpu: FakeBackend, ratio: float, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[Any] = []

    def of(gpu: Any, one: Any, other: Any) -> float:
        one()
        other()
        return ratio

    monkeypatch.setattr(combo_tuner, "ratio_of", of)
    x = torch.ones(3)
    assert choose(timed.append, timed.append, [x, 5]) == ComboChoice(together, ratio)
    assert timed[0] is timed[1], "both on the same copies"
    assert (timed[0][0] is not x, timed[0][1]) == (True, 5)


@pytest.mark.parametrize("where", ["capture", "interpreter", "no backend", "no gpu", "graph"])
def test_where_nothing_can_be_timed_it_is_one_launch(
    this_gpu: FakeBackend, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "capture":
        monkeypatch.setattr(combo_tuner.captures, "current", lambda: object())
    elif where == "interpreter":
        monkeypatch.setattr(combo_tuner.compat, "interprets", lambda: True)
    elif where == "graph":
        monkeypatch.setattr(combo_tuner, "captures_graph", lambda: True)
    else:
        backend = None if where == "no backend" else SimpleNamespace(gpu=None)
        monkeypatch.setattr(combo_tuner.context, "this_gpu", lambda: backend)
    monkeypatch.setattr(combo_tuner, "ratio_of", lambda *given: 1 / 0)
    assert choose(print, print, []) == (None if where == "graph" else ComboChoice(together=True))


def test_choices_are_kept_up_to_a_limit_and_none_is_made_without_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combo_tuner, "MOST_CHOICES", 2)
    choices: dict[Any, ComboChoice] = {}
    assert remembered(choices, "a", None) == ComboChoice(together=True)
    assert choices == {}
    one = ComboChoice(together=False, ratio=1.5)
    for key in "abc":
        assert remembered(choices, key, one) is one
    assert choices == {"c": one}
