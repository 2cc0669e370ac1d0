"""Two processes that check calls of one key: one tunes it, the other takes its winner."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_runs import N, block, by_block, captured, tuned
from tuning.turn_clock import Clock, stopped_clock

from gate.project import Project, Run
from kerntune.base.policy import TuneMode
from kerntune.gate import call_tuning
from kerntune.gpu import device_lock
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import scripted_host
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.stored_winners import Winners

RULES = (block(64, 10_000.0), block(128, 12_000.0))


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(device_lock, "device_node", lambda uuid: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # of the machine, where one has GPUs


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return stopped_clock(monkeypatch)


def scaled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    tuned(64, 128)[by_block](x, y, N, 2.0)
    return y


class OtherProcess:
    """It has the lease of the call's key from the start, and stores the config that is slower here."""

    def __init__(self, project: Project, run: Run) -> None:
        site = captured(run.session.backend, lambda: scaled(torch.randn(N, device="cuda"))).launches[0].site
        assert site is not None
        self.site, self.gpus_in_use = site, None
        self.winners = Winners(WinnerCache(project.root / "cache"), TuneMode.AUTO, run.gpu)
        self.lease = self.winners.lease(site)
        assert self.lease.take()

    def store(self) -> None:
        """It needs the GPU alone for that."""
        self.gpus_in_use = device_lock.held_by_others()
        self.winners.keep(self.site, 1, 1000.0)
        self.lease.release(True)

    def fail(self) -> None:
        self.lease.release(False)


def judged(project: Project, clock: Clock, act: str) -> tuple[Any, OtherProcess]:
    with project._open(scripted_host(1, Script(RULES)), {}) as run:
        other = OtherProcess(project, run)
        clock.meanwhile.append((3.0, getattr(other, act)))
        with run.session.in_turn():
            return run.judge(scaled, torch.randn(N, device="cuda")), other


def test_the_winner_of_the_process_that_was_first_is_taken(project: Project, clock: Clock) -> None:
    result, other = judged(project, clock, "store")
    assert clock.now == 3.0
    assert [t.config.kwargs for t in result.trials] == [{"BLOCK": 128}]
    assert [launch.config.kwargs for launch in result.launches] == [{"BLOCK": 128}]
    assert other.gpus_in_use == []


def test_when_the_first_one_fails_the_second_tunes_and_lets_go(project: Project, clock: Clock) -> None:
    result, other = judged(project, clock, "fail")
    assert clock.now == 3.0
    assert len(result.trials) == 2
    assert [launch.config.kwargs for launch in result.launches] == [{"BLOCK": 64}]
    assert other.lease.take()


class Winner:
    """A site's key, and whether it has a winner."""

    def __init__(self, name: str, known: bool = False) -> None:
        self.name, self.known = name, known

    def digest(self) -> str:
        return self.name


class Known:
    """Winners of a run, by site; a site stands for its key."""

    def __init__(self, mode: TuneMode = TuneMode.AUTO) -> None:
        self.mode = mode

    def key(self, site: Winner) -> Winner:
        return site

    def find(self, site: Winner) -> object | None:
        return site if site.known else None


def launches_of(*sites: Winner | None, grid: tuple[int, ...] = (1, 1, 1)) -> Any:
    return SimpleNamespace(launches=[SimpleNamespace(site=site, grid=grid) for site in sites])


def turns_of(monkeypatch: pytest.MonkeyPatch, winners: Known, capture: Any) -> list[Any]:
    """What is held meanwhile; nothing is afterwards."""
    held: list[Any] = []

    @contextlib.contextmanager
    def turn(winners: Any, site: Any, gpu: Any, *, unfinished: bool) -> Iterator[None]:
        held.append((site.name, gpu, unfinished))
        yield
        held.pop()

    monkeypatch.setattr(call_tuning, "tuning_turn", turn)
    gpu: Any = "the GPU"
    with call_tuning.tuning_turns(winners, capture, gpu) as stack:  # type: ignore[arg-type]
        found = list(held)
        stack.close()
        assert held == []
    return found


def test_a_turn_is_taken_of_each_key_without_a_winner_in_the_order_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that take several in another order would wait for each other. A winner is enough: nobody waits
    for the rest of a tuning that another one finishes later."""
    capture = launches_of(Winner("c"), None, Winner("a"), Winner("b", known=True), Winner("c"))
    assert turns_of(monkeypatch, Known(), capture) == [("a", "the GPU", False), ("c", "the GPU", False)]


def test_a_launch_of_no_programs_is_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    for grid in ((0, 1, 1), (1, 0, 1), (4, 1, 0)):
        assert turns_of(monkeypatch, Known(), launches_of(Winner("a"), grid=grid)) == []


@pytest.mark.parametrize("mode", [mode for mode in TuneMode if mode is not TuneMode.AUTO])
def test_only_a_run_that_tunes_what_it_lacks_takes_turns(monkeypatch: pytest.MonkeyPatch, mode: TuneMode) -> None:
    assert turns_of(monkeypatch, Known(mode), launches_of(Winner("a"))) == []
