"""A call's inputs: as a callable gets them, and those that a task's own code makes."""

from __future__ import annotations

import random
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
import torch

from kerntune.gpu.probe import has_cuda
from kerntune.referee import call_inputs
from kerntune.referee.case_inputs import UNREAD, SequenceArgument, TensorInput, UserCallable
from kerntune.referee.declared_inputs import is_one_number, parse_line
from kerntune.referee.layouts import GPU_MODE, KERNELBENCH


def test_arguments_by_place_and_by_name() -> None:
    case = parse_line("x: f32[4]; y: f32[4]; a = 0.5; b = 'mean'")
    case = msgspec.structs.replace(case, keywords=("a", "b"))
    assert call_inputs.arguments_of(case, ["X", "Y"]) == (["X", "Y"], {"a": 0.5, "b": "mean"})
    plain = msgspec.structs.replace(case, keywords=())
    assert call_inputs.arguments_of(plain, ["X", "Y"]) == (["X", "Y", 0.5, "mean"], {})


@pytest.mark.parametrize(("seed", "numpys"), [(3, 3), ((1 << 32) + 7, 7), ((1 << 63) - 1, (1 << 32) - 1)])
def test_all_generators_are_seeded(seed: int, numpys: int) -> None:
    """NumPy's takes 32 bits."""
    call_inputs.seed_generators(seed)
    assert torch.initial_seed() == seed
    assert np.random.rand() == np.random.RandomState(numpys).rand()
    assert random.random() == random.Random(seed).random()


@pytest.mark.parametrize(
    "value", [None, True, 2, 0.5, "mean", (1, [2, None]), {"eps": 0.5, "sizes": (1, {"n": 2})}], ids=repr
)
def test_plain_inputs_stay_as_they_are(value: object) -> None:
    found: list[Any] = []
    argument = call_inputs._argument(value, found)
    assert (call_inputs.value_of(argument, ()), found) == (value, [])


def test_an_input_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="an input is a set, which can't be handed to another process"):
        call_inputs._argument([{"a": {1}}], [])
    with pytest.raises(TypeError, match="an input is a dict, which"):
        call_inputs._argument({1: 2}, [])


class Maker:
    """A module of an author's: what it was asked to make, and what it drew."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def generate_input(self, **words: Any) -> Any:
        self.asked.append(words)
        return torch.rand(3), np.random.rand(), random.random()

    def get_inputs(self) -> Any:
        return (self.generate_input(),)


class Named(NamedTuple):
    x: Any
    more: tuple[Any, float]


def test_a_named_tuple_keeps_its_fields() -> None:
    tensors: list[Any] = []
    argument = call_inputs._argument(Named(torch.zeros(3), ([2, torch.ones(4)], 0.5)), tensors)
    argument = msgspec.msgpack.decode(msgspec.msgpack.encode(argument), type=SequenceArgument)
    found = call_inputs.value_of(argument, ["X", "Y"])
    assert (found.x, found.more, found) == ("X", ([2, "Y"], 0.5), ("X", ([2, "Y"], 0.5)))


def test_what_makes_inputs_draws_by_the_seed() -> None:
    """Of whatever generator. GPU MODE's maker has the seed as an argument below 2**24, too."""
    maker, given = Maker(), {"size": 3, "seed": 9}
    for layout, asked in ((GPU_MODE, {"size": 3, "seed": (1 << 23) + 5}), (KERNELBENCH, {})):
        source = UserCallable("r.py", "Model", layout)
        seed = (1 << 62) + (1 << 31) + (1 << 30) + (1 << 23) + 5
        one, again, other = (call_inputs._made_inputs(maker, source, given, n)[0] for n in (seed, seed, 5))
        assert maker.asked[-3] == asked
        assert torch.equal(one[0], again[0])
        assert one[1:] == again[1:]
        assert not torch.equal(one[0], other[0])
        assert one[1] != other[1] or one[2] != other[2]


def test_without_a_maker_the_task_s_own_module_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "reference.py"
    path.write_text("asked = []\ndef generate_input(**words): asked.append(words)\n")
    source = UserCallable(str(tmp_path / "old.py"), "custom_kernel", GPU_MODE, {"reference": str(path)})
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks])
    monkeypatch.setitem(sys.modules, "reference", None)
    monkeypatch.delitem(sys.modules, "reference")
    for _ in range(2):
        call_inputs._made_inputs(types.SimpleNamespace(), source, {"size": 3}, 5)
    assert sys.modules["reference"].asked == [{"size": 3, "seed": 5}] * 2


def test_a_model_is_made_alike_each_time() -> None:
    source = UserCallable("r.py", "rand", KERNELBENCH)
    found = [call_inputs.model_of(torch, source, [3]) for _ in range(2)]
    torch.manual_seed(0)
    assert found[0].tolist() == found[1].tolist() == torch.rand(3).tolist()


def test_views_are_told_as_the_dense_tensors_that_both_sides_are_given() -> None:
    turned = call_inputs._tensor_input("x", torch.zeros(4, 3, dtype=torch.float16).t())
    assert turned == TensorInput("x", "float16", (3, 4), (1, 3), "author")
    part, repeated = torch.zeros(3, 9, dtype=torch.float16)[:, :4], torch.zeros(4, dtype=torch.float16).expand(3, 4)
    for view in (part, repeated):
        assert call_inputs._tensor_input("x", view) == TensorInput("x", "float16", (3, 4), (4, 1), "author")


@pytest.mark.parametrize(
    ("values", "alike"),
    [([1.0, 2.0, 0.0, 3.0] * 50, 1), ([-1.0, -2.0, 0.0, -3.0] * 50, 1), ([-1.0, 2.0, 0.0, -3.0] * 50, 0)],
)
def test_parameters_are_shuffled_and_signs_drawn_where_there_are_both(values: list[float], alike: int) -> None:
    value = torch.tensor(values).reshape(10, 20)
    found = call_inputs._shuffled(value, torch.Generator().manual_seed(3))
    assert found.shape == value.shape
    assert not torch.equal(found.abs(), value.abs())
    assert sorted(found.abs().flatten().tolist()) == sorted(value.abs().flatten().tolist())
    assert (sorted(found.flatten().tolist()) == sorted(values)) == bool(alike)
    if not alike:
        assert 0.4 < float((found < 0).sum() / (found != 0).sum()) < 0.6


def test_an_input_has_its_bytes_as_they_lie() -> None:
    given = TensorInput("x", "int16", (2, 3), (3, 1))
    assert call_inputs.tensor_of(given, np.arange(6, dtype="i2").tobytes()).tolist() == [[0, 1, 2], [3, 4, 5]]
    empty = call_inputs.tensor_of(TensorInput("x", "float32", (0, 3), (3, 1)), b"")
    assert (empty.shape, empty.dtype) == ((0, 3), torch.float32)


@pytest.mark.parametrize("copies", [False, True])
def test_an_input_on_the_device_never_shares_the_memory_of_its_bytes(
    copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference may change it. A stand-in for a device may be the CPU itself; a GPU has a copy."""
    data = np.arange(6, dtype="i2").tobytes()
    given = TensorInput("x", "int16", (2, 3), (1, 2))
    moved = torch.Tensor.clone if copies else (lambda tensor: tensor)
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device: moved(tensor))
    tensor = call_inputs.on_device(given, data)
    tensor += 1
    assert tensor.tolist() == [[1, 3, 5], [2, 4, 6]]
    assert np.frombuffer(data, "i2").tolist() == [0, 1, 2, 3, 4, 5]
    assert call_inputs.on_device(TensorInput("x", "float32", (0, 3), (3, 1)), b"").shape == (0, 3)


def test_a_tensor_s_bytes_stay_when_it_changes() -> None:
    tensor = torch.arange(4)
    found = call_inputs.large_of(tensor)
    tensor += 1
    assert np.frombuffer(found, "i8").tolist() == [0, 1, 2, 3]


@pytest.mark.gpu
@pytest.mark.skipif(not has_cuda(), reason="needs a CUDA GPU")
def test_a_gpu_s_tensors_are_read_into_memory_of_their_own() -> None:
    tensor = torch.arange(6, dtype=torch.int16, device="cuda").reshape(2, 3).t()
    assert isinstance(call_inputs.large_of(tensor), memoryview)
    assert call_inputs.large_of(tensor) == call_inputs.bytes_of(tensor) == call_inputs.large_of(tensor.cpu())
    empty = call_inputs.on_device(TensorInput("x", "float32", (0, 3), (3, 1)), b"")
    assert (empty.device.type, bytes(call_inputs.large_of(empty))) == ("cuda", b"")


@pytest.mark.parametrize(
    ("kind", "dtype", "reads", "unread"),
    [
        ("f32", "f4", lambda x, y: x, True), ("f32", "f4", lambda x, y: x * len(y), True),
        ("f32", "f4", lambda x, y: x + y, False), ("f32", "f4", lambda x, y: x + 0 * y, False),
        ("f32", "f4", lambda x, y: x + (y > 0.4), False), ("f32", "f4", lambda x, y: x * (y == y), False),
        ("f32", "f4", lambda x, y: x[int(y[0])], False), ("i32 < 9", "i4", lambda x, y: x, True),
        ("i32 < 9", "i4", lambda x, y: x[y], False), ("i32 < 9", "i4", lambda x, y: x * (y < 99), False),
        ("bool", "?", lambda x, y: x, True), ("bool", "?", lambda x, y: x * y, False),
        ("bool", "?", lambda x, y: x * (y == y), True),
    ],
)  # fmt: skip
def test_an_input_that_is_not_read_is_memory_for_results(kind: str, dtype: str, reads: Any, unread: bool) -> None:
    """Whatever is in it. An error says that it is read."""
    word, _, content = kind.partition(" ")
    case = parse_line(f"x: f32[4]; y: {word}[4] {content}")

    def run(contents: Any) -> bytes:
        x, y = np.frombuffer(contents[0], "f4"), np.frombuffer(contents[1], dtype)
        return bytes(np.asarray(reads(x, y), "f4").tobytes())

    found = call_inputs.without_unread(case, (np.arange(4, dtype="f4").tobytes(), np.ones(4, dtype).tobytes()), run)
    assert found.tensors[0] == case.tensors[0]
    assert (found.tensors[1].content == UNREAD) == unread
    assert unread or found.tensors[1] == case.tensors[1]


def test_an_input_is_alike_where_it_is_one_number_at_this_shape_alone() -> None:
    """A mask of ones at one shape of a task: another shape tells whether it is read."""
    cases = [parse_line("x: f32[4]; m: f32[4]; b: f32[4]")] * 2
    ones, twos = (np.full(4, n, "f4").tobytes() for n in (1, 2))
    contents = {"one": (ones, ones), "other": (ones, twos), "mixed": (ones[:8] + twos[:8],) * 2}
    kinds = [("mixed", "one", "one"), ("other", "mixed", "one")]
    numbers = [[is_one_number(contents[kind], 4) for kind in own] for own in kinds]
    assert numbers == [[False, True, True], [False, False, True]]
    found = call_inputs.with_alike(cases, numbers)
    assert [[t.alike for t in case.tensors] for case in found] == [[False, True, False], [False] * 3]
    fewer = [cases[0], parse_line("x: f32[4]")]
    assert call_inputs.with_alike(fewer, [[True] * 3, [False]]) == fewer
