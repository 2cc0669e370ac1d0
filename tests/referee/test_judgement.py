"""Whole judgements: recordings, replays, verdicts; by sealed processes, for which one fork server serves all tests
here, and in this process, where what they are asked is done by the same functions.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.msgpack import encode as encoded

from benchmarks.judge.cases import Case, exploit_cases, honest_cases, reference_at
from kerntune.base.device import Target, typical_device
from kerntune.base.recording import Storage, Zeros
from kerntune.errors import UsageError
from kerntune.gpu.number_formats import FLOAT_FORMATS, values
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.referee import declared_inputs, judgement, reference_evidence, verdicts
from kerntune.referee.candidate_speed import ScriptedSpeeds, Speeds
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.judgement import Bench, judge
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.recorder_answer import answer_of
from kerntune.referee.roles import ROLES
from kerntune.referee.scripted_pair import LIVE
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.sealing import landlock_version
from kerntune.referee.tasks import CallRefused, Constant, ExpectedResult, ExpectedSeed, RecordAnswer
from kerntune.referee.verdicts import CandidateVerdict, Word, constants_told

CORPUS = Path(__file__).parents[2] / "benchmarks" / "judge"
ADD = f"{CORPUS}/references.py::add"
LINE = "x: f32[300]; y: f32[300]"

sealed_only = [
    pytest.mark.slow,
    pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock"),
]


class OneProcess:
    """Answers what sealed processes are asked, here."""

    def wait(self) -> None:
        """Everything is imported."""

    def ask(
        self, role: str, task: Any, readable: tuple[str, ...], seconds: float, most: int, gpu: bool = False
    ) -> Answered:
        path, modules = [*sys.path], {*sys.modules}
        try:
            return Answered(encoded(ROLES[role](encoded(task))), SealedEnd(), "")
        finally:
            sys.path[:] = path
            for name in {*sys.modules} - modules:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(CORPUS)):
                    del sys.modules[name]

    def wait_for_ends(self) -> None:
        """Nothing has to end."""

    def close(self) -> None:
        """There is nothing to end."""


@pytest.fixture(scope="module")
def sealed_bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


@pytest.fixture(params=["one process", pytest.param("sealed processes", marks=sealed_only)])
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bench:
    if request.param == "sealed processes":
        found: Bench = request.getfixturevalue("sealed_bench")
        return found
    monkeypatch.setattr(judgement, "PrewarmedProcesses", lambda sealed: OneProcess())
    monkeypatch.setattr(judgement, "landlock_version", lambda: 1)
    return Bench()


@pytest.fixture
def speeds(bench: Bench) -> Iterator[Bench]:
    """The same processes with a scripted GPU, on which candidates are twice as fast as a live reference."""
    rules = [Rule(LIVE, time_ns=20_000.0), Rule("relu_kernel", time_ns=40_000.0)]
    bench.speeds = ScriptedSpeeds(FakeGpu(typical_device(Target.parse("cuda:90")), Script(rules)))
    yield bench
    bench.speeds = Speeds()


def candidate(tmp_path: Path, text: str) -> str:
    path = tmp_path / "candidate.py"
    path.write_text(f"import os, torch, triton\nimport triton.language as tl\n{text}")
    return f"{path}::f"


def judged(bench: Bench, name: str, line: str = LINE, reference: str = ADD) -> CandidateVerdict:
    return judge(f"{CORPUS}/{name}", reference, line, bench=bench)


def test_a_right_candidate_is_untimed_without_a_gpu(bench: Bench) -> None:
    verdict = judged(bench, "honest.py::add")
    assert (verdict.word, verdict.exit_code, verdict.speeds, verdict.sealed) == (Word.UNTIMED, 6, "none", True)
    assert len(verdict.shapes[0].errors) == 5
    assert [x.kernel for x in verdict.shapes[0].launches] == ["add_kernel"]


def test_a_wrong_one_is_wrong(bench: Bench) -> None:
    verdict = judged(bench, "exploits/memory.py::one_block")
    assert verdict.word is Word.WRONG
    assert "result 0" in verdict.shapes[0].text


@pytest.mark.slow
def test_scripted_speeds_decide_and_are_named(speeds: Bench) -> None:
    verdict = judged(speeds, "honest.py::add")
    assert (verdict.word, verdict.speeds) == (Word.FASTER, "scripted")
    speedup = verdict.shapes[0].speedup
    assert speedup is not None
    assert speedup[0] == pytest.approx(2.0, rel=0.01)


def test_scripted_speeds_may_say_that_it_is_slower(speeds: Bench) -> None:
    slower = judged(speeds, "honest.py::relu_", "x: f32[300]", f"{CORPUS}/references.py::relu_")
    assert slower.word is Word.SLOWER


def test_a_wrong_candidate_is_not_timed(speeds: Bench) -> None:
    verdict = judged(speeds, "exploits/memory.py::one_block")
    assert verdict.word is Word.WRONG
    assert verdict.shapes[0].change is None


HONEST = [case for case in honest_cases() if case.candidate.partition("::")[2] in {
    "axpy", "autotuned_add", "relu_", "gelu", "to_bfloat16", "softmax", "layer_norm", "mean_and_variance", "argmax",
    "group_mean", "transpose", "embedding", "cumsum", "histogram", "masked_fill", "sgd_", "quantize", "scale_by_table",
}]  # fmt: skip


LONG = (
    "argmax", "mean_and_variance", "group_mean", "layer_norm", "transpose", "autotuned_add", "masked_fill", "embedding",
)  # fmt: skip
"""Most of a second and above: their inputs are large, or they compile much."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] * (case.name in LONG or "kernel_" in case.name))
        for case in HONEST
    ],
)
def test_honest_candidates_are_right(bench: Bench, case: Case) -> None:
    verdict = judge(*case.files, case.inputs[:1], bench=bench)
    assert (verdict.word, verdict.shapes[0].text) == (
        Word.UNTIMED,
        "right on 5 contents; there is no GPU here",
    )


@pytest.mark.slow
def test_one_wrong_shape_decides(speeds: Bench) -> None:
    verdict = judge(f"{CORPUS}/exploits/memory.py::one_block", ADD, ["x: f32[200]; y: f32[200]", LINE], bench=speeds)
    assert [s.word for s in verdict.shapes] == [Word.FASTER, Word.WRONG]
    assert verdict.word is Word.WRONG


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("libraries.py::library", Reason.OPERATOR),
        ("state.py::writes_outside", Reason.OUTSIDE),
        ("state.py::counter", Reason.RESULT_UNWRITTEN),
        ("streams.py::side_stream_kernel", Reason.STREAMS),
        ("caches.py::by_content", Reason.VALUES),
    ],
)
def test_refusals(bench: Bench, name: str, reason: Reason) -> None:
    matmul = f"{CORPUS}/references_products.py::matmul"
    line, reference = ("a: f16[32,32]; b: f16[32,32]", matmul) if "libraries" in name else (LINE, ADD)
    verdict = judged(bench, f"exploits/{name}", line, reference)
    assert (verdict.word, verdict.reason) == (Word.REFUSED, reason)


def test_a_module_beside_that_is_not_the_one_imported_is_told(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "fractions.py").touch()
    (tmp_path / "a.py").write_text("import fractions\ndef fn(x, y): raise ValueError\n")
    verdict = judge(f"{tmp_path}/a.py::fn", ADD, LINE, bench=bench)
    assert (verdict.reason, verdict.remarks) == (
        Reason.CANDIDATE_FAILED, ("a.py imports the installed fractions, not the one beside it",)
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
@pytest.mark.parametrize(
    ("name", "reason"), [("exits", Reason.CANDIDATE_DIED), ("forged_inputs", Reason.RESULT_OVERLAP)]
)
def test_refusals_of_what_harms_its_process(sealed_bench: Bench, name: str, reason: Reason) -> None:
    verdict = judged(sealed_bench, f"exploits/processes.py::{name}")
    assert (verdict.word, verdict.reason) == (Word.REFUSED, reason)


@pytest.mark.slow
def test_a_constant_task_is_no_evidence(bench: Bench) -> None:
    reference = f"{CORPUS}/references_rows.py::mean_of_softmax"
    verdict = judged(bench, "exploits/numbers_.py::constant_task", "x: f32[16,256]", reference)
    assert verdict.reason is Reason.DEGENERATE


def test_changed_inputs_are_wrong(bench: Bench, tmp_path: Path) -> None:
    text = """
@triton.jit
def k(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(o + at, v, mask=at < n)
    tl.store(y + at, v * 0, mask=at < n)

def f(x, y):
    o = torch.empty_like(x)
    k[(2,)](x, y, o, x.numel(), BLOCK=256)
    return o
"""
    verdict = judge(candidate(tmp_path, text), ADD, LINE, bench=bench)
    assert verdict.word is Word.WRONG
    assert verdict.shapes[0].text == "it changes input y"


@pytest.mark.slow
@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_what_a_candidate_has_started_is_dead_before_seeds_are_drawn(
    sealed_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has left its session and its parent is found by its supervisor."""
    text = """
@triton.jit
def k(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

def f(x, y):
    import signal, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.environ["KERNTUNE_TEST_SURVIVOR"] = "1"
            os.execv("/bin/sleep", ["kerntune-test-survivor", "300"])
        os._exit(0)
    time.sleep(0.3)
    o = torch.empty_like(x)
    k[(triton.cdiv(x.numel(), 256),)](x, y, o, x.numel(), BLOCK=256)
    return o
"""
    seen: list[list[str]] = []
    drawn = judgement.secrets.randbits
    monkeypatch.setattr(judgement.secrets, "randbits", lambda bits: (seen.append(survivors()), drawn(bits))[1])
    verdict = judge(candidate(tmp_path, text), ADD, LINE, bench=sealed_bench)
    assert verdict.word is Word.UNTIMED, verdict.shapes[0].text
    assert seen
    assert not any(seen)


def survivors() -> list[str]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if b"kerntune-test-survivor" in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(name)
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_a_candidate_that_hangs_is_late(sealed_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgement, "RECORD_SECONDS", 2.0)
    began = time.monotonic()
    verdict = judged(sealed_bench, "exploits/processes.py::hang")
    assert verdict.reason is Reason.CANDIDATE_LATE
    assert time.monotonic() - began < 60


@pytest.mark.slow
def test_the_order_of_processes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """All recordings; then, for each shape, seeds, the reference's results, and replays with one seed's inputs each."""
    steps: list[str] = []
    limits: dict[str, tuple[tuple[str, ...], float, int]] = {}
    ask, drawn = bench.processes.ask, judgement.secrets.randbits

    def asked(role: str, task: object, *args: Any, **words: Any) -> object:
        steps.append(role)
        limits[role] = args[:3]
        return ask(role, task, *args, **words)

    monkeypatch.setattr(bench.processes, "ask", asked)
    monkeypatch.setattr(
        judgement.secrets, "randbits", lambda bits: (steps.append("seed") if bits > 1 else None, drawn(bits))[1]
    )
    judge(f"{CORPUS}/honest.py::add", ADD, [LINE, "x: f32[64]; y: f32[64]"], bench=bench)
    runs = [(step, len(list(same))) for step, same in itertools.groupby(steps)]
    assert (runs[0], len(runs), runs[-1]) == (("record", 6), 1 + 2 * 9 + 1, ("seed", 1))
    for number, shape in enumerate((runs[1:10], runs[10:19])):
        assert [step for step, _ in shape] == ["seed", "expect", "replay"] * 3
        drawn, asked, replayed, *others = (count for _, count in shape)
        assert drawn - number in (2 * (5 + 25), 2 * (5 + 27)), "of contents and of references, and an order before"
        assert replayed in (5 + 16, 5 + 17), "NaN and infinities, which stay, aren't replayed"
        assert (asked, *others[:3]) == (1, 1, 1, 1), "a later call has nearly the first one's numbers, too"
        assert others[3:] == [2 * (5 + 2) + 1, 1, 5 + 2], "behind a call at the other shape"
    own = (str(CORPUS),)
    assert (limits["record"], limits["expect"]) == ((own, 120.0, 1 << 28), (own, 300.0, 1 << 32))
    readable, seconds, most = limits["replay"]
    sizes = 3 * 4 * 64 + 64 * len("xyoxyo")
    assert (readable, most) == ((), sizes + (1 << 20)), "of a call at each shape"
    assert 5 < seconds <= 20


TWICE = """
import torch, triton
import triton.language as tl

@triton.jit
def doubled(x, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

cache = {}

def made_once(x, make):
    return cache.setdefault((x.shape, make), make(x))

def fresh(x):
    o = torch.empty_like(x)
    doubled[(1,)](x, o, x.numel(), BLOCK=512)
    return o

def result_by_shape(x):
    return (cache if x.shape in cache else cache.setdefault(x.shape, [fresh(x)]) and cache)[x.shape][0]

def copy_by_shape(x):
    return result_by_shape(x).clone()

def buffer_of_results(x):
    o = made_once(x, torch.empty_like)
    doubled[(1,)](x, o, x.numel(), BLOCK=512)
    return o

def factor_by_shape(x):
    return fresh(x) * made_once(x, torch.ones_like)

def reference(x):
    return x * 2
"""


@pytest.mark.parametrize(
    ("name", "word", "told"),
    [
        ("fresh", Word.UNTIMED, "right on"), ("factor_by_shape", Word.UNTIMED, "right on"),
        ("copy_by_shape", Word.WRONG, "in a later call, which finds what those before have left: 300 of 300 elements"),
        ("result_by_shape", Word.REFUSED, "result 0 of a later call is memory that the first has returned"),
        ("buffer_of_results", Word.REFUSED, "result 0 of a later call is memory that the first has returned"),
    ],
)  # fmt: skip
def test_a_second_call_is_judged_behind_the_first(
    name: str, word: Word, told: str, bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "twice.py").write_text(TWICE)
    sides = [f"{tmp_path}/twice.py::{one}" for one in (name, "reference")]
    (shape,) = judge(*sides, "x: f32[300]", bench=bench).shapes
    assert (shape.word, told in shape.text) == (word, True), shape
    assert not [remark for remark in shape.remarks if "alone" in remark]


KEPT = (
    TWICE.partition("def fresh")[0]
    + """
FIRST = []

def kept(x, value):
    if not FIRST:
        FIRST.append(value)
    return FIRST[0]

def doubled_to(y, x, n):
    doubled[(triton.cdiv(n, 512),)](x, y, n, BLOCK=512)
    return y

def workspace(x):
    return doubled_to(torch.empty_like(x), doubled_to(kept(x, torch.empty_like(x)), x, x.numel()), x.numel())

def length(x):
    return doubled_to(torch.empty_like(x), x, kept(x, x.numel()))

def own(x):
    return doubled_to(torch.empty_like(x), x, x.numel())

def reference(x):
    return x * 2

def twice(x):
    return x * 4
"""
)


@pytest.mark.parametrize(
    ("name", "other", "words", "told"),
    [
        ("own", "reference", (Word.UNTIMED, Word.UNTIMED), "right on"),
        ("length", "reference", (Word.REFUSED, Word.WRONG), "results follow from memory that nothing has written"),
        ("workspace", "twice", (Word.UNTIMED, Word.REFUSED), " bytes beside all tensors are written"),
    ],
)
def test_each_shape_is_judged_behind_a_call_at_another(
    name: str, other: str, words: tuple[Word, Word], told: str, bench: Bench, tmp_path: Path
) -> None:
    """What a file keeps of its first shape isn't another's."""
    (tmp_path / "kept.py").write_text(KEPT)
    sides = [f"{tmp_path}/kept.py::{one}" for one in (name, other)]
    shapes = judge(*sides, ["x: f32[600]", "x: f32[900]"], bench=bench).shapes
    assert (tuple(shape.word for shape in shapes), told in shapes[1].text) == (words, True), shapes


BESIDE = """
import torch, triton
import triton.language as tl

@triton.jit
def products(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(o + at, tl.load(x + at, mask=inside) * tl.load(y + at, mask=inside), mask=inside)

def parts(x, y):
    o = torch.empty_like(x)
    products[(triton.cdiv(x.numel(), 256),)](x, y, o, x.numel(), BLOCK=256)
    return o

def right(x, y):
    return parts(x, y).sum(0)

def rounded_between(x, y):
    return parts(x, y).half().sum(0, dtype=torch.float32)

def changed_between(x, y):
    z = x.clone()
    z[3] += 0.01
    return parts(z, y).sum(0)

def of_torch_alone(x, y):
    parts(torch.ones_like(x), torch.ones_like(y))
    return (x * y).sum(0)

def outside(x, y):
    return parts(x, y)[torch.full((20,), 30, device=x.device)].sum(0)

def reference(x, y):
    return (x * y).sum(0)
"""


@pytest.mark.parametrize(
    ("name", "word", "told"),
    [
        ("right", Word.UNTIMED, "right on"), ("rounded_between", Word.WRONG, "off by more than rounding explains"),
        ("changed_between", Word.WRONG, "off by more than rounding explains"),
        ("of_torch_alone", Word.REFUSED, "alone computes all results"),
        ("outside", Word.REFUSED, "index"),
    ],
)  # fmt: skip
def test_torchs_operators_beside_kernels_are_replayed(
    name: str, word: Word, told: str, bench: Bench, tmp_path: Path
) -> None:
    """And listed among the launches. What they alone compute is no kernel's result."""
    (tmp_path / "beside.py").write_text(BESIDE)
    sides = [f"{tmp_path}/beside.py::{one}" for one in (name, "reference")]
    (shape,) = judge(*sides, "x: f32[20,30]; y: f32[20,30]", bench=bench).shapes
    assert (shape.word, told in shape.text) == (word, True), shape
    if name == "right":
        assert [(x.kernel, x.grid) for x in shape.launches] == [("products", (3, 1, 1)), ("aten.sum.IntList_out", ())]


FILLS = """
import torch
import triton
import triton.language as tl

@triton.jit
def count_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + tl.load(x_ptr + at, mask=at < n, other=0), 1, mask=at < n)

def counted(x, out):
    count_kernel[(4,)](x, out, x.numel(), BLOCK=256)
    return out

def right(x, out):
    out.zero_()
    return counted(x, out)

def emptied(x, out):
    x.zero_()
    out.zero_()
    return counted(x, out)

def emptied_late(x, out):
    right(x, out)
    x.zero_()
    return out
"""


@pytest.mark.parametrize(
    ("name", "word", "told"),
    [
        ("right", Word.UNTIMED, "right on"), ("counted", Word.WRONG, "elements differ"),
        ("emptied", Word.WRONG, "elements differ"), ("emptied_late", Word.WRONG, "input x"),
    ],
)  # fmt: skip
def test_inputs_that_a_call_fills_hold_that(name: str, word: Word, told: str, bench: Bench, tmp_path: Path) -> None:
    """A fill of torch's before the launches, of memory for results or of what is read."""
    (tmp_path / "reference.py").write_text(
        "import torch\ndef counted(x, out):\n    out[...] = torch.bincount(x, minlength=300)\n    return out\n"
    )
    (tmp_path / "fills.py").write_text(FILLS)
    line = "x: i64[1000] < 300; out: i64[300] in -9..9"
    (shape,) = judge(f"{tmp_path}/fills.py::{name}", f"{tmp_path}/reference.py::counted", line, bench=bench).shapes
    assert shape.word is word, shape
    assert told in shape.text


BATCH_NORM_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6, affine=False)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(200, 6)]
"""
BATCH_NORM = """
import torch
import triton
import triton.language as tl

@triton.jit
def norm_kernel(x, y, mean, var, n, eps, momentum, KEEP: tl.constexpr, BLOCK: tl.constexpr):
    column, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + at * 6 + column, mask=at < n, other=0.0)
    m = tl.sum(value) / n
    off = tl.where(at < n, value - m, 0.0)
    v = tl.sum(off * off) / n
    tl.store(y + at * 6 + column, off / tl.sqrt(v + eps), mask=at < n)
    if KEEP:
        tl.store(mean + column, (1 - momentum) * tl.load(mean + column) + momentum * m)
        tl.store(var + column, (1 - momentum) * tl.load(var + column) + momentum * v * n / (n - 1))

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6, affine=False)

    def forward(self, x):
        y, n = torch.empty_like(x), self.norm
        norm_kernel[(6,)](x, y, n.running_mean, n.running_var, len(x), n.eps, n.momentum, KEEP=True, BLOCK=256)
        return y
"""


@pytest.mark.slow
@pytest.mark.parametrize(("keeps", "word"), [("True", Word.UNTIMED), ("False", Word.WRONG)])
def test_a_batch_norm_keeps_its_statistics_and_counts_no_calls(
    keeps: str, word: Word, bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "batch_norm_task.py").write_text(BATCH_NORM_TASK)
    (tmp_path / "batch_norm_new.py").write_text(BATCH_NORM.replace("KEEP=True", f"KEEP={keeps}"))
    (shape,) = judge(f"{tmp_path}/batch_norm_new.py", f"{tmp_path}/batch_norm_task.py", bench=bench).shapes
    assert shape.word is word, shape
    assert ("norm.num_batches_tracked isn't compared" in shape.remarks) == (word is Word.UNTIMED)
    assert word is Word.UNTIMED or "input norm.running_" in shape.text


SCALED_TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(64))

    def forward(self, x):
        return torch.nn.functional.relu6(x * self.w)

def get_inputs():
    return [torch.randn(40, 64)]
"""
SCALED_MODEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def scaled_kernel(x, w, y):
    row, at = tl.program_id(0), tl.arange(0, 64)
    v, by = tl.load(x + row * 64 + at), tl.load(w + at)
    tl.store(y + row * 64 + at, tl.minimum(tl.maximum(v * by, 0.0), 6.0))

class ModelNew(torch.nn.Module):
    kept = None

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(64))

    def forward(self, x):
        w, y = self.w, torch.empty_like(x)
        scaled_kernel[(40,)](x, w, y)
        return y
"""
KEPT_WEIGHTS = "self.kept = self.kept if self.kept is not None else self.w.detach().clone(); w, y = self.kept"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "", "right on 5 contents"),
        ("v * by, 0.0)", "v, 0.0) * by", "w has other signs and sizes than a constructor gives"),
        ("tl.minimum(tl.maximum(v * by, 0.0), 6.0)", "tl.maximum(v * by, 0.0)", "elements are off"),
        ("w, y = self.w", KEPT_WEIGHTS, "in a later call"),
    ],
)
def test_a_model_has_other_numbers_than_its_task_gives_it(
    old: str, new: str, told: str, bench: Bench, tmp_path: Path
) -> None:
    """What is equal above zero alone, or for small numbers, or for the first call's."""
    (tmp_path / "scaled_task.py").write_text(SCALED_TASK)
    (tmp_path / "scaled_new.py").write_text(SCALED_MODEL.replace(old, new))
    (shape,) = judge(f"{tmp_path}/scaled_new.py", f"{tmp_path}/scaled_task.py", bench=bench).shapes
    assert shape.word is (Word.WRONG if old else Word.UNTIMED), shape
    assert told in shape.text


@pytest.mark.slow
@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_nothing_is_left_of_a_judgement(sealed_bench: Bench) -> None:
    judged(sealed_bench, "exploits/processes.py::poisoned_cache")
    scratch = sealed_bench.processes._scratch.folder
    assert [p.name for p in scratch.iterdir() if p.name.isdigit()] == []
    assert not (Path.home() / ".triton" / "poison").exists()


@pytest.mark.slow
def test_kernelbench_is_judged_as_it_is(bench: Bench) -> None:
    verdict = judge(f"{CORPUS}/kernelbench_candidate.py", f"{CORPUS}/kernelbench_task.py", bench=bench)
    assert verdict.word is Word.UNTIMED, verdict.shapes


def test_gpu_mode_is_judged_as_it_is(bench: Bench) -> None:
    task = f"{CORPUS}/gpu_mode"
    verdict = judge(f"{task}/submission.py", f"{task}/reference.py", f"{task}/task.yml", bench=bench)
    assert (verdict.word, len(verdict.shapes)) == (Word.UNTIMED, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "word", "told"),
    [
        ("", "", Word.UNTIMED, "right on 5 contents"),
        ("    return output", "    return x.new_empty(x.shape)", Word.REFUSED, "float32[127]"),
        ("found, mask=at < n)", "found, mask=at < n - 3)", Word.WRONG, "elements are"),
        ("found, mask=at < n)", "tl.load(o + at, mask=at < n), mask=at < n)", Word.WRONG, "result 0"),
    ],
)
def test_memory_for_results_may_be_handed_out_by_a_task(
    old: str, new: str, word: Word, told: str, bench: Bench, tmp_path: Path
) -> None:
    """What is in it is drawn anew, so that nothing can be left there."""
    task = f"{CORPUS}/gpu_mode_output"
    text = Path(f"{task}/submission.py").read_text(encoding="utf-8")
    assert old in text
    for name in ("task.py", "reference.py"):
        (tmp_path / name).write_bytes(Path(f"{task}/{name}").read_bytes())
    (tmp_path / "submission.py").write_text(text.replace(old, new), encoding="utf-8")
    verdict = judge(f"{tmp_path}/submission.py", f"{tmp_path}/reference.py", f"{task}/task.yml", bench=bench)
    assert verdict.word is word, verdict.shapes
    assert told in verdict.shapes[0].text


SHARED = "def generator(seed):\n    import torch\n    return torch.Generator(device='cuda').manual_seed(seed)\n"
SHARING = """
import torch
from shared_by_tasks import generator

def generate_input(sizes, factor, seed):
    if len(sizes) > 1:
        raise MemoryError("too large")
    return torch.randn(sizes[0], device="cuda", generator=generator(seed)), factor

def ref_kernel(data):
    return data[0] * data[1]
"""
SHARING_CANDIDATE = """
import torch
import triton
import triton.language as tl
from shared_by_tasks import generator

@triton.jit
def scaled(x, o, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at, at < n) * factor, at < n)

def custom_kernel(data):
    x, factor = data
    o = torch.empty_like(x)
    scaled[(triton.cdiv(len(x), 256),)](x, o, len(x), factor, BLOCK=256)
    return o
"""
SHARING_YML = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "shared_by_tasks.py", "source": "../shared_by_tasks.py"}
tests:
  - {"sizes": [300], "factor": 3.0, "seed": 1}
  - {"sizes": [300, 1], "factor": 3.0, "seed": 1}  # one too many
"""


def test_a_task_in_a_clone_has_its_modules_and_each_shape_is_made_alone(bench: Bench, tmp_path: Path) -> None:
    """They lie above it; the candidate lies elsewhere."""
    for name, text in (
        ("clone/shared_by_tasks.py", SHARED), ("clone/one/reference.py", SHARING), ("clone/one/task.yml", SHARING_YML),
        ("there/submission.py", SHARING_CANDIDATE),
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    task = f"{tmp_path}/clone/one"
    first, second = judge(
        f"{tmp_path}/there/submission.py", f"{task}/reference.py", f"{task}/task.yml", bench=bench
    ).shapes
    assert (first.label, first.word) == ("sizes=[300], factor=3.0", Word.UNTIMED), first
    assert (second.label, second.reason, second.text) == (
        "sizes=[300, 1], factor=3.0", Reason.REFERENCE, "MemoryError: too large"
    )  # fmt: skip


MASKED_TASK = """
import torch

def generate_input(size, mask, seed):
    x, m = torch.rand(2, size, device="cuda", generator=torch.Generator(device="cuda").manual_seed(seed)).unbind(0)
    return {"x": x + 1, "mask": (m > 0.5).float() if mask else torch.ones_like(m), "scale": 2.0}

def ref_kernel(data):
    return data["x"] * data["mask"] * data["scale"]

def check_implementation(data, output):
    return ""
"""
MASKED = """
import torch
import triton
import triton.language as tl

@triton.jit
def masked(x, m, o, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(o + at, tl.load(x + at, inside) * scale * tl.load(m + at, inside), inside)

def custom_kernel(data):
    x, o = data["x"], torch.empty_like(data["x"])
    masked[(triton.cdiv(len(x), 256),)](x, data["mask"], o, len(x), data["scale"], BLOCK=256)
    return o
"""


@pytest.mark.slow
def test_an_input_that_is_one_number_at_one_shape_is_read_at_another(bench: Bench, tmp_path: Path) -> None:
    """The inputs lie in a dict, as some tasks have them."""
    remark = "input 1 is one number at this shape; other shapes have others"
    shapes = "".join(f'  - {{"size": 400, "mask": {word}, "seed": 1}}\n' for word in ("false", "true"))
    (tmp_path / "both.yml").write_text(f"tests:\n{shapes}")
    (tmp_path / "one.yml").write_text('tests:\n  - {"size": 400, "mask": false, "seed": 1}\n')
    reference, bad = tmp_path / "reference.py", MASKED.replace(" * tl.load(m + at, inside)", "")
    reference.write_text(MASKED_TASK)
    for text, inputs, words, remarked in (
        (MASKED, "both", (Word.UNTIMED, Word.UNTIMED), True), (bad, "both", (Word.UNTIMED, Word.WRONG), True),
        (bad, "one", (Word.REFUSED,), False),
    ):  # fmt: skip
        (tmp_path / "submission.py").write_text(text)
        verdict = judge(f"{tmp_path}/submission.py", f"{reference}", f"{tmp_path}/{inputs}.yml", bench=bench)
        assert tuple(shape.word for shape in verdict.shapes) == words
        assert [remark in shape.remarks for shape in verdict.shapes] == [remarked, False][: len(words)]


def test_parameters_that_are_zero_when_they_are_made_are_no_zeros(bench: Bench) -> None:
    held_out = f"{CORPUS}/exploits/held_out_no_bias.py"
    assert judge(held_out, f"{CORPUS}/kernelbench_task.py", bench=bench).word is Word.WRONG


def test_where_a_candidate_failed_is_told_without_what_a_terminal_would_do(bench: Bench, tmp_path: Path) -> None:
    text = "def f(x, y):\n    exec(compile('raise OSError', '/a\\x1b[2J\\n::b.py', 'exec'))\n"
    refused = judge(candidate(tmp_path, text), ADD, LINE, bench=bench).shapes[0]
    assert (refused.reason, refused.text) == (Reason.CANDIDATE_FAILED, "OSError (a\\u001b[2J ::b.py:1)")
    text = "def f(x, y):\n    assert x is None\n"
    assert judge(candidate(tmp_path, text), ADD, LINE, bench=bench).shapes[0].text == "AssertionError (candidate.py:4)"


def test_a_candidate_without_a_function_is_refused_and_other_usage_is_an_error(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1")
    assert judge(f"{path}::f", ADD, LINE, bench=bench).reason is Reason.LAYOUT
    for words in ((f"{tmp_path}/none.py::f", ADD, LINE), (f"{path}::x", f"{path}::f", LINE), (f"{path}::x", ADD, "x")):
        with pytest.raises(UsageError):
            judge(*words, bench=bench)
    with pytest.raises(UsageError, match="makes no inputs"):
        judge(f"{path}::x", ADD, bench=bench)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("w: f32[8]; x: f32[8]", "inputs w, x: they go by position, and r takes x, w, eps; declare them in this order"),
        ("x: f32[8]; eps = 0.5", "inputs x, eps: they go by position, and r takes x, w, eps"),
        ("x: f32[8]; w: f32[8]", ""),
        ("w: f32[8]; v: f32[8]", ""),
        ("w: f32[8]; x: f32[8]; y: f32[8]", ""),
    ],
)
def test_names_of_inputs_must_not_contradict_their_order(bench: Bench, tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "r.py").write_text("def r(x, w=None, eps=1.0): raise ValueError('no')")
    words = (f"{CORPUS}/honest.py::add", f"{tmp_path}/r.py::r", ["x: f32[8]", line])
    if told:
        with pytest.raises(UsageError, match=told):
            judge(*words, bench=bench)
    else:
        assert judge(*words, bench=bench).word is Word.REFUSED


@pytest.mark.parametrize(
    ("inputs", "budget", "told"),
    [
        *((x, 1.0, "give a line for each shape") for x in (None, 5, [5], {"x": 1}, b"x: f32[8]", ({"x"},))),
        *((LINE, x, "a number of seconds") for x in (0, -1, float("nan"), float("inf"), "10", None, 86_400)),
    ],
)
def test_a_call_that_can_not_be_understood_is_said(inputs: Any, budget: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        judge(f"{CORPUS}/honest.py::add", f"{CORPUS}/references.py::add", inputs, budget=budget)


def test_a_reference_that_fails_is_refused_by_its_reason(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("def r(x, y): raise ValueError('no')")
    verdict = judge(f"{CORPUS}/honest.py::add", f"{tmp_path}/r.py::r", LINE, bench=bench)
    assert (verdict.reason, verdict.shapes[0].text) == (Reason.REFERENCE, "ValueError: no")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return (x + y).to(__import__('torch').complex64)", "complex64"),
        ("return (x + y)[: int(x[0].abs() * 1000) % 7 + 1]", "other layouts"),
        ("return None", "none"),
    ],
)
def test_references_that_cannot_be_judged(bench: Bench, tmp_path: Path, body: str, told: str) -> None:
    (tmp_path / "r.py").write_text(f"def r(x, y): {body}")
    verdict = judge(f"{CORPUS}/honest.py::add", f"{tmp_path}/r.py::r", LINE, bench=bench)
    assert verdict.reason is Reason.REFERENCE
    assert told in verdict.shapes[0].text


def test_without_landlock_it_is_refused_unless_unsealed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Speeds):
        pass

    monkeypatch.setattr(judgement, "landlock_version", lambda: 0)
    monkeypatch.setattr(judgement, "PrewarmedProcesses", lambda sealed: None)
    made = Bench(speeds=Silent())
    verdict = judge(f"{CORPUS}/honest.py::add", ADD, LINE, bench=made)
    assert verdict.reason is Reason.UNSEALED


def test_inputs_that_the_reference_changes_must_change(bench: Bench) -> None:
    """Though a part of them is returned."""
    reference = f"{CORPUS}/references_places.py::doubled_head"
    verdict = judged(bench, "exploits/held_out.py::head_alone", "x: f32[50]", reference)
    assert verdict.word is Word.WRONG
    assert "input x, which the reference changes" in verdict.shapes[0].text


@pytest.mark.slow
@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_inputs_that_a_forged_recording_does_not_name_must_change(sealed_bench: Bench) -> None:
    line, reference = "p: f32[70]; g: f32[70]; lr = 0.1", f"{CORPUS}/references.py::sgd_"
    verdict = judged(sealed_bench, "exploits/held_out.py::changes_nothing", line, reference)
    assert (verdict.word, verdict.shapes[0].text) == (
        Word.WRONG,
        "it leaves input p as it is, which the reference changes",
    )


@pytest.mark.parametrize(
    ("answered", "reason", "told"),
    [
        (Answered(None, SealedEnd(survivors=2, late=True), ""), Reason.SURVIVORS, "2 processes are left"),
        (Answered(None, SealedEnd(cannot_seal="no Landlock"), "x"), Reason.UNSEALED, "no Landlock"),
        (Answered(None, SealedEnd(code=-9, late=True), "a\nb\n\n"), Reason.CANDIDATE_LATE,
         "it was ended, being late: b"),
        (Answered(None, SealedEnd(code=3), " \n"), Reason.CANDIDATE_DIED,
         "it ended with status 3 and gave no whole answer"),
        (Answered(encoded(RecordAnswer()), SealedEnd(), ""), Reason.ANSWER, "its answer is empty"),
        (Answered(encoded(RecordAnswer(refused=CallRefused("no reason of ours", "\x1b[31mred"))), SealedEnd(), ""),
         Reason.ANSWER, "\\u001b[31mred"),
        (Answered(encoded(RecordAnswer(refused=CallRefused(Reason.STREAMS.value, "y" * 2000))), SealedEnd(), ""),
         Reason.STREAMS, f"{'y' * 331} [...] {'y' * 662}"),
        (Answered(encoded(RecordAnswer(refused=CallRefused(Reason.ROOFLINE.value, "a\nFASTER"))), SealedEnd(), ""),
         Reason.ANSWER, "a FASTER"),
    ],
)  # fmt: skip
def test_what_a_recorder_that_gave_no_call_is_refused_for(answered: Answered, reason: Reason, told: str) -> None:
    with pytest.raises(Refusal) as refused:
        answer_of(answered)
    assert (refused.value.reason, str(refused.value)) == (reason, told)


@pytest.mark.parametrize(
    ("natives", "reason", "told"),
    [
        ((b"", b""), Reason.DEGENERATE, "no result of the reference has an element"),
        ((), Reason.REFERENCE, "its results are none, which can't be judged"),
    ],
)
def test_a_reference_without_numbers_is_no_evidence(natives: tuple[bytes, ...], reason: Reason, told: str) -> None:
    results = tuple(ExpectedResult("float32", (len(x) // 4,), (1,), x) for x in natives)
    with pytest.raises(Refusal) as refused:
        reference_evidence.check_reference([ExpectedSeed((), results), ExpectedSeed((), results)])
    assert (refused.value.reason, str(refused.value)) == (reason, told)
    reference_evidence.check_reference([ExpectedSeed((), (*results, ExpectedResult("float32", (1,), (1,), b"1234")))])


def test_what_must_move_are_inputs_that_are_read_whole() -> None:
    """A table that an index may choose from isn't; nor an input that no launch reaches."""
    case = parse_line("i: i64[40] < 100; table: f16[100,48]; w: f32[48]; u: f32[7]")
    storages = tuple(Storage(n, "float32", Zeros()) for n in (320, 9600, 192))
    call = SimpleNamespace(recording=SimpleNamespace(storages=storages), inputs=(0, 1, 2, None))
    assert verdicts.bytes_that_must_move(case, call) == 320 + 192  # type: ignore[arg-type]
    flags = msgspec.structs.replace(case.tensors[0], dtype="bool", high=99.0)
    case = msgspec.structs.replace(case, tensors=(flags, *case.tensors[1:]))
    assert verdicts.bytes_that_must_move(case, call) == 320 + 9600 + 192  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((), ()),
        ((10, 3000), ("2 constants of 3.01 kB made before the launches, the largest: 3 kB, 10 B",)),
        ([1] * 9, (f"9 constants of 9 B made before the launches, the largest: {', '.join(['1 B'] * 8)}",)),
    ],
)
def test_constants_that_launches_get_are_told_by_their_size(sizes: tuple[int, ...], told: tuple[str, ...]) -> None:
    constants = [*(Constant(i, bytes(n)) for i, n in enumerate(sizes)), Constant(99, bytes(10_000))]
    launches = [SimpleNamespace(reads=(i,), writes=()) for i in range(len(sizes))]
    call = SimpleNamespace(constants=constants, recording=SimpleNamespace(launches=launches))
    assert constants_told(call) == told  # type: ignore[arg-type]


def test_poison_is_of_every_kind_in_every_float_format() -> None:
    patterns = declared_inputs.poison_patterns(5)
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        kind = FLOAT_FORMATS[dtype]
        found = [values(np.frombuffer(p, f"<u{kind.width}").astype(np.uint64), kind) for p in patterns]
        assert any(np.isnan(v).all() for v in found)
        assert any((v > 50_000).all() for v in found)
        assert any((v < -50_000).all() for v in found)
        assert any((v != 0).all() and (np.abs(v) <= 2).all() for v in found)
        assert any((v == 0).all() for v in found)


@pytest.mark.parametrize(
    ("name", "reference", "line"),
    [
        ("nan_unwritten", "square_root", "x: f16[100]"),
        ("garbage_maximum", "row_max", "x: f16[4,100]"),
        ("filtered_garbage", "tripled", "x: f32[100]"),
    ],
)
def test_poison_is_seen_whatever_a_kernel_passes_over(bench: Bench, name: str, reference: str, line: str) -> None:
    held_out = f"{CORPUS}/{reference_at(reference)}"
    assert judged(bench, f"exploits/held_out.py::{name}", line, held_out).word is Word.WRONG


ATTEMPTS = {case.name: case for case in exploit_cases()}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("biased_rounding", "smaller in magnitude"),
        ("no_clamp", "there x"),
        ("no_zero_guard", "infinite or NaN"),
        ("no_epsilon", "there x"),
        pytest.param("naive_variance", "there x is far", marks=pytest.mark.slow),
        ("twin", "off by more"),
        ("no_step", "is left out or too much"),
    ],
)
def test_what_usual_numbers_do_not_tell(bench: Bench, name: str, told: str) -> None:
    verdict = judge(*ATTEMPTS[name].files, ATTEMPTS[name].inputs, bench=bench)
    assert verdict.word is Word.WRONG
    assert told in verdict.shapes[0].text


def test_what_needs_more_shared_memory_than_a_device_has_does_not_compile_for_it(bench: Bench) -> None:
    """As where there is a GPU."""
    verdict = judge(*ATTEMPTS["too_much_shared"].files, ATTEMPTS["too_much_shared"].inputs, bench=bench)
    assert verdict.reason is Reason.COMPILE
    assert verdict.shapes[0].text.startswith("shared memory: needs 262,144 bytes a block, the device has 232,448 (")


PADDED = """
import torch, triton, triton.language as tl

@triton.jit
def rows(x, lengths, o, n, OFF: tl.constexpr, ZERO: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    own = at < tl.load(lengths + row) - OFF
    v = tl.load(x + row * n + at, mask=own, other=0.0).to(tl.float32)
    tl.store(o + row * n + at, v / (1 + tl.sum(v * v, 0)), mask=own | ZERO)

def run(x, lengths, off=0, zero=False):
    o = torch.empty_like(x)
    rows[(x.shape[0],)](x, lengths, o, x.shape[1], OFF=off, ZERO=zero, BLOCK=64)
    return o

def old(x, lengths): return run(x, lengths)
def zeros(x, lengths): return run(x, lengths, zero=True)
def short(x, lengths): return run(x, lengths, off=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "word"), [("old", Word.UNTIMED), ("zeros", Word.UNTIMED), ("short", Word.WRONG)])
def test_padding_that_the_reference_leaves_is_not_compared(bench: Bench, name: str, word: Word, tmp_path: Path) -> None:
    """A candidate may leave it, or fill it; what the reference writes is compared."""
    (tmp_path / "k.py").write_text(PADDED)
    line = "x: f16[8,64]; lengths: i32[8] = [3, 64, 10, 33, 50, 1, 17, 60]"
    verdict = judge(f"{tmp_path}/k.py::{name}", f"{tmp_path}/k.py::old", line, bench=bench)
    assert verdict.word is word
    (shape,) = verdict.shapes
    told = [text[:52] for text in shape.remarks if "compared" in text]
    assert told == ["274 of 512 elements of result 0 aren't compared: the"] * (word is Word.UNTIMED)


@pytest.mark.slow
def test_what_is_left_out_shows_where_few_numbers_are_large(bench: Bench, tmp_path: Path) -> None:
    """A mean over 31 of 32 columns, of numbers that are declared as above zero."""
    (tmp_path / "r.py").write_text("def r(x): return x.mean(-1)")
    text = """
@triton.jit
def k(x, o, n, some, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < some, other=0.0).to(tl.float32)
    tl.store(o + row, (tl.sum(v, 0) / some).to(o.dtype.element_ty))

def f(x):
    o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    k[(x.shape[0],)](x, o, x.shape[1], x.shape[1] * SHARE // 32, BLOCK=4096)
    return o
"""
    for share, word in ((32, Word.UNTIMED), (31, Word.WRONG)):
        made = candidate(tmp_path, text.replace("SHARE", str(share)))
        verdict = judge(made, f"{tmp_path}/r.py::r", "x: bf16[64,4096] uniform(0, 1)", bench=bench)
        assert verdict.word is word, verdict.shapes[0].text
    assert "nearly constant" in verdict.shapes[0].text


def test_inputs_that_are_one_number_are_no_evidence(speeds: Bench) -> None:
    shape = judged(speeds, "honest.py::add", "x: f32[300]; y: f32[300] zeros").shapes[0]
    assert shape.reason is Reason.DEGENERATE
    assert "input y is one number in every content" in shape.text


SCALED = """
@triton.jit
def k(x, o, a, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, USED * tl.load(x + at, mask=at < n), mask=at < n)

def f(x, a):
    CHECK
    o = torch.empty_like(x)
    k[(triton.cdiv(x.numel(), 256),)](x, o, a, x.numel(), BLOCK=256)
    return o
"""


@pytest.mark.parametrize(
    ("used", "check", "said", "word", "text", "remark"),
    [
        ("a", "pass", "=", Word.UNTIMED, "", ""),
        ("0.375", "pass", "=", Word.WRONG, "for 0.375: 300 of 300 elements", ""),
        ("0.375", "pass", "=", Word.WRONG, "; where numbers belong together, == instead of = holds them", ""),
        ("0.375", "pass", "==", Word.UNTIMED, "", "numbers after == were no others, so a candidate may know them"),
        ("0.375", "assert a == 0.375", "=", Word.UNTIMED, "", "judged with these numbers alone"),
    ],
)
def test_numbers_that_are_known_when_recording_are_others_once(
    bench: Bench, tmp_path: Path, used: str, check: str, said: str, word: Word, text: str, remark: str
) -> None:
    (tmp_path / "r.py").write_text("def r(x, a): return a * x")
    made = candidate(tmp_path, SCALED.replace("USED", used).replace("CHECK", check))
    shape = judge(made, f"{tmp_path}/r.py::r", f"x: f32[300]; a {said} 0.375", bench=bench).shapes[0]
    assert shape.word is word, shape.text
    assert text in shape.text
    assert remark in "".join(shape.remarks)
    assert bool(shape.remarks) == bool(remark)


OF_DATA = """
import torch

def generate_input(seed):
    gen = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(300, device="cuda", generator=gen), {"blocks": 3, "power": 5}

def ref_kernel(data):
    return data[0] ** data[1]["power"]
"""

RAISED = """
@triton.jit
def k(x, o, power, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    y = v
    for _ in range(power - 1):
        y = y * v
    tl.store(o + at, y, mask=at < n)

def f(data):
    x, known = data
    o = torch.empty_like(x)
    k[(known["blocks"],)](x, o, POWER, 300, BLOCK=128)
    return o
"""


@pytest.mark.parametrize(("power", "word"), [('known["power"]', Word.UNTIMED), ("5", Word.WRONG)])
def test_numbers_of_a_task_are_others_that_its_reference_reads(
    bench: Bench, tmp_path: Path, power: str, word: Word
) -> None:
    """How many blocks there are follows from the input: with another number the candidate is wrong, not its data."""
    (tmp_path / "r.py").write_text(OF_DATA)
    made = candidate(tmp_path, RAISED.replace("POWER", power))
    shape = judge(made, f"{tmp_path}/r.py::ref_kernel", bench=bench).shapes[0]
    assert shape.word is word, shape.text
    assert ("for 5: " in shape.text) == (word is Word.WRONG)
    told = "judged with these numbers alone: the reference's results don't follow from 1 for 3"
    assert (told in shape.remarks) == (word is Word.UNTIMED)


def test_a_reference_that_knows_one_number_alone(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("def r(x, a):\n    assert a == 0.375\n    return a * x")
    made = candidate(tmp_path, SCALED.replace("USED", "a").replace("CHECK", "pass"))
    shape = judge(made, f"{tmp_path}/r.py::r", "x: f32[300]; a = 0.375", bench=bench).shapes[0]
    assert shape.word is Word.UNTIMED
    assert "nothing can be compared" in "".join(shape.remarks)


@pytest.mark.slow
def test_few_results_are_judged_on_many_contents(bench: Bench, tmp_path: Path) -> None:
    """A maximum over 31 of 32 numbers: of twelve contents it would be right for all with 68 %."""
    (tmp_path / "r.py").write_text("def r(x): return x.max().reshape(1)")
    text = """
@triton.jit
def k(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(o, tl.max(tl.load(x + at, mask=at < n, other=-float("inf")), 0))

def f(x):
    o = torch.empty(1, dtype=x.dtype, device=x.device)
    k[(1,)](x, o, LENGTH, BLOCK=128)
    return o
"""
    for length, word in ((128, Word.UNTIMED), (124, Word.WRONG)):
        made = candidate(tmp_path, text.replace("LENGTH", str(length)))
        verdict = judge(made, f"{tmp_path}/r.py::r", "x: f32[128]", bench=bench)
        assert verdict.word is word, verdict.shapes[0].text


@pytest.mark.parametrize("far", [2, 20])
def test_a_reference_that_fails_for_extreme_numbers_is_asked_for_usual_ones(
    bench: Bench, tmp_path: Path, far: int
) -> None:
    text = f"""
def r(x, y):
    if x.abs().max() > {far}:
        raise ValueError("too far")
    return x + y
"""
    (tmp_path / "r.py").write_text(text)
    verdict = judge(f"{CORPUS}/honest.py::add", f"{tmp_path}/r.py::r", LINE, bench=bench)
    assert verdict.reason is (Reason.REFERENCE if far == 2 else None)
    told = [x for x in verdict.shapes[0].remarks if "left out" in x]
    assert [x.replace(x.split()[4], "N") for x in told] == [
        "the reference fails at N contents beside the usual ones, which were left out"
    ] * (far == 20)


def test_a_reference_whose_process_ends_for_other_numbers_is_asked_for_those_given_alone(
    bench: Bench, tmp_path: Path
) -> None:
    """As a failed assertion on a GPU ends it."""
    text = """
import torch

def r(x, y):
    if x.dtype == torch.float64 and not torch.equal(x, x.float().double()):
        raise SystemExit
    return x + y
"""
    (tmp_path / "r.py").write_text(text)
    verdict = judge(f"{CORPUS}/honest.py::add", f"{tmp_path}/r.py::r", LINE, bench=bench)
    assert (verdict.word, verdict.reason) == (Word.UNTIMED, None), verdict.shapes[0].text


SCALAR = """
import torch, triton, triton.language as tl

@triton.jit
def summing_kernel(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))

def summed(x):
    o = torch.empty((), device=x.device)
    summing_kernel[(1,)](x, o, x.numel() - LEFT, B=128)
    return o
"""


@pytest.mark.parametrize(("left", "word"), [(0, Word.UNTIMED), (1, Word.WRONG)])
def test_a_result_may_be_one_number(bench: Bench, tmp_path: Path, left: int, word: Word) -> None:
    (tmp_path / "c.py").write_text(SCALAR.replace("LEFT", str(left)))
    (tmp_path / "r.py").write_text("def r(x): return x.sum()")
    verdict = judge(f"{tmp_path}/c.py::summed", f"{tmp_path}/r.py::r", "x: f32[100]", bench=bench)
    assert verdict.word is word, verdict.shapes[0].text
    assert not any("left out" in x for x in verdict.shapes[0].remarks)


@pytest.mark.slow
def test_an_input_that_a_reference_changes_may_stay_as_it_is_for_extreme_numbers(bench: Bench) -> None:
    """Its steps are less than half of its last place there, or it is clamped there alone."""
    for name, line in (("sgd_", "p: bf16[300]; g: bf16[300]; lr = 0.1"), ("relu_", "x: f32[300] uniform(-1, 1)")):
        verdict = judged(bench, f"honest.py::{name}", line, f"{CORPUS}/references.py::{name}")
        assert verdict.word is Word.UNTIMED, verdict.shapes[0].text


def test_a_clamp_in_place_that_usual_numbers_do_not_reach(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("def r(x): return x.clamp_(-20, 20)")
    text = """
@triton.jit
def k(x, n, LEAST: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(x + at, tl.minimum(tl.maximum(v, LEAST), 20.0), mask=at < n)

def f(x):
    k[(2,)](x, x.numel(), LEAST=-LIMIT, BLOCK=256)
    return x
"""
    for limit, word in ((20, Word.UNTIMED), (1000, Word.WRONG)):
        made = candidate(tmp_path, text.replace("LIMIT", f"{limit}.0"))
        verdict = judge(made, f"{tmp_path}/r.py::r", "x: f32[300]", bench=bench)
        assert verdict.word is word, verdict.shapes[0].text
