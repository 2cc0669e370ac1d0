"""What the task author's process says, in this process: inputs that the code makes, and results that count."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kerntune.referee import reference_results
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.layouts import reference_source
from kerntune.referee.reasons import Reason
from kerntune.referee.tasks import MUCH, DescribeTask, ExpectAnswer, ExpectTask, PlainArgument, TensorAt, encoded

TASK = f"{Path(__file__).parents[2]}/benchmarks/judge/kernelbench_task.py"


@pytest.fixture(autouse=True)
def path_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in ("reference_under_test", "kernelbench_task"):
        sys.modules.pop(name, None)


def answered(task: Any) -> ExpectAnswer:
    return msgspec.msgpack.decode(reference_results.answer(encoded(task)), type=ExpectAnswer)


def expected(tmp_path: Path, body: str, line: str, *contents: np.ndarray) -> ExpectAnswer:
    path = tmp_path / "reference_under_test.py"
    path.write_text(f"import torch\ndef r({', '.join(part.split(':')[0] for part in line.split('; '))}):\n    {body}\n")
    task = ExpectTask(reference_source(f"{path}::r"), parse_line(line), (1,), (tuple(c.tobytes() for c in contents),))
    return answered(task)


X, Y = np.linspace(-1, 1, 6, dtype="f4"), np.linspace(1e-8, 1, 6, dtype="f4")


def test_results_are_computed_twice(tmp_path: Path) -> None:
    """In their own dtype and in double precision."""
    (seed,) = expected(tmp_path, "return x + y", "x: f32[6]; y: f32[6]", X, Y).seeds
    (result,) = seed.results
    assert (result.dtype, result.shape, result.strides, result.input) == ("float32", (6,), (1,), None)
    assert result.native == (X + Y).tobytes()
    assert result.wide == (X.astype("f8") + Y.astype("f8")).tobytes()
    assert (seed.contents, seed.changed) == ((), (None, None)), "who asks has the contents"


@pytest.mark.parametrize(("nbytes", "count"), [(MUCH, 3), (MUCH - 1, 1)])
def test_large_inputs_are_a_process_s_each(nbytes: int, count: int) -> None:
    contents = tuple((bytes([i]) * (nbytes - 5), bytes(5)) for i in range(3))
    task = ExpectTask(reference_source(f"{TASK}::Model"), parse_line("x: u8[9] < 5"), (7, 8, 9), contents, True)
    found = task.by_seed()
    assert len(found) == count
    assert tuple(seed for one in found for seed in one.seeds) == task.seeds
    assert tuple(c for one in found for c in one.contents) == contents
    assert all(
        msgspec.structs.replace(one, seeds=(), contents=()) == msgspec.structs.replace(task, seeds=(), contents=())
        for one in found
    )


def test_whole_numbers_are_not_computed_wider(tmp_path: Path) -> None:
    whole = np.arange(6, dtype="i4")
    (seed,) = expected(tmp_path, "return (i * 2, i > 2)", "i: i32[6] < 9", whole).seeds
    assert [(r.dtype, r.wide) for r in seed.results] == [("int32", None), ("bool", None)]
    assert seed.results[0].native == (whole * 2).tobytes()


def test_inputs_that_change_are_told(tmp_path: Path) -> None:
    """And results that are inputs by their place."""
    (seed,) = expected(tmp_path, "y.mul_(2); return [y, x.clone(), x]", "x: f32[6]; y: f32[6]", X, Y).seeds
    assert [r.input for r in seed.results] == [1, None, 0]
    unchanged, changed = seed.changed
    assert unchanged is None
    assert changed is not None
    assert (changed.native, changed.wide, changed.input) == ((Y * 2).tobytes(), (Y.astype("f8") * 2).tobytes(), 1)


def test_what_can_not_be_computed_in_double_precision_has_one_result(tmp_path: Path) -> None:
    body = "assert x.dtype == torch.float32; return x"
    (seed,) = expected(tmp_path, body, "x: f32[6]", X).seeds
    assert (seed.results[0].native, seed.results[0].wide) == (X.tobytes(), None)


def test_how_results_lie_in_what_is_returned(tmp_path: Path) -> None:
    """By keys in order; numbers as they are, views that negate as their values."""
    (seed,) = expected(tmp_path, "return {'b': x, 'a': (torch._neg_view(x), 3)}", "x: f32[6]", X).seeds
    assert seed.outline == "{'a': (tensor, 3), 'b': tensor}"
    assert [r.native for r in seed.results] == [(-X).tobytes(), X.tobytes()]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise KeyError('k')", "KeyError: 'k'"),
        ("raise SystemExit(2)", "SystemExit: 2"),
        ("return x + torch.rand(6)", "ValueError: it draws random numbers of torch's: which ones, its inputs must say"),
        (
            "return x, object()",
            "TypeError: it returns a object: tensors, numbers, sequences and mappings can be compared",
        ),
    ],
)
def test_a_reference_that_fails_says_why(tmp_path: Path, body: str, told: str) -> None:
    refused = expected(tmp_path, body, "x: f32[6]", X).refused
    assert refused is not None
    assert (refused.reason, refused.text) == (Reason.REFERENCE.value, told)


def test_a_model_s_parameters_are_inputs_of_their_names() -> None:
    (case,) = answered(DescribeTask(reference_source(TASK), ({},))).cases
    assert [(t.shape, t.dtype, t.content) for t in case.tensors] == [
        ((16, 128), "float32", "author"), ((128,), "float32", "author"), ((128,), "float32", "author")
    ]  # fmt: skip
    assert case.parameters == {"weight": 1, "bias": 2}
    assert case.arguments == (TensorAt(0),)
    assert case.init == (PlainArgument(128), PlainArgument(1e-5))
    assert case.label == "Model"


def test_parameters_are_drawn_about_what_they_are_made_with() -> None:
    """A weight within a quarter of itself; a bias that is zero when it is made within a half."""
    source = reference_source(TASK)
    (case,) = answered(DescribeTask(source, ({},))).cases
    seeds = answered(ExpectTask(source, case, (1, 2))).seeds
    assert seeds[0].contents[1] != seeds[1].contents[1]
    for seed in seeds:
        x, weight, bias = (np.frombuffer(data, "f4") for data in seed.contents)
        assert 0.75 <= weight.min() < 0.8 < 1.2 < weight.max() <= 1.25
        assert -0.5 <= bias.min() < -0.4 < 0.4 < bias.max() <= 0.5
        x = x.reshape(16, 128).astype("f8")
        wide = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight + bias
        assert np.frombuffer(seed.results[0].wide or b"", "f8").reshape(16, 128) == pytest.approx(wide, rel=1e-12)


MODEL = """
import random, numpy, torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(4))

    def forward(self, x):
        self.mean.mul_(2)
        return x + self.mean

def get_inputs():
    return [torch.tensor([random.random(), numpy.random.rand(), float(torch.rand(())), 1.0])]
"""


def test_what_a_model_changes_of_its_buffers_is_told(tmp_path: Path) -> None:
    """It has copies of what it was given. Python's and NumPy's generators give each seed numbers of its own."""
    path = tmp_path / "reference_under_test.py"
    path.write_text(MODEL)
    source = reference_source(str(path))
    (case,) = answered(DescribeTask(source, ({},))).cases
    one, other, again = answered(ExpectTask(source, case, (1, 1 << 40, 1))).seeds
    before, changed = np.frombuffer(one.contents[1], "f4"), one.changed[1]
    assert changed is not None
    assert np.frombuffer(changed.native, "f4") == pytest.approx(before * 2)
    assert one.changed[0] is None
    assert one.contents == again.contents
    same = np.frombuffer(one.contents[0], "f4") == np.frombuffer(other.contents[0], "f4")
    assert same.tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("value", "tensors"), [(None, 0), (True, 0), (2, 0), (0.5, 0), ("mean", 0), ((1, [2, None]), 0)], ids=repr
)
def test_plain_inputs_stay_as_they_are(value: object, tensors: int) -> None:
    found: list[Any] = []
    argument = reference_results._argument(value, found)
    assert (reference_results.value_of(argument, ()), len(found)) == (value, tensors)


def test_an_input_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="an input is a dict, which can't be handed to another process"):
        reference_results._argument([{}], [])
