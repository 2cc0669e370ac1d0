"""What a candidate's process says of a call, in this process: launches, fills, constants, and why there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kerntune.base.device import Target
from kerntune.referee import candidate_recorder
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.layouts import candidate_source
from kerntune.referee.reasons import Reason
from kerntune.referee.tasks import Fill, RecordAnswer, RecordTask, encoded

KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def k(x, w, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at, mask=at < n) + tl.load(w + at, mask=at < n), mask=at < n)

def run(x, w, o=None):
    o = torch.empty_like(x) if o is None else o
    k[(1,)](x, w, o, x.numel(), BLOCK=64)
    return o

"""
LINE = "x: f32[50]"


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is answered of a function with this body."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def record(body: str, line: str = LINE) -> RecordAnswer:
        path = tmp_path / "candidate_under_test.py"
        path.write_text(f"{KERNEL}def f(x):\n    {body}\n")
        task = RecordTask(candidate_source(f"{path}::f"), parse_line(line), Target.parse("cuda:90"))
        return msgspec.msgpack.decode(candidate_recorder.answer(encoded(task)), type=RecordAnswer)

    yield record
    sys.modules.pop("candidate_under_test", None)


@pytest.mark.parametrize(
    ("made", "dtype", "value"),
    [
        ("torch.zeros_like(x)", "float32", 0.0),
        ("torch.zeros(50, device=x.device)", "float32", 0.0),
        ("x.new_zeros(50)", "float32", 0.0),
        ("torch.ones(50, device=x.device)", "float32", 1.0),
        ("torch.full((50,), 2.5, device=x.device)", "float32", 2.5),
        ("torch.full_like(x, -3)", "float32", -3),
        ("torch.empty_like(x).fill_(7)", "float32", 7),
        ("torch.ones_like(x).zero_()", "float32", 0.0),
        ("torch.full((50,), 3, dtype=torch.int32, device=x.device)", "int32", 3),
    ],
)
def test_filled_memory_is_told_by_its_number(recorded: Any, made: str, dtype: str, value: float) -> None:
    call = recorded(f"return run(x, {made})").call
    assert call.fills == (Fill(1, dtype, value),)
    assert (call.inputs, call.constants, call.unknown, call.operators) == ((0,), (), (), ())
    assert [launch.kernel for launch in call.recording.launches] == ["k"]


@pytest.mark.parametrize(
    ("made", "content"),
    [
        ("torch.arange(50.).to(x.device)", np.arange(50, dtype="f4")),
        ("torch.tensor([2.0] * 50, device=x.device)", np.full(50, 2, "f4")),
        ("torch.empty_like(x).copy_(torch.arange(50))", np.arange(50, dtype="f4")),
        ("torch.zeros_like(x).copy_(torch.ones(50))", np.ones(50, "f4")),
    ],
)
def test_memory_that_the_host_knows_is_a_constant(recorded: Any, made: str, content: np.ndarray) -> None:
    call = recorded(f"return run(x, {made})").call
    assert [(c.storage, c.data) for c in call.constants] == [(1, content.tobytes())]
    assert (call.fills, call.unknown, call.operators) == ((), (), ())


def test_memory_without_content_is_none_of_them(recorded: Any) -> None:
    call = recorded("return run(x, torch.empty_like(x))").call
    assert (call.fills, call.constants, call.unknown) == ((), (), ())
    assert (call.inputs, call.results) == ((0,), (2,))


@pytest.mark.parametrize(
    ("body", "operators"),
    [
        ("w = torch.empty_like(x); w[:10].zero_(); return run(x, w)", ("aten.zero_",)),
        ("return run(x, x + 1)", ("aten.add",)),
        ("return run(x, torch.zeros_like(x)) * 2", ("aten.mul",)),
        ("return run(x, x.exp().exp())", ("aten.exp",)),
    ],
)
def test_what_torch_computes_is_named(recorded: Any, body: str, operators: tuple[str, ...]) -> None:
    found = recorded(body)
    assert found.call.operators == operators


@pytest.mark.parametrize(
    ("body", "reason", "told"),
    [
        ("return x * 2", Reason.OPERATOR, "torch's aten.mul compute instead"),
        ("return x", Reason.NO_LAUNCH, "the call launches nothing"),
        ("o = run(x, x); o.zero_(); return run(x, o)", Reason.OPERATOR, "memory that a kernel has used is filled"),
        ("o = run(x, x); o.copy_(torch.ones(50)); return run(x, o)", Reason.OPERATOR, "memory that a kernel has used"),
        ("raise ValueError('a\\\\nb')", Reason.CANDIDATE_FAILED, "ValueError: a"),
        ("raise SystemExit(3)", Reason.CANDIDATE_FAILED, "SystemExit: 3"),
        ("return run(x, x) if x.sum() > 0 else x", Reason.VALUES, ""),
        ("k[(1,)](x, x, x, 50, BLOCK=48); return x", Reason.COMPILE, "power of 2"),
        (
            "torch.cuda.set_stream(torch.cuda.Stream()); return run(x, x)",
            Reason.STREAMS,
            "it calls torch.cuda.set_stream",
        ),
    ],
)
def test_why_there_is_no_call(recorded: Any, body: str, reason: Reason, told: str) -> None:
    refused = recorded(body).refused
    assert refused.reason == reason.value
    assert told in refused.text


@pytest.mark.parametrize(
    ("value", "results", "outline"),
    [
        ("o", 1, "tensor"),
        ("(o, [x, {'b': o, 'a': x}])", 4, "(tensor, (tensor, {'a': tensor, 'b': tensor}))"),
        ("None", 0, "None"),
        ("[3, 'x', 0.5, True, o]", 1, "(3, 'x', 0.5, True, tensor)"),
        ("[[[[[[[[[[[[[[[[o]]]]]]]]]]]]]]]]", 1, "(" * 16 + "tensor" + ")" * 16),
    ],
)
def test_results_are_the_tensors_in_what_it_returns(recorded: Any, value: str, results: int, outline: str) -> None:
    """In tuples, lists and dictionaries by their keys' order, sixteen deep; what else there is must be as it is."""
    call = recorded(f"o = run(x, x); return {value}").call
    assert (len(call.results), call.outline) == (results, outline)
    storages = [call.recording.views[i].storage for i in call.results]
    assert "'b'" not in value or storages == [storages[0], storages[1], storages[1], storages[0]]


@pytest.mark.parametrize(
    ("value", "reason", "told"),
    [
        ("[o, object()]", Reason.RESULT_COUNT, "it returns a object: tensors, numbers, sequences and mappings"),
        ("[" * 17 + "o" + "]" * 17, Reason.RESULT_COUNT, "it returns deeply nested values"),
        ("torch._neg_view(o)", Reason.RESULT_LAYOUT, "a result is negated or conjugated when it is read"),
    ],
)
def test_what_is_returned_and_can_not_be_compared_is_refused(
    recorded: Any, value: str, reason: Reason, told: str
) -> None:
    refused = recorded(f"o = run(x, x); return {value}").refused
    assert (refused.reason, told in refused.text) == (reason.value, True)


def test_arguments_by_place_and_by_name() -> None:
    case = parse_line("x: f32[4]; y: f32[4]; a = 0.5; b = 'mean'")
    case = msgspec.structs.replace(case, keywords=("a", "b"))
    assert candidate_recorder.arguments_of(case, ["X", "Y"]) == (["X", "Y"], {"a": 0.5, "b": "mean"})
    plain = msgspec.structs.replace(case, keywords=())
    assert candidate_recorder.arguments_of(plain, ["X", "Y"]) == (["X", "Y", 0.5, "mean"], {})
