"""A family fitted to a person's kernel: what it sees of a call, what it refuses, how it names blocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import ConfigError, HintError
from kerntune.heuristics import (
    INDUCTOR_2_6,
    TtirCounts,
    persistent_reduction,
    pointwise,
    reduction,
    round_sizes,
    split_scan,
)
from kerntune.heuristics.call_hints import Read
from kerntune.heuristics.hints import KernelHints, Modes, ReductionHint
from kerntune.heuristics.proposer import ProposalInputs, Proposer

H100 = TYPICAL_DEVICES["cuda:90"]
A = {"x": ("n",)}


def proposer(family: Any = pointwise, sizes: Any = A, blocks: Any = None, **more: Any) -> Proposer:
    return Proposer(
        family=family,
        kernel="mine",
        parameters=("a", "b", "n", "m", "k", "BLOCK", "STEP"),
        constexprs=frozenset({"BLOCK", "STEP"}),
        sizes=sizes,
        blocks={"x": "BLOCK"} if blocks is None else blocks,
        **more,
    )


def rows(blocks: Any = None, family: Any = reduction, **more: Any) -> Proposer:
    blocks = {"x": "BLOCK", "r0": "STEP"} if blocks is None else blocks
    return proposer(family, {"x": ("n",), "r0": ("m",)}, blocks, reduces=True, **more)


def tensor(*shape: int, strides: tuple[int, ...]) -> Any:
    return SimpleNamespace(shape=shape, stride=lambda: strides)


# inputs


def test_texts_in_stored_keys_stay() -> None:
    """A winner's key holds this text: another one would make caches of earlier releases miss."""
    inputs = ProposalInputs((("x", 4096),), (Read((1,), (0,)),))
    assert str(inputs) == "Look(sizes=(('x', 4096),), reads=(Read(kept=(1,), reduced=(0,)),), empty=False)"


def test_strides_in_stored_keys_stay() -> None:
    x = {"a": tensor(300, 1000, strides=(4000, 1)), "b": tensor(300, 1000, strides=(0, 300)), "n": 300, "m": 1000}
    assert str(rows().inputs(x, H100)) == (
        "Look(sizes=(('x', 512), ('r0', 1024)), reads=(Read(kept=(2,), reduced=(1,)), Read(kept=(0,), reduced=(2,))), "
        "empty=False)"
    )


def test_a_group_has_eight_tiles_in_every_candidate() -> None:
    """As in torch's templates."""
    found = proposer(group="STEP").propose(ProposalInputs((("x", 4096),)), H100)
    assert {config.kwargs["STEP"] for config in found} == {8}


@given(st.integers(1, 2**40))
def test_sizes_of_a_bucket_look_the_same(n: int) -> None:
    last = round_sizes({"x": n})["x"]
    first = last // 2 + 1
    inputs = {proposer().inputs({"n": m}, H100) for m in (first, n, last)}
    assert inputs == {ProposalInputs((("x", last),))}
    assert proposer().inputs({"n": last + 1}, H100) not in inputs


def test_several_arguments_are_one_size() -> None:
    assert proposer(sizes={"x": ("n", "m")}).inputs({"n": 3, "m": 100}, H100).sizes == (("x", 512),)


@pytest.mark.parametrize(
    ("n", "said"), [(-1, "n=-1"), (2.5, "n=2.5"), (True, "n=True"), (None, "n=None"), ("8", "n='8'")]
)
def test_a_size_that_can_t_be_one_is_named(n: Any, said: str) -> None:
    with pytest.raises(HintError, match=f"kernel mine: axis x is argument {said}, which is no positive integer"):
        proposer().inputs({"n": n}, H100)


def test_a_size_that_the_call_lacks_is_named() -> None:
    with pytest.raises(HintError, match="kernel mine: axis x is to be argument 'n', but the call has a, b"):
        proposer().inputs({"a": 1, "b": 2}, H100)


def test_an_empty_launch_has_one_candidate() -> None:
    look = rows().inputs({"n": 0, "m": 1000, "a": tensor(0, 1000, strides=(1000, 1))}, H100)
    assert look.empty
    assert dict(look.sizes) == {"x": 1, "r0": 1024}
    assert len(rows().propose(look, H100)) == 1


@pytest.mark.parametrize(
    ("n", "strides", "hint"),
    [
        (300, (1000, 1), ReductionHint.INNER),
        (300, (1, 300), ReductionHint.OUTER),
        (100, (1, 100), ReductionHint.OUTER),  # OUTER_TINY is for second passes
        (9000, (1, 9000), ReductionHint.DEFAULT),
    ],
)
def test_strides_say_how_a_reduction_walks(n: int, strides: tuple[int, int], hint: ReductionHint) -> None:
    arguments = {"a": tensor(n, 1000, strides=strides), "b": tensor(n, strides=(1,)), "n": n, "m": 1000}
    look = rows().inputs(arguments, H100)
    wanted = KernelHints(
        sizes=dict(look.sizes), kernel="mine", reduction=hint, contiguous_reduction_access=strides[1] == 1
    )
    assert blocks_of(rows().propose(look, H100)) == [
        (c.kwargs["XBLOCK"], c.kwargs["R0_BLOCK"], c.num_warps) for c in reduction(wanted, H100)
    ]


@pytest.mark.parametrize(("n", "told"), [(8192, None), (8447, ReductionHint.INNER), (8448, None), (16384, None)])
def test_thresholds_hold_for_exact_sizes(n: int, told: ReductionHint | None) -> None:
    """132 SMs times 64 outputs, 8448, keep an H100 busy; 8447 don't, though they round to 16384."""
    look = rows().inputs({"a": tensor(n, 1000, strides=(1000, 1)), "n": n, "m": 1000}, H100)
    assert look.walk is told
    found = rows().hints_of(look, H100).reduction
    assert found is (ReductionHint.INNER if n < 8448 else ReductionHint.DEFAULT)
    assert ("walk=inner" in str(look)) == (told is not None)


def test_small_second_passes_are_tiny() -> None:
    call = {"a": tensor(100, 1000, strides=(1, 100)), "n": 100, "m": 1000}
    first, second = rows(), rows(second_pass=True)
    assert first.hints_of(first.inputs(call, H100), H100).reduction is ReductionHint.OUTER
    assert second.hints_of(second.inputs(call, H100), H100).reduction is ReductionHint.OUTER_TINY


def blocks_of(configs: Any) -> list[tuple[Any, ...]]:
    return [(c.kwargs["BLOCK"], c.kwargs["STEP"], c.num_warps) for c in configs]


def test_a_square_matrix_is_settled_by_a_word() -> None:
    arguments = {"a": tensor(512, 512, strides=(512, 1)), "n": 512, "m": 512}
    assert rows().inputs(arguments, H100).reads == ()
    told = {dim: rows(reduced={"a": (dim,)}) for dim in (0, 1)}
    outer, inner = (told[dim].propose(told[dim].inputs(arguments, H100), H100) for dim in (0, 1))
    assert outer != inner
    by_name = rows(known={"reduction": "inner"})
    assert by_name.propose(by_name.inputs(arguments, H100), H100) == inner
    assert len(rows().propose(rows().inputs(arguments, H100), H100)) > 1, "nothing known: all shapes are tried"


def test_longer_strides_look_the_same() -> None:
    looks = {rows().inputs({"a": tensor(64, n, strides=(n, 1)), "n": 64, "m": n}, H100) for n in (900, 1000)}
    assert len(looks) == 1


def test_four_arguments_on_two_axes_are_a_square_tile() -> None:
    two = {"x": ("n",), "y": ("m",)}
    names = {"x": "BLOCK", "y": "STEP"}
    copy = Proposer(pointwise, "mine", ("a", "b", "n", "m", "BLOCK", "STEP"), frozenset(names.values()), two, names)
    look = copy.inputs({"n": 4096, "m": 4096}, H100)
    assert len(copy.propose(look, H100)) == 1
    assert len(proposer(sizes=two, blocks=names).propose(look, H100)) > 1


@pytest.mark.parametrize(
    ("reduced", "value", "said"),
    [
        ({"a": (2,)}, tensor(8, 8, strides=(8, 1)), r"argument a: no dimension 2 in a tensor of shape \(8, 8\)"),
        ({"a": (0,)}, 3.5, "reduced names argument a=3.5, which is no tensor"),
    ],
)
def test_what_is_reduced_must_be_there(reduced: Any, value: Any, said: str) -> None:
    with pytest.raises(HintError, match=f"kernel mine: {said}"):
        rows(reduced=reduced).inputs({"a": value, "n": 8, "m": 8}, H100)


def test_an_optional_tensor_may_be_none() -> None:
    assert rows(reduced={"a": (0,)}).inputs({"a": None, "n": 8, "m": 8}, H100).reads == ()


# what the author and the code know


def test_counts_and_the_author_s_hints_reach_the_family() -> None:
    seen: list[KernelHints] = []

    def family(hints: KernelHints, device: Any, preset: Any) -> Any:
        seen.append(hints)
        return pointwise(hints, device, preset)

    mine = proposer(family, known={"loads": 7, "modes": Modes(max_autotune=True)}, preset=INDUCTOR_2_6)
    mine.propose(mine.inputs({"n": 1000}, H100), H100, TtirCounts(loads=2, stores=3, atomic_add=True))
    assert (seen[-1].loads, seen[-1].stores, seen[-1].atomic_add) == (7, 3, True)
    assert seen[-1].modes.max_autotune
    assert seen[-1].kernel == "mine"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"loads": -1}, "kernel mine: .*loads=-1 can't be negative"),
        ({"loads": "many"}, "kernel mine: a hint is wrong: Expected `int`, got `str` - at `\\$.loads`"),
        ({"reduction": "sideways"}, "kernel mine: a hint is wrong: Invalid enum value 'sideways'"),
        ({"tiling_scores": {"y": 1.0}}, "kernel mine: .*tiling score for y"),
    ],
)
def test_a_wrong_hint_is_refused_at_once(known: Any, said: str) -> None:
    with pytest.raises(HintError, match=said):
        proposer(known=known)


# blocks


@pytest.mark.parametrize("more", ["RSPLIT_SIZE", "RSPLIT_SIZE NUM_STAGES"])
def test_a_mix_order_kernel_needs_its_constexprs(more: str) -> None:
    names = tuple(more.split())
    given = {"sizes": {"x": ("n",), "r0": ("m",)}, "blocks": {"x": "X"}, "known": {"rsplit_size": 64}, "reduces": True}
    kernel = {"parameters": ("a", "n", "m", "X", *names), "constexprs": frozenset({"X", *names})}
    if len(names) == 2:
        Proposer(family=persistent_reduction, kernel="mine", **given, **kernel)
        return
    with pytest.raises(ConfigError, match="kernel mine: its configs set NUM_STAGES, which it has no parameter for"):
        Proposer(family=persistent_reduction, kernel="mine", **given, **kernel)


def test_blocks_have_the_kernel_s_names() -> None:
    mine = proposer()
    found = mine.propose(mine.inputs({"n": 1_000_000}, H100), H100)
    assert [c.kwargs for c in found] == [{"BLOCK": 1024}, {"BLOCK": 512}]


def test_a_missing_block_must_be_one() -> None:
    tall = proposer(sizes={"x": ("n",), "y": ("m",)})
    assert {c.kwargs["BLOCK"] for c in tall.propose(tall.inputs({"n": 4096, "m": 1}, H100), H100)} == {256, 1024, 4096}
    with pytest.raises(ConfigError, match=r"kernel mine: no parameter for YBLOCK.*1 everywhere.*blocks="):
        tall.propose(tall.inputs({"n": 4096, "m": 4096}, H100), H100)


@pytest.mark.parametrize("family", [reduction, split_scan])
def test_a_reduction_without_a_block_of_x_takes_a_row_a_program(family: Any) -> None:
    mine = rows({"r0": "STEP"}, family)
    for config in mine.propose(mine.inputs({"n": 4096, "m": 4096}, H100), H100):
        assert set(config.kwargs) == {"STEP"}


def test_a_reduction_without_x_has_one_row() -> None:
    one = proposer(reduction, {"r0": ("n",)}, {"r0": "STEP"}, reduces=True)
    assert dict(one.inputs({"n": 1000}, H100).sizes) == {"x": 1, "r0": 1024}
    assert [set(c.kwargs) for c in one.propose(one.inputs({"n": 1000}, H100), H100)] == [{"STEP"}]


@pytest.mark.parametrize("m", [1000, 1024])
def test_a_persistent_block_is_the_whole_row(m: int) -> None:
    mine = rows(family=persistent_reduction, whole_rows=True)
    assert {c.kwargs["STEP"] for c in mine.propose(mine.inputs({"n": 4096, "m": m}, H100), H100)} == {1024}


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"sizes": {"w": ("n",)}}, HintError, "unknown axis 'w': the axes are x, y, z, r0, r1"),
        ({"sizes": {"x": ("rows",)}}, HintError, "axis x is to be argument 'rows', but the kernel has a, b, n"),
        ({"sizes": {}, "blocks": {}}, HintError, "no sizes"),
        ({"sizes": {"y": ("n",)}, "blocks": {"y": "BLOCK"}}, HintError, "pointwise takes size hints for x or x y"),
        ({"reduced": {"c": (0,)}}, HintError, "reduced is to be argument 'c'"),
        ({"blocks": {"y": "BLOCK"}}, ConfigError, "block BLOCK is of axis 'y', but sizes= has x"),
        ({"blocks": {"x": "BLOK"}}, ConfigError, "block BLOK is no constexpr of it; it has BLOCK, STEP"),
        ({"blocks": {"x": "n"}}, ConfigError, "block n is no constexpr"),
    ],
)
def test_names_that_don_t_exist_are_refused_at_once(wrong: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=f"kernel mine: {said}"):
        proposer(**wrong)


def test_a_block_that_the_family_doesn_t_propose_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="kernel mine: STEP is to be R0_BLOCK, but this family proposes no R0_BLOCK"):
        rows(family=persistent_reduction)
