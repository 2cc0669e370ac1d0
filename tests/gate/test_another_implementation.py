"""A choice in a gated test: it is decided before the capture, and another winner than the baseline's is a cause."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_runs import N, scale_kernel
from samples import ENVIRONMENT, launch, recording

import kerntune
from gate.doubling import Doubling, checked
from gate.project import Project
from kerntune.gate.causes import OTHER_IMPLEMENTATION, causes, steps_between
from kerntune.gpu.script import Rule
from kerntune.tuning.choices import choice_place


@pytest.fixture
def doubling() -> Doubling:
    return Doubling()


@pytest.mark.slow
def test_a_choice_is_decided_before_its_call_is_captured(tmp_path: Path, doubling: Doubling) -> None:
    first = checked(Project(tmp_path), doubling, doubling.double)
    assert first.verdict.value == "NEW"
    assert [launch.kernel for launch in first.launches] == ["scale_kernel"]
    assert [d.how for d in doubling.double.operation.decisions] == ["raced"]


@pytest.mark.slow
def test_the_report_has_all_implementations(tmp_path: Path, doubling: Doubling) -> None:
    """The times are the stored ones where an earlier run has decided."""
    project = Project(tmp_path)
    for how in ("raced", "stored"):
        result = checked(project, doubling, doubling.double)
        (line,) = [text for text in result.remarks if text.startswith("choice ")]
        assert re.search(rf"went to \S+scaled \({how}\); \S+scaled 1.00 .s; \S+added 3.00 .s", line), line
        doubling.forget()


@pytest.mark.slow
def test_kernels_inside_are_tuned_in_the_gates_cache(
    tmp_path: Path, doubling: Doubling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the user's, and in the gate's mode: what the test is compared with doesn't depend on the machine."""
    from kerntune.tuning import context

    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "users"))
    monkeypatch.setenv("KERNTUNE_TUNE", "frozen")
    scaled = doubling.double.operation.implementations[0].fn
    double = kerntune.choice([scaled, doubling.tuned_inside()], key=["x"])(lambda x: None)
    project = Project(tmp_path / "project")
    with project.run(Rule("scale_kernel", time_ns=1000.0), Rule("add_kernel", time_ns=3000.0)) as run:
        monkeypatch.setattr(context, "this_gpu", lambda: run.session.backend)
        doubling.run = run
        run.judge(double, torch.empty(N, device="cuda"))
    (decision,) = double.operation.decisions
    assert not decision.left_out
    assert not list((tmp_path / "users").rglob("*.json"))


@pytest.mark.slow
def test_another_winner_is_a_cause_of_its_own(tmp_path: Path, doubling: Doubling) -> None:
    project = Project(tmp_path)
    checked(project, doubling, doubling.double)
    doubling.forget()
    doubling.ns = {"scaled": 5000.0, "added": 3000.0}
    second = checked(project, doubling, doubling.double, tune=kerntune_force())
    assert second.verdict.value == "REGRESSED"
    (line,) = [text for text in second.causes if text.startswith(OTHER_IMPLEMENTATION)]
    assert "scaled -> " in line
    assert line.endswith("added")
    assert second.causes[0] == "code unchanged"


def kerntune_force() -> Any:
    from kerntune.base.policy import TuneMode

    return TuneMode.FORCE


@pytest.mark.slow
def test_a_choice_inside_of_the_call_is_known_by_its_name(tmp_path: Path, doubling: Doubling) -> None:
    project = Project(tmp_path)
    checked(project, doubling, doubling.double)
    inside = checked(project, doubling, lambda x: doubling.double(x))
    assert [launch.kernel for launch in inside.launches] == ["scale_kernel"]


def test_the_share_is_the_implementations() -> None:
    """Its launches, grids and kernels are no causes beside it."""
    before = recording(launches=(launch(kernel="a", source="1"),), choices={"double": "m.scaled"})
    after = recording(launches=(launch(kernel="b", source="2", grid=(7, 1, 1)),), choices={"double": "m.added"})
    assert causes(before, after, ENVIRONMENT, ENVIRONMENT)[:2] == (
        "code unchanged",
        "another implementation won: double: m.scaled -> m.added",
    )
    chain = steps_between(before, lambda: before, after, lambda: after)
    shares = {name: share for step in chain.steps for name, share in step.shares(0.5).items() if not step.nothing}
    assert set(shares) == {"launch"}
    assert shares["launch"].cause == OTHER_IMPLEMENTATION


def test_a_choice_of_one_side_alone_is_no_cause() -> None:
    before, after = recording(), recording(choices={"double": "m.added"})
    assert not [x for x in causes(before, after, ENVIRONMENT, ENVIRONMENT) if x.startswith(OTHER_IMPLEMENTATION)]


def test_threads_of_a_gated_test_decide_where_it_does(tmp_path: Path, doubling: Doubling) -> None:
    """torch runs the backward functions of a GPU in a thread of its own."""
    found: list[Any] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: found.append(choice_place.current_place()))
        thread.start()
        thread.join()
        y = torch.empty_like(x)
        scale_kernel[(N // 128,)](x, y, N, 2.0, BLOCK=128)
        return y

    checked(Project(tmp_path), doubling, call)
    assert found[0] is not None
    assert choice_place.current_place() is None
