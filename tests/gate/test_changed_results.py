"""Results that differ from those of the baseline's code on the same memory: named, measured, and failing if gated."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, block, by_block, increment_kernel, scale, scale_kernel, sum_kernel

from gate.project import Project
from kerntune.base.case_result import CaseResult
from kerntune.base.codec import to_json
from kerntune.base.numerics import MADE_UP, OWN, NumericsRule
from kerntune.base.policy import Metrics, Outcome, Policy, Update, Verdict
from kerntune.errors import BackendError, OutOfResourcesError
from kerntune.gate.replay import Replayer
from kerntune.gpu import result_compare
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeGpu
from kerntune.timing import paired_processes
from kerntune.timing.worker import pool

ULP = ((40, 1), (400, 2))
"""Element 10 differs by 1 ulp, element 100 by 2 or more."""


@triton.jit
def two_outputs_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x, mask=i < n)
    tl.store(z_ptr + i, x.to(tl.int32), mask=i < n)


@triton.jit
def one_output_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@pytest.fixture(autouse=True)
def _few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted GPU's times hardly vary, and none is in question here."""
    monkeypatch.setattr(paired_processes, "BLOCKS", 6)


def rule(text: str) -> Policy:
    return Policy(numerics=NumericsRule.parse(text, "test"))


def fixed(size: int) -> Any:
    return lambda: scale(scale_kernel, BLOCK=size)


def edited(
    project: Project, *rules: Rule, policy: str = "report", call: Any = fixed, update: Update = Update.NONE,
    calibrate: bool = False,
) -> CaseResult:  # fmt: skip
    """The result of a call whose block size, and so code, isn't the baseline's."""
    assert project.once(*rules, calibrate=calibrate).judge(call(64)).numerics is None, "there was no baseline"
    with project.run(*rules, update=update, calibrate=calibrate) as run:
        return run.judge(call(128), policy=rule(policy))


def test_equal_bits_say_nothing(project: Project) -> None:
    result = edited(project, policy="bitwise")
    assert (result.verdict, result.findings, result.warnings) == (Verdict.PASS, (), ())
    assert result.numerics is not None
    assert (result.numerics.rule, result.numerics.contents) == ("bitwise", (MADE_UP, OWN))
    assert result.numerics.outputs == ()


def test_a_changed_result_is_a_finding_beside_the_time_s_verdict(project: Project) -> None:
    result = edited(project, block(128, flips=ULP))
    assert (result.verdict, result.outcome) == (Verdict.PASS, Outcome.PASS)
    (said,) = result.findings
    assert said.startswith("results changed: y_ptr: 2 of 4,096 elements differ, at most 2 ulp and ")
    assert ", at 100: " in said
    assert said.endswith(", first at 10")
    assert said in result.message
    assert result.numerics is not None
    assert {o.content for o in result.numerics.outputs} == {MADE_UP, OWN}
    own = next(o for o in result.numerics.outputs if o.content == OWN)
    assert (own.argument, own.dtype, own.total, own.count, own.first, own.worst) == ("y_ptr", "float32", N, 2, 10, 100)
    assert (own.ulp, own.varying, own.unwritten) == (2, 0, 0)
    assert b'"numerics"' in to_json(result)


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [
        ("bitwise", Verdict.REGRESSED),
        ("ulp:2", Verdict.PASS),
        ("rtol:1e-09", Verdict.REGRESSED),
    ],
)
def test_it_fails_as_it_is_gated(project: Project, policy: str, verdict: Verdict) -> None:
    """Each rule's limit has a test beside it (tests/base/test_numerics.py)."""
    result = edited(project, block(128, flips=ULP), policy=policy)
    assert result.verdict is verdict
    assert result.outcome is (Outcome.FAIL if verdict is Verdict.REGRESSED else Outcome.PASS)
    assert (f"; {policy} is gated" in result.findings[0]) is (verdict is Verdict.REGRESSED)


def test_off_compares_nothing(project: Project) -> None:
    result = edited(project, block(128, flips=ULP), policy="off")
    assert (result.verdict, result.findings, result.numerics) == (Verdict.PASS, (), None)


def test_equal_code_is_not_compared(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_compare, "compare_results", None)
    project.once(calibrate=False).judge(fixed(64))
    result = project.once(calibrate=False).judge(fixed(64), policy=rule("bitwise"))
    assert (result.verdict, result.numerics) == (Verdict.PASS, None)


def test_one_process_of_a_decision_compares(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    real = pool.answer

    def answer(gpu: Any, request: Any) -> Any:
        asked.append(request.results)
        return real(gpu, request)

    monkeypatch.setattr(pool, "answer", answer)
    edited(project, calibrate=True)
    assert asked[-3:] == [True, False, False]
    assert asked.count(True) == 1, "calibrations ask for none"


@pytest.mark.slow
def test_elements_that_are_not_written_any_more_are_told_apart(project: Project) -> None:
    """A tail that is off by one leaves what was there: mostly the right numbers, of the run before."""
    result = edited(project, block(128, skips=((4 * (N - 3), 4 * N),)), policy="ulp:1000000")
    assert result.verdict is Verdict.REGRESSED
    assert f"y_ptr: 3 of 4,096 elements differ, 3 no longer written, at {N - 3:,}: " in result.message


def test_what_varies_from_run_to_run_is_said_and_not_gated(project: Project) -> None:
    result = edited(project, block(128, varies=True), policy="bitwise")
    assert result.numerics is not None
    assert [o.count + o.varying for o in result.numerics.outputs] == [N, N], "few are equal by chance"
    assert all(o.varying > N - 10 for o in result.numerics.outputs)
    assert result.verdict is Verdict.PASS


def summed(size: int) -> Any:
    def call() -> torch.Tensor:
        x, total = torch.ones(N, device="cuda"), torch.zeros(64, device="cuda")
        sum_kernel[by_block](x, total, N, BLOCK=size)
        return total

    return call


@pytest.mark.slow
def test_float_atomics_that_are_seen_to_vary_decide_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Element 1 varies and element 0 happens not to: a run that differs there may be chance."""
    launches = itertools.count()
    monkeypatch.setattr(FakeGpu, "run", _flipping(FakeGpu.run, lambda: next(launches)))
    result = edited(project, Rule("sum_kernel", {"BLOCK": 128}, flips=((0, 4),)), policy="bitwise", call=summed)
    assert result.numerics is not None
    (own,) = [o for o in result.numerics.outputs if o.content == OWN]
    assert (own.argument, own.count, own.varying) == ("total_ptr", 1, 1)
    assert result.verdict is Verdict.PASS
    assert "1 more vary from run to run of the same code, so it decides nothing" in result.message


def _flipping(real: Any, number: Any) -> Any:
    def run(self: FakeGpu, work: Any) -> None:
        real(self, work)
        if work.launches == 1 and work.left:
            last = list(work.left)[-1]
            if last.nbytes == 256 and not last.users:
                last.put_at(4, bytes([number() % 251]))

    return run


def incremented(size: int) -> Any:
    def call() -> torch.Tensor:
        x = torch.randn(N, device="cuda")
        increment_kernel[by_block](x, N, BLOCK=size)
        return x

    return call


def test_what_is_changed_in_place_begins_alike(project: Project) -> None:
    assert edited(project, policy="bitwise", call=incremented).verdict is Verdict.PASS


def test_a_change_in_place_is_found(project: Project) -> None:
    result = edited(project, block(128, flips=ULP), policy="bitwise", call=incremented)
    assert result.verdict is Verdict.REGRESSED
    assert "results changed: x_ptr: 2 of 4,096 elements differ, at most 2 ulp" in result.message


def both_outputs(size: int) -> Any:
    def call() -> torch.Tensor:
        x, y = torch.randn(64, 64, device="cuda"), torch.empty(64, 64, device="cuda")
        z = torch.empty(64, 64, device="cuda", dtype=torch.int32)
        two_outputs_kernel[by_block](x, y, z, N, BLOCK=size)
        return y

    return call


@pytest.mark.slow
def test_the_output_is_named_and_integers_have_no_tolerance(project: Project) -> None:
    result = edited(project, block(128, flips=((400, 1),)), policy="ulp:9", call=both_outputs)
    assert result.verdict is Verdict.REGRESSED
    (said,) = result.findings
    assert said.startswith("results changed: z_ptr: 1 of 4,096 elements differ, at [1, 36]: ")


@pytest.mark.parametrize(
    ("ignored", "verdict"),
    [
        ("z_ptr", Verdict.PASS),
        ("two_outputs_kernel.z_ptr", Verdict.PASS),
        ("scale_kernel.z_ptr", Verdict.REGRESSED),
    ],
)
def test_arguments_that_are_not_verified_are_not_compared_here(
    project: Project, ignored: str, verdict: Verdict
) -> None:
    policy = Policy(numerics=NumericsRule("bitwise"), verify_ignore=(ignored,))
    project.once(calibrate=False).judge(both_outputs(64))
    with project.run(block(128, flips=((400, 1),))) as run:
        assert run.judge(both_outputs(128), policy=policy).verdict is verdict


def which_outputs(kernel: Any) -> Any:
    def call() -> None:
        x, y, z = (torch.empty(64, 64, device="cuda", dtype=d) for d in (torch.float32, torch.float32, torch.int32))
        kernel[by_block](x, y, z, N, BLOCK=64)

    return call


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        ((two_outputs_kernel, one_output_kernel), "4,096 no longer written"),
        ((one_output_kernel, two_outputs_kernel), "4,096 not written before"),
    ],
)
def test_an_output_that_one_side_never_writes_is_a_changed_one(project: Project, kernels: Any, words: str) -> None:
    before, today = map(which_outputs, kernels)
    unwritten = Rule("one_output_kernel", skips=((0, 4 * N),))  # a scripted launch writes to its last pointer
    project.once(unwritten, calibrate=False).judge(before)
    result = project.once(unwritten).judge(today, policy=rule("bitwise"))
    assert result.verdict is Verdict.REGRESSED
    (said,) = [text for text in result.findings if text.startswith("results changed: ")]
    assert said.startswith("results changed: z_ptr: 4,096 of 4,096 elements differ, ")
    assert words in said


def in_two_steps(size: int) -> Any:
    def call() -> torch.Tensor:
        x, between, y = (torch.randn(N, device="cuda") for _ in range(3))
        scale_kernel[by_block](x, between, N, 2.0, BLOCK=size)
        scale_kernel[by_block](between, y, N, 2.0, BLOCK=32)
        return y

    return call


@pytest.mark.slow
def test_what_a_later_launch_only_reads_is_named_and_not_gated(project: Project) -> None:
    """It may be a workspace; if it isn't, what is made of it changes, too."""
    result = edited(project, block(128, flips=ULP), policy="bitwise", call=in_two_steps)
    assert result.verdict is Verdict.PASS
    assert result.numerics is not None
    assert {o.intermediate for o in result.numerics.outputs if o.argument == "y_ptr, x_ptr"} == {True}
    assert all(o.intermediate for o in result.numerics.outputs)
    assert "a later launch reads it, so it decides nothing" in result.message


def split(size: int) -> Any:
    """What one launch did in place is done by two; the plan pairs its buffer with what is between them."""

    def call() -> torch.Tensor:
        between, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
        increment_kernel[by_block](between, N, BLOCK=size)
        if size == 64:
            return between
        scale_kernel[by_block](between, y, N, 2.0, BLOCK=size)
        return y

    return call


def test_a_buffer_that_became_an_intermediate_is_no_changed_result(project: Project) -> None:
    result = edited(project, policy="bitwise", call=split)
    assert result.numerics is not None
    assert (result.findings, result.numerics.outputs) == ((), ())
    assert "x_ptr not compared: the launches differ, so it may be another buffer" in result.warnings


def grown(size: int) -> Any:
    """The output of the edited code has more room."""

    def call() -> torch.Tensor:
        x, y = torch.randn(N, device="cuda"), torch.empty(N if size == 64 else 2 * N, device="cuda")
        scale_kernel[by_block](x, y, N, 2.0, BLOCK=size)
        return y

    return call


def test_an_output_that_only_one_side_has_clears_no_gate(project: Project) -> None:
    result = edited(project, policy="bitwise", call=grown)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert [w for w in result.warnings if w.startswith("y_ptr not compared: only today's code writes it")]


@triton.jit
def one_or_two_kernel(x_ptr, y_ptr, z_ptr, n, WITH: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x, mask=i < n)
    if BLOCK == WITH:
        tl.store(z_ptr + i, x, mask=i < n)


@triton.jit
def in_place_or_not_kernel(x_ptr, y_ptr, z_ptr, n, WITH: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n) + tl.load(z_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x, mask=i < n)
    if BLOCK == WITH:
        tl.store(z_ptr + i, x, mask=i < n)


def written_with(kernel: Any, block_size: int) -> Any:
    """The third tensor is written with one block size alone."""

    def call(size: int) -> Any:
        def launch() -> torch.Tensor:
            x, y, z = (torch.randn(N, device="cuda") for _ in range(3))
            kernel[by_block](x, y, z, N, WITH=block_size, BLOCK=size)
            return z

        return launch

    return call


@pytest.mark.slow
@pytest.mark.parametrize("with_z", [64, 128])
def test_an_output_that_is_not_written_any_more_or_newly_written_has_changed(project: Project, with_z: int) -> None:
    spares = Rule(constexprs={"BLOCK": 128 if with_z == 64 else 64}, spares=True)
    result = edited(project, spares, policy="bitwise", call=written_with(one_or_two_kernel, with_z))
    assert (result.verdict, result.outcome) == (Verdict.REGRESSED, Outcome.FAIL)
    assert result.numerics is not None
    assert result.numerics.not_compared == ()
    assert {o.argument for o in result.numerics.outputs} == {"z_ptr"}
    (own,) = (o for o in result.numerics.outputs if o.content == OWN)
    assert (own.unwritten, own.newly_written) == ((N, 0) if with_z == 64 else (0, N))


@pytest.mark.slow
@pytest.mark.parametrize("with_z", [64, 128])
def test_an_input_that_one_side_changes_in_place_is_named(project: Project, with_z: int) -> None:
    """The other side would read what this one has left, so they have no tensor in common."""
    spares = Rule(constexprs={"BLOCK": 128 if with_z == 64 else 64}, spares=True)
    result = edited(project, spares, policy="bitwise", call=written_with(in_place_or_not_kernel, with_z))
    lost = with_z == 64  # the call returns what kernels wrote then, and don't now
    assert result.verdict is (Verdict.REGRESSED if lost else Verdict.INCONCLUSIVE)
    assert result.numerics is not None
    assert any("z_ptr" in text for text in result.numerics.not_compared)


@pytest.mark.parametrize("update", [Update.ALL, Update.REGRESSED])
def test_an_update_accepts_it(project: Project, update: Update) -> None:
    flipped = block(128, flips=ULP)
    assert edited(project, flipped, policy="bitwise", update=update).outcome is Outcome.PASS
    with project.run(flipped, calibrate=False) as run:
        assert run.judge(fixed(128), policy=rule("bitwise")).verdict is Verdict.PASS


def test_it_is_gated_where_the_time_is_not(project: Project) -> None:
    policy = Policy(numerics=NumericsRule("bitwise"), metrics=Metrics(time=False))
    project.once(calibrate=False).judge(fixed(64))
    assert project.once(block(128, flips=ULP)).judge(fixed(128), policy=policy).verdict is Verdict.REGRESSED


@pytest.mark.parametrize(("policy", "verdict"), [("bitwise", Verdict.INCONCLUSIVE), ("report", Verdict.PASS)])
def test_a_gate_that_can_not_compare_clears_nothing(project: Project, policy: str, verdict: Verdict) -> None:
    """The baseline's binary is gone, and its stored time says that nothing got slower."""
    project.once().judge(fixed(64))
    for file in project.baselines.rglob("*.xz"):
        file.unlink()
    result = project.once().judge(fixed(128), policy=msgspec.structs.replace(rule(policy), tolerance=0.5))
    assert result.verdict is verdict
    assert any(text.startswith("results not compared, ") for text in result.warnings)
    assert result.numerics is not None
    assert result.numerics.contents == ()


@pytest.mark.parametrize("error", [BackendError, OutOfResourcesError])
def test_where_the_kernels_can_not_be_loaded_nothing_is_compared(
    project: Project, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    real = FakeGpu.load

    def load(self: FakeGpu, binary: Any, data: bytes) -> Any:
        if binary.symbol.startswith("kerntune_results"):
            raise error("no PTX here")
        return real(self, binary, data)

    monkeypatch.setattr(FakeGpu, "load", load)
    result = edited(project, block(128, flips=ULP), policy="bitwise")
    assert result.verdict is Verdict.INCONCLUSIVE
    for content in (MADE_UP, OWN):
        assert f"results not compared on {content}: no PTX here" in result.warnings


def test_no_room_is_said(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the call's own memory; the other process has had room."""
    project.once(calibrate=False).judge(fixed(64))
    with project.run(calibrate=False) as run:
        real = Replayer._on_live_memory

        def full(*given: Any) -> Any:
            memory = real(*given)
            run.gpu.script.memory_bytes = run.gpu._allocated
            return memory

        monkeypatch.setattr(Replayer, "_on_live_memory", full)
        result = run.judge(fixed(128), policy=rule("bitwise"))
    assert result.verdict is Verdict.PASS
    assert any(text.startswith("results not compared on the call's own content: no room") for text in result.warnings)


def test_without_a_gpu_nothing_is_compared(project: Project) -> None:
    project.static_once("cuda:90").judge(fixed(64))
    with project.static_run("cuda:90") as run:
        gated = run.judge(fixed(64), policy=rule("bitwise"))
        plain = run.judge(fixed(64))
    assert gated.warnings == ("results not compared: nothing runs without a GPU",)
    assert plain.warnings == ()
    assert plain.numerics is not None
    assert plain.numerics.not_compared == gated.warnings
