"""What a candidate's process says of a call, in this process: launches, fills, constants, and why there is none."""

from __future__ import annotations

import _thread
import contextvars
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import triton
from msgspec.msgpack import encode as encoded
from triton.runtime._allocation import NullAllocator

from kerntune.base.device import Target
from kerntune.capture import Capture
from kerntune.errors import CaptureError, CompileError
from kerntune.gpu.fake_cuda.static_backend import StaticBackend
from kerntune.referee import candidate_recorder
from kerntune.referee.case_inputs import PlainArgument
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.layouts import candidate_source
from kerntune.referee.process_state import seen_by_the_caller
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.recorder_answer import RECORDERS
from kerntune.referee.tasks import Fill, RecordAnswer, RecordTask
from kerntune.referee.torch_operators import DtypeNamed, HostNumber, Several, ViewAt

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

    def record(body: str, line: str = LINE, config: int = 0, before: str = "") -> RecordAnswer:
        path = tmp_path / "candidate_under_test.py"
        given = ", ".join(item.partition(":")[0] for item in line.split("; "))
        path.write_text(f"{KERNEL}def f({given}):\n    {body}\n")
        task = RecordTask(
            candidate_source(f"{path}::f"), parse_line(line), Target.parse("cuda:90"), False, config,
            parse_line(before) if before else None, not before,
        )  # fmt: skip
        return candidate_recorder.answer(encoded(task))

    yield record
    sys.modules.pop("candidate_under_test", None)


@pytest.mark.parametrize(("config", "warps"), [(0, 2), (1, 4), (2, 8), (3, 2)])
def test_of_an_autotuners_configs_another_may_come_first(config: int, warps: int, recorded: Any) -> None:
    configs = "[triton.Config({'BLOCK': 64}, num_warps=n) for n in (2, 4, 8)]"
    launch = f"triton.autotune({configs}, key=['n'])(k)[(1,)](x, x, o, x.numel())"
    call = recorded(f"o = torch.empty_like(x); {launch}; return o", config=config).call
    assert (call.configs, call.recording.binaries[0].num_warps) == (("BLOCK=64",) * 3, warps)
    assert recorded("return run(x, x)", config=config).call.configs == ()


def test_configs_of_two_autotuners_are_tried_together(recorded: Any) -> None:
    first, second = ([f"triton.Config({{'BLOCK': {n}}})" for n in each] for each in ((64, 128, 256), (32, 64)))
    launches = (f"triton.autotune([{', '.join(each)}], key=['n'])(k)[(1,)](x, x, o, 64)" for each in (first, second))
    found = recorded(f"o = torch.empty_like(x); {'; '.join(launches)}; return o", config=1)
    assert found.call.configs == ("BLOCK=64 BLOCK=32", "BLOCK=128 BLOCK=64", "BLOCK=256 BLOCK=32")


@pytest.mark.parametrize(
    ("tuner", "config", "launches"),
    [
        ("triton.autotune({}, key=['n'])", 1, 2), ("triton.autotune({}, key=['n'])", 0, 1),
        ("triton.autotune({}, key=['n'], restore_value=['o'])", 1, 1),
        ("triton.autotune({}, key=['n'], reset_to_zero=['o'])", 1, 1),
        ("triton.autotune({}, key=['n'], pre_hook=lambda *a, **k: None)", 1, 1),
        ("kerntune.autotune({}, key=['n'])", 1, 1), ("triton.heuristics({{'BLOCK': lambda meta: 64}})", 1, 1),
    ],
)  # fmt: skip
def test_with_another_config_a_tuner_of_triton_s_has_tried_it(
    tuner: str, config: int, launches: int, recorded: Any
) -> None:
    """Unless it is told what to restore, a launch finds what the trial has left."""
    made = tuner.format("[triton.Config({'BLOCK': 64}, num_warps=n) for n in (2, 4)]")
    launch = f"import kerntune; {made}(k)[(1,)](x, x, o, x.numel())"
    call = recorded(f"o = torch.empty_like(x); {launch}; return o", config=config).call
    assert len(call.recording.launches) == launches


DESCRIBED = """
@triton.jit
def d(x, o, n):
    a, b = tl.make_tensor_descriptor(x, [n], [1], [64]), tl.make_tensor_descriptor(o, [n], [1], [64])
    b.store([0], a.load([0]))
"""


def test_memory_that_triton_needs_must_come_from_somewhere(recorded: Any) -> None:
    body = "o = torch.empty_like(x); {}d[(1,)](x, o, x.numel()); return o\n" + DESCRIBED
    alone = contextvars.copy_context()
    alone.run(triton.set_allocator, NullAllocator())  # whatever another test has left
    refused = alone.run(recorded, body.format("")).refused
    assert refused.reason == Reason.CANDIDATE_FAILED.value
    assert "triton.set_allocator isn't called" in refused.text
    allocator = "triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device='cuda')); "
    answers = alone.run(recorded, body.format(allocator))
    assert answers.call is not None


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
        ("torch.full((50,), True, dtype=torch.bool, device=x.device)", "bool", 1),
        ("torch.full_like(x, 5, pin_memory=False)", "float32", 5),
        ("torch.zeros_like(x).copy_(torch.arange(50.)).fill_(3)", "float32", 3),
    ],
)
def test_filled_memory_is_told_by_its_number(recorded: Any, made: str, dtype: str, value: float) -> None:
    call = recorded(f"return run(x, {made})").call
    assert call.fills == (Fill(1, dtype, value),)
    assert (call.inputs, call.constants, call.unknown, call.unreplayed) == ((0,), (), (), ())
    assert [launch.kernel for launch in call.recording.launches] == ["k"]


@pytest.mark.parametrize(
    ("made", "content"),
    [
        ("torch.arange(50.).to(x.device)", np.arange(50, dtype="f4")),
        ("torch.tensor([2.0] * 50, device=x.device)", np.full(50, 2, "f4")),
        ("torch.empty_like(x).copy_(torch.arange(50))", np.arange(50, dtype="f4")),
        ("torch.zeros_like(x).copy_(torch.ones(50))", np.ones(50, "f4")),
        (
            "torch.empty(10, 5, device=x.device).t().copy_(torch.arange(50).reshape(5, 10))",
            np.arange(50, dtype="f4").reshape(5, 10).T,
        ),
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
    ("body", "rows", "seen"),
    [
        ("w = torch.empty_like(x); w[:10].zero_(); return run(x, w)", ["0 zero_.default"], "1[10]"),
        ("w = torch.empty_like(x); w[0] = 3; return run(x, w)", ["0 fill_.Scalar"], "1[] 3.0"),
        (
            "w = torch.empty_like(x); w[:10].copy_(x[5:15]); return run(x, w)",
            ["0 copy_.default"],
            "1[10] 0[10]+20",
        ),
        ("return run(x, torch.empty_like(x).copy_(x))", ["0 copy_.default"], "1[50] 0[50]"),
        ("return run(x, x.clone())", ["0 copy_.default"], "1[50] 0[50]"),
        ("return run(x, x + 1)", ["0 add.out"], "0[50] 1 out=1[50]"),
        ("return run(x, x.to(torch.float16))", ["0 copy_.default"], "1[50] 0[50]"),
        ("return run(x, torch.zeros_like(x)) * 2", ["1 mul.out"], "2[50] 2 out=3[50]"),
        ("return run(x, x).sum(0, dtype=torch.float64)", ["1 sum.IntList_out"], "1[50] [0] dtype=float64 out=2[]"),
        ("return run(x, x).sort()[0]", ["1 sort.values"], ""),
        ("return torch.cat([torch.empty(0, device=x.device), run(x, x)])", ["1 cat.out"], "[3[0] 1[50]] out=2[50]"),
        ("return torch.cat([run(x, x), x])", ["1 cat.out"], "[1[50] 0[50]] out=2[100]"),
        ("o = run(x, x); o.zero_(); return run(x, o)", ["1 zero_.default"], "1[50]"),
        ("o = run(x, x); o = run(o, o); o.fill_(2); return o", ["2 fill_.Scalar"], "2[50] 2"),
        ("o = run(x, x); o.mul_(x); return run(o, o)", ["1 mul_.Tensor"], "1[50] 0[50]"),
        ("return run(x, x.exp().exp())", ["0 exp.out", "0 exp.out"], "3[50] out=1[50]"),
        ("return run(x, torch.arange(50.0, device=x.device))", ["0 arange.out"], "50.0 out=1[50]"),
        ("return run(x, torch.arange(0, 5, 0.1, device=x.device))", ["0 arange.start_out"], "0 5 0.1 out=1[50]"),
        ("return run(x, torch.linspace(0, 1, 50, device=x.device))", ["0 linspace.out"], "0 1 50 out=1[50]"),
        ("s = torch.tensor(2.5); y = x * s; s *= 2; return run(x, y)", ["0 mul.out"], "0[50] 2.5:float32 out=1[50]"),
        ("return run(x, torch.scalar_tensor(2.0, device=x.device))", ["0 scalar_tensor.out"], "2.0 out=1[]"),
        ("t = torch.full((2,), 3, device=x.device); t.add_(1); return run(x, t)", ["0 add_.Tensor"], "1[2] 1"),
        (
            "y = (x * 2).view(5, 10); y.t_(); return run(x, y.contiguous())",
            ["0 mul.out", "0 copy_.default"],
            "1[10,5] 3[10,5]",
        ),
        ("w = torch.empty_like(x); w[:25].expand(2, 25).fill_(1); return run(x, w)", ["0 fill_.Scalar"], "1[2,25] 1"),
    ],
)
def test_what_torch_computes_beside_kernels_becomes_rows(recorded: Any, body: str, rows: list[str], seen: str) -> None:
    """With the launches before them. Each writes into views that it is given; ``seen`` is of the last one."""
    call = recorded(body).call
    assert [f"{row.before} {row.name}" for row in call.operators] == rows
    assert (call.unreplayed, call.unknown, call.constants) == ((), (), ())
    last = call.operators[-1]
    words = [f"{name}={shown(call, value)}" for name, value in last.words.items()]
    if seen:
        assert " ".join([*(shown(call, value) for value in last.args), *words]) == seen


def shown(call: Any, value: Any) -> str:
    """An argument of a row: a view is its storage, sizes and offset."""
    if isinstance(value, Several):
        return f"[{' '.join(shown(call, x) for x in value.items)}]"
    if isinstance(value, ViewAt):
        view = call.recording.views[value.index]
        offset = f"+{view.offset_bytes}" * bool(view.offset_bytes)
        return f"{view.storage}[{','.join(map(str, view.shape))}]{offset}"
    if isinstance(value, HostNumber):
        return f"{value.value}:{value.dtype}"
    return value.name if isinstance(value, DtypeNamed) else str(value)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("w = torch.empty_like(x); w[:10].copy_(torch.ones(10)); return run(x, w)", ("aten.copy_",)),
        ("o = run(x, x); o.copy_(torch.ones(50)); return run(x, o)", ("aten.copy_",)),
        ("return run(x, torch.rand_like(x))", ("aten.rand_like",)),
        ("return torch.nn.functional.dropout(run(x, x), 0.5)", ("aten.native_dropout",)),
        ("t.add_(1); return run(x, t)\n\nt = torch.tensor([1, 2], device='cuda')", ("aten.add_",)),
        ("y = x + 1; y.data = x * 2; return run(x, y)", ("aten.add",)),
        ("return run(x, torch.complex(x, x).real.clone())", ("aten.complex",)),
    ],
)
def test_what_can_not_be_replayed_is_named_with_its_line(recorded: Any, body: str, names: tuple[str, ...]) -> None:
    """Random numbers, copies of the host's memory to a part or after a kernel, and what changes known numbers."""
    call = recorded(body).call
    assert [name.partition(" ")[0] for name in call.unreplayed] == [*names]
    assert all(name.endswith("(candidate_under_test.py:16)") for name in call.unreplayed)


def test_without_autograd_a_copy_is_a_row_too(recorded: Any) -> None:
    """There an operator that copies or not is seen as a whole."""
    body = (
        "with torch.inference_mode(): y = x.view(5, 10).t().contiguous()\n    return run(x, y.view(50)), y.contiguous()"
    )
    assert [row.name for row in recorded(body).call.operators] == ["copy_.default"]


def test_rows_come_after_the_trials_of_a_tuner_too(recorded: Any) -> None:
    configs = "[triton.Config({'BLOCK': 64}, num_warps=n) for n in (2, 4)]"
    launch = f"triton.autotune({configs}, key=['n'])(k)[(1,)](x, y, o, x.numel())"
    body = f"y = x + 1; o = torch.empty_like(x); {launch}; return o * 2"
    assert [[row.before for row in recorded(body, config=n).call.operators] for n in (0, 1)] == [[0, 1], [0, 2]]


@pytest.mark.parametrize(
    ("body", "fills"),
    [
        ("return run(run(x, x), torch.zeros_like(x))", (Fill(2, "float32", 0.0),)),
        ("w = torch.ones_like(x); o = run(x, x); w.fill_(3); return run(o, w)", (Fill(2, "float32", 3),)),
        ("x.zero_(); return run(run(x, x), x)", (Fill(0, "float32", 0.0),)),
    ],
)
def test_memory_that_no_kernel_has_used_may_be_filled(recorded: Any, body: str, fills: tuple[Fill, ...]) -> None:
    call = recorded(body).call
    assert (call.fills, len(call.recording.launches)) == (fills, 2)


def test_fixed_numbers_are_known_while_it_is_recorded(recorded: Any) -> None:
    body = "return run(x, x) if [int(n[1, 0]), n.shape] == [8, (2, 1)] else None"
    call = recorded(body, "x: f32[50]; n: i64[2,1] = [7, 8]").call
    assert (len(call.results), call.operators) == (1, ())


def test_a_kernel_has_the_text_that_it_was_launched_with(recorded: Any) -> None:
    """What it is afterwards has not run."""
    body = "o = run(x, x); k._unsafe_update_src(k.src.replace('+ tl.load', '- tl.load')); return o"
    found = recorded(body).call
    (binary,) = found.recording.binaries
    assert b"arith.addf" in found.artifacts[binary.ttir_sha256]


@pytest.mark.parametrize(
    "begins",
    [
        "threading.Thread(target=threading.told.wait, daemon=True).start()",
        "_thread.start_new_thread(threading.told.wait, ())", "signal.signal(signal.SIGALRM, lambda *_: None)",
    ],
)  # fmt: skip
def test_nothing_of_a_candidate_s_own_may_run_behind_the_call(
    begins: str, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, count = signal.getsignal(signal.SIGALRM), _thread._count()
    monkeypatch.setattr(threading, "told", threading.Event(), raising=False)
    try:
        found = recorded(f"import _thread, signal, threading; o = run(x, x); {begins}; return o")
    finally:
        signal.signal(signal.SIGALRM, before)
        threading.told.set()  # type: ignore[attr-defined]
        end = time.monotonic() + 10
        while _thread._count() > count and time.monotonic() < end:
            time.sleep(0.01)
    assert found.refused is not None
    assert (found.refused.reason, "behind the call" in found.refused.text) == (Reason.UNSEEN.value, True)
    joined = "one = threading.Thread(target=print); one.start(); one.join()"
    assert recorded(f"import threading; {joined}; return run(x, x)").refused is None


MODEL = """
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(n))
        self.register_buffer("b", torch.rand(n))

    def forward(self, x):
        return run(run(x, self.w.detach()), self.b)
"""


@pytest.mark.parametrize(
    ("parameters", "names", "inputs", "known"),
    [
        ("w: f32[50]", ("w",), (0, 1), ["b"]), ("w: f32[49]", ("w",), (0, 5), ["w", "b"]),
        ("w: f64[50]", ("w",), (0, 5), ["w", "b"]), ("u: f32[50]", ("u",), (0, 5), ["w", "b"]),
        ("u: f32[50]; v: f32[50]", ("u", "v"), (0, 1, 3), []), ("w: f32[50]; v: f32[50]", ("w", "v"), (0, 1, 3), []),
        ("b: f32[50]; v: f32[50]", ("b", "v"), (0, 3, 1), []),
        ("u: f32[50]; v: f32[49]", ("u", "v"), (0, 5, 6), ["w", "b"]),
    ],
)  # fmt: skip
def test_a_model_s_parameters_are_given_by_their_names(
    parameters: str, names: tuple[str, ...], inputs: tuple[int, ...], known: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Where they are as they were described; and in their order where all others have other names. What else the model
    draws, it draws with a seed of zero."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "model_under_test.py"
    path.write_text(KERNEL + MODEL)
    case = parse_line(f"{LINE}; {parameters}")
    case = msgspec.structs.replace(
        case,
        arguments=case.arguments[:1],
        parameters={n: 1 + i for i, n in enumerate(names)},
        init=(PlainArgument(50),),
    )
    task = RecordTask(candidate_source(str(path)), case, Target.parse("cuda:90"))
    call = candidate_recorder.answer(encoded(task)).call
    sys.modules.pop("model_under_test", None)
    assert call is not None
    torch.manual_seed(0)
    contents = {"w": np.ones(50, "f4").tobytes(), "b": torch.rand(50).numpy().tobytes()}
    assert [c.data for c in call.constants] == [contents[name] for name in known]
    assert (call.inputs, call.fills, call.unknown, call.operators) == (inputs, (), (), ())


TIED = """
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(50, 1, bias=False), torch.nn.Linear(50, 1, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x):
        return run(run(x, self.one.weight.detach().view(50)), self.two.weight.detach().view(50))
"""


@pytest.mark.parametrize("names", [("one.weight", "two.weight"), ("two.weight",), ("other.one", "other.two")])
def test_tied_parameters_are_one_memory(names: tuple[str, ...], tmp_path: Path) -> None:
    """By whatever names the reference has them."""
    path = tmp_path / "model_under_test.py"
    path.write_text(KERNEL + TIED)
    case = parse_line(f"{LINE}; w: f32[1,50]")
    case = msgspec.structs.replace(case, arguments=case.arguments[:1], parameters=dict.fromkeys(names, 1))
    task = RecordTask(candidate_source(str(path)), case, Target.parse("cuda:90"))
    call = candidate_recorder.answer(encoded(task)).call
    sys.modules.pop("model_under_test", None)
    assert call is not None
    views, storages = call.recording.views, [call.inputs[1]]
    seconds = [views[launch.params[1].view or 0].storage for launch in call.recording.launches]
    assert seconds == [views[storages[0] or 0].storage] * 2
    assert (call.constants, call.unknown) == ((), ())


BEHIND_IT = """
C, VALUE = tl.constexpr(2.0), tl.constexpr(2.0)

@triton.jit
def factor(v):
    return v * C

@triton.jit
def other(v):
    return v * 3.0

@triton.jit
def c(x, o, V: tl.constexpr):
    at = tl.arange(0, 64)
    tl.store(o + at, factor(tl.load(x + at)) + V[0])
"""


@pytest.mark.parametrize(
    "change",
    [
        "c._unsafe_update_src(c.src.replace('factor(', '3 * ('))",
        "factor._unsafe_update_src(factor.src.replace('C', '3.0'))",
        "globals()['C'].value = 3.0",
        "VALUE.value = 3.0",
        "globals()['factor'] = other",
    ],
)
def test_what_is_compiled_is_what_was_there_at_the_launch(change: str, recorded: Any) -> None:
    body = "globals()['C'].value = VALUE.value = 2.0; o = torch.empty_like(x); c[(1,)](x, o, (VALUE,)); {}; return o\n"
    as_it_was, changed = (recorded(body.format(text) + BEHIND_IT).call for text in ("pass", change))
    assert [b.ttir_sha256 for b in changed.recording.binaries] == [b.ttir_sha256 for b in as_it_was.recording.binaries]


def test_a_wrapper_is_what_it_was_at_the_launch(recorded: Any) -> None:
    body = "w, o = torch.empty_like(x), torch.empty_like(x); to = triton.reinterpret(w, torch.float32)"
    call = recorded(f"{body}; k[(1,)](x, x, to, 50, BLOCK=64); to.base = o; return o").call
    (launch,) = call.recording.launches
    assert launch.params[2].view not in (None, *call.results)


def test_a_descriptor_is_what_it_was_at_the_launch(recorded: Any) -> None:
    body = (
        "w, o = torch.empty_like(x), torch.empty_like(x); to = TensorDescriptor(w, [64], [1], [64]); "
        "d[(1,)](x, to); to.base, to.shape[0] = o, 32; return o\n\n"
        "from triton.tools.tensor_descriptor import TensorDescriptor\n"
        "@triton.jit\ndef d(x, to):\n    to.store([0], tl.load(x + tl.arange(0, 64)))\n"
    )
    call = recorded(body, "x: f32[64]").call
    (launch,) = call.recording.launches
    assert call.results[0] not in [p.view for p in launch.params]
    assert {p.name: p.value for p in launch.params}["to.shape[0]"] == 64


@pytest.mark.parametrize("change", ["w.data = o", "w.set_(o)"])
def test_a_tensor_of_a_launch_has_its_memory_still(change: str, recorded: Any) -> None:
    body = f"w, o = torch.empty_like(x), torch.empty_like(x); k[(1,)](x, x, w, 50, BLOCK=64); {change}; return o"
    refused = recorded(body).refused
    assert (refused.reason, "other memory since" in refused.text) == (Reason.UNSEEN.value, True)


def test_a_launch_that_is_not_known_is_none_that_may_be_left_out(recorded: Any) -> None:
    """Users' code that catches what is raised would go on without it."""
    body = "try:\n        k[(1,)](x, x, x, 50, BLOCK=48)\n    except Exception:\n        pass\n    return run(x, x)"
    assert recorded(body).refused.reason == Reason.COMPILE.value


CONSTANT = """
@triton.jit
def c(x, o, C: tl.constexpr):
    at = tl.arange(0, 64)
    tl.store(o + at, tl.load(x + at) * ((3.0 if C is True else 2.0) * C))
"""


@pytest.mark.parametrize(("first", "second", "one"), [("1", "True", True), ("0.0", "-0.0", True), ("1", "2", False)])
def test_equal_constants_have_one_kernel_as_triton_has_it(first: str, second: str, one: bool, recorded: Any) -> None:
    launches = "; ".join(f"c[(1,)](x, o, {constant})" for constant in (first, second, first))
    call = recorded(f"o = torch.empty_like(x); {launches}; return o\n{CONSTANT}").call
    first_kernel, second_kernel, third_kernel = (launch.binary for launch in call.recording.launches)
    assert (first_kernel == second_kernel, first_kernel == third_kernel) == (one, True)


def test_triton_refuses_a_kernel_whose_globals_have_changed(recorded: Any) -> None:
    body = "globals()['C'].value = 2.0; o = torch.empty_like(x); {}; c[(1,)](x, o, (1,)); globals()['C'].value = 3.0; "
    again = "c[(1,)](x, o, (1,)); return o\n" + BEHIND_IT
    assert "a global that it names has changed" in recorded(body.format("pass") + again).refused.text


@pytest.mark.parametrize(
    "body",
    [
        "o = torch.empty(x.shape, device='cuda:1'); k[(1,)](x, x, o, 50, BLOCK=64); return o",
        "w = torch.empty(x.shape, device='cuda:1'); k[(1,)](x, x, w, 50, BLOCK=64); return run(x, x)",
        "return run(x, x), torch.zeros(3, device='cuda:1')",
    ],
)
def test_memory_of_a_call_is_where_its_inputs_are(body: str, recorded: Any) -> None:
    refused = recorded(body).refused
    assert (refused.reason, refused.text[:31]) == (Reason.RESULT_LAYOUT.value, "memory of the call is on cuda:1")


@pytest.mark.parametrize(
    ("made", "unknown"),
    [
        ("t = torch.full((50,), 3.0).to('cuda'); run(t, t, t)", (1,)),
        ("t = torch.ones(50, device='cuda'); run(t, t)", (1,)),
        ("t = torch.empty(50, device='cuda'); run(t, t, t)", (1,)),
        ("t = torch.empty(50, device='cuda'); run(t, t, t); t.fill_(2.0)", ()),
        ("t = torch.ones(50, device='cuda'); other = torch.ones(50, device='cuda'); run(other, other)", ()),
    ],
)  # fmt: skip
def test_what_a_kernel_was_launched_on_outside_of_the_call_is_not_known(
    made: str, unknown: tuple[int, ...], recorded: Any
) -> None:
    call = recorded(f"return run(x, t)\n\n{made}").call
    assert call.unknown == unknown
    assert len([*call.fills, *call.constants]) == 1 - len(unknown)


@pytest.mark.parametrize("change", ["x.unsqueeze_(0)", "x.t_(); x.unsqueeze_(-1)", "x.requires_grad_()"])
def test_a_caller_s_inputs_stay_as_they_are(change: str, recorded: Any) -> None:
    refused = recorded(f"o = run(x, x); {change}; return o").refused
    assert (refused.reason, refused.text[:38]) == (Reason.INPUT_LAYOUT.value, "it leaves what it is called with other")
    assert Reason.INPUT_LAYOUT in RECORDERS
    assert recorded("y = x.detach().requires_grad_(); return run(y, x).detach()").refused is None


def test_what_a_caller_sees_of_arguments() -> None:
    x = torch.zeros(2, 3)
    given = ([x, {"n": 3, "of": [1.0]}], {"eps": 1e-5})
    seen = seen_by_the_caller(given)
    x.add_(1)
    assert seen_by_the_caller(given) == seen
    given[0][1]["of"].append(2.0)
    assert seen_by_the_caller(given) != seen


@pytest.mark.parametrize(
    ("change", "back", "left", "harms"),
    [
        ("torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)", "the default dtype", True),
        ("torch.use_deterministic_algorithms(True)", "torch.use_deterministic_algorithms(False)",
         "deterministic algorithms", True),
        ("torch.backends.cuda.matmul.allow_tf32 = True", "torch.backends.cuda.matmul.allow_tf32 = False",
         "products' precision", False),
        ("torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.benchmark = False", "cuDNN's settings", False),
        ("torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)", "recording of gradients", True),
        ("seed = torch.initial_seed(); torch.manual_seed(7)", "torch.manual_seed(seed)", "the generator's seed", True),
    ],
)  # fmt: skip
def test_settings_of_the_program_that_are_left(change: str, back: str, left: str, harms: bool, recorded: Any) -> None:
    before = {"torch": torch, "seed": torch.initial_seed()}
    try:
        found = recorded(f"{change}; return run(x, x)")
        if harms:
            told = f"a call leaves {left} of torch otherwise for the whole program"
            assert (found.refused.reason, found.refused.text) == (Reason.LEFT_OTHERWISE.value, told)
            assert Reason.LEFT_OTHERWISE in RECORDERS
        else:
            assert found.call.leaves == (left,)
        exec(back, before)
        imported = recorded(f"return run(x, x)\n\n{change}").call
        assert imported.leaves == (() if "seed" in left else (left,))
    finally:
        exec(back, before)
    assert recorded(f"{change}; o = run(x, x); {back}; return o").call.leaves == ()
    assert recorded("return run(x, x)").call.leaves == ()


def test_settings_are_those_of_the_launch(recorded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    body = "import os; {}; o = torch.empty_like(x); p[(1,)](x, o); {}; return o\n\n" + (
        "@triton.jit\ndef p(x, o):\n    at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]\n"
        "    tl.store(o + at, tl.dot(tl.load(x + at), tl.load(x + at)))\n"
    )
    setting = "os.environ['TRITON_F32_DEFAULT'] = '{}'"
    texts = [
        (*recorded(body.format(*map(setting.format, each)), "x: f32[32,32]").call.artifacts.values(),)
        for each in (("tf32", "tf32"), ("tf32", "ieee"), ("ieee", "tf32"))
    ]
    assert texts[0] == texts[1] != texts[2]


def test_constants_may_have_64_mib_together(recorded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert candidate_recorder.MOST_CONSTANT == 67_108_864
    monkeypatch.setattr(candidate_recorder, "MOST_CONSTANT", 3 << 20)
    made = "w = [torch.ones(n * 262_144 + {}).to('cuda') for n in (1, 2)]"
    body = f"return run(run(x, w[0]), w[1])\n\n{made}"
    assert len(recorded(body.format(0)).call.constants) == 2
    refused = recorded(body.format(1)).refused
    assert (refused.reason, refused.text) == (Reason.MEMORY.value, "constants have more than 3 MiB")


def test_binaries_are_sent_where_they_are_loaded() -> None:
    artifacts = {"a": b"\x7fELF\x02", "b": b"module {"}
    assert candidate_recorder._needed(artifacts, False) == {"b": b"module {"}
    assert candidate_recorder._needed(artifacts, True) == artifacts


@pytest.mark.parametrize(
    ("body", "reason", "told"),
    [
        ("return x * 2 * 3 + 1", Reason.OPERATOR, "torch's aten.mul (candidate_under_test.py:16), aten.add "),
        ("return x", Reason.NO_LAUNCH, "the call launches nothing"),
        ("raise ValueError('a\\\\nb')", Reason.CANDIDATE_FAILED, "ValueError: a"),
        ("raise SystemExit(3)", Reason.CANDIDATE_FAILED, "SystemExit: 3"),
        ("assert x is None", Reason.CANDIDATE_FAILED, "AssertionError (candidate_under_test.py:16)"),
        ("torch.testing.assert_close(1, 2)", Reason.CANDIDATE_FAILED, "(candidate_under_test.py:16)"),
        ("a = 1\n    helper(x)\n\ndef helper(x):\n    raise OSError('it')", Reason.CANDIDATE_FAILED,
         "OSError: it (candidate_under_test.py:20)"),
        ("exec(compile('1 / 0', '/a/' + 'b' * 200, 'exec'))", Reason.CANDIDATE_FAILED,
         f"ZeroDivisionError: division by zero ({'b' * 100}:1)"),
        ("return run(x, x) if x.sum() > 0 else x", Reason.VALUES,
         "(candidate_under_test.py:16); an input's numbers are known if they are declared: n: i32[3] = [5, 7, 9]"),
        ("raise PermissionError(13, 'no', 'p.py')", Reason.CANDIDATE_FAILED,
         "'p.py' (candidate_under_test.py:16); a sealed process may read its file's folder or package, and installed"),
        ("k[(1,)](x, x, x, 50, BLOCK=48); return x", Reason.COMPILE, "power of 2"),
        ("torch.cuda.set_stream(torch.cuda.Stream()); torch.cuda.stream(None); return run(x, x)", Reason.STREAMS,
         "it chooses a stream"),
        ("return run(x, x)\n\nfrom torch.cuda import set_stream\nset_stream(torch.cuda.Stream())", Reason.STREAMS,
         "it chooses a stream"),
        ("torch.cuda.CUDAGraph.capture_begin(torch.cuda.CUDAGraph()); return run(x, x)", Reason.UNSEEN,
         "it captures a CUDA graph"),
        *((f"y = run(x, x); y.untyped_storage().{call}; return y", Reason.UNSEEN, "of its storage, which no operator")
          for call in ("fill_(0)", "copy_(x.untyped_storage())", "__setitem__(0, 1)")),
        ("return run(x, x)\n\nL = torch.library.Library('aten', 'IMPL')\nL.impl('mul.Tensor', lambda a, b: a, 'XPU')",
         Reason.UNSEEN, "it implements an operator of torch's anew"),
        ("return run(x, x) if '1' in f'{x[0]}' else x", Reason.VALUES, "it needs the text of a tensor's value"),
        *((f"return run(x, x) if {condition} else x", Reason.VALUES, "a condition needs values of a tensor (candidate_")
          for condition in ("(x > 0).all()", "not (x > 0).any()", "torch.allclose(x, x + 1)", "torch.equal(x, x + 1)")),
        ("assert (x > 0).all(); return run(x, x)", Reason.VALUES, "a condition needs values of a tensor"),
        ("try:\n        x.sum().item()\n    except Exception:\n        return run(x, x)", Reason.VALUES, "a condition"),
        ("return {x: run(x, x)}", Reason.RESULT_COUNT, "a key of type"),
        ("return run(x, x), type('N', (float,), {'__repr__': lambda self: '2'})(3)", Reason.RESULT_COUNT, "a N"),
        ("return run(x, torch.special.bessel_j0(torch.arange(2000, device='cuda').float()))", Reason.OPERATOR,
         "the call makes 8 kB of what the host knows"),
    ],
)  # fmt: skip
def test_why_there_is_no_call(recorded: Any, body: str, reason: Reason, told: str) -> None:
    refused = recorded(body).refused
    assert refused.reason == reason.value
    assert told in refused.text


def test_a_counter_that_nothing_reads_may_count(recorded: Any) -> None:
    """As a batch norm's does, that no kernel reads."""
    counts = "t.add_(1); return {}\n\nt = torch.tensor([1, 2], device='cuda')"
    assert recorded(counts.format("run(x, x)")).call.unreplayed == ()
    for body in ("run(x, x), x * t.sum()", "run(run(x, x), t)"):
        (name,) = recorded(counts.format(body)).call.unreplayed
        assert name.startswith("aten.add_ ")


def test_products_have_torchs_own_precision_settings(recorded: Any, request: pytest.FixtureRequest) -> None:
    """A replay has no others. What isn't a product doesn't read them."""
    request.addfinalizer(lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", False))
    body = "torch.backends.cuda.matmul.allow_tf32 = True; y = run(x, x); return {}"
    (name,) = recorded(body.format("y.view(1, -1) @ y.view(-1, 1)")).call.unreplayed
    assert name.startswith("aten.mm (candidate_under_test.py:")
    assert recorded(body.format("y * 2")).call.unreplayed == ()
    assert recorded("y = run(x, x); return y.view(1, -1) @ y.view(-1, 1)").call.unreplayed == ()


def test_a_candidate_may_import_torch_s_function_of_the_stream(recorded: Any) -> None:
    """As libraries do where CUDA is available. Afterwards torch has what it had."""
    before = vars(torch._C).get("_cuda_getCurrentRawStream")
    loaded = "from torch._C import _cuda_getCurrentRawStream as stream"
    call = recorded(f"return run(x, torch.full_like(x, 3 + stream(0)))\n\n{loaded}").call
    assert call.fills == (Fill(1, "float32", 3),)
    assert vars(torch._C).get("_cuda_getCurrentRawStream") is before


@pytest.mark.parametrize("before", [False, True])
def test_fills_of_the_call_are_told_from_earlier_ones(recorded: Any, before: bool) -> None:
    made = "z" if before else "torch.zeros(50, device='cuda')"
    (fill,) = recorded(f"return run(x, {made})\n\nz = torch.zeros(50, device='cuda')").call.fills
    assert fill.before == before


def test_later_calls_are_recorded_behind_the_first_one_on_other_tensors(recorded: Any) -> None:
    """Of all together are its launches, storages and operators; what inputs hold isn't a recording's. In between the
    two have other floats."""
    body = "return run(x * 2, z), n\n\nz = torch.ones(50, device='cuda')"
    answer = recorded(body, "x: f32[50]; n: i64[2] = [7, 8]")
    call, both = answer.call, answer.again
    assert both.artifacts == {}
    assert [len(one.recording.launches) for one in (call, both)] == [1, 3]
    names = [(row.before, row.name.partition(".")[0]) for row in both.operators]
    assert [(row.before, row.name.partition(".")[0]) for row in call.operators] == names[:1] == [(0, "mul")]
    assert names[1:] == [(1, "copy_"), (1, "copy_"), (1, "mul"), (2, "copy_"), (2, "mul")]
    assert both.recording.storages[: len(call.recording.storages)] == call.recording.storages
    storages = [[one.recording.views[i].storage for i in (*one.inputs, *one.results)] for one in (call, both)]
    assert not {*storages[0]} & {*storages[1]}
    assert both.recording.launches[0] == call.recording.launches[0]
    assert (both.unknown, both.constants, both.fills) == ((), (), call.fills)


@pytest.mark.parametrize("dtype", ["f32", "i8", "bool"])
def test_a_model_s_own_numbers_are_others_in_a_later_call(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole ones, too, which a task's model draws anew; what the call leaves there is looked at."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    path, case = tmp_path / "model_under_test.py", parse_line(f"{LINE}; w: {dtype}[50]{' < 9' * (dtype == 'i8')}")
    made = f"torch.ones(50, dtype=torch.{case.tensors[1].dtype})"
    path.write_text(
        KERNEL
        + f"""
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", {made})

    def forward(self, x):
        return run(x, self.w)
"""
    )
    case = msgspec.structs.replace(case, arguments=case.arguments[:1], parameters={"w": 1})
    task = RecordTask(candidate_source(str(path)), case, Target.parse("cuda:90"), later=True)
    again = candidate_recorder.answer(encoded(task)).again
    sys.modules.pop("model_under_test", None)
    assert again is not None
    assert [row.name for row in again.operators].count("copy_.default") == 5


@pytest.mark.parametrize("line", ["x: f32[50]", "x: i32[50] < 9"])
def test_two_later_calls_have_one_tensor_whose_version_stays(line: str, recorded: Any) -> None:
    """A kernel that writes an input leaves it its version, so neither that nor an address or a number is a key."""
    body = "seen.append((x.data_ptr(), id(x), x._version)); return torch.full_like(x, seen.index(seen[-1])), run(x, x)"
    fills = recorded(f"{body}\n\nseen = []", line).again.fills
    assert [fill.value for fill in fills] == [0, 1]  # of the first call and the last


def test_a_call_at_another_shape_comes_before_on_numbers_that_are_allowed(recorded: Any) -> None:
    """Its inputs are none of the call's."""
    answer = recorded("return run(x, x), i, n", before="x: f16[9]; i: i64[4] in 3..8; n: i32[2] = [5, 7]",
                      line="x: f32[50]; i: i64[4] < 9; n: i32[2] = [5, 7]")  # fmt: skip
    call, storages = answer.call, answer.call.recording.storages
    assert answer.again is None
    assert [storages[i].nbytes for i in (0, 2)] == [18, 200]
    assert [fill for fill in call.fills if fill.storage == 0] == [Fill(0, "float16", 1.0, before=True)]
    assert len(call.recording.launches) == 2
    assert call.unknown == ()


@pytest.mark.parametrize(
    ("body", "reason", "told"),
    [
        ("calls.append(x); assert len(calls) < 2; return run(x, x)", Reason.CANDIDATE_FAILED, "AssertionError"),
        ("calls.append(x); return run(x, x) if len(calls) < 2 else x.nonzero()", Reason.VALUES, "value"),
    ],
)  # fmt: skip
def test_a_second_call_that_can_not_be_recorded_refuses_both(
    recorded: Any, body: str, reason: Reason, told: str
) -> None:
    refused = recorded(f"{body}\n\ncalls = []").refused
    assert refused.reason == reason.value
    assert refused.text.startswith("in a later call: ")
    assert told in refused.text


def test_each_of_two_calls_may_upload(recorded: Any) -> None:
    body = "return run(x, torch.ones({}).to('cuda'))"
    assert len(recorded(body.format(1000)).again.constants) == 3
    grows = "n.append(1); return run(x, torch.ones(1000 * len(n) ** 3).to('cuda'))\n\nn = []"
    assert "in a later call: the call makes" in recorded(grows).refused.text


@pytest.mark.parametrize(("count", "refused"), [(1024, False), (1025, True)])
def test_a_call_uploads_no_tables(recorded: Any, count: int, refused: bool) -> None:
    answer = recorded(f"t = torch.ones({count}).to('cuda'); return run(x, t)")
    assert (answer.refused is not None) == refused
    if refused:
        told = "the call makes 4.1 kB of what the host knows, which takes time that isn't measured; 4.1 kB may be"
        assert (answer.refused.reason, answer.refused.text) == (Reason.OPERATOR.value, told)
    assert recorded(f"return run(x, t)\n\nt = torch.ones({count}).to('cuda')").refused is None


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


@pytest.mark.parametrize(
    ("missed", "unseen", "told"), [(["a", "b"], [], "a; b"), ([], ["c"], "c"), (["a"], ["c"], "a; c")]
)
def test_launches_that_were_not_seen_are_no_call(
    missed: list[str], unseen: list[str], told: str, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(*words: Any, **named: Any) -> Capture:
        made = Capture(*words, **named)
        made.missed += missed
        made.compiled.unseen += unseen
        return made

    monkeypatch.setattr(candidate_recorder, "Capture", capture)
    refused = recorded("return run(x, x)").refused
    assert (refused.reason, refused.text) == (Reason.UNSEEN.value, told)


def raise_it(error: BaseException) -> None:
    raise error


RAISED = f" (test_candidate_recorder.py:{raise_it.__code__.co_firstlineno + 1})"


@pytest.mark.parametrize(
    ("error", "reason", "told"),
    [
        (CaptureError("it hides"), Reason.UNSEEN, "it hides"),
        (CompileError("no tile"), Reason.COMPILE, "no tile"),
        (KeyError("k"), Reason.CANDIDATE_FAILED, f"KeyError: 'k'{RAISED}"),
        (SystemExit(3), Reason.CANDIDATE_FAILED, f"SystemExit: 3{RAISED}"),
        (Refusal(Reason.SURVIVORS, "as it likes"), Reason.CANDIDATE_FAILED, f"Refusal: as it likes{RAISED}"),
    ],
)
def test_what_users_code_raises_is_a_reason(
    error: BaseException, reason: Reason, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its place; and all of where it lies, on the error output."""
    with pytest.raises(Refusal) as caught, candidate_recorder._users_code(StaticBackend(Target.parse("cuda:90"))):
        raise_it(error)
    assert (caught.value.reason, str(caught.value)) == (reason, told)
    assert ("raise error" in capsys.readouterr().err) == (reason is Reason.CANDIDATE_FAILED)


def test_of_what_users_code_raises_the_end_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Refusal) as caught, candidate_recorder._users_code(StaticBackend(Target.parse("cuda:90"))):
        raise_it(ValueError("x" * 1001 + "y" * 3999))
    assert str(caught.value) == f"ValueError: {'x' * 165} [...] {'y' * 328}{RAISED}"
    assert capsys.readouterr().err == "y" * 3999 + "\n\n"


def test_torch_s_streams_are_as_they_were(recorded: Any) -> None:
    before = torch.cuda.stream, torch.cuda.set_stream
    recorded("return run(x, x)")
    assert (torch.cuda.stream, torch.cuda.set_stream) == before
