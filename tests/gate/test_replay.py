"""The comparison of a case when its baseline's binary can't run, and the verdicts that each fallback allows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from fake_runs import N, block, by_block, scale_kernel

from gate.project import Project
from kerntune.base.case_result import CaseResult
from kerntune.base.codec import to_json
from kerntune.base.policy import Policy, Update, Verdict
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Calibration, TimeBaseline

QUIET = Calibration(processes=30, blocks=24, floor=0.003, bias=0.0005, median_sd=0.002)


def call(size: int) -> Any:
    return lambda x: scale_kernel[by_block](x, torch.empty_like(x), N, 2.0, BLOCK=size)


def x_of() -> torch.Tensor:
    return torch.randn(N, device="cuda")


def recorded(project: Project, time_ns: float = 10_000.0, **changes: Any) -> TimeBaseline:
    project.once(block(64, time_ns)).judge(call(64), x_of())
    made = baseline_of(project)
    if changes:
        project.files()[0].write_bytes(to_json(msgspec.structs.replace(made, **changes)))
    return made


def baseline_of(project: Project) -> TimeBaseline:
    found = BaselineStore(project.baselines).read(project.files()[0])
    assert found is not None
    return found


def forget(project: Project, *fields: str) -> None:
    """Remove artifacts of the one binary."""
    made = baseline_of(project)
    folder = BaselineStore(project.baselines).artifacts(made.device.target).folder
    for field in fields:
        (folder / f"{getattr(made.recording.binaries[0], field)}.xz").unlink()


def today(project: Project, time_ns: float, **policy: Any) -> CaseResult:
    with project.run(block(64, 10_000.0), block(128, time_ns)) as run:
        return run.judge(call(128), x_of(), policy=Policy(**policy))


def test_the_binary_comes_first(project: Project) -> None:
    recorded(project)
    assert today(project, 10_000.0).rung == "paired replay"


@pytest.mark.parametrize(
    ("time_ns", "verdict"), [(10_000.0, Verdict.PASS), (11_000.0, Verdict.REGRESSED), (9_000.0, Verdict.IMPROVED)]
)
def test_without_its_binary_the_ttir_is_compiled_today(project: Project, time_ns: float, verdict: Verdict) -> None:
    recorded(project)
    forget(project, "sha256")
    result = today(project, time_ns)
    assert (result.verdict, result.rung) == (verdict, "recompiled TTIR")
    assert "held against the baseline's TTIR compiled today" in result.message
    if result.attribution:
        assert result.attribution.launch.change == pytest.approx(0.1, abs=0.01)
        assert result.attribution.compiler.change in (None, 0.0)


def test_a_binary_that_cant_be_replayed_is_no_obstacle_to_its_ttir(project: Project) -> None:
    made = recorded(project)
    binary = msgspec.structs.replace(made.recording.binaries[0], unreplayable="another ABI", code="other")
    recording = msgspec.structs.replace(made.recording, binaries=(binary,))
    project.files()[0].write_bytes(to_json(msgspec.structs.replace(made, recording=recording)))
    result = today(project, 11_000.0)
    assert (result.verdict, result.rung) == (Verdict.REGRESSED, "recompiled TTIR")
    assert "another ABI" in result.message


@pytest.mark.parametrize(
    ("time_ns", "verdict"),
    [
        (10_000.0, Verdict.PASS),
        (9_000.0, Verdict.PASS),
        (10_150.0, Verdict.INCONCLUSIVE),
        (20_000.0, Verdict.INCONCLUSIVE),
    ],
)
def test_a_stored_sample_says_pass_or_nothing(project: Project, time_ns: float, verdict: Verdict) -> None:
    recorded(project, calibration=QUIET)
    forget(project, "sha256", "ttir_sha256")
    result = today(project, time_ns)
    assert (result.verdict, result.rung) == (verdict, "stored sample")
    assert result.attribution is None
    assert "the baseline can't be replayed" in result.message


def test_without_a_calibration_a_stored_sample_says_nothing(project: Project) -> None:
    recorded(project, calibration=None)
    forget(project, "sha256", "ttir_sha256")
    assert today(project, 10_000.0).verdict is Verdict.INCONCLUSIVE


def test_the_same_work_needs_none_of_them(project: Project) -> None:
    recorded(project)
    forget(project, "sha256", "ttir_sha256")
    assert project.once(block(64, 10_000.0)).judge(call(64), x_of()).rung == "identity"


# calibration


def test_a_first_baseline_is_calibrated(project: Project) -> None:
    recorded(project)
    found = baseline_of(project).calibration
    assert found is not None
    assert 0 <= found.bias <= found.floor < 0.005
    project.once(block(64, 10_000.0), update=Update.ALL).judge(call(64), x_of())
    assert baseline_of(project).calibration == found, "the same work keeps it"


def test_calibrating_can_be_left_out(project: Project) -> None:
    project.once(block(64, 10_000.0), calibrate=False).judge(call(64), x_of())
    assert baseline_of(project).calibration is None


def test_a_case_that_cant_be_gated_at_its_tolerance_says_so(project: Project) -> None:
    recorded(project, calibration=msgspec.structs.replace(QUIET, floor=0.05))
    result = today(project, 10_400.0)
    assert result.verdict is Verdict.PASS, "4 % is under the floor"
    assert result.warnings == (
        "can't be gated at 2.0 %: on this device a change under 5.0 % can't be told from none, "
        "so 5.0 % is what was gated",
    )
    assert result.warnings[0] in result.message
    assert today(project, 10_400.0, tolerance=0.1).warnings == ()
    assert today(project, 10_700.0).verdict is Verdict.REGRESSED


def test_bias_that_calibration_found_widens_the_interval(project: Project) -> None:
    recorded(project, calibration=msgspec.structs.replace(QUIET, bias=0.0005))
    narrow = today(project, 10_500.0).change
    project.files()[0].write_bytes(
        to_json(msgspec.structs.replace(baseline_of(project), calibration=msgspec.structs.replace(QUIET, bias=0.01)))
    )
    wide = today(project, 10_500.0).change
    assert narrow
    assert wide
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


# the family


def test_decisions_of_a_run_share_its_error(project: Project) -> None:
    recorded(project)
    with project.run(block(64, 10_000.0), block(128, 11_000.0)) as run:
        one, many = (run.judge(call(128), x_of(), policy=Policy(cases=n)).change for n in (1, 500))
    assert one
    assert many
    assert (one.level, many.level) == (pytest.approx(1 - 0.0005), pytest.approx(1 - 0.001 / 1000))
    assert many.high - many.low > one.high - one.low
    with project.run(block(64, 10_000.0), block(128, 11_000.0)) as run:
        levels = [run.judge(call(128), x_of(), policy=Policy(cases=1)).change for _ in range(3)]
    errors = [1 - c.level for c in levels if c]
    assert errors == pytest.approx([0.0005, 0.0005 / 2, 0.0005 / 6])
