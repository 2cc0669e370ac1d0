"""Values with which comparisons of stand-ins pass, and what becomes of stand-ins that are printed or copied."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from kerntune.gpu.fake_cuda import tensors
from kerntune.gpu.fake_cuda.patches import StandInEnd
from kerntune.gpu.fake_cuda.placement import KnownValues
from kerntune.gpu.fake_cuda.tensors import Addresses, Comparisons


@pytest.fixture
def fake() -> Iterator[FakeTensorMode]:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


@pytest.mark.parametrize(
    ("line", "asserted", "passing"),
    [
        ("assert torch.equal(a, b)", True, (True, True)),
        ("    assert not torch.equal(a, b)", True, (False, False)),
        ("self.assertTrue(torch.equal(a, b))", True, (True, True)),
        ("self.assertFalse(torch.equal(a, b))", True, (False, False)),
        ("assert torch.equal(a, b) and c", False, (True, False)),
        ("assert not a.equal(b) or c", False, (True, False)),
        ("assert a; b", False, (True, False)),
        ("if torch.equal(a, b):", False, (True, False)),
        ("assertion = a.equal(b)", False, (True, False)),
    ],
)
def test_a_line_passes_if_it_asserts_one_condition(
    line: str, asserted: bool, passing: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tensors._assertion(line) == asserted
    monkeypatch.setattr(tensors, "_calling_line", lambda: line)
    comparisons = tensors.Comparisons(KnownValues())
    assert tuple(comparisons._passed(default) for default in (True, False)) == passing


def test_storages_lie_one_behind_the_other(fake: FakeTensorMode) -> None:
    addresses, first = Addresses(), 1 << 40
    made = [torch.empty(n, dtype=torch.int8) for n in (0, 255, 256, 1)]
    assert [addresses.storage(x) - first for x in (*made, made[1][3:])] == [0, 256, 512, 1024, 256]
    assert addresses.tensor(torch.empty(8)[2:]) == first + 1280 + 8
    assert [addresses.reserved(first + offset) for offset in (-1, 0, 1535, 1536)] == [False, True, True, False]


def test_a_stand_in_is_printed_and_copied_without_values(fake: FakeTensorMode) -> None:
    x = torch.empty(2, 3)
    with contextlib.ExitStack() as stack:
        tensors.install_methods(stack, KnownValues())
        assert f"{x:.3f}" == "<stand-in (2, 3) torch.float32>"
        assert fake_tensor.init_gpu_context(x.device) is x.record_stream(None) is None
    memo: dict[int, Any] = {}
    leaf = torch.empty(2, requires_grad=True)
    twin = tensors._deepcopy(leaf, memo)
    assert (twin.requires_grad, tensors._deepcopy(leaf, memo) is twin, memo) == (True, True, {id(leaf): twin})
    assert tensors._copy(x).requires_grad is False
    assert tensors._copy(x).untyped_storage()._cdata == x.untyped_storage()._cdata
    assert tensors._deepcopy(x, {}).untyped_storage()._cdata != x.untyped_storage()._cdata
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user support the deepcopy protocol"):
        tensors._deepcopy(leaf * 2, {})


@pytest.mark.parametrize("name", ["tolist", "numpy"])
@pytest.mark.parametrize("known", [True, False])
def test_reading_a_stand_in_ends_the_body_unless_its_list_is_known(name: str, known: bool) -> None:
    noted: list[object] = []
    values: Any = SimpleNamespace(
        of=lambda tensor: torch.tensor([1, 2]) if known else None, note_unanswered=noted.append
    )
    read = tensors._ending(name, values)
    if known and name == "tolist":
        assert (read(torch.empty(2)), noted) == ([1, 2], [])
    else:
        with pytest.raises(StandInEnd, match=rf"needs the values of a stand-in \(Tensor.{name}\)") as caught:
            read(torch.empty(2))
        assert noted == [caught.value]


def comparisons(known: bool) -> Comparisons:
    return Comparisons(SimpleNamespace(knows=lambda tensor: known))  # type: ignore[arg-type]


def test_known_values_are_compared_and_others_pass() -> None:
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])
    for known in (True, False):
        found = comparisons(known)
        assert found._equal(torch.equal, (a, b), {}) is (not known)
        assert found._allclose(torch.allclose, (a,), {"other": b}) is (not known)
        assert found._equal(torch.equal, (a,), {"other": a[:1]}) is False
        assert bool(found.take_unchecked()) is (not known)
        assert found.take_unchecked() == {}
    with pytest.raises(RuntimeError, match=r"size|shape"):
        comparisons(False)._allclose(torch.allclose, (a, torch.ones(3)), {})


def test_a_reduced_comparison_is_what_it_usually_is(fake: FakeTensorMode) -> None:
    """All holds and any doesn't; a value that is known, and a result of several elements, is its own."""
    x, unknown = torch.empty(3, dtype=torch.bool), comparisons(False)
    for usual in (True, False):
        one = unknown._reduction(usual, torch.all, (x,), {})
        assert getattr(one, tensors.TRUTH) is usual
        found = unknown._truth(torch.Tensor.item, (one,), {})
        assert found is usual
        assert not hasattr(comparisons(True)._reduction(usual, torch.all, (x,), {}), tensors.TRUTH)
        assert not hasattr(
            unknown._reduction(usual, torch.all, (torch.empty(2, 2, dtype=torch.bool), 0), {}), tensors.TRUTH
        )
    asked: list[object] = []
    assert unknown._truth(lambda tensor: asked.append(tensor), (x,), {}) is None
    assert asked == [x]
    assert comparisons(True)._truth(lambda tensor: 5, (one,), {}) == 5


@pytest.mark.parametrize("grad", [True, False])
def test_a_copy_of_a_parameter_is_one(grad: bool) -> None:
    parameter = torch.nn.Parameter(torch.ones(2), requires_grad=grad)
    again = tensors._deepcopy(parameter, {})
    assert (type(again), again.requires_grad, again.tolist()) == (torch.nn.Parameter, grad, [1.0, 1.0])
    assert type(tensors._copy(torch.ones(2))) is torch.Tensor
