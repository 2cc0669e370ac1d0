"""Verdicts on a real GPU: how references are timed that launch what isn't Triton's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from benchmarks.judge.cases import reference_at
from kerntune.gpu.cuda import CudaGpu
from kerntune.referee.candidate_speed import GpuSpeeds
from kerntune.referee.case_inputs import UserCallable
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.judgement import Bench, judge
from kerntune.referee.layouts import FUNCTION
from kerntune.referee.live_reference import LiveReference
from kerntune.referee.reasons import LIVE_TOLD
from kerntune.referee.sealing import landlock_version
from kerntune.referee.tasks import LiveCall
from kerntune.referee.verdicts import ShapeResult, Word

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

CORPUS = Path(__file__).parents[2] / "benchmarks" / "judge"
TIMED = (Word.FASTER, Word.SAME, Word.SLOWER, Word.UNDECIDED)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench(bool(landlock_version()), GpuSpeeds())
    yield made
    made.close()


def judged(bench: Bench, candidate: str, reference: str, *lines: str) -> ShapeResult:
    verdict = judge(f"{CORPUS}/{candidate}", reference, lines, bench=bench, budget=6.0)
    (shape,) = verdict.shapes
    assert shape.word in TIMED, shape.text
    return shape


def test_large_copies_of_a_live_reference_do_not_lie_in_equal_steps(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("def r(x):\n    return x + 1\n")
    case, source = parse_line("x: f32[4194304]"), UserCallable(str(tmp_path / "r.py"), "r", FUNCTION)
    live = LiveReference(CudaGpu(), LiveCall(source, case, (bytes(1 << 24),)))
    live.rotate(2, 24)
    places = [one.inputs[0].data_ptr() for one in live._copies]
    assert len({b - a for a, b in pairwise(places)}) > 4


@pytest.mark.parametrize(
    ("candidate", "reference", "lines"),
    [
        ("honest.py::add", "references.py::add", ("x: f32[262144]; y: f32[262144]",)),
        ("honest.py::relu_", "references.py::relu_", ("x: f32[262144]",)),
        ("honest.py::matmul", "references_products.py::matmul", ("a: f16[512,512]; b: f16[512,512]",)),
        ("kernelbench_candidate.py", "kernelbench_task.py", ()),
    ],
)
def test_a_live_reference_is_unrolled(bench: Bench, candidate: str, reference: str, lines: tuple[str, ...]) -> None:
    shape = judged(bench, candidate, f"{CORPUS}/{reference}", *lines)
    assert LIVE_TOLD["unrolled"] in shape.remarks


@pytest.mark.parametrize(
    ("body", "how"),
    [
        ("return x + y * (0.0 * x.sum().item() + 1.0)", "single calls"),
        ("return x + y * ones[0]", "single graphs"),
    ],
)
def test_others_are_timed_call_by_call(bench: Bench, body: str, how: str, tmp_path: Path) -> None:
    """What waits for a value, and what keeps a tensor of its own."""
    path = tmp_path / "live.py"
    ones = "ones = [torch.ones((), device='cuda')]" if "ones" in body else ""
    path.write_text(f"import torch\n{ones}\ndef add(x, y):\n    {body}\n")
    shape = judged(bench, "honest.py::add", f"{path}::add", "x: f32[262144]; y: f32[262144]")
    assert LIVE_TOLD[how] in shape.remarks


def test_a_replayed_reference_has_no_remark(bench: Bench) -> None:
    shape = judged(bench, "honest.py::add", f"{CORPUS}/honest.py::add", "x: f32[262144]; y: f32[262144]")
    assert not set(LIVE_TOLD.values()) & set(shape.remarks)


@pytest.mark.parametrize(("name", "reference", "line"), [
    ("last_block_sum", "total", "x: f32[1000]"), ("logical", "logical", "x: f32[1]; y: f32[1]"),
])  # fmt: skip
def test_a_result_of_few_bytes_has_a_verdict(bench: Bench, name: str, reference: str, line: str) -> None:
    judged(bench, f"held_out_honest.py::{name}", f"{CORPUS}/{reference_at(reference)}", line)


def test_what_a_compiler_makes_of_masked_lanes_is_no_result(bench: Bench) -> None:
    """Triton 3.6 to 3.9 put zeros there: the GPU's results are right."""
    verdict = judge(f"{CORPUS}/exploits/held_out.py::undefined_lanes", f"{CORPUS}/references_rows.py::row_sum",
                    "x: f32[20,500]", bench=bench, budget=6.0)  # fmt: skip
    assert verdict.word is Word.WRONG
    assert verdict.shapes[0].text.startswith("in the emulator, ")
