"""How a combo is tuned and timed, with what calls and the device are replaced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kerntune
from kerntune.gpu.scripted import FakeBackend
from kerntune.search import ComboSearch
from kerntune.tuning.api import combo_tuner
from kerntune.tuning.api.combo_tuner import TRIALS, ComboChoice, choose, remembered
from kerntune.tuning.choices import deciding

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


@pytest.mark.parametrize(("ratio", "together"), [(0.97, True), (0.98, False), (1.5, False)])
def test_one_launch_must_save_two_percent(
    this_gpu: FakeBackend, ratio: float, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, Any]] = []

    def way(name: str) -> Any:
        def run(given: Any) -> None:
            ran.append((name, given))
            given[0][0].add_(1)

        return run

    @contextlib.contextmanager
    def lock() -> Iterator[None]:
        ran.append(("lock", None))
        yield
        ran.append(("free", None))

    def race_calls(gpu: Any, calls: Any, restore: Any, incumbent: None) -> tuple[int, dict[int, float]]:
        assert gpu is this_gpu.gpu
        restore()
        calls[1]()
        calls[0]()
        return 0, {0: 1000.0, 1: 1000.0 * ratio}

    monkeypatch.setattr(this_gpu.gpu, "lock", lock)
    monkeypatch.setattr(deciding, "race_calls", race_calls)
    x = torch.ones(3)
    assert choose(way("together"), way("apart"), [[x, x], 5]) == ComboChoice(together, ratio)
    assert [name for name, _ in ran] == ["apart", "together"] * 2 + ["lock", "together", "apart", "free"]
    assert all(given is ran[0][1] for _, given in ran if given), "both on the same copies"
    (first, second), number = ran[0][1]
    assert first is second is not x
    assert (first.tolist(), x.tolist(), number) == ([3.0] * 3, [1.0] * 3, 5)


def test_both_ways_are_raced(this_gpu: FakeBackend) -> None:
    gpu: Any = this_gpu.gpu

    def taking(ns: float) -> Any:
        return lambda given: setattr(gpu, "_clock", gpu._clock + ns)

    found = choose(taking(500.0), taking(1000.0), [torch.ones(3)])
    assert found is not None
    assert (found.together, found.ratio) == (True, pytest.approx(0.5, rel=0.01))


def test_ways_that_take_no_time_stay_apart(this_gpu: FakeBackend) -> None:
    """As on a scripted device whose clock stands still."""
    assert choose(lambda given: None, lambda given: None, [torch.ones(3)]) == ComboChoice(False, 1.0)


@pytest.mark.parametrize("where", ["capture", "interpreter", "no backend", "no gpu", "graph"])
def test_where_nothing_can_be_timed_it_is_one_launch(
    this_gpu: FakeBackend, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "capture":
        monkeypatch.setattr(combo_tuner.captures, "current", lambda: object())
    elif where == "interpreter":
        monkeypatch.setattr(combo_tuner.tuners, "interprets", lambda: True)
    elif where == "graph":
        monkeypatch.setattr(combo_tuner, "captures_graph", lambda: True)
    else:
        backend = None if where == "no backend" else SimpleNamespace(gpu=None)
        monkeypatch.setattr(combo_tuner.context, "this_gpu", lambda: backend)
    monkeypatch.setattr(deciding, "race_calls", lambda *given: 1 / 0)
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
