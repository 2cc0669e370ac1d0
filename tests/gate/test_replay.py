"""The comparison of a case when its baseline's binary can't run, and the verdicts that each fallback allows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from doubles import raising
from fake_runs import N, block, by_block, scale_kernel, x_of
from samples import SAMPLE, launch, recording, time_baseline

from gate.project import Project
from kerntune.base.case_result import CaseResult
from kerntune.base.codec import to_json
from kerntune.base.policy import Policy, Update, Verdict
from kerntune.base.recording import Param
from kerntune.base.stats import Estimate
from kerntune.errors import BaselineError, MeasurementError, OutOfResourcesError, ReplayError
from kerntune.gate import replay as module
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Calibration, TimeBaseline
from kerntune.gate.replay import RECOMPILED, REPLAY, STORED, Replayer, replay_baseline, stored_change
from kerntune.timing.timers import Sample

BLOCKS = 24
MORE_BLOCKS = 36


QUIET = Calibration(processes=30, blocks=24, floor=0.003, bias=0.0005, median_sd=0.002)


def call(size: int) -> Any:
    return lambda x: scale_kernel[by_block](x, torch.empty_like(x), N, 2.0, BLOCK=size)


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


@pytest.mark.slow
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


# which kind of comparison a baseline gets, and where its two sides run


replace = msgspec.structs.replace
BEFORE = time_baseline()
FARM: Any = "a farm"
TODAY: Any = "todays recording"


def kinds(monkeypatch: pytest.MonkeyPatch, *answers: Any, compiles: Any = None) -> tuple[Any, list[Any]]:
    """The comparison where each replay answers so; and what was replayed with which artifacts."""
    asked: list[Any] = []
    rest = list(answers)

    def replay(before: Any, artifacts: Any) -> Any:
        asked.append((before, dict(artifacts)))
        if isinstance(answer := rest.pop(0), Exception):
            raise answer
        return answer

    def recompiled(farm: Any, before: Any, stored: Any, now: Any) -> Any:
        assert farm is FARM
        assert now is TODAY, "options that no file may set are today's"
        if compiles is not None:
            raise compiles
        return "compiled again", {"made": b"m"}

    monkeypatch.setattr(module, "recompiled", recompiled)
    return replay_baseline(BEFORE, {"kept": b"k"}, FARM, replay, TODAY), asked


FIRST = (BEFORE.recording, {"kept": b"k"})
SECOND = ("compiled again", {"kept": b"k", "made": b"m"})


def test_the_baseline_s_binary_runs_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = kinds(monkeypatch, "replayed")
    assert (found.rung, found.replay, found.before, found.why_not) == (REPLAY, "replayed", BEFORE.recording, ())
    assert asked == [FIRST]
    assert found.artifacts == {"kept": b"k"}


@pytest.mark.parametrize("error", [ReplayError("another device"), OutOfResourcesError("another device")])
def test_else_its_ttir_compiled_today(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    found, asked = kinds(monkeypatch, error, "replayed")
    assert (found.rung, found.replay, found.before) == (RECOMPILED, "replayed", "compiled again")
    assert found.why_not == ("another device",)
    assert asked == [FIRST, SECOND]


def test_else_its_stored_sample_with_every_reason_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = kinds(monkeypatch, ReplayError("a"), ReplayError("b"))
    assert (found.rung, found.replay, found.before, found.why_not) == (STORED, None, None, ("a", "b"))
    found, asked = kinds(monkeypatch, ReplayError("a"), compiles=ReplayError("a"))
    assert (found.rung, found.why_not, asked) == (STORED, ("a",), [FIRST])


def test_processes_that_fail_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next kind would fail as well, or clear the case with less evidence."""
    found, asked = kinds(monkeypatch, MeasurementError("hangs"))
    assert (found.rung, found.replay, found.why_not, asked) == (REPLAY, None, ("hangs",), [FIRST])
    found, _ = kinds(monkeypatch, ReplayError("a"), MeasurementError("hangs"))
    assert (found.rung, found.why_not) == (RECOMPILED, ("a", "hangs"))


def test_a_damaged_file_has_to_be_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BaselineError):
        kinds(monkeypatch, BaselineError("damaged"))


def test_addresses_as_numbers_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "scalar_addresses", lambda recording: ["p", "q"])
    found, asked = kinds(monkeypatch)
    assert (found.rung, asked) == (STORED, [])
    assert found.why_not == ("it takes addresses as numbers (p, q); pass tensors instead",)


# the stored sample


@pytest.mark.parametrize(("today", "then", "known"), [(1.0, 1.0, True), (0.0, 1.0, False), (1.0, 0.0, False)])
def test_a_stored_time_says_something_if_both_are_times(today: float, then: float, known: bool) -> None:
    baseline = replace(
        BEFORE, sample=Sample(SAMPLE.protocol, (then,)), calibration=Calibration(4, 24, 0.01, 0.001, 0.002)
    )
    found = stored_change(baseline, Sample(SAMPLE.protocol, (today,)), 0.9)
    assert (found is not None) is known
    if found is not None:
        assert (found.point, found.level) == (0.0, 0.9)
        assert stored_change(replace(baseline, calibration=None), SAMPLE, 0.9) is None
        slower = stored_change(baseline, Sample(SAMPLE.protocol, (1.5,)), 0.9)
        assert slower is not None
        assert slower.point == pytest.approx(0.5)


# where it runs

HIDDEN = recording(launches=(launch(params=(Param("t", "*i64", view=0),)),), hidden_pointers=True)
OTHER = replace(HIDDEN, launches=(launch(params=(Param("t", "*i64", view=0), Param("n", "i32", value=3))),))


def replayer(mine: Any = None) -> Any:
    recorded: Any = SimpleNamespace(
        recording=mine or recording(), sources=(), artifacts={"today": b"t"}, writes_outside=False
    )
    loader: Any = SimpleNamespace(gpu="a GPU")
    pairs: Any = "processes"
    backend: Any = None
    return Replayer(backend, pairs, loader, recorded)


@pytest.mark.parametrize(("before", "mine", "here"), [
    (recording(), recording(), False), (HIDDEN, recording(), True), (recording(), HIDDEN, True),
])  # fmt: skip
def test_kernels_that_follow_addresses_run_in_this_process(
    monkeypatch: pytest.MonkeyPatch, before: Any, mine: Any, here: bool
) -> None:
    it = replayer(mine)
    where: list[str] = []
    ran = SimpleNamespace(a_ns=(100.0,), b_ns=(125.0,), foreign=module_foreign(), change=SimpleNamespace(point=0.25))
    pairing = SimpleNamespace(run=lambda blocks: where.append(f"here {blocks}") or ran)
    monkeypatch.setattr(it, "_pairing", lambda a, b, artifacts: pairing)
    monkeypatch.setattr(it, "work", lambda *a: module.paired_work(before, mine, (), {}))
    monkeypatch.setattr(module, "compare", lambda pairs, work, *a: where.append(f"there {pairs} {work.results}"))
    it.replay(before, {}, 0.99, 0.1, lambda change, a_ns: True, True)
    monkeypatch.setattr(module, "once", lambda pairs, work: where.append("once there") or 0.5)
    assert it.change(before, mine, {}) == (0.25 if here else 0.5)
    assert where == [f"here {BLOCKS}"] * 2 if here else ["there processes True", "once there"]


@pytest.mark.parametrize("settled", [True, False])
def test_here_a_second_look_takes_more_blocks(monkeypatch: pytest.MonkeyPatch, settled: bool) -> None:
    it = replayer(HIDDEN)
    looks: list[int] = []

    def run(blocks: int) -> Any:
        looks.append(blocks)
        return SimpleNamespace(a_ns=(100.0,) * blocks, b_ns=(110.0,) * blocks, foreign=module_foreign())

    monkeypatch.setattr(it, "_pairing", lambda *a: SimpleNamespace(run=run))
    told: list[tuple[Estimate, float]] = []

    def is_settled(change: Estimate, a_ns: float) -> bool:
        told.append((change, a_ns))
        return settled

    found = it.replay(HIDDEN, {}, 0.999, 0.001, is_settled)
    assert looks == [BLOCKS, *([] if settled else [MORE_BLOCKS])]
    assert found.change.point == pytest.approx(0.1)
    assert [a_ns for _, a_ns in told] == [100.0]


def module_foreign() -> Any:
    from kerntune.gpu.foreign_work import NONE_SEEN

    return NONE_SEEN


def test_other_arguments_or_memory_may_not_be_what_a_kernel_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    it = replayer(HIDDEN)
    for a, b in ((OTHER, HIDDEN), (HIDDEN, OTHER)):
        with pytest.raises(ReplayError, match="it follows addresses, and took other arguments"):
            it._pairing(a, b, {})
    larger = SimpleNamespace(storages=[None] * (len(HIDDEN.storages) + 1))
    monkeypatch.setattr(it, "_on_live_memory", lambda a, b, artifacts: (a, b, larger, {}))
    with pytest.raises(ReplayError, match="its memory is not laid out as today's"):
        it._pairing(HIDDEN, HIDDEN, {})
    larger.storages.pop()
    monkeypatch.setattr(module, "pair", lambda *told: told[-1])
    assert it._pairing(HIDDEN, HIDDEN, {}) == "auto"


@pytest.mark.parametrize("error", [MeasurementError("a"), OutOfResourcesError("a"), ReplayError("a")])
def test_results_that_cant_be_compared_say_why(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    it = replayer()

    monkeypatch.setattr(it, "_on_live_memory", raising(error))
    assert it.results(recording(), {}).why_not == "a"
