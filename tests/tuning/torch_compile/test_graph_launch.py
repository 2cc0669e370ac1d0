"""Launches of graphs: their tokens, their texts, and the grids that are kept."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
import triton
from compiled_runs import configs, make, scaled
from compiled_runs import launch_in_graph as launch

from kerntune.errors import UsageError
from kerntune.kernels.source import source_hash
from kerntune.tuning.context import PlainPath
from kerntune.tuning.torch_compile import graph_launch
from kerntune.tuning.torch_compile.graph_launch import (
    GraphLaunch,
    GridMemo,
    RememberedGrid,
    launch_of,
    register,
    tuner_text,
    value_text,
)
from kerntune.tuning.torch_compile.launch_arguments import GraphValue, KnownValue, ListedValues, RebuiltFunction

T0, T1, I0, F0 = GraphValue("tensors", 0), GraphValue("tensors", 1), GraphValue("ints", 0), GraphValue("floats", 0)


def test_a_token_is_of_all_that_the_generated_code_depends_on() -> None:
    kernel = make()
    plain = launch(kernel, T0, KnownValue(2.0))
    assert register(plain) == register(launch(kernel, T0, KnownValue(2.0)))
    assert re.fullmatch("kt[0-9a-f]{24}", register(plain))
    others = [
        launch(kernel, T0, KnownValue(3.0)),
        launch(kernel, T0, F0),
        launch(kernel, T0, factor=KnownValue(2.0)),
        launch(kernel, T0, n=KnownValue(2.0)),
        launch(kernel, T0, KnownValue(2.0), grid=KnownValue((2,))),
        launch(make(reset_to_zero=["y_ptr"]), T0, KnownValue(2.0)),
        dataclasses.replace(plain, dtypes=("torch.float32",)),
        dataclasses.replace(plain, layouts=True),
    ]
    assert len({register(one) for one in (plain, *others)}) == 1 + len(others)
    assert launch_of(register(plain)).tuner is kernel


def test_tuners_of_equal_content_have_tokens_of_their_own() -> None:
    first, *others = [launch(make(), T0, KnownValue(20.0)) for _ in range(3)]
    token = register(first)
    assert [register(one) for one in (*others, first)] == [f"{token}_2", f"{token}_3", token]
    assert [launch_of(f"{token}{end}") for end in ("", "_2", "_3")] == [first, *others]


def test_tokens_have_no_addresses() -> None:
    """Equal in every process: that is how torch's caches on disk are of use."""
    texts = [tuner_text(make(post_hook=lambda named, exception: None)) for _ in range(2)]
    assert texts[0] == texts[1]
    assert " at 0x" not in texts[0]


@pytest.mark.parametrize(
    "words",
    [{"pre_hook": lambda named, reset_only=False: None}, {"post_hook": lambda named, exception: None},
     {"prune_configs_by": {"early_config_prune": lambda found, named, **words: found}}, {"restore_value": ["y_ptr"]}],
)  # fmt: skip
def test_a_tuners_text_has_its_hooks(words: dict[str, Any]) -> None:
    assert tuner_text(make(**words)) != tuner_text(make())


def test_a_tuners_text_has_its_kernels_source() -> None:
    """With what the kernel calls, which its own code doesn't say."""
    assert source_hash(scaled) in tuner_text(make())


def test_a_launch_goes_where_its_tuners_calls_go() -> None:
    tuner, tritons = make(), triton.autotune(configs(64, 128), key=["n"])(scaled)
    assert launch(tuner).path is tuner._path
    assert isinstance(launch(tritons).path, PlainPath), "once kerntune isn't installed any more"


def test_a_launch_that_was_not_traced_here_is_an_error() -> None:
    with pytest.raises(UsageError, match="kt0123, which this process has not traced"):
        launch_of("kt0123")


class Named:
    """An object whose text has no address, and a method."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"named {self.text}"

    def call(self) -> str:
        return self.text


def made(value: Any = 1, default: Any = 2, word: Any = 3) -> Callable[..., Any]:
    def function(by: Any = default, *, to: Any = word) -> Any:
        return value, by, to

    return function


def itself() -> Callable[[], Any]:
    def again() -> Any:
        return again

    return again


def test_an_objects_text_is_its_content_or_its_identity() -> None:
    plain = object()
    assert value_text(plain) == f"object@{id(plain)}"
    assert [value_text(v) for v in (3, "a", torch.float32, Named("x"))] == ["3", "'a'", "torch.float32", "named x"]


@pytest.mark.parametrize("other", [made(7), made(default=7), made(word=7), lambda: 1, MethodType(made(), 1)])
def test_a_functions_text_has_what_it_holds(other: Callable[..., Any]) -> None:
    assert value_text(made()) == value_text(made()) != value_text(other)


def test_a_methods_text_has_its_object_and_a_recursion_ends() -> None:
    one, same, other = (value_text(Named(text).call) for text in "aab")
    assert one == same != other
    assert value_text(itself()) == value_text(itself())
    assert "itself" in value_text(itself())


def test_names_and_fixed_values_of_the_arguments() -> None:
    one = launch(make(), T0, KnownValue(5), n=I0, factor=KnownValue(2.0))
    assert one.plans == (T0, KnownValue(5), I0, KnownValue(2.0))
    assert one.named_plans == {"x_ptr": T0, "y_ptr": KnownValue(5), "n": I0, "factor": KnownValue(2.0)}
    assert one.fixed == (None, 5, None, 2.0)
    assert one.memo.fixed == {"y_ptr", "n", "factor"}
    assert launch(make(), T0, F0, grid=KnownValue((3,))).memo.fixed == set()


def test_the_operators_tensors_are_put_in_the_order_of_the_plans() -> None:
    one = dataclasses.replace(launch(make(), T0, T1), places=(2, 0, 1))
    assert one.in_order(["b", "c"], ["a"]) == ["a", "b", "c"]
    tokens = {register(dataclasses.replace(one, places=places)) for places in ((0, 1), (1, 0), (0, 1))}
    assert len(tokens) == 2


def closing_over(n: int) -> Any:
    return lambda meta: (n,)


def test_grid_functions_are_kept_by_their_integers_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_launch, "MAX_GRIDS", 2)
    plan = RebuiltFunction(closing_over(0).__code__, {}, (I0,), (), ())
    one = launch(make(), T0, grid=plan)
    kept = [one.grid_of(n) for n in (7, 8)]
    assert [grid({}) for grid in kept] == [(7,), (8,)]
    assert one.grid_of(7) is kept[0]
    assert one.grid_of(9)({}) == (9,)
    assert list(one.grids) == [(9,)], "all were dropped"
    assert one.made_grid([], [4], [])({}) == (4,)
    assert launch(make(), T0, grid=KnownValue((3, 1))).fixed_grid == (3, 1)


def test_remembered_grids_are_dropped_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_launch, "MAX_REMEMBERED", 2)
    memo, one = GridMemo(make(), frozenset()), RememberedGrid((), None, (1,), ())
    for n in range(3):
        memo._keep((n,), one)
        assert list(memo.known) == [[(0,)], [(0,), (1,)], [(2,)]][n]


def test_a_launch_hands_on_what_is_made_of_the_graphs_values() -> None:
    called: list[Any] = []

    class Tuner:
        arg_names = scaled.arg_names

        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **words: called.append((grid, args, words))

    x, y = object(), object()
    GraphLaunch(Tuner(), (T1, T0), (("n", I0), ("factor", F0)), ListedValues(tuple, (I0,))).run([x, y], [5], [0.5])
    assert called == [((5,), (y, x), {"n": 5, "factor": 0.5})]


def test_only_what_can_not_change_is_steady() -> None:
    steady = [torch, triton, triton.cdiv, triton.Config, len, max, int, 3, "a", [1], made(), pytest]
    found = [value for value in steady if graph_launch._is_steady(value)]
    assert found == [triton, triton.cdiv, triton.Config, len, max, int]
