"""Which tensors become stand-ins, and which results are computed: by operators, without a session."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kerntune.gpu.fake_cuda.placement import (
    _bounded,
    _computed,
    _elements,
    _is_plain,
    _laid_out_alike,
    _laid_out_as,
    _wants_stand_in,
    _without_history,
    _without_pinning,
    _written,
    is_like,
    small,
)

aten = torch.ops.aten
HERE = torch.zeros(2)
MOST = 1 << 22
"""The elements of the largest tensor that stays on the CPU."""


@pytest.mark.parametrize(
    ("func", "args", "kwargs", "elements"),
    [
        (aten.empty.memory_format, ([3, 5],), {}, 15),
        (aten.empty.memory_format, (), {"size": [3, 5]}, 15),
        (aten.full.default, ([], 7.0), {}, 1),
        (aten.eye.m, (3, 4), {}, 12),
        (aten.eye.default, (), {"n": 3}, 3),
        (aten.arange.start, (5, 9), {}, 9),
        (aten.arange.default, (2.5,), {}, 2),
        (aten.linspace.default, (0, 4, 3), {}, 12),
        (aten.randperm.default, (6,), {}, 6),
        (aten.scalar_tensor.default, (3.0,), {}, 0),
        (aten.new_empty.default, (HERE, [3, 5]), {}, 0),
        (aten.add.Tensor, (HERE, HERE), {}, 0),
        (torch.ops.prims.iota.default, (5,), {"start": 0, "step": 1}, 0),
    ],
    ids=lambda value: str(value) if callable(value) else "",
)
def test_a_factory_says_how_many_elements_it_makes_at_most(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], elements: int
) -> None:
    assert _elements(func, args, kwargs) == elements


@pytest.mark.parametrize(
    ("elements", "words", "stand_in"),
    [
        (1, {"device": "cuda"}, True),
        (1, {"device": torch.device("cuda", 1)}, True),
        (1, {"device": None}, False),
        (MOST, {}, False),
        (MOST + 1, {}, True),
        (MOST + 1, {"device": "cpu"}, True),
        (MOST + 1, {"device": "meta"}, False),
    ],
)
def test_what_is_on_the_gpu_or_large_is_a_stand_in(elements: int, words: dict[str, Any], stand_in: bool) -> None:
    assert _wants_stand_in(aten.empty.memory_format, ([elements],), words) is stand_in


@pytest.mark.parametrize(
    ("func", "like"),
    [(aten.zeros_like.default, True), (aten.new_full.default, True), (aten.empty_like.default, False)],
)
def test_some_factories_take_a_tensor_for_its_layout_alone(func: Any, like: bool) -> None:
    assert is_like(func) is like


def test_an_operator_of_another_library_is_no_factory_by_its_name() -> None:
    library = torch.library.Library("placement_test", "DEF")
    library.define("zeros_like(Tensor x) -> Tensor")
    assert not is_like(torch.ops.placement_test.zeros_like.default)


def test_results_of_65536_elements_each_are_computed() -> None:
    most = torch.empty(1 << 16)
    assert small([most, (most, 3)])
    assert not small([most, (torch.empty((1 << 16) + 1),)])


@pytest.mark.parametrize(
    ("func", "args", "bounded"),
    [
        (aten.nonzero.default, (HERE,), True),
        (aten.repeat_interleave.Tensor, (torch.tensor([1 << 15, 1 << 15]),), True),
        (aten.repeat_interleave.Tensor, (torch.tensor([1 << 15, (1 << 15) + 1]),), False),
        (aten.bincount.default, (HERE,), False),
    ],
    ids=["nonzero", "most", "more", "bincount"],
)
def test_a_result_whose_size_depends_on_values_stays_small(func: Any, args: tuple[Any, ...], bounded: bool) -> None:
    assert _bounded(func, args) is bounded


def test_a_single_number_or_integers_are_plain() -> None:
    dtypes = (torch.float32, torch.complex64, torch.int64, torch.bool)
    assert [_is_plain(torch.zeros(2, dtype=d)) for d in dtypes] == [False, False, True, True]
    assert _is_plain(torch.zeros(1, 1))


def test_layouts_are_alike_if_every_view_is_one_of_both() -> None:
    whole = torch.zeros(4, 2)
    assert _laid_out_alike(whole, torch.ones(4, 2))
    others = [whole.t(), whole.double(), whole[:3], torch.zeros(5, 2)[1:], torch.empty_strided((4, 2), (1, 4))]
    assert not any(_laid_out_alike(whole, other) or _laid_out_alike(other, whole) for other in others)
    assert not _laid_out_alike(others[3], others[3])
    turned = _laid_out_as(whole.t())
    assert (turned.shape, turned.stride(), turned.dtype) == ((2, 4), (1, 2), torch.float32)


def test_what_an_operator_writes_is_in_its_schema() -> None:
    x, y, out = torch.zeros(1), torch.ones(1), torch.ones(1)
    for func, args, kwargs, expected in (
        (aten.add.Tensor, (x, y), {}, []),
        (aten.add_.Tensor, (x, y), {}, [x]),
        (aten.add.out, (x, y), {"out": out}, [out]),
        (aten._foreach_add_.List, ([x, out], [y, y]), {}, [x, out]),
    ):
        assert [id(t) for t in _written(func, args, kwargs)] == [id(t) for t in expected]


def test_what_the_cpu_cannot_compute_is_unknown() -> None:
    assert _computed(aten.add.Tensor, ([torch.tensor(2), torch.tensor(3)], {"alpha": 2})).item() == 8
    assert _computed(aten.mm.default, ([torch.zeros(2, 3), torch.zeros(2, 3)], {})) is None
    assert _computed(aten.select.int, ([torch.zeros(2), 0, 5], {})) is None


def test_results_lose_their_history_and_memory_is_not_pinned() -> None:
    leaf = torch.ones(1, requires_grad=True)
    result = leaf * 2
    found = _without_history([result, leaf, 3])
    assert [getattr(f, "requires_grad", None) for f in found] == [False, True, None]
    assert found[1] is leaf
    plain = {"pin_memory": False, "dtype": None}
    assert _without_pinning(plain) is plain
    assert _without_pinning({"pin_memory": True, "dtype": None}) == plain
