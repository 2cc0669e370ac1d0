"""A case whose test was renamed: it is reported, and taken over with the option."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
import triton
from fake_runs import N, block, by_block, configs, scale_kernel

from gate.project import NODE, Project, Run
from kerntune.base.codec import to_json
from kerntune.base.policy import Policy, Update, Verdict
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Calibration, StaticBaseline, TimeBaseline

SM90, SM80 = "cuda:90", "cuda:80"
NEW = "tests/test_scale.py::test_other"


def scaled(x: torch.Tensor, size: int = 64) -> torch.Tensor:
    y = torch.empty_like(x)
    scale_kernel[by_block](x, y, N, 2.0, BLOCK=size)
    return y


def x_of(n: int = N) -> torch.Tensor:
    return torch.randn(n, device="cuda")


def record(project: Project, node: str = NODE, *targets: str) -> None:
    with project.static_run(*(targets or (SM90,))) as run:
        assert all(r.recorded for r in run.check(scaled, x_of(), node=node).commit())


def without(run: Run, *gone: str, **options: Any) -> Run:
    """A run that has collected none of these tests."""
    run.session.tests_gone(lambda nodeid: nodeid in gone, **options)
    return run


def stored(project: Project) -> dict[str, list[TimeBaseline | StaticBaseline]]:
    found: dict[str, list[TimeBaseline | StaticBaseline]] = {}
    for _, baseline in BaselineStore(project.baselines, project.root).summaries():
        assert isinstance(baseline, (TimeBaseline, StaticBaseline))
        found.setdefault(baseline.case.nodeid, []).append(baseline)
    return found


def test_a_new_case_says_what_it_was_called(project: Project) -> None:
    record(project)
    with project.static_run(SM90) as run:
        (result,) = without(run, NODE).check(scaled, x_of(), node=NEW).results
    assert result.verdict is Verdict.NEW
    assert result.message.endswith(
        f"renamed from {NODE}? `kerntune baselines mv {NODE} {NEW}` keeps what is known of it"
    )
    assert list(stored(project)) == [NODE]
    assert result.remarks[0] in result.message  # the table shows the first remark of a case without findings
    assert result.remarks[0].startswith(f"renamed from {NODE}?")


@pytest.mark.parametrize("change", ["there", "shape", "kernel", "own"])
def test_another_case_is_no_renamed_one(project: Project, change: str) -> None:
    record(project)
    if change == "own":
        record(project, NEW)

    def other(x: torch.Tensor) -> torch.Tensor:
        return scaled(scaled(x))

    with project.static_run(SM90) as run:
        run = without(run, *([] if change == "there" else [NODE]))
        fn = other if change == "kernel" else scaled
        (result,) = run.check(fn, x_of(2 * N if change == "shape" else N), node=NEW).results
    assert f"renamed from {NODE}?" not in result.message
    assert ("and edited?" in result.message) == (change == "kernel")


def test_a_renamed_and_edited_case_is_not_recorded_unless_asked(project: Project) -> None:
    """Else the edit would be accepted with the name."""

    def edited(x: torch.Tensor) -> torch.Tensor:
        return scaled(scaled(x))

    record(project)
    for update in (Update.NONE, Update.RENAMED, Update.IMPROVED, Update.REGRESSED):
        with project.static_run(SM90, update=update) as run:
            (result,) = without(run, NODE).check(edited, x_of(), node=NEW).commit()
        assert (result.verdict, result.recorded, list(stored(project))) == (Verdict.NEW, False, [NODE])
        assert result.remarks[0].startswith(f"renamed from {NODE} and edited? `kerntune baselines mv {NODE} {NEW}`")
    with project.static_run(SM90, update=Update.NEW) as run:
        (result,) = without(run, NODE).check(edited, x_of(), node=NEW).commit()
    assert (result.recorded, sorted(stored(project))) == (True, sorted([NODE, NEW]))


def test_a_renamed_and_edited_case_is_not_recorded_on_a_gpu_either(project: Project) -> None:
    rules = block(64, 10_000.0), block(128, 20_000.0)

    def edited(x: torch.Tensor) -> torch.Tensor:
        return scaled(scaled(x))

    assert project.once(*rules).judge(scaled, x_of()).recorded
    with project.run(*rules) as run:
        result = without(run, NODE).judge(edited, x_of(), node=NEW)
    assert (result.verdict, result.recorded) == (Verdict.NEW, False)
    assert "and edited?" in result.message


@pytest.mark.parametrize("update", [Update.ALL, Update.NEW, Update.RENAMED])
def test_an_update_takes_all_of_it_over(project: Project, update: Update) -> None:
    record(project, NODE, SM90, SM80)
    before = stored(project)[NODE]
    anchors = project.root / "anchors"
    for path, found in BaselineStore(project.baselines, project.root).summaries():
        copied = anchors / path.relative_to(project.baselines)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(to_json(found))
    with project.static_run(SM90, update=update, policy=Policy(ci=True)) as run:
        (result,) = without(run, NODE, anchor=anchors).check(scaled, x_of(), node=NEW).commit()
    assert result.verdict is Verdict.PASS
    assert result.message.endswith(f"renamed from {NODE}, whose baselines were taken over")
    assert result.recorded
    after = stored(project)
    assert list(after) == [NEW]
    assert len(after[NEW]) == 2
    if update is not Update.ALL:
        assert [msgspec.structs.replace(b, case=None) for b in after[NEW]] == [
            msgspec.structs.replace(b, case=None) for b in before
        ]
    assert {b.case.nodeid for _, b in BaselineStore(anchors).summaries()} == {NEW}  # type: ignore[union-attr]


@pytest.mark.parametrize("update", [Update.NONE, Update.IMPROVED, Update.REGRESSED])
def test_nothing_is_moved_unasked(project: Project, update: Update) -> None:
    record(project)
    with project.static_run(SM90, update=update) as run:
        without(run, NODE).check(scaled, x_of(), node=NEW)
    assert list(stored(project)) == [NODE]


def test_each_old_name_is_given_once_to_the_likest(project: Project) -> None:
    for n in (1, 2, 3):
        record(project, f"{NODE}[{n}]")
    gone = [f"{NODE}[{n}]" for n in (1, 2, 3)]
    with project.static_run(SM90, update=Update.RENAMED) as run:
        run = without(run, *gone)
        said = [run.check(scaled, x_of(), node=f"{NEW}[{n}]").results[0].message for n in (3, 1, 2, 4)]
    assert [f"renamed from {NODE}[{n}]," in text for n, text in zip((3, 1, 2), said, strict=False)] == [True] * 3
    assert "renamed" not in said[3]
    assert sorted(stored(project)) == [f"{NEW}[{n}]" for n in (1, 2, 3)]


def test_a_name_is_asked_about_once(project: Project) -> None:
    record(project)
    with project.static_run(SM90) as run:
        run = without(run, NODE)
        said = [run.check(scaled, x_of(), node=f"{NEW}[{n}]").results[0].message for n in (1, 2, 1)]
    assert ["renamed from" in text for text in said] == [True, False, True]


def test_its_config_is_tried_first(project: Project) -> None:
    """Else another config than the baseline's would be compiled, and be another code."""
    tuned = triton.autotune(configs=configs(64, 128), key=[])(scale_kernel)

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        tuned[by_block](x, y, N, 2.0)
        return y

    with project.static_run(SM90) as run:
        run.check(call, x_of()).commit()
    (found,) = stored(project)[NODE]
    assert isinstance(found, StaticBaseline)
    (launch,) = found.launches
    assert launch.config is not None
    path = next(iter(project.files()))
    other = msgspec.structs.replace(launch, config=msgspec.structs.replace(launch.config, kwargs={"BLOCK": 128}))
    path.write_bytes(to_json(msgspec.structs.replace(found, launches=(other,))))
    with project.static_run(SM90, update=Update.RENAMED) as run:
        (result,) = without(run, NODE).check(call, x_of(), node=NEW).results
    assert result.launches[0].config is not None
    assert result.launches[0].config.kwargs == {"BLOCK": 128}


def test_a_stale_baseline_says_where_its_work_is_now(project: Project) -> None:
    record(project)
    (path,) = project.files()
    (found,) = stored(project)[NODE]
    path.write_bytes(to_json(msgspec.structs.replace(found, recorded="2026-01-01T00:00:00Z")))
    with project.static_run(SM90) as run:
        run.check(scaled, x_of(), node=NEW).commit()
        (stale,) = run.session.stale({NEW}, selected_all=True)
    assert f"renamed to {NEW}? `kerntune baselines mv {NODE} {NEW}` keeps" in stale.message


def test_on_a_gpu_the_time_and_its_calibration_stay(project: Project) -> None:
    project.once(block(64, 10_000.0)).judge(scaled, x_of())
    (path,) = project.files("**/time/**/*.json")
    (found,) = stored(project)[NODE]
    assert isinstance(found, TimeBaseline)
    calibration = Calibration(4, 24, 0.001, 0.0, 0.002)
    path.write_bytes(to_json(msgspec.structs.replace(found, calibration=calibration, recorded="2026-01-01T00:00:00Z")))
    with project.run(block(64, 10_000.0), update=Update.RENAMED) as run:
        result = without(run, NODE).judge(scaled, x_of(), node=NEW)
    assert result.verdict is Verdict.PASS
    assert result.message.endswith(f"renamed from {NODE}, whose baselines were taken over")
    ((now,),) = stored(project).values()
    assert isinstance(now, TimeBaseline)
    assert (now.case.nodeid, now.calibration, now.recorded) == (NEW, calibration, "2026-01-01T00:00:00Z")
    assert now.sample == found.sample


def test_on_a_gpu_a_new_case_says_what_it_was_called(project: Project) -> None:
    project.once(block(64, 10_000.0)).judge(scaled, x_of())
    with project.run(block(64, 10_000.0)) as run:
        result = without(run, NODE).judge(scaled, x_of(), node=NEW)
    assert result.verdict is Verdict.NEW
    assert f"renamed from {NODE}?" in result.message
    assert f"renamed from {NODE}?" in result.remarks[0]
