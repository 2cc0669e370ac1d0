"""What an operator moves, by its name, its schema and the layouts of its tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kerntune.capture.operator_traits import SeenTensor, operator_call, operator_of, signature, traits_of

ATEN = torch.ops.aten


def seen(number: int, *shape: int, strides: tuple[int, ...] | None = (), storage: int = 1 << 20) -> SeenTensor:
    """Of float32, dense unless strides are given."""
    dense = tuple(torch.empty(shape, device="meta").stride())
    return SeenTensor(*(number, torch.float32, shape, dense if strides == () else strides, storage))


A, B, C = seen(1, 8, 16), seen(2, 8, 16), seen(3, 4, 16)
INDEX = SeenTensor(*(4, torch.int64, (4,), (1,), 32))


@pytest.mark.parametrize(
    ("func", "kind", "works", "writes", "reads_own", "layout_alone"),
    [
        (ATEN.add.Tensor, "", True, (), True, False),
        (ATEN.add_.Tensor, "", True, ((0, "self"),), True, False),
        (ATEN.copy_.default, "", True, ((0, "self"),), False, False),
        (ATEN.mm.out, "", True, ((2, "out"),), False, False),
        (ATEN.zeros_like.default, "filled", True, (), True, True),
        (ATEN.new_full.default, "filled", True, (), True, True),
        (ATEN.fill_.Scalar, "filled", True, ((0, "self"),), False, False),
        (ATEN.empty.memory_format, "", False, (), True, False),
        (ATEN.new_empty.default, "", False, (), True, True),
        (ATEN.detach.default, "", False, (), True, False),
    ],
    ids=str,
)
def test_traits(
    func: Any, kind: str, works: bool, writes: tuple[tuple[int, str], ...], reads_own: bool, layout_alone: bool
) -> None:
    found = traits_of(func)
    assert found is not None
    assert found.name == f"aten.{found.word}"
    assert found[2:] == (kind, works, writes, reads_own, layout_alone)


class Own:
    """Another library's operator, or one of torch's compiler."""

    _schema, _overloadname = None, ""

    def __init__(self, namespace: str) -> None:
        self.namespace, self.overloadpacket = namespace, f"{namespace}.scale"


@pytest.mark.parametrize(
    ("namespace", "kind"),
    [("mine", "bound"), ("prims", ""), ("_c10d_functional", ""), ("prim", None), ("inductor", None)],
)
def test_operators_of_others_have_a_bound(namespace: str, kind: str | None) -> None:
    found = traits_of(Own(namespace))
    assert (None if found is None else (found.kind, found.name)) == (
        None if kind is None else (kind, f"{namespace}.scale")
    )


def test_written_arguments_may_be_given_by_name() -> None:
    a, b, out = (torch.empty(4, 4, device="meta") for _ in range(3))
    for args, kwargs in (((a, b), {"out": out}), ((a, b, out), {})):
        call = operator_call(ATEN.mm.out, args, kwargs, out, lambda x: True)
        assert call is not None
        assert (call.written, len(call.takes)) == ([2], 3)
    assert operator_call(ATEN.mm.out, (a, b, out), {}, out, lambda x: False) is None


@pytest.mark.parametrize(
    ("tensor", "nbytes"),
    [
        (A, 512),
        (seen(1, 8, 16, strides=(16, 0)), 32),
        (seen(1, 8, 16, strides=(0, 0)), 4),
        (seen(1, 8, 16, storage=100), 100),
        (seen(1, 0, 16, strides=(0, 1)), 0),
        (seen(1, 8, 16, strides=None), 0),
    ],
    ids=["dense", "a broadcast dimension", "one element", "overlapping windows", "empty", "without a storage"],
)
def test_bytes_are_those_of_distinct_elements(tensor: SeenTensor, nbytes: int) -> None:
    assert tensor.nbytes == nbytes


@pytest.mark.parametrize(
    ("func", "takes", "makes", "writes", "nbytes"),
    [
        (ATEN.add.Tensor, [A, B], [C], [], 512 + 512 + 256),
        (ATEN.add.Tensor, [A, A], [C], [], 512 + 256),
        (ATEN.add_.Tensor, [A, B], [A], [A], 512 + 512 + 512),
        (ATEN.copy_.default, [A, B], [A], [A], 512 + 512),
        (ATEN.mm.out, [A, B, C], [C], [C], 512 + 512 + 256),
        (ATEN.zeros_like.default, [A], [B], [], 512),
        (ATEN.index_select.default, [A, INDEX], [C], [], 256 + 256 + 32),
        (ATEN.index_select.default, [INDEX, A], [A], [], 32 + 512 + 512),
        (ATEN.index_add_.default, [A, INDEX, C], [A], [A], 32 + 256 + 256),
        (ATEN.index_add_.default, [C, INDEX, A], [C], [C], 32 + 512 + 256),
    ],
)
def test_what_is_moved(
    func: Any, takes: list[SeenTensor], makes: list[SeenTensor], writes: list[SeenTensor], nbytes: int
) -> None:
    """Each tensor once; what is overwritten isn't read; of what is chosen from as much as is chosen."""
    traits = traits_of(func)
    assert traits is not None
    found = operator_of(traits, takes, makes, writes)
    assert (found.nbytes, found.name, found.kind) == (nbytes, traits.name, traits.kind)
    assert (found.takes, found.makes) == (tuple(x.layout for x in takes), tuple(x.layout for x in makes))


def test_a_signature() -> None:
    traits = traits_of(ATEN.add.Tensor)
    assert traits is not None
    assert signature(operator_of(traits, [A, INDEX], [C], [])) == "float32[8,16], int64[4] -> float32[4,16]"
