"""The text of a launch in generated code."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from compiled_runs import launch_in_graph as launch
from compiled_runs import make

from kerntune.errors import UsageError
from kerntune.kernels.compat import torch_private
from kerntune.tuning.torch_compile import hook_in
from kerntune.tuning.torch_compile.graph_launch import WRITTEN_AS, GraphLaunch, register
from kerntune.tuning.torch_compile.hook_in import GeneratedCall, write_call
from kerntune.tuning.torch_compile.launch_arguments import (
    ArgumentPlan,
    GraphValue,
    KnownValue,
    ListedValues,
    RebuiltFunction,
    TensorDescription,
)

T0, T1, I0, F0 = GraphValue("tensors", 0), GraphValue("tensors", 1), GraphValue("ints", 0), GraphValue("floats", 0)
GIVEN = {"tensors": ["a", "b"], "ints": ["s0", "s1"], "floats": ["f"]}
ALL = "[a, b], [s0, s1], [f]"


def text_of_call(one: GraphLaunch) -> str | None:
    return GeneratedCall("kt", one, GIVEN).direct()


def closing_over(*cells: ArgumentPlan) -> RebuiltFunction:
    n = m = 0
    code = ((lambda meta: (n,)) if len(cells) == 1 else (lambda meta: (n, m))).__code__
    return RebuiltFunction(code, {}, cells, (), ())


@pytest.fixture(autouse=True)
def heads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines at the head of the module."""
    found: list[str] = []
    monkeypatch.setattr(torch_private, "write_once", found.append)
    return found


def test_values_without_a_literal_are_kept(heads: list[str]) -> None:
    one = launch(make(), T1, KnownValue(torch.float32), KnownValue(float("inf")), KnownValue("text"))
    assert text_of_call(one) == "kt_path.launch(kt_grid, b, kt_fixed[1], kt_fixed[2], 'text')"
    assert heads == ["kt_path = kt.path", "kt_fixed = kt.fixed", "kt_grid = kt.fixed_grid"]
    assert one.fixed[1] is torch.float32


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (KnownValue(True), "True"),
        (KnownValue(-0.5), "-0.5"),
        (KnownValue(None), "None"),
        (KnownValue((1, 2)), "kt_fixed[1]"),
        (KnownValue(float("nan")), "kt_fixed[1]"),
        (F0, "f"),
        (ListedValues(tuple, (I0, KnownValue(3))), "(s0, 3,)"),
        (ListedValues(tuple, (KnownValue(1), KnownValue(3))), "kt_fixed[1]"),
    ],
)
def test_an_argument_in_the_code(plan: ArgumentPlan, text: str) -> None:
    assert text_of_call(launch(make(), T0, plan, n=I0)) == f"kt_path.launch(kt_grid, a, {text}, n=s0)"


@pytest.mark.parametrize(
    "plan",
    [
        TensorDescription(T0, (16, 16)),
        ListedValues(tuple, (TensorDescription(T0, (16, 16)), I0)),
        ListedValues(list, (I0,)),
        ListedValues(tuple, (I0, KnownValue(torch.float32))),
        closing_over(T0),
    ],
)
def test_what_is_made_at_each_call_is_made_by_the_launch(plan: ArgumentPlan, heads: list[str]) -> None:
    assert text_of_call(launch(make(), plan)) is None
    assert heads == []
    assert GeneratedCall("kt", launch(make(), plan), GIVEN).whole() == f"kt.run({ALL})"


@pytest.mark.parametrize(
    ("grid", "text", "head"),
    [
        (KnownValue((4, 1)), "kt_grid", "kt_grid = kt.fixed_grid"),
        (ListedValues(tuple, (I0,)), "(s0,)", None),
        (KnownValue(lambda meta: (1,)), "kt_grid_of(s0, s1)", "kt_grid_of = kt.grid_of"),
        (closing_over(I0), "kt_grid_of(s0, s1)", "kt_grid_of = kt.grid_of"),
        (closing_over(I0, F0), f"kt.made_grid({ALL})", "kt_grid_of = kt.grid_of"),
        (closing_over(T0, I0), f"kt.made_grid({ALL})", "kt_grid_of = kt.grid_of"),
        (closing_over(TensorDescription(T0, (2,))), f"kt.made_grid({ALL})", "kt_grid_of = kt.grid_of"),
    ],
)
def test_a_grid_in_the_code(grid: ArgumentPlan, text: str, head: str | None, heads: list[str]) -> None:
    assert text_of_call(launch(make(), T0, grid=grid)) == f"kt_path.launch({text}, a)"
    assert heads == ["kt_path = kt.path", "kt_fixed = kt.fixed", *([head] if head else [])]


def test_a_call_is_written_with_its_launch_at_the_head(heads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    for plan, said in ((T1, "{}_path.launch({}_grid, b)"), (TensorDescription(T0, (2,)), "{}.run([a, b], [s0], [f])")):
        token = register(dataclasses.replace(launch(make(), plan), places=(1, 0)))
        node: Any = [token, ["b"], ["a"], ["s0"], ["f"]]
        monkeypatch.setattr(torch_private, "texts_of_arguments", lambda given: given)
        heads.clear()
        write_call(node, written.append)
        assert written.pop() == said.replace("{}", token)
        assert heads[:2] == [hook_in.IMPORT, f"{token} = kerntune_launch_of({token!r})"]


def test_a_part_that_this_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    part: Any = torch_private.GRAPH_PARTS[0]
    asked: list[Any] = []
    monkeypatch.setattr(torch_private, "missing_parts", lambda parts, load: asked.append((parts, load)) or parts)
    with pytest.warns(
        RuntimeWarning, match=f"this torch has no {re.escape(part.name)} as {re.escape(part.user)} knows it: "
    ):
        assert hook_in.lacks([part]) is True
    assert hook_in.lacks([]) is False
    assert asked == [([part], False), ([], False)]


def test_a_method_gets_the_one_that_it_replaces() -> None:
    class Owner:
        def method(self, by: int) -> int:
            """Twice."""
            return 2 * by

    hook_in._wrap(Owner, "method", lambda before, self, by: (before(by), type(self).__name__))
    assert Owner().method(4) == (8, "Owner")
    assert Owner.method.__doc__ == "Twice."


class Details:
    """As AOTAutograd's."""

    def get_triton_source_codes_from_gm(self, gm: Any) -> list[str]:
        return ["source"]


@pytest.mark.parametrize("lacks", [False, True])
def test_the_cache_is_taught_where_this_torch_is_as_known(lacks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = type("Own", (), dict(vars(Details)))
    asked: list[Any] = []
    monkeypatch.setattr(torch_private, "cache_details", lambda: kind)
    monkeypatch.setattr(torch_private, "kernels_in_operators", lambda gm: gm)
    monkeypatch.setattr(hook_in, "lacks", lambda parts: asked.append(parts) or lacks)
    hook_in.teach_cache()
    assert asked[0]
    assert {part.module for part in asked[0]} == {torch_private.AOT_CACHE}
    scaled = make().fn
    for kernels in ([[scaled]], []):
        assert kind().get_triton_source_codes_from_gm(kernels) == ["source"]
    for kernels in ([[scaled], [scaled, make()]], [[]]):
        with contextlib.nullcontext() if lacks else pytest.raises(Exception, match="a triton_op may launch a kernel"):
            kind().get_triton_source_codes_from_gm(kernels)


@pytest.mark.parametrize("lacks", [False, True])
def test_tracing_is_taught_where_this_torch_is_as_known(lacks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped: list[Any] = []
    asked: list[Any] = []
    monkeypatch.setattr(torch_private, "hopifier", lambda: "hopifier")
    monkeypatch.setattr(torch_private, "set_generated_call", lambda *given: wrapped.append(given))
    monkeypatch.setattr(hook_in, "_wrap", lambda *given: wrapped.append(given[:2]))
    monkeypatch.setattr(hook_in, "lacks", lambda parts: asked.append(parts) or lacks)
    hook_in.teach_tracing()
    assert {part.module for part in asked[0]} == {torch_private.WRAP, torch_private.FUNCTIONS}
    taught = [("hopifier", "init_variable"), ("hopifier", "call_triton_kernel")]
    assert wrapped == ([] if lacks else [*taught, (WRITTEN_AS, write_call)])


def test_calls_of_other_kernels_are_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(torch_private, "accept", lambda *given: called.append(("accepted", *given)))
    monkeypatch.setattr(hook_in, "traceable_grid", lambda grid, tx: f"traceable {grid}")
    tuner = make()
    hook_in._init_variable(lambda *given: called.append(given), None, "variable", tuner, 1, "grid")
    hook_in._init_variable(lambda *given: called.append(given), None, "variable", tuner.fn, 1, "grid")
    assert called == [("accepted", "variable", tuner, "grid"), ("variable", tuner.fn, 1, "grid")]
    variable: Any = SimpleNamespace(kernel=tuner.fn, grid="grid")
    found = hook_in._call_triton_kernel(lambda *given: given, None, variable, ["a"], {}, "tx")
    assert found == (variable, ["a"], {}, "tx")
    assert variable.grid == "traceable grid"


@pytest.mark.parametrize("error", [AttributeError, ImportError, TypeError])
def test_a_torch_that_is_read_wrongly_is_said(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    class Call:
        def __init__(self, *given: Any) -> None:
            self.given = given

        def trace(self) -> Any:
            if self.given[2] == ["fails"]:
                raise error("no such part")
            return self.given

        def refused(self, why: str) -> Exception:
            return UsageError(why)

    monkeypatch.setattr(hook_in, "KernelCall", Call)
    variable: Any = SimpleNamespace(kernel=make())
    assert hook_in._call_triton_kernel(None, "hop", variable, ["a"], {}, "tx") == ("hop", variable, ["a"], {}, "tx")
    with pytest.raises(UsageError, match=rf"this torch is read wrongly \({error.__name__}: no such part\); please"):
        hook_in._call_triton_kernel(None, "hop", variable, ["fails"], {}, "tx")
