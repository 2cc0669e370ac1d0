"""Runs over a baseline folder: what is new, what passes, what is written and when, and what is left over."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import weakref
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from cli import made
from doubles import raising
from fake_runs import N, block, by_block, configs, increment_kernel, scale_kernel, scaled, tuned, x_of
from samples import CASE
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from gate.project import NODE, Project, Run
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Missing, Outcome, Policy, TuneMode, Update, Verdict
from kerntune.compiling.compiler import Compiler
from kerntune.errors import (
    BaselineError,
    CacheMissError,
    CaptureError,
    ReferenceMismatch,
    StoreError,
    TuningError,
    UsageError,
)
from kerntune.gate import session as module
from kerntune.gate import static_check
from kerntune.gate.api import Settings, open_session
from kerntune.gate.call import Call
from kerntune.gate.case_identity import tensor_arguments
from kerntune.gate.gpu_capture import GpuCapture, decision_numbers, naming
from kerntune.gate.session import Session
from kerntune.gate.stores import ReferenceStore, RunBaselines
from kerntune.kernels.compat import triton_compiler, versions

FAST, SLOW = block(64, 10_000.0), block(128, 11_000.0)


before, after = functools.partial(scaled, size=64), functools.partial(scaled, size=128)


def recorded(project: Project, *rules: Any, call: Any = before, **options: Any) -> Path:
    """A project with the baseline of one case."""
    assert project.once(*(rules or (FAST, SLOW)), **options).judge(call, x_of()).recorded
    (path,) = project.files()
    return path


def test_processes_that_share_a_run_spend_its_error_once(project: Project) -> None:
    """Three of them, with more decisions than were announced."""
    policy, spent = Policy(cases=5), []
    for index in range(3):
        with project.run() as run:
            run.session.share(index, 3)
            spent += [1 - policy.level_of(next(run.session._decisions)) for _ in range(40)]
    assert len(set(spent[5:])) > 40
    assert sum(spent) <= (1 - policy.level) * (1 + 1e-9)


def test_a_process_that_stands_in_for_another_spends_no_error_twice(tmp_path: Path) -> None:
    """xdist's third worker of two takes the tests of one that died, while the other one lives."""
    processes = [decision_numbers(index, 2, tmp_path) for index in range(3)]
    numbers = [next(one) for one in processes[:2] for _ in range(5)]
    assert numbers == [1, 3, 5, 7, 9, 2, 4, 6, 8, 10], "without a death all is as it was"
    numbers += [next(one) for one in (*processes, *reversed(processes)) for _ in range(3)]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) < 40


@pytest.mark.parametrize(("index", "count", "numbers"), [(0, 1, [1, 2, 3]), (1, 3, [2, 5, 8]), (3, 3, [1, 4, 7])])
def test_a_process_that_does_not_see_the_folder_counts_on(
    tmp_path: Path, index: int, count: int, numbers: list[int]
) -> None:
    for folder in (None, tmp_path / "on another host"):
        found = decision_numbers(index, count, folder)
        assert [next(found) for _ in range(3)] == numbers


# verdicts


def test_a_new_case_is_recorded_and_passes_the_next_time(project: Project) -> None:
    first = project.once(FAST).judge(before, x_of())
    assert (first.verdict, first.outcome, first.recorded) == (Verdict.NEW, Outcome.PASS, True)
    assert first.current_ns == pytest.approx(10_000.0, rel=0.01)
    (path,) = project.files()
    assert path == project.root / first.baseline_path
    second = project.once(FAST).judge(before, x_of())
    assert (second.verdict, second.outcome, second.recorded) == (Verdict.PASS, Outcome.PASS, False)
    assert second.rung == "identity"
    assert second.fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("first", "call", "other_ns", "shift", "verdict", "outcome", "rung"),
    [
        pytest.param(before, before, 11_000.0, 0.9, Verdict.DRIFTED, Outcome.WARN, "identity", id="the same, faster"),
        pytest.param(before, before, 11_000.0, 1.1, Verdict.DRIFTED, Outcome.WARN, "identity", id="the same, slower"),
        pytest.param(before, after, 11_000.0, 0.8, Verdict.REGRESSED, Outcome.FAIL, "paired replay", id="slower code"),
        pytest.param(after, before, 11_000.0, 1.0, Verdict.IMPROVED, Outcome.PASS, "paired replay", id="faster code"),
        pytest.param(before, after, 10_050.0, 1.0, Verdict.PASS, Outcome.PASS, "paired replay", id="equal code"),
        pytest.param(before, after, 10_000.0, 1.2, Verdict.DRIFTED, Outcome.WARN, "paired replay", id="equal, drifted"),
    ],
)
def test_code_on_this_clock_and_on_another(
    project: Project,
    first: Any,
    call: Any,
    other_ns: float,
    shift: float,
    verdict: Verdict,
    outcome: Outcome,
    rung: str,
) -> None:
    recorded(project, call=first)
    result = project.once(FAST, block(128, other_ns), shift=shift).judge(call, x_of())
    assert (result.verdict, result.outcome, result.rung, result.recorded) == (verdict, outcome, rung, False)


def test_slower_code_regresses(project: Project) -> None:
    recorded(project)
    result = project.once(FAST, SLOW).judge(after, x_of())
    assert (result.verdict, result.outcome, result.rung) == (Verdict.REGRESSED, Outcome.FAIL, "paired replay")
    assert result.change is not None
    assert result.change.point == pytest.approx(0.1, abs=0.002)
    assert result.message.startswith(f"REGRESSED {NODE}: 10.0 µs -> 11.0 µs (+10.0 %")


def test_nothing_launched_is_incomplete(project: Project) -> None:
    with project.run() as run:
        checked = run.check(lambda x: x + 1, x_of())
    result = checked.commit()
    assert (result.verdict, result.outcome) == (Verdict.INCOMPLETE, Outcome.WARN)
    assert "no Triton kernel was launched" in result.message
    assert checked.value.shape == (N,)
    assert project.files() == []


def test_nothing_launched_fails_in_ci(project: Project) -> None:
    assert project.once(policy=Policy(ci=True)).judge(lambda: None).outcome is Outcome.FAIL


@pytest.mark.slow
def test_fewer_launches_than_remembered_are_incomplete(project: Project) -> None:
    def twice(x: torch.Tensor, times: int) -> None:
        for _ in range(times):
            increment_kernel[by_block](x, N, BLOCK=64)

    recorded(project, call=lambda x: twice(x, 2))
    assert project.once().judge(lambda x: twice(x, 1), x_of()).verdict is Verdict.INCOMPLETE
    with project.run(update=Update.ALL) as run:  # two kernels were made one, say
        result = run.judge(lambda x: twice(x, 1), x_of())
        assert (result.recorded, result.outcome) == (True, Outcome.PASS)
    assert project.once().judge(lambda x: twice(x, 1), x_of()).verdict is Verdict.PASS


def test_more_launches_are_compared_by_their_time(project: Project) -> None:
    recorded(project)

    def both(x: torch.Tensor) -> None:
        scaled(scaled(x))

    result = project.once(FAST).judge(both, x_of())
    assert result.verdict is Verdict.REGRESSED
    assert result.change is not None
    assert result.change.point == pytest.approx(1.0, abs=0.01)


# writing


def test_nothing_is_written_before_the_commit(project: Project) -> None:
    with project.run(FAST) as run:
        checked = run.check(before, x_of())
        assert not project.baselines.exists()
        assert not checked.result.recorded
        result = checked.commit()
    assert result.recorded
    assert len(project.files()) == 1


def test_a_failing_reference_writes_nothing(project: Project) -> None:
    with project.run(FAST) as run:
        with pytest.raises(ReferenceMismatch, match="test_scale"):
            run.check(lambda x: (scaled(x), torch.ones(3, device="cpu"))[1], x_of(), reference=lambda: torch.zeros(3))
        assert run.check(before, x_of(), reference=lambda: torch.zeros(N, device="cuda")).result
    assert project.files() == []


@pytest.mark.parametrize(
    ("missing", "outcome", "files"),
    [(Missing.RECORD, Outcome.PASS, 1), (Missing.WARN, Outcome.WARN, 0), (Missing.FAIL, Outcome.FAIL, 0)],
)
def test_what_a_missing_baseline_does(project: Project, missing: Missing, outcome: Outcome, files: int) -> None:
    result = project.once(FAST, policy=Policy(missing=missing)).judge(before, x_of())
    assert (result.verdict, result.outcome) == (Verdict.NEW, outcome)
    assert len(project.files()) == files


UPDATES = [
    (Update.NONE, "slower", False, Outcome.FAIL),
    (Update.NEW, "slower", False, Outcome.FAIL),
    (Update.IMPROVED, "slower", False, Outcome.FAIL),
    (Update.ALL, "slower", True, Outcome.PASS),
    (Update.NONE, "faster", False, Outcome.PASS),
    (Update.NEW, "faster", False, Outcome.PASS),
    (Update.IMPROVED, "faster", True, Outcome.PASS),
    (Update.ALL, "faster", True, Outcome.PASS),
    (Update.ALL, "same", True, Outcome.PASS),
    (Update.IMPROVED, "same", False, Outcome.PASS),
]


@pytest.mark.parametrize(("update", "change", "written", "outcome"), UPDATES)
def test_which_baselines_an_update_writes(
    project: Project, update: Update, change: str, written: bool, outcome: Outcome
) -> None:
    path = recorded(project, call=after if change == "faster" else before)
    old = path.read_bytes()
    result = project.once(FAST, SLOW, update=update).judge(after if change == "slower" else before, x_of())
    assert (result.recorded, result.outcome) == (written, outcome)
    if not written:
        assert path.read_bytes() == old
    elif change != "same":
        assert path.read_bytes() != old
    assert project.files() == [path]
    if written:
        with project.run(FAST, SLOW) as run:
            assert run.judge(after if change == "slower" else before, x_of()).verdict is Verdict.PASS


@pytest.mark.parametrize("update", [Update.NEW, Update.ALL])
def test_an_update_records_new_cases_even_where_missing_ones_fail(project: Project, update: Update) -> None:
    with project.run(FAST, update=update, policy=Policy(missing=Missing.FAIL)) as run:
        result = run.judge(before, x_of())
    assert (result.recorded, result.outcome) == (True, Outcome.PASS)


def test_an_update_leaves_other_cases_alone(project: Project) -> None:
    path = recorded(project)
    old = path.read_bytes(), path.stat().st_mtime_ns
    with project.run(FAST, SLOW, update=Update.ALL) as run:
        run.judge(after, x_of(), node="tests/test_scale.py::test_other")
        run.judge(after, x_of(), name="second")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == old
    assert len(project.files()) == 3


def test_a_read_only_folder_loses_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded(project)
    old = path.read_bytes()

    with project.run(FAST, SLOW, update=Update.ALL) as run:
        checked = run.check(after, x_of())
        monkeypatch.setattr("kerntune.base.codec._write", raising(PermissionError(13, "Permission denied")))
        with pytest.raises(BaselineError, match=r"can't be written \(Permission denied\)"):
            checked.commit()
    assert path.read_bytes() == old


# identity of cases


def test_reordered_parametrization_is_never_compared(project: Project) -> None:
    """pytest names dtypes ``dtype0``, ``dtype1``: after a reordering the same id is another case."""
    half = block(64, 100.0)
    project.once(half).judge(before, x_of(dtype=torch.float16))
    with project.run(FAST) as run:
        result = run.judge(before, x_of(dtype=torch.float32))
        assert (result.verdict, result.baseline_ns) == (Verdict.NEW, None)
        assert run.judge(before, x_of(dtype=torch.float16)).baseline_ns == pytest.approx(100.0, rel=0.01)
    assert len(project.files()) == 2


@pytest.mark.parametrize("other", [lambda: x_of(2 * N), lambda: x_of(2 * N)[::2], lambda: x_of(N).view(64, 64)])
def test_other_shapes_and_strides_are_other_cases(project: Project, other: Any) -> None:
    recorded(project)
    assert project.once(FAST).judge(before, other()).verdict is Verdict.NEW


def test_a_closures_case_is_known_by_what_its_kernels_read(project: Project) -> None:
    def over(n: int) -> Any:
        x = x_of(n)
        return lambda: scaled(x)

    first = project.once(FAST).judge(over(N))
    with project.run(FAST) as run:
        assert run.judge(over(N)).verdict is Verdict.PASS
        assert run.judge(over(2 * N)).verdict is Verdict.NEW
    assert first.fingerprint


def test_another_device_has_its_own_baselines(project: Project) -> None:
    recorded(project)
    assert project.once(FAST, device_name="Other GPU").judge(before, x_of()).verdict is Verdict.NEW
    assert {p.relative_to(project.baselines).parts[1] for p in project.files()} == {"fake-gpu", "other-gpu"}


def test_calls_of_one_test_are_cases_by_name(project: Project) -> None:
    for verdict in (Verdict.NEW, Verdict.PASS):
        with project.run(FAST, SLOW) as run:
            assert run.judge(before, x_of()).verdict is verdict
            assert run.judge(after, x_of(), name="wide").verdict is verdict
    assert len(project.files()) == 2


def test_arguments_are_found_wherever_they_are(project: Project) -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    with project.run() as run:
        a, b, c, d = (torch.empty(16, n, device="cuda") for n in (16, 32, 48, 64))
        model = torch.nn.Linear(80, 16, bias=False, device="cuda")
        descriptor = TensorDescriptor.from_tensor(d, [16, 16])
        tree = (
            functools.partial(scaled, a),
            [b, {"c": (c,)}],
            descriptor,
            model,
            torch.empty(3, device="cpu"),
            "text",
            3,
        )
        shapes = [x.shape for x in tensor_arguments(run.session.backend, tree)]
    assert shapes == [(16, 16), (16, 32), (16, 48), (16, 64), (16, 80)]


# left over


def test_a_case_that_is_gone_is_stale(project: Project) -> None:
    with project.run(FAST) as run:
        run.judge(before, x_of())
        run.judge(before, x_of(), name="second")
        run.judge(before, x_of(), node="tests/test_scale.py::test_gone")
    with project.run(FAST) as run:
        run.judge(before, x_of())
        found = run.session.stale({NODE}, selected_all=True)
        narrowed = run.session.stale({NODE}, selected_all=False)
    assert {str(r.case) for r in found} == {f"{NODE}::second", "tests/test_scale.py::test_gone"}
    assert [str(r.case) for r in narrowed] == [f"{NODE}::second"]
    assert {r.verdict for r in found} == {Verdict.STALE}
    assert {r.outcome for r in found} == {Outcome.WARN}
    assert all((project.root / r.baseline_path).exists() for r in found)


def test_a_fingerprint_that_is_gone_is_stale(project: Project) -> None:
    recorded(project)
    with project.run(FAST) as run:
        run.judge(before, x_of(dtype=torch.float16))
        (stale,) = run.session.stale({NODE}, selected_all=False)
    assert "not with this call, shape, dtype or stride" in stale.message
    assert len(project.files()) == 2


def test_a_case_that_passes_is_not_stale(project: Project) -> None:
    recorded(project)
    with project.run(FAST) as run:
        run.judge(before, x_of())
        assert run.session.stale({NODE}, selected_all=True) == []


def test_other_devices_baselines_are_not_stale_here(project: Project) -> None:
    recorded(project)
    with project.run(device_name="Other GPU") as run:
        assert run.session.stale(set(), selected_all=True) == []


# bad input


def test_a_damaged_baseline_names_its_file(project: Project) -> None:
    path = recorded(project)
    path.write_bytes(path.read_bytes()[:200])
    with project.run(FAST) as run, pytest.raises(BaselineError, match=path.name) as caught:
        run.check(before, x_of())
    assert "cut off" in str(caught.value)
    assert path.stat().st_size == 200
    with project.run(FAST, update=Update.ALL) as run:  # as the message advises
        assert run.judge(before, x_of()).recorded
    assert project.once(FAST).judge(before, x_of()).verdict is Verdict.PASS


def test_another_schema_names_both(project: Project) -> None:
    path = recorded(project)
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": "kerntune.time/99"}))
    with project.run(FAST) as run, pytest.raises(BaselineError, match=r"kerntune\.time/99.*kerntune\.time/1"):
        run.check(before, x_of())


def test_a_damaged_binary_names_its_file(project: Project) -> None:
    recorded(project)
    for path in project.files("**/*.xz"):
        path.write_bytes(b"not compressed")
    with project.run(FAST, SLOW) as run, pytest.raises(StoreError, match=r"\.xz: is damaged"):
        run.check(after, x_of())


def by_hand(x: torch.Tensor) -> None:
    y = torch.empty_like(x)
    compiled = scale_kernel.warmup(x, y, N, 2.0, BLOCK=64, grid=(64,))
    for _ in range(2):
        compiled[(64, 1, 1)](x, y, N, 2.0, 64)


def test_launches_of_kernels_compiled_by_hand_are_recorded(project: Project) -> None:
    result = project.once(FAST).judge(by_hand, x_of())
    assert (result.verdict, result.recorded) == (Verdict.NEW, True)
    assert len(result.launches) == 2


class FromIr:
    """A compiled kernel whose arguments can't be bound."""

    name, src = "from_ir", None

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args: None


def test_launches_of_kernels_without_a_source_are_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no verdict from a part of the launches: a case is all that it launches."""
    monkeypatch.setattr(triton_compiler, "compiled_kernel", lambda: FromIr)

    def both(x: torch.Tensor) -> None:
        before(x)
        FromIr()[(64, 1, 1)](x)

    result = project.once(FAST).judge(both, x_of())
    assert (result.verdict, result.recorded) == (Verdict.INCOMPLETE, False)
    assert "it launches from_ir, compiled without a Python source (from IR)" in result.message
    found = project.static_once("cuda:90").judge(both, torch.empty(N, device="cuda"))
    assert (found.verdict, found.message) == (Verdict.INCOMPLETE, result.message)


def test_a_warm_up_alone_is_no_launch(project: Project) -> None:
    def warm(x: torch.Tensor) -> None:
        scale_kernel.warmup(x, torch.empty_like(x), N, 2.0, BLOCK=64, grid=(64,))
        before(x)

    assert project.once(FAST).judge(warm, x_of()).verdict is Verdict.NEW


def test_a_tensor_on_another_gpu_than_the_current_one_is_refused(project: Project) -> None:
    with project.run(FAST) as run:
        with pytest.raises(
            CaptureError, match=r"scale_kernel is launched on cuda:0.*x_ptr on cuda:1.*cuda\.device\(1\)"
        ):
            run.check(before, torch.empty(N, device="cuda:1"))
        assert run.judge(before, torch.empty(N, device="cuda:0")).recorded


def test_an_unknown_scope(project: Project) -> None:
    with project.run() as run, pytest.raises(UsageError, match="scope is 'kernel'; it can be 'kernels' or 'op'"):
        run.check(before, x_of(), scope="kernel")


def test_a_check_inside_a_check(project: Project) -> None:
    with project.run(FAST) as run:
        with pytest.raises(CaptureError, match="inside the function that another"):
            run.check(lambda: run.check(before, x_of()))
        assert run.judge(before, x_of()).recorded


def test_a_users_error_is_the_users(project: Project) -> None:
    def broken(x: torch.Tensor) -> None:
        scaled(x)
        raise LookupError("the user's own")

    runs = JITFunction.run, Autotuner.run
    with project.run(FAST) as run, pytest.raises(LookupError, match="the user's own"):
        run.check(broken, x_of())
    assert (JITFunction.run, Autotuner.run) == runs
    assert project.files() == []


def test_a_kernel_that_no_config_suits_names_the_kernel(project: Project) -> None:
    kernel = tuned(100, 60)
    with project.run() as run, pytest.raises(TuningError, match="scale_kernel: no candidate can be launched"):
        run.check(lambda x: kernel[by_block](x, x, N, 2.0), x_of())


@triton.jit
def refused_kernel(x_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK == 48, "BLOCK must be 48")
    tl.store(x_ptr, n)


def test_an_error_that_all_configs_share_is_told_once(project: Project) -> None:
    kernel = triton.autotune(configs(*(2**k for k in range(4, 12))), key=["n"])(refused_kernel)
    with project.static_run("cuda:90") as run, pytest.raises(TuningError) as caught:
        run.check(lambda x: kernel[(1,)](x, N), x_of())
    text = str(caught.value)
    assert text.count("BLOCK must be 48") == 2, "the line of the kernel, and the error"
    assert "refused_kernel: no candidate can be launched\n  BLOCK=16 num_warps=4 num_stages=3 and 7 others: " in text


# tuning modes


def tuned_call(*blocks: int) -> Any:
    kernel = tuned(*blocks)

    def call(x: torch.Tensor) -> Any:
        kernel[by_block](x, torch.empty_like(x), N, 2.0)
        return kernel

    return call


def test_winners_are_tuned_once(project: Project) -> None:
    first = project.once(FAST, SLOW).judge(tuned_call(128, 64), x_of())
    second = project.once(FAST, SLOW).judge(tuned_call(128, 64), x_of())
    assert [t.config.kwargs["BLOCK"] for t in first.trials] == [128, 64]
    assert second.trials == ()
    assert second.verdict is Verdict.PASS
    assert second.launches[0].config == first.launches[0].config


def test_frozen_tuning_needs_a_stored_winner(project: Project) -> None:
    with project.run(FAST, SLOW, tune=TuneMode.FROZEN) as run, pytest.raises(CacheMissError, match="frozen"):
        run.check(tuned_call(128, 64), x_of())
    project.once(FAST, SLOW).judge(tuned_call(128, 64), x_of())
    result = project.once(FAST, SLOW, tune=TuneMode.FROZEN).judge(tuned_call(128, 64), x_of())
    assert (result.verdict, result.trials) == (Verdict.PASS, ())


def test_forced_tuning_races_again(project: Project) -> None:
    for _ in range(2):
        with project.run(FAST, SLOW, tune=TuneMode.FORCE) as run:
            assert len(run.judge(tuned_call(128, 64), x_of()).trials) == 2


# a session


def test_the_header_says_where_and_with_what(project: Project) -> None:
    with project.run() as run:
        first, second = run.session.header()
    versions = f"Triton {triton.__version__}, torch {metadata.version('torch')}"  # wheels' __version__ can say more
    assert first == f"Fake GPU (cuda:90), {versions}"
    assert str(project.baselines) in second


def test_inductor_does_not_change_the_assembler_of_later_tests(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sets the variable in its first compilation, unless it is set."""
    monkeypatch.delenv(triton_compiler.ASSEMBLER_PATH, raising=False)
    monkeypatch.setattr(triton_compiler, "_torch_has_ptxas", lambda: True)
    with project.run():
        assert os.environ[triton_compiler.ASSEMBLER_PATH].startswith(str(Path(triton.__file__).parent))
    assert triton_compiler.ASSEMBLER_PATH not in os.environ


def test_closing_puts_everything_back(project: Project) -> None:
    knob = triton.knobs.compilation.disable_line_info
    runs, available = (JITFunction.run, Autotuner.run), torch.cuda.is_available
    with project.run() as run:
        assert run.session.device == "cuda"
        assert not run.session.static
        assert triton.knobs.compilation.disable_line_info is True
    assert triton.knobs.compilation.disable_line_info == knob
    assert (JITFunction.run, Autotuner.run) == runs
    assert torch.cuda.is_available is available


def test_without_gpu_baselines_and_target_there_is_nothing_to_do(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerntune.gpu.probe.has_cuda", lambda: False)
    with pytest.raises(UsageError, match=r"and baselines knows no target; .*--kerntune-target=cuda:90"):
        open_session(Settings(project.root, project.baselines))
    recorded(project)
    assert open_session(Settings(project.root, project.baselines)).static


@pytest.mark.parametrize("variable", ["KERNTUNE_VERIFY", "KERNTUNE_ISOLATE"])
def test_a_variable_that_only_a_gpu_would_read_is_checked_without_one(
    project: Project, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "frozn")
    with pytest.raises(UsageError, match="frozn"):
        open_session(Settings(project.root, project.baselines, targets=("cuda:90",)))


def test_progress_is_told(project: Project) -> None:
    with project.run(FAST, SLOW) as run:
        run.judge(tuned_call(64, 128), x_of())
        assert run.lines == [
            "running the call",
            *["compiling scale_kernel"] * 2,
            "scale_kernel: compiling 2 configs",
            *["compiling scale_kernel"] * 2,
            "scale_kernel: timing 2 of 2 configs",
            f"{NODE}: timing",
            f"{NODE}: calibrating",
        ]
    assert isinstance(run, Run)


def test_nothing_of_a_call_outlives_it(project: Project) -> None:
    call = tuned_call(64, 128)
    with project.run(FAST, SLOW) as run:
        x = x_of()
        run.check(call, x)
        seen = weakref.ref(x)
        del x
        gc.collect()
        assert seen() is None


def test_the_first_decision_of_a_run_is_number_one(project: Project) -> None:
    """Of several processes each has every n-th; together they spend the run's error once."""
    with project.static_run("cuda:90") as run:
        assert [next(run.session._decisions) for _ in range(3)] == [1, 2, 3]
        run.session.share(1, 4)
        assert [next(run.session._decisions) for _ in range(3)] == [2, 6, 10]


def test_a_session_on_stand_ins_is_for_the_first_target_that_is_asked_for(project: Project) -> None:
    settings = Settings(project.root, project.baselines, targets=("cuda:90,cuda:80", "hip:gfx942"))
    first = open_session(settings)
    assert (first.gpus, first.static, str(first.backend.spec.target)) == (0, True, "cuda:90")
    assert (first.compiled_for, first.others) == (("cuda:90",), ("cuda:80", "hip:gfx942"))
    assert first.header()[0].startswith("no GPU: compiling for cuda:90 (figures of NVIDIA H100), Triton ")


def test_a_session_for_every_target_has_the_baselines_of_all(project: Project) -> None:
    stored = made.static(triton=versions.triton_series())
    made.folder(project.baselines, stored)
    settings = Settings(project.root, project.baselines, targets=("cuda:80", "cuda:90"))
    for every, stale in ((False, 0), (True, 1)):
        session = open_session(settings, every_target=every)
        assert ("cuda:80" in session.header()[0], "cuda:90" in session.header()[0]) == (True, every)
        assert len(session.stale([], selected_all=True)) == stale
        assert session.others == (() if every else ("cuda:90",))


def test_a_session_on_a_gpu_has_no_other_targets(project: Project) -> None:
    with project.run() as run:
        assert (run.session.compiled_for, run.session.others, run.session.gpus) == ((), (), 1)


def test_the_header_names_the_anchor(project: Project) -> None:
    with project.static_run("cuda:90") as run:
        assert len(run.session.header()) == 2
        run.session.anchor_at(project.root / "anchors", "v1")
        assert run.session.header()[2:] == ["anchor v1"]


def test_processes_of_a_session_end_with_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with project.static_run("cuda:90") as run:
        closed: list[str] = []
        monkeypatch.setattr(run.session._compiler, "close", lambda: closed.append("compiler"))
        monkeypatch.setattr(run.session._gpus, "close", lambda: closed.append("GPUs"))
    assert closed == ["GPUs", "compiler"]


# which GPUs a test's turn holds, and what a session asks of its parts


class Gpu:
    """Notes in ``held`` that it is held."""

    def __init__(self, number: int, held: list[int]) -> None:
        self.number, self.held = number, held

    @contextlib.contextmanager
    def lock_suspendable(self) -> Iterator[None]:
        self.held.append(self.number)
        yield
        self.held.remove(self.number)

    def unprotected(self) -> list[str]:
        return []


def session(count: int = 3, ordinal: int = 1, static: bool = False, **changes: Any) -> Any:
    """One that sees so many GPUs and begins on ``ordinal``; ``held`` are those that are held."""
    it: Any = Session.__new__(Session)
    held: list[int] = []
    gpus = [Gpu(n, held) for n in range(count)]
    on = {n: SimpleNamespace(gpu=gpus[n], ordinal=n) for n in range(count)}
    it.backend = SimpleNamespace(
        gpu=None if static else gpus[ordinal], count=count, ordinal=ordinal, on=lambda n: on[n], targets=(),
        current=lambda: ordinal, tensors=SimpleNamespace(is_tensor=torch.is_tensor),
    )  # fmt: skip
    it.settings = Settings(Path("/p"), Path("/p/baselines"), **changes)
    it.held = held
    return it


@pytest.mark.parametrize(
    ("crowded", "used", "held"),
    [
        (True, {1}, [1]),
        (False, {1}, []),
        (True, {0, 1, 2}, [0, 1, 2]),
        (False, {0, 1, 2}, [0, 2]),
        (False, {0, 7}, [0]),
        (True, set(), [1]),
    ],
)
def test_a_turn_holds_the_first_gpu_where_others_begin_there_and_any_other_that_is_used(
    monkeypatch: pytest.MonkeyPatch, crowded: bool, used: set[int], held: list[int]
) -> None:
    monkeypatch.setattr(module, "devices_used", lambda: used)
    it = session()
    with it.in_turn(crowded):
        assert it.held == held
        assert it._crowded is crowded
    assert it.held == []


def test_of_one_gpu_nobody_asks_which_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "devices_used", raising(AssertionError))
    for static in (True, False):
        it = session(1, 0, static)
        with it.in_turn(False):
            assert it.held == []
            assert it._crowded is False
        assert it.gpus == (0 if static else 1)
    monkeypatch.setattr(module, "devices_used", lambda: {0, 1})
    assert session(2, 0)._others_used() == {1}


def test_without_a_gpu_nothing_is_crowded() -> None:
    it = session(1, 0, static=True)
    it.backend.on = lambda n: SimpleNamespace(gpu=None)
    with it.in_turn():
        assert (it.held, it._crowded) == ([], False)


@pytest.mark.parametrize("read_only", [True, False])
def test_what_writes_nothing_has_no_stale_baselines(read_only: bool) -> None:
    it = session(read_only=read_only)
    asked: list[Any] = []
    it._baselines = SimpleNamespace(
        stale=lambda ran, policy, selected_all: asked.append((ran, selected_all)) or ["one"]
    )
    assert it.stale(["a"], True) == ([] if read_only else ["one"])
    assert asked == ([] if read_only else [(["a"], True)])


@pytest.mark.parametrize(
    ("reference", "update"), [("own", Update.NEW), (ReferenceStore(Path("/y"), "main"), Update.NONE)]
)
def test_names_are_moved_only_in_the_projects_own_baselines(
    monkeypatch: pytest.MonkeyPatch, reference: Any, update: Update
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(module, "Renames", lambda *told: made.append(told) or "renames")
    monkeypatch.setattr(module, "replace", lambda stores, **changes: changes)
    monkeypatch.setattr(module, "BaselineStore", lambda folder: f"store of {folder}")
    it = session(update=Update.NEW)
    it.store, it.stores = "own", SimpleNamespace(reference=reference)

    def gone(nodeid: str) -> bool:
        return False

    it.tests_gone(gone)
    assert it.stores == {"renames": "renames"}
    it.stores = SimpleNamespace(reference=reference)
    it.tests_gone(gone, Path("/anchors"))
    assert made == [((reference,), update, gone), ((reference, "store of /anchors"), update, gone)]
    assert it.stores == {"renames": "renames"}


def test_progress_names_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerntune.gate.gpu_capture.gpu_name", lambda spec: f"GPU {spec}")
    lines: list[str] = []
    gpu: Any = SimpleNamespace(spec=5)
    naming(gpu, lines.append)("timing")
    assert lines == ["timing on GPU 5"]


@pytest.mark.parametrize("met", [True, False])
def test_a_case_that_was_checked_without_a_gpu_is_not_stale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, met: bool
) -> None:
    """Of one that was not, the baseline is."""
    stored = made.static(triton=versions.triton_series())
    store = made.folder(tmp_path / "baselines", stored)
    it = session(1, 0, static=True)
    it.store = store
    it.stores = SimpleNamespace(reference=store)
    it._baselines = RunBaselines(store, it.backend, [made.CUDA90])
    found = CaseResult(CASE, stored.baseline.fingerprint, Verdict.PASS, Outcome.PASS, "PASS", "cuda:90")
    monkeypatch.setattr(static_check, "check_static", lambda *args, **options: (found, stored))
    nothing_else = SimpleNamespace(choices=SimpleNamespace(anew=()))
    capture = SimpleNamespace(compiled=nothing_else, launches=[], choices=SimpleNamespace(texts=()))
    captured = SimpleNamespace(
        call=Call(CASE.nodeid, CASE.call, print), remark="", capture=capture, value=1, ended=None
    )
    if met:
        assert it._check_static(captured, [].append).result == found
    stale = [r.case for r in it.stale([CASE.nodeid], selected_all=True)]
    assert stale == ([] if met else [CASE])


# a reference beside a capture


def gpu_capture(it: Session, call: Call, share: Any) -> GpuCapture:
    run: Any = SimpleNamespace(settings=it.settings)
    return GpuCapture(run, call, (), share, it.backend)


def test_a_reference_has_the_device_alone_and_a_call_without_one_stays() -> None:
    it = session(1, 0)
    share: Any = SimpleNamespace(given_up=lambda gpu: contextlib.nullcontext())
    plain = Call("t", "0", print)
    assert gpu_capture(it, plain, share).call() is plain
    seen: list[list[int]] = []
    asking = gpu_capture(it, Call("t", "0", print, reference=lambda: seen.append(list(it.held)) or "it"), share).call()
    assert asking.reference is not None
    assert asking.reference() == "it"
    assert seen == [[0]]
    assert it.held == []


@pytest.mark.parametrize("update", list(Update))
def test_what_inductor_decides_is_recorded_where_it_may_become_a_baseline(
    monkeypatch: pytest.MonkeyPatch, update: Update
) -> None:
    it = session(1, 0, update=update)
    share: Any = None
    capture = gpu_capture(it, Call("t", "0", print, policy=Policy()), share).capture(Compiler())
    assert capture.compiled.choices.recorded is (update in (Update.IMPROVED, Update.REGRESSED))
