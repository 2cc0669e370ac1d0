"""Recordings: what makes them the same work, and how launches are exchanged."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from samples import binary, launch, recording, recordings, scalars

from kerntune.base import codec
from kerntune.base.config import Config
from kerntune.base.recording import (
    Binary,
    Content,
    Launch,
    LaunchWork,
    Normal,
    Param,
    Recording,
    Scratch,
    Storage,
    Stored,
    TensorMap,
    Uniform,
    View,
    Zeros,
    same_work,
    work_of,
)

replace = msgspec.structs.replace
BASE = recording()
MAP = TensorMap(3, 2, 6, (64, 64), (1024, 1024), (1024, 1))


def with_param(**changes: Any) -> Recording:
    first, *rest = BASE.launches[0].params
    return with_launch(params=(replace(first, **changes), *rest))


def with_launch(**changes: Any) -> Recording:
    return replace(BASE, launches=(replace(BASE.launches[0], **changes),))


def with_binary(**changes: Any) -> Recording:
    return replace(BASE, binaries=(replace(BASE.binaries[0], **changes),))


def with_view(**changes: Any) -> Recording:
    return replace(BASE, views=(replace(BASE.views[0], **changes), BASE.views[1]))


# the same work


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (with_binary(code="other"), "code"),
        (with_binary(text="other"), "code"),
        (with_binary(num_warps=8), "flags"),
        (with_binary(num_ctas=2), "flags"),
        (with_binary(shared=1024), "flags"),
        (with_binary(cooperative=True), "flags"),
        (with_binary(pdl=True), "flags"),
        (with_launch(grid=(9, 1, 1)), "grid"),
        (with_param(type="*fp16"), "arguments"),
        (with_param(view=1), "arguments"),
        (with_param(view=None), "arguments"),
        (with_param(tensor_map=MAP), "arguments"),
        (with_launch(params=BASE.launches[0].params[:2]), "arguments"),
        (with_launch(params=(*BASE.launches[0].params[:2], Param("n", "i32", value=1025))), "arguments"),
        (with_view(shape=(512,)), "arguments"),
        (with_view(strides=(2,)), "arguments"),
        (with_view(offset_bytes=16), "arguments"),
        (with_view(dtype="float16"), "arguments"),
        (with_view(storage=1), "arguments"),
    ],
)
def test_a_change_is_found_and_named(other: Recording, what: str) -> None:
    assert not same_work(BASE, other)
    before, after = (work_of(x, x.launches[0]) for x in (BASE, other))
    assert [name for name in LaunchWork._fields if getattr(before, name) != getattr(after, name)] == [what]


@pytest.mark.parametrize(
    "other",
    [
        with_binary(sha256="other", ttir_sha256="other"),
        with_binary(symbol="add_kernel_2", triton="3.8.0", assembler="12.8"),
        with_binary(constexprs={"BLOCK": "256"}, options={}),
        with_launch(kernel="renamed", source="edited", config=Config({"BLOCK": 256})),
        with_param(name="renamed"),
        replace(BASE, hidden_pointers=True),
    ],
)
def test_what_does_not_run_does_not_count(other: Recording) -> None:
    """A comment, a path, a renamed kernel, another winner with the same code: the GPU does the same."""
    assert same_work(BASE, other)


def test_order_and_number_of_launches_count() -> None:
    a, b = launch(), launch(grid=(4, 1, 1))
    both = replace(BASE, launches=(a, b))
    assert not same_work(both, replace(BASE, launches=(b, a)))
    assert not same_work(both, replace(BASE, launches=(a,)))


def test_the_place_of_a_binary_does_not_count() -> None:
    other = replace(BASE, binaries=(binary("unused"), BASE.binaries[0]), launches=(launch(binary=1),))
    assert same_work(BASE, other)


@pytest.mark.slow
@given(recordings(), recordings())
def test_the_same_work_is_so_both_ways(a: Recording, b: Recording) -> None:
    assert same_work(a, b) is same_work(b, a)


@pytest.mark.slow
@given(recordings())
def test_everything_is_the_same_work_as_itself(a: Recording) -> None:
    assert same_work(a, a)


# exchanging launches


@pytest.mark.slow
@given(recordings())
def test_pruned_runs_the_same_with_no_idle_binary(a: Recording) -> None:
    b = a.pruned()
    assert same_work(a, b)
    assert {x.binary for x in b.launches} == set(range(len(b.binaries)))
    assert [b.binary_of(x) for x in b.launches] == [a.binary_of(x) for x in a.launches]
    assert b.pruned() == b
    assert (b.storages, b.views, b.target) == (a.storages, a.views, a.target)


@pytest.mark.slow
@given(recordings(), st.data())
def test_with_launch_changes_that_launch_only(a: Recording, data: st.DataObject) -> None:
    assume(a.launches)
    index = data.draw(st.integers(0, len(a.launches) - 1))
    new = binary(data.draw(st.sampled_from(["a", "b", "new"])))
    changed = a.with_launch(index, launch(grid=(77, 1, 1), binary=99), new)
    assert changed.binary_of(changed.launches[index]) == new
    assert changed.launches[index].grid == (77, 1, 1)
    for i, before in enumerate(a.launches):
        if i != index:
            assert replace(changed.launches[i], binary=0) == replace(before, binary=0)
            assert changed.binary_of(changed.launches[i]) == a.binary_of(before)
    assert {x.binary for x in changed.launches} == set(range(len(changed.binaries)))


@pytest.mark.slow
@given(recordings(), st.data())
def test_with_launch_of_its_own_changes_nothing(a: Recording, data: st.DataObject) -> None:
    assume(a.launches)
    index = data.draw(st.integers(0, len(a.launches) - 1))
    own = a.launches[index]
    assert same_work(a.with_launch(index, own, a.binary_of(own)), a)


def test_with_launch_shares_an_equal_binary() -> None:
    two = replace(BASE, launches=(launch(), launch(binary=1)), binaries=(binary("a"), binary("b")))
    assert two.with_launch(0, launch(), binary("b")).binaries == (binary("b"),)


def test_only_keeps_the_memory_plan() -> None:
    two = replace(BASE, launches=(launch(), launch(grid=(4, 1, 1))))
    assert two.only(1).launches == (two.launches[1],)
    assert two.only(1).storages == two.storages


# on disk

contents = st.one_of(
    st.just(Zeros()),
    st.builds(Normal, st.floats(-1e9, 1e9), st.floats(0, 1e9), st.integers(0, 9)),
    st.builds(Uniform, st.integers(-(2**63), 0), st.integers(0, 2**64 - 1)),
    st.builds(Stored, st.just("ab" * 32)),
)


@pytest.mark.slow
@given(recordings(), contents)
def test_round_trip(a: Recording, content: Content) -> None:
    a = replace(a, storages=(Storage(64, "uint8", content, read=True), *a.storages[1:]))
    again = msgspec.json.decode(codec.to_json(a), type=Recording, strict=True)
    assert again == a
    assert same_work(again, a)


@given(scalars)
def test_scalars_keep_type_and_value(value: bool | int | float) -> None:
    again = msgspec.json.decode(codec.to_json(Param("n", "i64", value=value)), type=Param, strict=True)
    assert again.value == value
    assert type(again.value) is type(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_scalars_that_json_lacks(value: float) -> None:
    """-inf is a usual argument: the fill of a masked softmax, a bound of clamp."""
    again = msgspec.json.decode(codec.to_json(Param("fill", "fp32", value=str(value))), type=Param, strict=True)
    assert float(again.value) == pytest.approx(value, nan_ok=True)


def test_every_field_of_a_full_binary_survives() -> None:
    full = binary(
        num_ctas=2,
        warp_size=64,
        shared=100,
        tmem=128,
        cooperative=True,
        pdl=True,
        global_scratch=Scratch(16, 128),
        profile_scratch=Scratch(8, 4),
        unreplayable="it prints",
    )
    assert msgspec.json.decode(codec.to_json(full), type=type(full), strict=True) == full


def test_an_unknown_kind_of_content_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="zipf"):
        msgspec.json.decode(b'{"nbytes": 1, "dtype": "int8", "content": {"kind": "zipf"}}', type=Storage)


def test_views_default_to_the_storages_start() -> None:
    assert View(0, "float32", (4,), (1,)).offset_bytes == 0
    assert Param("p", "*fp32").view is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"nbytes": 4, "dtype": "int8", "content": {"kind": "zeros"}}', Storage(4, "int8", Zeros(), False, False)),
        ('{"storage": 1, "dtype": "int8", "shape": [4], "strides": [1]}', View(1, "int8", (4,), (1,), 0)),
        ('{"name": "x", "type": "i32"}', Param("x", "i32", None, None, None)),
        ("{}", Scratch(0, 1)),
        (
            '{"swizzle": 1, "elem_size": 2, "elem_type": 3, "block": [4], "shape": [5], "strides": [1]}',
            TensorMap(1, 2, 3, (4,), (5,), (1,), False, False, False),
        ),
        (
            '{"kernel": "k", "source": "s", "binary": 0, "grid": [1, 1, 1], "params": []}',
            Launch("k", "s", 0, (1, 1, 1), (), (), (), None, False, ()),
        ),
    ],
)
def test_a_file_says_only_what_is_not_as_usual(text: str, value: Any) -> None:
    """Files of users lack what is as usual; with other defaults they would mean something else."""
    assert msgspec.json.decode(text, type=type(value)) == value


def test_a_stored_binary_is_usually_one_cta_of_warps_of_32_threads() -> None:
    required = (
        f'{{"kind": "cubin", "arch": "sm_90a", "symbol": "k", "sha256": "{"1" * 64}", "ttir_sha256": "{"2" * 64}"'
        ', "code": "3", "text": "4"'
        ', "triton": "3.9", "assembler": "", "options": {}, "constexprs": {}, "num_warps": 4}'
    )
    found = msgspec.json.decode(required, type=Binary)
    assert msgspec.structs.astuple(found)[12:] == (
        1, 32, 0, 0, False, False, Scratch(0, 1), Scratch(0, 1), "", {},
    )  # fmt: skip


def test_numbers_of_a_described_content_are_usually_around_zero() -> None:
    assert msgspec.json.decode('{"kind": "normal"}', type=Normal) == Normal(0.0, 1.0, 0)
    assert msgspec.json.decode('{"kind": "uniform", "low": 1, "high": 2}', type=Uniform) == Uniform(1, 2, 0)
