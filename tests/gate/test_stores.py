"""Baselines read from one folder and written to another."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from cli import made
from fake_runs import N, block, by_block, scale_kernel

from gate.project import Project
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Missing, Outcome, Policy, Update, Verdict
from kerntune.cli.command import main
from kerntune.gate import stores
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.call import PendingBaseline
from kerntune.gate.report import RunReport, write_run
from kerntune.gate.stores import RunBaselines, prune_command

RULES = (block(64, 10_000.0), block(128, 11_000.0))


def call(size: int) -> Any:
    return lambda x: scale_kernel[by_block](x, torch.empty_like(x), N, 2.0, BLOCK=size)


def judged(project: Project, size: int, **options: Any) -> CaseResult:
    policy = options.pop("policy", None)
    with project.run(*RULES, **options) as run:
        return run.judge(call(size), torch.randn(N, device="cuda"), policy=policy)


@pytest.fixture
def base(project: Project) -> Any:
    """The folder of a revision in which the fast block was used; the project's own has the slow one."""
    judged(project, 64)
    there = project.root / "base"
    project.baselines.rename(there)
    judged(project, 128)
    return there


def test_a_change_cant_move_its_own_yardstick(project: Project, base: Any) -> None:
    assert judged(project, 128).verdict is Verdict.PASS, "its own baseline moved with it"
    result = judged(project, 128, reference=(base, "main"))
    assert (result.verdict, result.rung) == (Verdict.REGRESSED, "paired replay")
    assert result.attribution
    assert result.attribution.launch.change == pytest.approx(0.1, abs=0.01)
    assert result.warnings == ()


def test_baselines_are_still_written_to_the_folder(project: Project, base: Any) -> None:
    before = [p.read_bytes() for p in sorted(base.rglob("*.json"))]
    result = judged(project, 64, reference=(base, "main"), update=Update.ALL)
    assert result.recorded
    assert result.baseline_path.startswith("baselines/")
    assert [p.read_bytes() for p in sorted(base.rglob("*.json"))] == before
    assert judged(project, 64).rung == "identity"


def test_a_case_that_only_this_tree_has_is_new(project: Project) -> None:
    """Its baseline is a change's own: it decides nothing, and stays as it is."""
    judged(project, 64)
    before = {p: p.read_bytes() for p in project.files("**/*") if p.is_file()}
    empty = project.root / "base"
    result = judged(project, 128, reference=(empty, "v1"))
    assert (result.verdict, result.outcome, result.recorded) == (Verdict.NEW, Outcome.PASS, False)
    said = "not in v1; the baseline that this tree has of it decides nothing"
    assert result.warnings == (said,)
    assert said in result.message
    failing = judged(project, 128, reference=(empty, "v1"), policy=Policy(missing=Missing.FAIL))
    assert failing.outcome is Outcome.WARN
    assert {p: p.read_bytes() for p in project.files("**/*") if p.is_file()} == before


def test_read_only_knows_its_yardstick_alone_and_writes_nothing(project: Project) -> None:
    judged(project, 64)
    before = {p: p.read_bytes() for p in project.files("**/*") if p.is_file()}
    result = judged(project, 128, reference=(project.root / "base", "main"), read_only=True, update=Update.NONE)
    assert (result.verdict, result.outcome, result.recorded) == (Verdict.NEW, Outcome.PASS, False)
    missing = judged(
        project, 128, reference=(project.root / "base", "main"), read_only=True, policy=Policy(missing=Missing.FAIL)
    )
    assert missing.outcome is Outcome.FAIL
    assert {p: p.read_bytes() for p in project.files("**/*") if p.is_file()} == before


def test_read_only_has_no_stale_baselines(project: Project) -> None:
    judged(project, 64)
    with project.run(*RULES, reference=(project.root / "base", "main"), read_only=True) as run:
        assert run.session.stale([], True) == []
    with project.run(*RULES) as run:
        assert len(run.session.stale([], True)) == 1


def test_without_a_gpu_a_yardstick_holds_too(project: Project) -> None:
    def wide(x: torch.Tensor) -> None:
        scale_kernel[by_block](x, torch.empty_like(x), N, 2.0, BLOCK=64)

    project.static_once("cuda:90").judge(wide, torch.empty(N, device="cuda"))
    there = project.root / "base"
    project.baselines.rename(there)
    with project.static_run("cuda:90", reference=(there, "main"), read_only=True) as run:
        assert run.judge(wide, torch.empty(N, device="cuda")).verdict is Verdict.PASS
    with project.static_run("cuda:90", reference=(project.root / "none", "main"), read_only=True) as run:
        result = run.judge(wide, torch.empty(N, device="cuda"))
    assert (result.verdict, result.recorded) == (Verdict.NEW, False)
    assert not project.baselines.exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "/baselines"),
        ({"reference": (Path("base"), "main")}, "/baselines as of main"),
        ({"reference": (Path("base"), "main"), "read_only": True}, "held against main, compiled and replayed today"),
    ],
)
def test_the_header_says_what_is_held_against(project: Project, options: dict[str, Any], text: str) -> None:
    with project.run(**options) as run:
        assert run.session.header()[1].endswith(text)


# which baselines of a folder a run should have met, and which can't be read


A, B, C = (f"tests/test_softmax.py::test_{name}" for name in "abc")


def store_of(tmp_path: Path, *pending: PendingBaseline) -> BaselineStore:
    return made.folder(tmp_path / "baselines", *pending)


def on_gpu(store: BaselineStore, spec: Any = made.H200) -> RunBaselines:
    backend: Any = SimpleNamespace(gpu="a GPU", spec=spec)
    return RunBaselines(store, backend, (spec.target,))


def without_gpu(store: BaselineStore, *targets: Any) -> RunBaselines:
    backend: Any = SimpleNamespace(gpu=None)
    return RunBaselines(store, backend, targets or (made.CUDA90,))


def stale(run: RunBaselines, ran: list[str], selected_all: bool = True) -> list[str]:
    return [r.case.nodeid for r in run.stale(ran, Policy(), selected_all=selected_all)]


def test_a_case_that_the_run_has_met_is_not_stale(tmp_path: Path) -> None:
    pending = [made.timed(node) for node in (A, B, C)]
    run = on_gpu(store_of(tmp_path, *pending))
    assert stale(run, [A, B, C]) == [A, B, C]
    run.note(pending[0].baseline.case, "another shape")
    run.note(pending[0].baseline.case, pending[0].baseline.fingerprint)
    assert stale(run, [A, B, C]) == [B, C]
    run.note(pending[1].baseline.case, "another shape")
    assert stale(run, [A, B, C]) == [B, C]


def test_a_test_that_did_not_run_is_gone_only_if_all_were_selected(tmp_path: Path) -> None:
    run = on_gpu(store_of(tmp_path, made.timed(A), made.timed(B)))
    assert stale(run, [B], selected_all=False) == [B]
    assert stale(run, [B]) == [A, B]


def test_a_stale_baseline_is_named_with_its_file_and_what_removes_it(tmp_path: Path) -> None:
    store = store_of(tmp_path, made.timed(A), made.timed(B))
    policy = Policy()
    first, second = on_gpu(store).stale([B], policy, selected_all=True)
    path = store.shown(next(p for p in store.time_files() if "test_a" in p.name))
    assert first.message.startswith(f"STALE {A}: its test is gone")
    assert first.message.endswith(f"`kerntune baselines prune` removes {path}")
    assert (first.baseline_path, first.target, first.verdict) == (path, "cuda:90", Verdict.STALE)
    assert first.outcome is policy.outcome(Verdict.STALE)
    assert isinstance(first.outcome, Outcome)
    rerun = "`pytest --kerntune --kerntune-json=run.json` and then `kerntune baselines prune --stale-from run.json`"
    why = f"its test ran, but not with this call, shape, dtype or stride; {rerun} removes {second.baseline_path}"
    assert second.message == f"STALE {B}: {why}"
    assert second.fingerprint == made.timed(B).baseline.fingerprint


def test_the_command_that_is_named_removes_what_the_run_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = store_of(tmp_path, made.timed(A), made.timed(B))
    found = on_gpu(store).stale([A, B], Policy(), selected_all=True)
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run.json", RunReport(tuple(found)))
    assert prune_command(by_run=True) in found[0].message
    assert main(prune_command(by_run=True).split()[1:]) == 0
    assert "removed 2 baselines" in capsys.readouterr().out
    assert not store.time_files()


def test_what_a_test_that_is_gone_may_be_called_now_is_told(tmp_path: Path) -> None:
    later = made.timed(B)
    baseline = msgspec.structs.replace(later.baseline, recorded="2026-05-01T00:00:00Z")
    store = store_of(tmp_path, made.timed(A), PendingBaseline(baseline, later.artifacts, write=True))
    first, _ = on_gpu(store).stale([B], Policy(), selected_all=True)
    assert f"its test is gone, renamed to {B}? " in first.message


def test_what_differs_from_the_nearest_call_of_the_run_is_told(tmp_path: Path) -> None:
    baseline = made.timed(A).baseline
    run = on_gpu(store_of(tmp_path, made.timed(A)))
    first, *others = baseline.arguments
    shorter = msgspec.structs.replace(first, shape=(37,))
    run.note(
        baseline.case, "far", tuple(msgspec.structs.replace(x, dtype="int8", shape=(1,)) for x in baseline.arguments)
    )
    run.note(baseline.case, "near", (shorter, *others))
    run.note(baseline.case, "of another number of tensors", (first,) * 9)
    (found,) = run.stale([A], Policy(), selected_all=True)
    assert f"dtype or stride (tensor 0 has shape {first.shape} stored and (37,) today); " in found.message


def test_a_run_meets_the_baselines_of_its_own_device(tmp_path: Path) -> None:
    store = store_of(tmp_path, made.timed(A), made.static(B))
    assert stale(on_gpu(store), []) == [A]
    other = msgspec.structs.replace(made.H200, name="NVIDIA A100")
    assert stale(on_gpu(store, other), []) == []


def test_without_a_gpu_those_of_its_targets_and_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path, made.timed(A), made.static(B))
    monkeypatch.setattr(stores.versions, "triton_series", lambda: "3.9")
    found = without_gpu(store).stale([], Policy(), selected_all=True)
    assert [(r.case.nodeid, r.target) for r in found] == [(B, "cuda:90")]
    assert stale(without_gpu(store, msgspec.structs.replace(made.CUDA90, arch="80")), []) == []
    monkeypatch.setattr(stores.versions, "triton_series", lambda: "3.8")
    assert stale(without_gpu(store), []) == []


def test_what_cant_be_read_is_told_and_is_never_stale(tmp_path: Path) -> None:
    store = store_of(tmp_path, made.timed(A), made.timed(B))
    bad = next(p for p in store.time_files() if "test_a" in p.name)
    bad.write_text("{")
    run = on_gpu(store)
    assert stale(run, []) == [B]
    assert list(run.unreadable()) == [bad]
    assert str(bad) in run.unreadable()[bad]


def test_a_file_that_goes_meanwhile_is_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path, made.timed(A))
    monkeypatch.setattr(store, "read", lambda path: None)
    run = on_gpu(store)
    assert (stale(run, []), run.unreadable()) == ([], {})
