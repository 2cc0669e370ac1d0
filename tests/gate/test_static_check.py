"""The check of a call without a GPU: each target's compiled code compared with that of the baseline."""

from __future__ import annotations

import functools
import re
import shutil
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, block, by_block, configs, long_kernel, scale, scale_kernel, scaled, tuned_call, x_of

from gate.project import NODE, Project
from kerntune.base.case_result import UNJUDGED
from kerntune.base.codec import to_json
from kerntune.base.config import Config
from kerntune.base.policy import Missing, Outcome, Policy, StaticPolicy, StaticRule, Update, Verdict
from kerntune.compiling.farm import Farm
from kerntune.compiling.frontend import Shape
from kerntune.compiling.protocol import CompileFailed, Job
from kerntune.compiling.worker_process import Died, JobOutcome
from kerntune.errors import BaselineError, CaptureError, CompileError, EnvironmentFault
from kerntune.gate.baseline_files import ArtifactFolder, BaselineStore
from kerntune.gate.baselines import StaticBaseline
from kerntune.gpu.script import Rule
from kerntune.static import disassembly, metrics
from pytest_kerntune.conclude import warning_of

SM90, SM80 = "cuda:90", "cuda:80"

LISTED = "cuda:120"
"""One whose code nvdisasm lists: there is no table of its opcodes."""


@triton.jit
def reduce_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr + i, x / tl.sum(x, 0))


def reduced(x: torch.Tensor, **options: Any) -> None:
    """One warp that holds 64 numbers a thread; with a low ``maxnreg`` it spills."""
    reduce_kernel[(1,)](x, x, BLOCK=2048, num_warps=1, **options)


def twice(x: torch.Tensor) -> None:
    scaled(x)
    scaled(x)


def record(project: Project, call: Callable[..., Any] = scaled, *targets: str) -> None:
    for target in targets or (SM90,):
        assert project.static_once(target).judge(call, x_of()).recorded


@pytest.fixture
def recorded(project: Project) -> Project:
    """It has a baseline of :func:`scaled`."""
    record(project)
    return project


def known(project: Project) -> StaticBaseline:
    """The one baseline on disk."""
    (path,) = project.files()
    found = BaselineStore(project.baselines, project.root).read(path)
    assert isinstance(found, StaticBaseline)
    return found


def edit_each(project: Project, *changes: dict[str, Any]) -> None:
    """Change the launches of the one baseline on disk, each by its own."""
    (path,), found = project.files(), known(project)
    launches = tuple(msgspec.structs.replace(x, **c) for x, c in zip(found.launches, changes, strict=True))
    path.write_bytes(to_json(msgspec.structs.replace(found, launches=launches)))


def edit(project: Project, **changes: Any) -> None:
    """Change all launches of the one baseline on disk alike."""
    edit_each(project, *[changes] * len(known(project).launches))


def rewrite(project: Project, *changes: dict[str, Any], **everywhere: Any) -> None:
    """Give the launches of the one baseline on disk another code, and other metrics: each its own, or all alike."""
    launches = known(project).launches
    both = zip(launches, changes or [everywhere] * len(launches), strict=True)
    edit_each(project, *({"code": "other", "metrics": msgspec.structs.replace(x.metrics, **c)} for x, c in both))


def test_a_new_case_is_recorded_for_each_target(project: Project) -> None:
    results = [project.static_once(target).judge(scaled, x_of()) for target in (SM90, SM80)]
    assert [(r.verdict, r.target, r.recorded, r.rung) for r in results] == [
        (Verdict.NEW, SM90, True, "static"),
        (Verdict.NEW, SM80, True, "static"),
    ]
    series = ".".join(triton.__version__.split(".")[:2])
    folders = [p.relative_to(project.baselines).parts[:3] for p in project.files()]
    assert folders == [("cuda-80", f"triton-{series}", "static"), ("cuda-90", f"triton-{series}", "static")]
    again = [project.static_once(target).judge(scaled, x_of()) for target in (SM90, SM80)]
    assert [(r.verdict, r.outcome, r.recorded) for r in again] == [(Verdict.PASS, Outcome.PASS, False)] * 2
    assert again[0].causes == ("code unchanged", "config unchanged")


def test_a_new_case_says_what_tells_it_from_the_nearest_stored_one(recorded: Project) -> None:
    with recorded.static_run(SM90) as run:
        result = run.check(scaled, torch.randn(2 * N, device="cuda")).result
        (stale,) = run.session.stale([NODE], selected_all=False)
    told = f"tensor 0 has shape ({N},) stored and ({2 * N},) today"
    assert result.verdict is Verdict.NEW
    assert result.message.endswith(f"near a stored case of this call: {told}")
    assert result.remarks[-1] == f"near a stored case of this call: {told}"
    assert f"stride ({told}); " in stale.message


def test_nothing_is_written_before_the_commit(project: Project) -> None:
    with project.static_run(SM90) as run:
        run.check(scaled, x_of())
    assert not project.baselines.exists()


def test_figures_are_those_of_the_binary(project: Project) -> None:
    result = project.static_once(SM90).judge(scaled, x_of())
    (launch,) = result.launches
    assert (launch.kernel, launch.grid, launch.spill_bytes, launch.shared_bytes) == ("scale_kernel", (64, 1, 1), 0, 0)
    assert launch.registers
    assert 8 <= launch.registers <= 64
    assert result.current_ns is None
    assert "static only" in result.message


def test_the_baselines_targets_are_the_default(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from kerntune.gate.api import Settings, open_session

    record(project, scaled, SM90, SM80)
    monkeypatch.setattr("kerntune.gpu.probe.has_cuda", lambda: False)
    session = open_session(Settings(project.root, project.baselines))
    assert (session.compiled_for, session.others) == ((SM80,), (SM90,))


@pytest.mark.slow
def test_a_kernel_that_starts_to_spill_fails(project: Project) -> None:
    record(project, reduced)
    result = project.static_once(SM90).judge(functools.partial(reduced, maxnreg=32), x_of())
    assert (result.verdict, result.outcome, result.recorded) == (Verdict.REGRESSED, Outcome.FAIL, False)
    assert "reduce_kernel: spills 0 -> " in result.message
    assert result.launches[0].spill_bytes
    assert any("spills" in f for f in result.findings)


@pytest.mark.parametrize(("changes", "told"), [({}, []), ({"code_bytes": 16}, ["machine code"])])
def test_equal_figures_pass_whatever_the_code_and_what_only_warns_is_a_note(
    recorded: Project, changes: dict[str, int], told: list[str]
) -> None:
    rewrite(recorded, **changes)
    result = recorded.static_once(SM90).judge(scaled, x_of())
    assert (result.verdict, result.outcome, len(result.findings)) == (Verdict.PASS, Outcome.PASS, len(told))
    assert all(text in found for text, found in zip(told, result.findings, strict=True))


def test_what_does_not_compile_fails_and_is_not_recorded(project: Project) -> None:
    bad = project.static_once(SM90).judge(functools.partial(scaled, size=100), x_of())
    assert (bad.target, bad.recorded, bad.outcome) == (SM90, False, Outcome.FAIL)
    assert (bad.verdict, bad.word) == (Verdict.REGRESSED, "FAILS")
    assert bad.message.startswith("FAILS tests/test_scale.py::test_scale (cuda:90, static only), can't be compiled")
    assert "no static baseline" not in bad.message
    assert "scale_kernel" in bad.message
    assert project.files() == []


def test_what_the_target_refuses_names_the_kernel(project: Project) -> None:
    with project.static_run(SM80) as run, pytest.raises(CompileError, match="scale_kernel for cuda:80: num_ctas"):
        run.check(functools.partial(scaled, num_ctas=2), x_of())


def test_a_source_that_does_not_compile_is_changed_code(project: Project) -> None:
    """What isn't compiled has no figures to compare: the kernel's source alone tells what changed."""

    @triton.jit
    def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        tl.store(out_ptr, no_such_name)  # noqa: F821

    def broken(x: torch.Tensor) -> None:
        scale_kernel[(1,)](x, x, x.numel(), BLOCK=64)

    record(project)
    with project.static_run(SM90) as run:
        edited = run.check(broken, x_of()).result
        resized = run.check(functools.partial(scaled, size=100), x_of()).result
    assert (edited.verdict, edited.causes) == (Verdict.REGRESSED, ("code changed",))
    assert (resized.verdict, resized.causes) == (Verdict.REGRESSED, ("code unchanged",))


@pytest.mark.parametrize("update", [Update.NONE, Update.ALL, Update.REGRESSED])
def test_what_compiled_before_and_does_not_now_regresses_and_is_never_recorded(
    recorded: Project, update: Update
) -> None:
    (path,) = recorded.files()
    before = path.read_bytes()
    result = recorded.static_once(SM90, update=update).judge(functools.partial(scaled, size=100), x_of())
    assert (result.verdict, result.recorded, result.outcome) == (Verdict.REGRESSED, False, Outcome.FAIL)
    assert "can't be compiled: kernel scale_kernel" in result.message
    assert path.read_bytes() == before


@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_a_cache_that_can_t_be_written_is_no_verdict(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: bool
) -> None:
    if known:
        record(project)
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with project.static_run(SM90) as run, pytest.raises(EnvironmentFault) as caught:
        run.check(scaled, x_of())
    for words in ("kernel scale_kernel (", "for cuda:90", str(tmp_path / "file" / "cache"), "What to do: "):
        assert words in str(caught.value)


def fail_jobs(monkeypatch: pytest.MonkeyPatch, answer: Died | CompileFailed) -> None:
    """All that the farm is asked for from now on."""

    def submit(farm: Farm, job: Job, shape: Shape) -> Future[JobOutcome]:
        refused: Future[JobOutcome] = Future()
        refused.set_result(JobOutcome(answer, ""))
        return refused

    monkeypatch.setattr(Farm, "submit", submit)
    monkeypatch.setattr("kerntune.compiling.stream.is_stored", lambda request: False)


def test_the_baselines_own_code_is_not_to_blame_for_a_compiler_that_dies(
    recorded: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_jobs(monkeypatch, Died("the compiler process died (SIGSEGV)"))
    with recorded.static_run(SM90) as run, pytest.raises(EnvironmentFault, match="The baseline has the same code"):
        run.check(scaled, x_of())


def test_other_code_is_to_blame_for_a_compiler_that_dies(recorded: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_jobs(monkeypatch, Died("the compiler process died (SIGSEGV)"))
    result = recorded.static_once(SM90).judge(functools.partial(scaled, size=128), x_of())
    assert (result.verdict, "SIGSEGV" in result.message) == (Verdict.REGRESSED, True)


def test_a_tuned_kernel_is_not_judged_by_its_next_config_if_the_first_is_killed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_jobs(monkeypatch, Died("the compiler process died (SIGKILL)", passing=True))
    kernel = triton.autotune(configs(64, 128), key=["n"])(scale_kernel)
    with project.static_run(SM90) as run, pytest.raises(EnvironmentFault, match="SIGKILL"):
        run.check(functools.partial(scale, kernel))


def test_a_kernel_over_the_devices_limits_says_so(project: Project) -> None:
    """Two tiles of 64 x 512 halves are 128 KiB of shared memory; an A10 has 99."""

    def op(x: torch.Tensor) -> None:
        long_kernel[(1,)](x, x, x, BLOCK=64, LENGTH=512)

    x = functools.partial(torch.empty, 64, 512, device="cuda", dtype=torch.float16)
    result = project.static_once("cuda:86").judge(op, x())
    assert "long_kernel can't be launched on cuda:86" in result.message
    assert any("shared memory" in f for f in result.findings)


def test_fewer_launches_are_incomplete(project: Project) -> None:
    record(project, twice)
    assert project.static_once(SM90).judge(scaled, x_of()).verdict is Verdict.INCOMPLETE


def test_fewer_launches_than_on_a_device_are_incomplete(project: Project) -> None:
    """Without a static baseline too, as after an upgrade of Triton; what is accepted after that counts."""

    assert project.once(Rule(time_ns=20_000.0)).judge(twice, x_of()).recorded
    result = project.static_once(SM90).judge(scaled, x_of())
    assert (result.verdict, result.recorded) == (Verdict.INCOMPLETE, False)
    assert "1 of the 2 launches that the baseline of Fake GPU has; if that is meant, a refresh" in result.message
    (path,) = project.files()
    path.write_text(re.sub(r'"recorded": ?"20..', '"recorded": "2000', path.read_text()))
    assert project.static_once(SM90, update=Update.ALL).judge(scaled, x_of()).recorded
    assert project.static_once(SM90).judge(scaled, x_of()).verdict is Verdict.PASS


def test_fewer_launches_are_accepted_where_the_static_baseline_says_the_same_already(recorded: Project) -> None:
    """A function that can't go on without a GPU launches less here than on a device that it is timed on later."""
    (path,) = recorded.files()
    path.write_text(re.sub(r'"recorded": ?"20..', '"recorded": "1999', path.read_text()))
    assert recorded.once(Rule(time_ns=20_000.0)).judge(twice, x_of()).recorded
    (time,) = set(recorded.files()) - {path}
    time.write_text(re.sub(r'"recorded": ?"20..', '"recorded": "2000', time.read_text()))
    assert recorded.static_once(SM90).judge(scaled, x_of()).verdict is Verdict.INCOMPLETE
    assert recorded.static_once(SM90, update=Update.ALL).judge(scaled, x_of()).recorded
    assert recorded.static_once(SM90).judge(scaled, x_of()).verdict is Verdict.PASS


def test_what_is_recorded_anew_without_a_change_is_not_called_recorded(recorded: Project) -> None:
    with recorded.static_run(SM90, update=Update.ALL) as run:
        assert not run.judge(scaled, x_of()).recorded
        assert run.judge(scaled, x_of(), 128).recorded


def test_fewer_launches_than_under_another_triton_are_incomplete(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(project, twice)
    monkeypatch.setattr("kerntune.kernels.compat.versions.triton_series", lambda: "3.99")
    with project.static_run(SM90) as run:
        assert run.judge(scaled, x_of()).verdict is Verdict.INCOMPLETE
        assert run.judge(lambda x: (twice(x), scaled(x)), x_of()).verdict is Verdict.NEW


@pytest.mark.parametrize(
    ("damage", "said"), [(b"junk", "damaged"), (None, "the folder lacks artifact")], ids=["damaged", "missing"]
)
def test_an_artifact_that_can_t_be_read_is_said(recorded: Project, damage: bytes | None, said: str) -> None:
    (artifact,) = recorded.files("**/*.xz")
    artifact.unlink()
    if damage is not None:
        artifact.write_bytes(damage)
    result = recorded.static_once(SM90).judge(scaled, x_of())
    assert result.verdict is Verdict.PASS
    assert said in result.warnings[0]
    assert artifact.stem in result.warnings[0]


def test_sound_artifacts_are_read_once_a_run(recorded: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged ones are reported for every case."""
    read, get = [], ArtifactFolder.__getitem__

    def count(self: ArtifactFolder, sha256: str) -> bytes:
        read.append(sha256)
        return get(self, sha256)

    monkeypatch.setattr(ArtifactFolder, "__getitem__", count)
    with recorded.static_run(SM90) as run:
        assert [run.judge(scaled, x_of()).warnings for _ in range(3)] == [()] * 3
    assert len(read) == 1
    recorded.files("**/*.xz")[0].write_bytes(b"junk")
    with recorded.static_run(SM90) as run:
        told = [run.judge(scaled, x_of()).warnings for _ in range(2)]
    assert len(told[0]) == 1
    assert told[1] == told[0]


def test_nothing_launched_is_incomplete(project: Project) -> None:
    result = project.static_once(SM90).judge(lambda: None)
    assert (result.verdict, result.outcome) == (Verdict.INCOMPLETE, Outcome.WARN)


def test_other_dtypes_are_other_cases(recorded: Project) -> None:
    result = recorded.static_once(SM90).judge(scaled, x_of(dtype=torch.float16))
    assert (result.verdict, result.recorded) == (Verdict.NEW, True)
    assert len(recorded.files()) == 2


def test_update_all_records_what_changed(recorded: Project) -> None:
    (path,) = recorded.files()
    old = path.read_bytes()
    result = recorded.static_once(SM90, update=Update.ALL).judge(functools.partial(scaled, num_warps=2), x_of())
    assert (result.recorded, result.outcome) == (True, Outcome.PASS)
    assert path.read_bytes() != old
    assert recorded.files() == [path]


def test_a_damaged_baseline_names_its_file(recorded: Project) -> None:
    (path,) = recorded.files()
    path.write_bytes(path.read_bytes()[:99])
    with recorded.static_run(SM90) as run, pytest.raises(BaselineError, match=path.name):
        run.check(scaled, x_of())
    with recorded.static_run(SM90, update=Update.ALL) as run:  # as the message advises
        result = run.check(scaled, x_of()).commit()
        assert result.recorded
    with recorded.static_run(SM90) as run:
        result = run.check(scaled, x_of()).commit()
        assert result.verdict is Verdict.PASS


def test_stale_static_baselines(project: Project) -> None:
    record(project, scaled, SM90, SM80)
    with project.static_run(SM90) as run:
        found = run.session.stale(set(), selected_all=True)
        assert run.session.stale(set(), selected_all=False) == []
    assert [(r.verdict, r.target) for r in found] == [(Verdict.STALE, SM90)]


# which config is compiled


def config_of(result: Any) -> Any:
    return result.launches[0].config.kwargs["BLOCK"]


def test_the_first_config_stands_for_the_kernel_at_first_and_is_the_only_one(project: Project) -> None:
    result = project.static_once(SM90).judge(tuned_call(256, 128), x_of())
    assert (config_of(result), result.configs) == (256, ())


def test_the_winner_of_a_real_device_is_what_is_compiled(project: Project) -> None:
    with project.run(block(256, 20_000.0), block(128, 10_000.0)) as timed:
        assert config_of(timed.judge(tuned_call(256, 128), x_of())) == 128
    result = project.static_once(SM90).judge(tuned_call(256, 128), x_of())
    assert config_of(result) == 128


def test_the_stored_config_stays_when_the_list_is_reordered(project: Project) -> None:
    record(project, tuned_call(256, 128))
    result = project.static_once(SM90).judge(tuned_call(64, 128, 256), x_of())
    assert (config_of(result), result.verdict) == (256, Verdict.PASS)


def test_another_config_is_named_and_not_held_against_the_old_ones_figures(project: Project) -> None:
    record(project, tuned_call(256, 128))
    result = project.static_once(SM90).judge(tuned_call(128), x_of())
    assert config_of(result) == 128
    (gone,), (cause,) = result.lost_configs, result.launch_causes
    assert gone.removal == "BLOCK=256 num_warps=4 num_stages=3 removed from the list"
    assert cause.why == f"config (BLOCK 256 -> 128; {gone.removal}), first in TTIR"
    assert result.causes == ("code unchanged", str(cause))
    assert result.findings == (str(gone),)
    assert result.verdict is Verdict.PASS


def test_candidates_from_a_marker(project: Project) -> None:
    given = {"scale_kernel": (Config({"BLOCK": 128}), Config({"BLOCK": 64}))}
    result = project.static_once(SM90).judge(scaled, x_of(), candidates=given)
    assert config_of(result) == 128


def test_values_of_stand_ins_end_a_test_body(project: Project) -> None:
    with project.static_run(SM90) as run:
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - which one, the session says
            scaled(x_of()).tolist()
        assert run.session.static_end(caught.value)
        assert run.session.static_end(ValueError("the user's own")) is None


# why code is another


def one_cause(result: Any) -> str:
    (cause,) = [c for c in result.causes if ": because of " in c]
    return cause


def stored(project: Project) -> Any:
    return known(project).launches[0]


def test_stages_and_what_was_compiled_for_are_stored(recorded: Project) -> None:
    launch = stored(recorded)
    assert launch.stages.keys() == {"ttir", "ttgir", "llir", "ptx"}
    assert launch.compiled_for["BLOCK"] == "constexpr 64"
    assert launch.compiled_for["num_warps"] == "4"
    assert "*fp32, divisible by 16" in launch.compiled_for.values()
    assert launch.compiler.startswith(f"Triton {triton.__version__}, assembler ")


@pytest.mark.parametrize(
    ("options", "says"),
    [({"size": 128}, "BLOCK 64 -> 128), first in TTIR"), ({"num_warps": 1}, "num_warps 4 -> 1), first in TTGIR")],
)
def test_what_the_caller_wrote_otherwise(recorded: Project, options: dict[str, Any], says: str) -> None:
    result = recorded.static_once(SM90).judge(functools.partial(scaled, **options), x_of())
    assert one_cause(result) == f"scale_kernel: because of launch options ({says}"


@pytest.mark.slow
def test_lost_alignment_is_the_arguments_doing(project: Project) -> None:
    wide = functools.partial(scaled, size=1024)
    record(project, wide)

    def sliced(x: torch.Tensor) -> torch.Tensor:
        return wide(torch.cat([x[:1], x])[1:])

    result = project.static_once(SM90).judge(sliced, x_of())
    assert result.verdict is Verdict.REGRESSED
    assert "loads from global memory got narrower: 2 of 128 bits -> 8 of 32 bits" in result.message
    assert "because of arguments (" in one_cause(result)
    assert "*fp32, divisible by 16 -> *fp32" in one_cause(result)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"size": 1024}, "BLOCK 64 -> 1024"),
        ({"num_warps": 1}, "num_warps 4 -> 1"),
        ({"num_warps": 8}, "num_warps 4 -> 8"),
    ],
)
@pytest.mark.parametrize("back", [False, True])
def test_another_tile_or_option_of_a_kernel_that_is_not_tuned_passes(
    project: Project, options: dict[str, Any], says: str, back: bool
) -> None:
    """In both directions: static figures don't show which one is faster."""
    before, after = (options, {}) if back else ({}, options)
    record(project, functools.partial(scaled, **before))
    result = project.static_once(SM90).judge(functools.partial(scaled, **after), x_of())
    assert (result.verdict, result.outcome) == (Verdict.PASS, Outcome.PASS), result.findings
    words = says.split()[0] if back else says
    assert f"because of launch options ({words}" in one_cause(result)
    assert not any(c.startswith("launch options of") for c in result.causes), "what changed is told once"


def twice_the_grid(x: torch.Tensor) -> None:
    scale_kernel[lambda meta: (2 * by_block(meta)[0],)](x, torch.empty_like(x), N, 2.0, BLOCK=64)


def sixteen(x: torch.Tensor) -> None:
    for _ in range(16):
        scaled(x)


@pytest.mark.parametrize(
    ("call", "rule", "told"),
    [
        (twice_the_grid, "grid", "scale_kernel: 2 times as many programs: 64 -> 128 (grid 64x1x1 -> 128x1x1)"),
        (sixteen, "launches", "16 times as many launches: 1 -> 16 (scale_kernel 1 -> 16)"),
    ],
)
def test_more_of_the_same_code_is_told(recorded: Project, call: Any, rule: str, told: str) -> None:
    result = recorded.static_once(SM90).judge(call, x_of())
    assert (result.verdict, result.findings) == (Verdict.PASS, (told,))
    policy = Policy(static=StaticPolicy({rule: StaticRule("fail", 0.1)}))
    assert recorded.static_once(SM90).judge(call, x_of(), policy=policy).verdict is Verdict.REGRESSED


def test_a_misaligned_output_is_found(project: Project) -> None:
    record(project, functools.partial(scaled, size=1024))

    def shifted(x: torch.Tensor) -> None:
        scale_kernel[by_block](x, torch.empty(N + 1, device="cuda")[1:], N, 2.0, BLOCK=1024)

    result = project.static_once(SM90).judge(shifted, x_of())
    assert result.verdict is Verdict.REGRESSED
    assert "stores to global memory got narrower: 2 of 128 bits -> 8 of 32 bits" in result.message


@triton.jit
def scalar_kernel(x_ptr, y_ptr, factor_ptr, n, BLOCK: tl.constexpr, SCALAR: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    factor = 2.0
    if SCALAR:
        factor = tl.load(factor_ptr)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@pytest.mark.parametrize("first", [False, True])
def test_a_scalar_that_is_loaded_or_no_longer_loaded_splits_no_access(project: Project, first: bool) -> None:
    def call(x: torch.Tensor, scalar: bool) -> None:
        scalar_kernel[by_block](x, torch.empty_like(x), x, N, BLOCK=1024, SCALAR=scalar)

    record(project, functools.partial(call, scalar=first))
    result = project.static_once(SM90).judge(functools.partial(call, scalar=not first), x_of())
    assert result.verdict is Verdict.PASS, result.findings


@pytest.mark.slow
def test_another_environment_of_the_compiler_is_neither_the_same_code_nor_the_codes_fault(
    recorded: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    result = recorded.static_once(SM90).judge(scaled, x_of())
    assert (result.verdict, result.outcome, result.recorded) == (Verdict.INCONCLUSIVE, Outcome.WARN, False)
    assert "compiled under another environment than the baseline (DISABLE_PTXAS_OPT unset -> 1)" in result.message
    assert "set it as it was, or refresh" in result.message
    assert any("scale_kernel: because of environment (DISABLE_PTXAS_OPT unset -> 1)" in c for c in result.causes)
    assert any("more instructions" in f for f in result.findings), "what it does is told"
    with recorded.static_run(SM90) as run:
        assert run.check(scaled, x_of(), policy=Policy(strict=True)).result.outcome is Outcome.FAIL
    assert recorded.static_once(SM90, update=Update.ALL).judge(scaled, x_of()).recorded
    result = recorded.static_once(SM90).judge(scaled, x_of())
    assert result.verdict is Verdict.PASS
    monkeypatch.delenv("DISABLE_PTXAS_OPT")
    result = recorded.static_once(SM90).judge(scaled, x_of())
    assert "(DISABLE_PTXAS_OPT 1 -> unset)" in result.message


def test_a_setting_that_changes_no_code_changes_nothing(recorded: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")  # of products, of which there are none
    result = recorded.static_once(SM90).judge(scaled, x_of())
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


def test_compile_time_is_stored_where_the_compiler_ran(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    record(project)
    assert stored(project).compile_seconds > 0
    (path,) = project.files()
    path.unlink()
    record(project)
    assert stored(project).compile_seconds is None


def test_another_compiler_of_the_same_source(recorded: Project) -> None:
    stages = {**stored(recorded).stages, "llir": "other", "ptx": "other"}
    edit(recorded, code="other", stages=stages, compiler="Triton 3.5.1, assembler 12.8")
    cause = one_cause(recorded.static_once(SM90).judge(scaled, x_of()))
    assert cause.startswith("scale_kernel: because of compiler (Triton 3.5.1, assembler 12.8 -> Triton ")
    assert cause.endswith(", first in LLIR")


def test_another_source(recorded: Project) -> None:
    edit(recorded, code="other", source="other")
    cause = one_cause(recorded.static_once(SM90).judge(scaled, x_of()))
    assert cause == "scale_kernel: because of code (its source changed)"


def test_baselines_from_before_stages_were_kept_still_serve(recorded: Project) -> None:
    edit(recorded, code="other", stages={}, compiled_for={}, compiler="", compile_seconds=None)
    (path,) = recorded.files()
    assert b"compiled_for" not in path.read_bytes()
    result = recorded.static_once(SM90).judge(scaled, x_of())
    assert result.verdict is Verdict.PASS
    assert "something that is not kept (same source" in one_cause(result)


def test_the_same_code_passes_at_once_whatever_the_figures(recorded: Project) -> None:
    launch = stored(recorded)
    edit(recorded, metrics=msgspec.structs.replace(launch.metrics, registers=1, occupancy=1.0))
    result = recorded.static_once(SM90).judge(scaled, x_of())
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


# another Triton's baseline


def elsewhere(project: Project, series: str, **changes: Any) -> None:
    """Move the one baseline on disk to another series."""
    edit(project, code="other", **changes)
    (path,), store = project.files(), BaselineStore(project.baselines, project.root)
    moved = msgspec.structs.replace(known(project), triton=series)
    path.unlink()
    store.write(store.path_of(moved), moved)


def test_an_upgrade_is_held_against_the_series_before(recorded: Project) -> None:
    launch = stored(recorded)
    counts = {**launch.metrics.instructions, "tma": 2}
    elsewhere(recorded, "3.5", metrics=msgspec.structs.replace(launch.metrics, instructions=counts))
    result = recorded.static_once(SM90).judge(scaled, x_of())
    assert (result.verdict, result.recorded) == (Verdict.REGRESSED, False)
    assert "held against that of 3.5" in result.message
    assert "no bulk copies (TMA) any more" in result.message
    assert "compiler (" in one_cause(result)


def test_an_upgrade_without_losses_is_recorded_as_new(recorded: Project) -> None:
    elsewhere(recorded, "3.5")
    result = recorded.static_once(SM90).judge(scaled, x_of())
    assert (result.verdict, result.recorded) == (Verdict.NEW, True)
    assert len(recorded.files()) == 2


def test_a_warning_says_which_tritons_baseline_it_is_held_against(recorded: Project) -> None:
    """pytest shows a finding that fails nothing without the case's line."""
    launch = stored(recorded)
    elsewhere(recorded, "3.5", metrics=msgspec.structs.replace(launch.metrics, registers=1))
    result = recorded.static_once(SM90).judge(scaled, x_of())
    assert result.verdict is Verdict.NEW
    assert re.match(r".*registers .*, since the baseline of Triton 3\.5$", result.findings[0])
    assert result.findings[0] in warning_of(result)


# rules of a test


@pytest.mark.slow
def test_a_rule_of_the_test_decides(project: Project) -> None:
    record(project, reduced)
    spilling = functools.partial(reduced, maxnreg=32)
    verdicts = {}
    for severity in ("fail", "warn", "off"):
        rules = StaticPolicy({n: StaticRule(severity) for n in ("spills", "occupancy", "load_width")})
        result = project.static_once(SM90).judge(spilling, x_of(), policy=Policy(static=rules))
        verdicts[severity] = (result.verdict, any("spills" in f for f in result.findings))
    assert verdicts == {
        "fail": (Verdict.REGRESSED, True),
        "warn": (Verdict.PASS, True),
        "off": (Verdict.PASS, False),
    }


# every config


EVERY = Policy(static=StaticPolicy(every_config=True))


SIZES = ({"BLOCK": 64, "LENGTH": 64}, {"BLOCK": 64, "LENGTH": 512})
LONG = triton.autotune(
    [*map(triton.Config, SIZES), triton.Config(SIZES[0], maxnreg=40), triton.Config(SIZES[0], num_ctas=2)], key=[]
)(long_kernel)


def tuned(x: torch.Tensor) -> None:
    LONG[(1,)](x, x, x)
    LONG[(2,)](x, x, x)


@pytest.mark.slow
def test_every_config_is_looked_at(project: Project) -> None:
    x = functools.partial(torch.empty, 64, 512, device="cuda", dtype=torch.float16)
    small, large = (project.static_once(target).judge(tuned, x(), policy=EVERY) for target in ("cuda:86", SM90))
    fits, too_large, spills, clusters = small.configs
    assert not fits.problem
    assert fits.registers
    assert "can't be launched: shared memory" in too_large.broken
    assert spills.problem.startswith("spills ")
    assert spills.spill_bytes is not None
    assert spills.spill_bytes > 0
    assert clusters.broken.startswith("can't be compiled: kernel long_kernel")
    assert clusters.registers is None
    assert (small.verdict, small.outcome, len(small.findings)) == (Verdict.NEW, Outcome.PASS, 3)
    assert [c.config.kwargs["LENGTH"] for c in large.configs if not c.problem][:2] == [64, 512]


@pytest.mark.slow
def test_configs_fail_where_the_test_says_so(project: Project) -> None:
    rules = StaticPolicy({"config_spills": StaticRule("fail"), "config_limits": StaticRule("off")}, True)
    x = functools.partial(torch.empty, 64, 512, device="cuda", dtype=torch.float16)
    result = project.static_once("cuda:86").judge(tuned, x(), policy=Policy(static=rules))
    assert result.verdict is Verdict.REGRESSED
    assert len(result.findings) == 1
    assert "long_kernel with BLOCK=64 LENGTH=64" in result.message


def test_a_tuned_kernel_without_a_config_that_fits_regresses(project: Project) -> None:
    x = functools.partial(torch.empty, 64, 512, device="cuda", dtype=torch.float16)

    def call(length: int) -> Callable[[torch.Tensor], None]:
        kernel = triton.autotune([triton.Config({"BLOCK": 64, "LENGTH": length})], key=[])(long_kernel)
        return lambda x: kernel[(1,)](x, x, x)

    with project.static_run("cuda:86") as run:
        run.check(call(64), x()).commit()
    result = project.static_once("cuda:86").judge(call(512), x())
    assert result.verdict is Verdict.REGRESSED
    assert "long_kernel can't be launched on cuda:86: shared memory" in result.message
    assert "because of config (LENGTH 64 -> 512)" in one_cause(result)


def needs_numpy(y: torch.Tensor) -> Any:
    return torch.from_numpy(y.cpu().numpy())


def needs_item(y: torch.Tensor) -> Any:
    return y * y.sum().item()


def needs_shape(y: torch.Tensor) -> Any:
    return y[y > 0]


NEEDS = [needs_numpy, needs_item, needs_shape]


@pytest.mark.parametrize("needs", NEEDS)
def test_a_reference_that_needs_values_costs_no_figure(recorded: Project, needs: Callable[..., Any]) -> None:
    with recorded.static_run(SM90) as run:
        x = x_of()
        checked = run.check(scaled, x, reference=lambda: needs(x))
    result = checked.result
    assert (result.verdict, checked.ended) == (Verdict.PASS, None)
    assert checked.value.shape == (N,)
    assert result.launches
    assert [w.partition(": ")[0] for w in result.warnings] == ["reference not computed"]


@pytest.mark.parametrize(
    ("call", "reference", "error", "said"),
    [
        (scaled, lambda: 1 / 0, ZeroDivisionError, "division by zero"),
        (lambda x: scaled(x) / (1 // 0), None, ZeroDivisionError, "division"),
        (lambda x: scaled(needs_item(x)), None, Exception, "_local_scalar_dense"),
    ],
    ids=["an ordinary one of the reference", "an ordinary one after the launches", "values before the first launch"],
)
def test_errors_that_are_raised(project: Project, call: Any, reference: Any, error: Any, said: str) -> None:
    with project.static_run(SM90) as run, pytest.raises(error, match=said):
        run.check(call, x_of(), reference=reference)


@pytest.mark.parametrize("needs", NEEDS)
def test_a_function_that_needs_values_after_its_launches_is_incomplete(
    project: Project, needs: Callable[..., Any]
) -> None:
    def cut_short(x: torch.Tensor, **options: Any) -> Any:
        return needs(scaled(x, **options))

    record(project)
    with project.static_run(SM90) as run:
        checked = run.check(cut_short, x_of(), reference=lambda: 1 / 0)
    result = checked.result
    assert result.verdict is Verdict.INCOMPLETE
    assert result.launches, "what it launched before is judged"
    assert run.session.static_end(checked.ended)
    assert result.end is not None
    assert result.end.function == needs.__name__
    assert f"stopped after 1 launch at {result.end}; what it launches after that isn't judged" in result.message


@pytest.mark.slow
def test_what_equals_the_baseline_is_not_disassembled(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    record(project, scaled, LISTED)
    shutil.rmtree(project.root / "cache" / "listings", ignore_errors=True)
    asked: list[bytes] = []

    def listing(code: bytes, arch: str) -> str:
        asked.append(code)
        raise AssertionError("nvdisasm was run")

    monkeypatch.setattr(disassembly, "_listing", listing)
    monkeypatch.setattr(metrics.DISASSEMBLER, "_known", OrderedDict())
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(project.root / "cache"))
    result = project.static_once(LISTED).judge(scaled, x_of())
    assert result.verdict is Verdict.PASS
    assert result.launches[0].registers
    assert not asked
    with project.static_run(LISTED) as run, pytest.raises(AssertionError, match="nvdisasm was run"):
        run.check(functools.partial(scaled, size=128), x_of())


def test_a_refresh_of_all_counts_anew(recorded: Project) -> None:
    """Figures in a baseline may be an older kerntune's."""
    code = stored(recorded).code
    rewrite(recorded, registers=200)
    (path,) = recorded.files()
    path.write_text(path.read_text().replace('"code": "other"', f'"code": "{code}"'))
    assert '"registers": 200' in path.read_text()
    with recorded.static_run(SM90, update=Update.ALL) as run:
        run.check(scaled, x_of()).commit()
    assert stored(recorded).metrics.registers < 200


@pytest.mark.slow
def test_a_session_remembers_listings_in_its_cache_folder(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(project.root / "cache"))
    monkeypatch.setattr(metrics.DISASSEMBLER, "_known", OrderedDict())
    record(project, scaled, LISTED)
    assert list((project.root / "cache" / "listings").rglob("*.json"))
    monkeypatch.setattr(metrics.DISASSEMBLER, "_known", OrderedDict())
    monkeypatch.setattr(disassembly, "_listing", None)
    result = project.static_once(LISTED, update=Update.ALL).judge(scaled, x_of())
    assert result.launches[0].registers


@pytest.mark.slow
def test_an_update_of_regressed_cases_takes_these_alone(project: Project) -> None:
    record(project, reduced)
    (path,) = project.files()
    before = path.read_bytes()
    with project.static_run(SM90, update=Update.REGRESSED) as run:
        same = run.check(reduced, x_of()).commit()
        new = run.check(scaled, x_of(), node="t.py::test_new", policy=Policy(missing=Missing.FAIL)).commit()
    assert (same.verdict, same.recorded, path.read_bytes()) == (Verdict.PASS, False, before)
    assert (new.verdict, new.recorded, new.outcome) == (Verdict.NEW, False, Outcome.FAIL)
    with project.static_run(SM90, update=Update.REGRESSED) as run:
        worse = run.check(functools.partial(reduced, maxnreg=24), x_of()).commit()
    assert (worse.verdict, worse.recorded, worse.outcome) == (Verdict.REGRESSED, True, Outcome.PASS)
    accepted = project.static_once(SM90).judge(functools.partial(reduced, maxnreg=24), x_of())
    assert accepted.verdict is Verdict.PASS


def anchored(project: Project, registers: int) -> BaselineStore:
    """The one baseline as an anchor whose code was another and took that many registers; the baseline is today's."""
    (path,) = project.files()
    text = path.read_bytes()
    rewrite(project, registers=registers)
    copied = project.root / "anchors" / path.relative_to(project.baselines)
    copied.parent.mkdir(parents=True)
    copied.write_bytes(path.read_bytes())
    path.write_bytes(text)
    return BaselineStore(project.root / "anchors")


def test_small_steps_are_seen_since_the_anchor(recorded: Project) -> None:
    anchored(recorded, registers=8)
    rules = StaticPolicy({"registers": StaticRule("fail", 0.10)})
    with recorded.static_run(SM90, policy=Policy(static=rules)) as run:
        result = run.check(scaled, x_of()).commit()
        assert result.verdict is Verdict.PASS
        run.session.anchor_at(recorded.root / "anchors", "anchors")
        assert any("anchor anchors" in line or "anchors" in line for line in run.session.header()[2:])
        result = run.check(scaled, x_of()).commit()
    assert result.verdict is Verdict.REGRESSED
    assert re.search(r"more registers a thread: 8 -> \d+ .*, since the anchor of \d{4}-\d\d-\d\d", result.message)


def test_the_anchor_says_nothing_of_equal_code(recorded: Project) -> None:
    shutil.copytree(recorded.baselines, recorded.root / "anchors")
    with recorded.static_run(SM90) as run:
        run.session.anchor_at(recorded.root / "anchors", "anchors")
        result = run.check(scaled, x_of()).commit()
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


@pytest.mark.slow
def test_deleting_the_baseline_hides_nothing_from_the_anchor(project: Project) -> None:
    record(project, reduced)
    shutil.copytree(project.baselines, project.root / "anchors")
    shutil.rmtree(project.baselines)
    with project.static_run(SM90) as run:
        run.session.anchor_at(project.root / "anchors", "anchors")
        result = run.check(functools.partial(reduced, maxnreg=24), x_of()).commit()
    assert result.verdict is Verdict.REGRESSED
    assert "spills 0 -> " in result.message
    assert "since the anchor of" in result.message


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    product = tl.dot(tl.load(a_ptr + i * N + j), tl.load(b_ptr + i * N + j))
    tl.store(c_ptr + i * N + j, product.to(c_ptr.dtype.element_ty))


@pytest.mark.parametrize(
    "target",
    [
        "cuda:121",
        "hip:gfx1200",
        *(pytest.param(t, marks=pytest.mark.slow) for t in ("cuda:87", "cuda:103", "hip:gfx1201")),
    ],
)
def test_a_case_is_gated_for_each_target(project: Project, target: str) -> None:
    def call(a: torch.Tensor) -> torch.Tensor:
        scaled(x_of())
        c = torch.empty_like(a)
        product_kernel[(1,)](a, a, c, N=32)
        return c

    for verdict in (Verdict.NEW, Verdict.PASS):
        with project.static_run(target) as run:
            result = run.check(call, torch.randn(32, 32, device="cuda", dtype=torch.float16)).commit()
        assert result.verdict is verdict
    first, second = known(project).launches
    assert first.metrics.occupancy
    assert second.metrics.instructions.get("tensor_core")


def test_findings_of_several_launches_come_worst_first(project: Project) -> None:
    def both(x: torch.Tensor) -> None:
        scaled(x)
        reduced(x)

    record(project, both)
    rewrite(project, {"registers": 1}, {"occupancy": 1.5})
    result = project.static_once(SM90).judge(both, x_of())
    assert [text.partition(":")[0] for text in result.findings] == ["reduce_kernel", "scale_kernel"], result.findings


def test_an_argument_that_is_not_on_the_gpu_is_named(project: Project) -> None:
    x = torch.empty(N)
    with (
        project.static_run("cuda:90") as run,
        pytest.raises(CaptureError, match=r"kernel scale_kernel: x(_ptr)? is a tensor on cpu"),
    ):
        run.check(lambda: scale_kernel[by_block](x, x, N, 2.0, BLOCK=64))


# a pass that nothing was timed for


def test_other_code_that_passes_says_that_its_speed_was_not_judged(recorded: Project) -> None:
    with recorded.static_run(SM90) as run:
        same = run.check(scaled, x_of()).result
        tile = run.check(functools.partial(scaled, size=128), x_of()).result
    assert (same.verdict, same.unjudged, same.remarks) == (Verdict.PASS, "", ())
    assert (tile.verdict, tile.unjudged) == (Verdict.PASS, f"launch options changed; {UNJUDGED}")
    assert tile.remarks[0] == tile.unjudged


def erf_kernel(sign: str) -> Any:
    """Two kernels of one name whose figures are equal."""

    @triton.jit
    def gelu_kernel(x_ptr):
        i = tl.arange(0, 64)
        x = tl.load(x_ptr + i)
        tl.store(x_ptr + i, x * (1.0 + tl.erf(x)))

    plus = gelu_kernel

    @triton.jit
    def gelu_kernel(x_ptr):
        i = tl.arange(0, 64)
        x = tl.load(x_ptr + i)
        tl.store(x_ptr + i, x * (1.0 - tl.erf(x)))

    return plus if sign == "+" else gelu_kernel


def test_changed_code_of_equal_figures_is_said(project: Project) -> None:
    record(project, lambda x: erf_kernel("+")[(1,)](x))
    result = project.static_once(SM90).judge(lambda x: erf_kernel("-")[(1,)](x), x_of())
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert result.unjudged == f"code changed; {UNJUDGED}"


@pytest.mark.parametrize("update", [Update.IMPROVED, Update.REGRESSED, Update.RENAMED])
def test_updates_of_other_verdicts_record_nothing_new(project: Project, update: Update) -> None:
    """A renamed and edited test would be accepted with them."""
    result = project.static_once(SM90, update=update).judge(scaled, x_of())
    assert (result.verdict, result.recorded, project.files()) == (Verdict.NEW, False, [])
