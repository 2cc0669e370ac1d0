"""Parts of traced calls that need no tracer: grids as functions, stand-ins for arguments, what is kerntune's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from compiled_runs import configs, make, scaled, shifted

import kerntune
from kerntune.errors import GridError
from kerntune.grids import (
    Choice,
    FixedGrid,
    Grid,
    Grid1D,
    Grid2DWithYZOverflow,
    PrecomputedGrid,
    add,
    ceil_div,
    maximum,
    minimum,
    mul,
)
from kerntune.tuning.torch_compile import kernel_calls
from kerntune.tuning.torch_compile.kernel_calls import DescribedExample, KernelCall, as_function, has_hooks, is_ours
from kerntune.tuning.torch_compile.launch_arguments import GraphValue, KnownValue

META = {"n": 1000, "m": 70_000, "BLOCK": 64}


@pytest.mark.parametrize(
    "grid",
    [
        FixedGrid(3, "n"),
        FixedGrid(add("n", "m", 7), mul("n", "m", 3), maximum("n", "m", 5)),
        FixedGrid(minimum("n", "m"), minimum("n", "m", 5)),
        FixedGrid(ceil_div("n", "BLOCK"), ceil_div("m", 3), ceil_div(1001, "BLOCK")),
        Grid1D("n"),
        Grid2DWithYZOverflow("n", "m", "BLOCK"),
        PrecomputedGrid((Choice.of({"BLOCK": 32}, 1), Choice.of({"BLOCK": 64, "n": 1000}, "n", 2))),
    ],
)
def test_a_grid_as_a_function_gives_the_same(grid: Grid) -> None:
    assert tuple(as_function(grid)(META)) == grid(META)


def test_a_default_yields_to_the_call_and_what_has_none_must_be_given() -> None:
    found = as_function(Grid1D("n"))
    assert [found({"n": 10, **more})[0] for more in ({}, {"XBLOCK": 4})] == [10, 3]
    with pytest.raises(KeyError):
        as_function(FixedGrid("n"))({})
    with pytest.raises(GridError, match="no grid was computed for these arguments"):
        as_function(PrecomputedGrid((Choice.of({"BLOCK": 32}, 1),)))(META)


def test_one_config_of_each_kind_stands_for_all() -> None:
    """Block sizes change no access; flags, texts and counts of one may."""
    words = [{"B": 64}, {"B": 128}, {"B": 1}, {"B": 0}, {"B": 64, "E": True}, {"B": 2, "E": False}, {"E": True, "B": 2}]
    listed = [triton.Config(kwargs) for kwargs in words]
    found = [listed.index(config) for config in kernel_calls._unlike(listed)]
    assert sorted(found) == [0, 2, 3, 4, 5]


def test_what_stands_in_for_an_argument() -> None:
    x = torch.empty(4, 8, 2, device="meta")
    symbols = [type(name, (), {})() for name in ("SymInt", "SymFloat")]
    size, share, plain = (kernel_calls._stand_in(value) for value in (*symbols, 7))
    assert (size > 1, size % 16, 0 < share < 1, plain) == (True, 0, True, 7)
    pointer = kernel_calls._stand_in(x)
    assert (pointer.dtype, pointer.data_ptr()) == (torch.float32, 0)
    found = kernel_calls._stand_in(DescribedExample(x, x.dtype, x.shape, x.stride(), (2, 4, 1)))
    assert (found.base.dtype, found.block_shape, found.shape) == (torch.float32, [2, 4, 1], [size] * 3)
    assert [(stride % 16, stride > 1) for stride in found.strides[:-1]] == [(0, True)] * 2
    assert found.strides[-1] == 1, "descriptors need that"


@pytest.mark.parametrize(
    ("found", "words", "ours"),
    [
        (configs(64, 128), {}, True),
        (configs(64), {}, False),
        (configs(64), {"pre_hook": lambda named, reset_only=False: None}, True),
        (configs(64), {"post_hook": lambda named, exception: None}, True),
        ([triton.Config({"BLOCK": 64}, pre_hook=lambda named: None)], {}, True),
        (configs(64), {"descend": True}, True),
    ],
)
def test_a_kernel_with_a_choice_or_a_hook_is_kerntunes(found: list[Any], words: dict[str, Any], ours: bool) -> None:
    tuner = kerntune.autotune(found, key=["n"], **words)(scaled)
    assert is_ours(tuner) is ours
    assert has_hooks(tuner) is (ours and not words.get("descend") and len(found) == 1)


def test_a_kernel_without_our_tuner_is_not_kerntunes() -> None:
    assert not is_ours(scaled)
    assert not is_ours(triton.autotune(configs(64, 128), key=["n"])(scaled)), "not installed"
    assert not is_ours(SimpleNamespace(configs=make().configs))


# a call, as wrap_triton has it


class Hopifier:
    """Refuses as torch's does, and notes what it is to launch itself."""

    def __init__(self) -> None:
        self.called: list[Any] = []

    def raise_unsupported(self, text: str) -> None:
        raise NotImplementedError(text)

    def call_triton_kernel(self, *given: Any) -> str:
        self.called.append(given)
        return "torch's"


def call_of(kernel: Any, *args: Any, grid: Any = (1,), **kwargs: Any) -> KernelCall:
    return KernelCall(Hopifier(), SimpleNamespace(kernel=kernel, grid=grid), args, kwargs, None)


X, Y = torch.empty(8), torch.empty(8, dtype=torch.float16)
T0, T1 = GraphValue("tensors", 0), GraphValue("tensors", 1)


def test_a_calls_arguments_are_plans() -> None:
    tuner = make()
    found = call_of(tuner, X, Y, 8, factor=2.0, BLOCK=64, num_warps=4)
    one = found.launch
    assert (found.name, one.tuner is tuner, one.args) == ("scaled", True, (T0, T1, KnownValue(8)))
    assert one.kwargs == (("factor", KnownValue(2.0)), ("BLOCK", KnownValue(64)), ("num_warps", KnownValue(4)))
    assert (one.grid, one.dtypes, one.layouts) == (KnownValue((1,)), ("torch.float32", "torch.float16"), True)
    assert list(found.examples()) == ["x_ptr", "y_ptr", "n", "factor", "BLOCK", "num_warps"]
    assert [found.examples()[name] is value for name, value in (("x_ptr", X), ("y_ptr", Y))] == [True, True]


def test_examples_come_in_the_kernels_order_with_descriptors() -> None:
    described = SimpleNamespace(block_shape=[4], base=X)
    found = call_of(make(), n=8, y_ptr=described, x_ptr=X).examples()
    assert list(found) == ["x_ptr", "y_ptr", "n"]
    assert found["y_ptr"] == DescribedExample(X, torch.float32, X.shape, (1,), (4,))


def test_a_call_without_a_grid_is_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match=r"^kerntune, kernel scaled: it is called without a grid; write"):
        _ = call_of(make(), X, Y, 8, 2.0, grid=None).launch


def test_tensors_that_are_written_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_calls, "launch_operator", lambda: lambda *given: given)
    monkeypatch.setattr(kernel_calls, "register", lambda launch: launch)
    found, written, read, ints, floats = call_of(make(), X, Y, 8, 2.0)._operator()
    assert ([t is Y for t in written], [t is X for t in read], ints, floats) == ([True], [True], [], [])
    assert (found.args[:2], found.places) == ((T0, T1), (1, 0))
    assert [t is one for t, one in zip(found.in_order(written, read), (X, Y), strict=True)] == [True, True]


@pytest.mark.parametrize("kernel", [scaled, shifted])
def test_what_a_call_leaves_out_has_the_kernels_default(kernel: Any) -> None:
    call = call_of(make(kernel), X, Y, 8)
    assert call._defaults() == ({"shift": 3, "TWICE": False} if kernel is shifted else {})
    assert call_of(make(kernel), X, Y, 8, **call._defaults())._defaults() == {}


def test_what_torch_can_not_launch_is_left_to_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call_of(make(), X, Y, 8, 2.0)._torch_can_launch(exported=False)
    listed = call_of(make(), (X, 1), Y, 8, 2.0)
    assert (listed._torch_can_launch(exported=False), listed._torch_can_launch(exported=True)) == (False, True)
    odd = call_of(make(shifted), X, Y, 8)
    monkeypatch.setattr(odd, "_defaults", lambda: {"shift": torch.float32})
    assert not odd._torch_can_launch(exported=False)


@pytest.mark.parametrize(
    ("config", "exported", "way"),
    [
        (None, False, "operator"),
        ("plain", False, "torch's"),
        ("hooked", False, "operator"),
        ("plain", True, "torch's"),
        (None, True, "take the winner of the example's arguments into the graph, but none is stored for these"),
        ("hooked", True, "but its config has a pre_hook, which only Python can call"),
    ],
)
def test_a_known_winner_is_launched_by_torch_else_by_the_operator(
    config: str | None, exported: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = call_of(make(), X, Y, 8, 2.0)
    winner = config and triton.Config({"BLOCK": 64}, pre_hook=print if config == "hooked" else None)
    asked: list[bool] = []
    monkeypatch.setattr(kernel_calls.torch_private, "makes_graph", lambda tx: True)
    monkeypatch.setattr(kernel_calls.torch_private, "exports", lambda tx: exported)
    monkeypatch.setattr(kernel_calls, "winner_of", lambda tuner, examples, hints: asked.append(hints) or winner)
    monkeypatch.setattr(call, "_plain", lambda config, exported: "torch's")
    monkeypatch.setattr(call, "_operator", lambda: "operator")
    if way in ("operator", "torch's"):
        assert call.trace() == way
    else:
        with pytest.raises(NotImplementedError, match=way):
            call.trace()
    assert asked == [exported]


@pytest.mark.parametrize("sizes", [True, False])
def test_eager_code_launches_unless_only_sizes_are_wanted(sizes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[Any] = []

    class Tuner:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **words: launched.append((grid, args, words)) or "launched"

    monkeypatch.setattr(kernel_calls.torch_private, "makes_graph", lambda tx: False)
    monkeypatch.setattr(kernel_calls.torch_private, "runs_for_sizes", lambda args, kwargs: sizes)
    assert call_of(Tuner(), 1, grid=(2,), n=3).trace() == (None if sizes else "launched")
    assert launched == ([] if sizes else [((2,), (1,), {"n": 3})])


def test_only_our_grids_become_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {True: lambda grid: grid, False: lambda grid: None}
    monkeypatch.setattr(
        kernel_calls.torch_private, "object_of_kind", lambda grid, kind: found[isinstance(grid, kind)](grid)
    )
    monkeypatch.setattr(kernel_calls.torch_private, "as_grid", lambda function, tx: (function({"n": 5}), tx))
    assert kernel_calls.traceable_grid((3,), "tx") == (3,)
    assert kernel_calls.traceable_grid(FixedGrid("n"), "tx") == ((5, 1, 1), "tx")
