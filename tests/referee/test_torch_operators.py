"""Rows of torch's operators: what a recording may ask for, what they touch, and what running them does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from msgspec.structs import replace

from kerntune.base.recording import View
from kerntune.referee.torch_operators import (
    MOST_OPERATORS,
    REPLAYED,
    DtypeNamed,
    HostNumber,
    NotReplayed,
    OperatorArgument,
    Several,
    TorchOperator,
    ViewAt,
    beside_launches,
    named,
    operator_problems,
    reached,
    row_of,
)
from tests.referee.recordings import LAUNCH, VIEWS, recording

NOT_RUN = replace(LAUNCH, grid=(0, 1, 1))
SUM = TorchOperator(1, "sum.IntList_out", (ViewAt(0), Several((0,)), False), {"out": ViewAt(1)})
NESTED: OperatorArgument = Several((Several((ViewAt(0),)),))


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ((SUM,), ""),
        (
            (replace(SUM, name="sum_.x"), replace(SUM, name="masked_fill_.Scalar"), replace(SUM, name="zero_.default")),
            "",
        ),
        ((replace(SUM, name="set_.source_Storage"),), "torch's set_.source_Storage isn't replayed"),
        ((replace(SUM, name="sum"),), "torch's sum isn't replayed"),
        ((replace(SUM, name="sum.out.x"),), "torch's sum.out.x isn't replayed"),
        ((replace(SUM, name="rand_like.out"),), "torch's rand_like.out isn't replayed"),
        ((replace(SUM, name=f"sum.{61 * 'o'}"),), f"torch's sum.{56 * 'o'} isn't replayed"),
        ((replace(SUM, before=2),), "torch's sum runs at no place among the launches"),
        ((replace(SUM, before=-1),), "torch's sum runs at no place among the launches"),
        ((SUM, replace(SUM, before=0)), "torch's sum runs at no place among the launches"),
        ((replace(SUM, args=(ViewAt(5),)),), "torch's sum has no such view"),
        ((replace(SUM, words={"out": Several((ViewAt(-1),))}),), "torch's sum has no such view"),
        ((replace(SUM, name="sum.__init__"),), "torch's sum.__init__ isn't replayed"),
        ((replace(SUM, name="as_strided_.default"),), "torch's as_strided_.default isn't replayed"),
        ((replace(SUM, args=(DtypeNamed("float32"), HostNumber(1, "int64"))),), ""),
        ((replace(SUM, args=(Several((DtypeNamed("load"),)),)),), "torch's sum has a dtype that isn't known here"),
        ((replace(SUM, args=(HostNumber(1, "load"),)),), "torch's sum has a dtype that isn't known here"),
        ((replace(SUM, args=(NESTED,)),), ""),
        ((replace(SUM, args=(Several((NESTED,)),)),), "arguments of torch's sum are nested too deeply"),
        ((replace(SUM, args=(ViewAt(4),)),), ""),
        ((replace(SUM, args=(ViewAt(3),)),), "a view of torch's sum has more than 4 GiB of elements"),
        ((SUM,) * MOST_OPERATORS, ""),
        ((SUM,) * (MOST_OPERATORS + 1), "it has 2049 operators of torch's, more than 2048"),
    ],
)
def test_what_a_recording_may_ask_for(rows: tuple[TorchOperator, ...], problem: str) -> None:
    repeated = [View(0, "float32", (1 << 15, size), (0, 0)) for size in ((1 << 15) + 1, 1 << 15)]
    one = recording(views=(*VIEWS, *repeated)).recording
    assert next(operator_problems(rows, one), "") == problem


def test_a_view_of_a_row_begins_with_a_whole_element() -> None:
    for offset, count in ((4, 0), (2, 2)):
        one = recording(views=(replace(VIEWS[0], offset_bytes=offset), *VIEWS[1:])).recording
        assert len([*operator_problems((SUM, SUM), one)]) == count


def test_none_of_the_operators_draws_or_takes_memory_from_elsewhere() -> None:
    words = {f"{word}{end}" for word in REPLAYED for end in ("", "_")}
    random = ("rand", "bernoulli", "multinomial", "normal", "uniform", "dropout", "exponential", "poisson")
    assert not [word for word in words if any(name in word for name in random) and "linalg_vector_norm" not in word]
    assert not words & {"set_", "resize_", "resize_as_", "from_file", "nonzero", "masked_select", "unique"}


def test_an_operators_storages_are_those_of_the_next_launch_that_runs() -> None:
    """The last one has those after it, too. Where none runs there are none."""
    one = recording(launches=(LAUNCH, NOT_RUN, LAUNCH)).recording
    rows = [replace(SUM, before=n) for n in range(4)]
    assert beside_launches(rows[:1], one) == {0: {0, 1}}
    assert beside_launches(rows[1:2], one) == beside_launches(rows[2:3], one) == {2: {0, 1}}
    assert beside_launches([rows[0], replace(rows[3], words={"out": ViewAt(2)})], one) == {0: {0, 1}, 2: {0, 2}}
    assert beside_launches(rows, recording(launches=(NOT_RUN,)).recording) == {}


def test_what_follows_from_a_launch() -> None:
    """Directly, or by operators after it."""
    first = recording(launches=(replace(LAUNCH, params=LAUNCH.params[:1]), LAUNCH)).recording
    before, between = replace(SUM, before=0), SUM
    assert reached([], recording(launches=(replace(LAUNCH, params=LAUNCH.params[:1]),)).recording) == {0}
    one = recording(launches=(replace(LAUNCH, params=LAUNCH.params[:1]),)).recording
    assert reached([before], one) == {0}
    assert reached([between], one) == {0, 1}
    other = replace(SUM, args=(ViewAt(2),))
    assert reached([other], one) == {0}
    assert reached([between, replace(between, args=(ViewAt(1),), words={"out": ViewAt(2)})], one) == {
        0,
        1,
        2,
    }
    assert reached([before], first) == {0, 1, 2}


def test_names_are_shown_once_and_eight_at_most() -> None:
    assert named(["a", "b", "a", "c\n" + 90 * "d"]) == f"torch's a, b, c\n{78 * 'd'}"
    assert named("abcdefghi") == "torch's a, b, c, d, e, f, g, h, ..."


ATEN = torch.ops.aten


def views(*tensors: Any) -> Any:
    return lambda x: next((i for i, one in enumerate(tensors) if one is x), None)


@pytest.mark.parametrize(
    ("func", "args", "words"),
    [
        (ATEN.bernoulli.default, (), {}),  # draws
        (ATEN.nonzero.default, (), {}),  # another shape for other values
        (ATEN.sum.default, (), {"dtype": torch.strided}),  # no value of a row
        (ATEN.mul.Tensor, (torch.ones(3),), {}),  # of the host, with dimensions
        (ATEN.mul.Tensor, (torch.tensor(1j),), {}),
    ],
)
def test_what_no_row_has(func: Any, args: tuple[Any, ...], words: dict[str, Any]) -> None:
    x, o = torch.zeros(3), torch.zeros(3)
    with pytest.raises(NotReplayed):
        row_of(0, func, (x, *args), words, o, views(x, o))
