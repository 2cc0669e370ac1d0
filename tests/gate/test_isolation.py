"""A session whose candidates fault: what is judged, named and remembered, and that nothing else is touched."""

from __future__ import annotations

from typing import Any

import pytest
import triton
from fake_runs import block, configs, scale, scale_kernel, tuned

import kerntune
from gate.project import Project, noted_first_launches
from kerntune.base.policy import TuneMode, Verdict
from kerntune.capture import launch
from kerntune.errors import TuningError
from kerntune.gpu.script import ABORT, ILLEGAL_ADDRESS, OUT_OF_MEMORY, TRAP, Rule
from kerntune.tuning import first_launches as launches_module
from kerntune.tuning import isolation as isolation_module

pytestmark = pytest.mark.slow

FIVE = (32, 64, 128, 256, 512)


def bad(size: int, fault: str, **more: Any) -> Rule:
    return Rule(constexprs={"BLOCK": size}, time_ns=10.0, fault=fault, **more)


BAD = (bad(32, ILLEGAL_ADDRESS), bad(512, ABORT), block(128, 100.0))


def failed(result: Any) -> dict[int, str]:
    return {int(f.config.kwargs["BLOCK"]): f.reason for f in result.failed_trials}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Blocks that were launched in other processes."""
    return noted_first_launches(monkeypatch, lambda recording: recording.binaries[0].constexprs["BLOCK"])


def test_the_first_of_the_list_faults(project: Project, launched: list[str]) -> None:
    """The one that the captured run would have launched on the user's own tensors."""
    with project.run(*BAD, isolated=True) as run:
        result = run.judge(lambda: scale(tuned(*FIVE)))
        assert not run.gpu.lost
        again = run.judge(lambda: scale(tuned(64, 128)), node="tests/test_scale.py::test_later")
    assert (result.verdict, again.verdict) == (Verdict.NEW, Verdict.NEW)
    assert result.launches[0].config == kerntune.Config({"BLOCK": 128})
    assert set(failed(result)) == {32, 512}
    assert "ILLEGAL_ADDRESS" in failed(result)[32]
    assert "SIGABRT" in failed(result)[512]
    assert sorted(launched, key=int) == ["32", "64", "128", "256", "512"], "each once, also the captured run's"


def test_what_faulted_is_not_launched_again(project: Project, launched: list[str]) -> None:
    project.once(*BAD, isolated=True).judge(lambda: scale(tuned(*FIVE)))
    launched.clear()
    with project.run(*BAD, isolated=True) as run:
        six = run.judge(lambda: scale(tuned(*FIVE, 1024)))
        assert not run.gpu.lost
    assert launched == ["1024"], "others have run before"
    assert set(failed(six)) == {32, 512}


def test_a_known_winner_needs_no_process(project: Project, launched: list[str]) -> None:
    project.once(*BAD, isolated=True).judge(lambda: scale(tuned(*FIVE)))
    launched.clear()
    assert project.once(*BAD, isolated=True).judge(lambda: scale(tuned(*FIVE))).verdict is Verdict.PASS
    assert launched == []


def test_if_all_fault_the_call_is_to_blame_and_nothing_is_remembered(project: Project, launched: list[str]) -> None:
    with project.run(*(bad(size, TRAP) for size in FIVE), isolated=True) as run:
        for _ in range(2):
            launched.clear()
            with pytest.raises(TuningError, match=r"so the call is to blame[^!]*CUDA_ERROR_LAUNCH_FAILED"):
                run.judge(lambda: scale(tuned(*FIVE)))
            assert len(launched) == 5
        assert not run.gpu.lost
        assert run.judge(lambda: scale(scale_kernel, BLOCK=1024)).verdict is Verdict.NEW


def test_a_session_says_once_what_the_device_does_not_protect(project: Project) -> None:
    """In the header, or where that isn't shown (a worker of xdist) with the first case that is tuned."""
    mps = "MPS is on: a fault of one process ends the others"
    with project.run(isolated=True, unprotected=(mps,)) as run:
        assert run.session.header()[2:] == [f"not protected: {mps}"]
        assert mps not in run.judge(lambda: scale(tuned(64, 128))).warnings
    with project.run(isolated=True, unprotected=(mps,), tune=TuneMode.FORCE) as run:
        first, second = (run.judge(lambda size=size: scale(tuned(64, size))) for size in (128, 256))
    assert mps in first.warnings
    assert "first launches" not in "".join((*first.warnings, *second.warnings))
    assert mps not in second.warnings


def sixteen() -> Any:
    """``scale_kernel`` with configs that all compile to code of their own."""
    found = [triton.Config({"BLOCK": b}, num_warps=w) for b in (32, 64, 128, 256) for w in (1, 2, 4, 8)]
    return triton.autotune(found, key=["n"])(scale_kernel)


def test_faults_that_come_first_do_not_end_the_captured_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "DOUBT_FAULTS", 3)
    with project.run(bad(32, ILLEGAL_ADDRESS), isolated=True) as run:
        result = run.judge(lambda: scale(sixteen()))
        assert not run.gpu.lost
    assert result.verdict is Verdict.NEW
    assert set(failed(result)) == {32}
    assert len(result.failed_trials) == 4


def test_a_remembered_fault_is_not_launched_without_isolation(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the test's own tensors, that is."""
    with project.run(bad(32, ILLEGAL_ADDRESS), block(128, 100.0), isolated=True) as run:
        run.judge(lambda: scale(tuned(32, 64, 128, 256)))
    monkeypatch.setenv("KERNTUNE_ISOLATE", "off")
    with project.run(bad(32, ILLEGAL_ADDRESS), block(128, 100.0), isolated=True) as run:
        other = run.judge(lambda: scale(tuned(32, 64, 256)), node="tests/test_scale.py::test_other")
        assert not run.gpu.lost
    assert other.verdict is Verdict.NEW


def test_short_memory_is_not_remembered(project: Project, launched: list[str]) -> None:
    first = project.once(bad(64, OUT_OF_MEMORY), isolated=True).judge(lambda: scale(tuned(32, 64, 128, 256)))
    launched.clear()
    again = project.once(block(64, 100.0), isolated=True).judge(lambda: scale(tuned(32, 64, 128, 256, 512)))
    assert set(failed(first)) == {64}
    assert "64" in launched
    assert failed(again) == {}


def test_a_process_that_has_its_context_needs_no_room_for_another(
    project: Project, launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.run(isolated=True) as run:
        run.judge(lambda: scale(tuned(32, 64)))
        room = launches_module.CONTEXT_BYTES + launches_module.STAGING_BYTES
        monkeypatch.setattr(launches_module, "copies_allowed", lambda *given, held: room)
        run.judge(lambda: scale(tuned(128, 256)), node="tests/test_scale.py::test_other")
    assert {"128", "256"} <= set(launched)


def test_the_environment_switches_it_off(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_ISOLATE", "off")
    monkeypatch.setattr(isolation_module, "FirstLaunchProcess", None)
    with project.run(block(128, 100.0), isolated=True) as run:
        assert run.judge(lambda: scale(triton_tuned())).verdict is Verdict.NEW


def triton_tuned() -> Any:
    return kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel)
