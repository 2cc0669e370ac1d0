"""What processes and machines share of a choice: one decides, the others go on with its winner."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import Copies

import kerntune
from kerntune.errors import CacheMissError
from kerntune.tuning.cache import WinnerCache, leases, winners
from kerntune.tuning.choices import operation
from tuning.cache.stores import machine

PROGRAM = Path(__file__).parent / "sharing_program.py"

Spend = Callable[[float], None]


def double_of(spend: Spend, one_ns: float, other_ns: float, **options: Any) -> Any:
    """The same choice each time, as two processes that import one module have."""
    calls: list[str] = []

    def one(x: torch.Tensor) -> torch.Tensor:
        calls.append("one")
        spend(one_ns)
        return x * 2

    def other(x: torch.Tensor) -> torch.Tensor:
        calls.append("other")
        spend(other_ns)
        return x + x

    double: Any = kerntune.choice([one, other], key=["x"], **options)(lambda x: None)
    double.calls = calls
    return double


def last(double: Any) -> tuple[str, str]:
    decision = double.operation.decisions[-1]
    return decision.winner.rpartition(".")[2], decision.how


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*leases.SIZES, "KERNTUNE_STORE", "KERNTUNE_WINNERS"):
        monkeypatch.delenv(name, raising=False)


# two processes at once


class Shared:
    """A running :mod:`sharing_program`."""

    def __init__(self, copies: Copies, ms: float, env: dict[str, str]) -> None:
        copies.run("-m", "this", cwd=PROGRAM.parent, env=os.environ)  # the process that makes copies is there
        self._process = subprocess.Popen(
            [*copies.call, str(PROGRAM), str(ms)], cwd=PROGRAM.parent, env={**os.environ, **env}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def hear(self) -> str:
        """The next line that it says."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def answer(self) -> None:
        """It goes on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """What it has come to."""
        while (line := self.hear()) in ("running", "waiting"):
            self.answer()
        assert self._process.wait(60) == 0
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        """It and its pipes are gone."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def started(copies: Copies, ms: float, env: dict[str, str]) -> Iterator[Shared]:
    process = Shared(copies, ms, env)
    try:
        yield process
    finally:
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["folder", "store"])
def test_of_two_processes_one_decides_and_the_other_waits(copies: Copies, tmp_path: Path, shared: str) -> None:
    """They disagree: for the second one the other implementation is faster."""

    def env(name: str) -> dict[str, str]:
        if shared == "folder":
            return {"KERNTUNE_CACHE_DIR": str(tmp_path / "both")}
        return {"KERNTUNE_CACHE_DIR": str(tmp_path / name), "KERNTUNE_STORE": f"file://{tmp_path}/store"}

    with started(copies, 9.0, env("a")) as first:
        assert first.hear() == "running"  # and decides, until it is answered
        with started(copies, 0.1, env("b")) as second:
            assert second.hear() == "waiting"
            first.answer()
            decided = first.end()
            second.answer()
            found = second.end()
    assert (decided["how"], found["how"]) == ("raced", "stored")
    assert decided["winner"] == found["winner"]
    assert found["winner"].endswith("other")
    assert found["calls"] == ["other"]


# a shared store


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Go on as on another machine with the same store."""

    def move(name: str) -> None:
        cache = machine(tmp_path, name)
        monkeypatch.setattr(operation, "with_store", lambda own: cache)

    return move


def test_a_stored_decision_is_read_on_another_machine(spend: Spend, at: Callable[[str], None]) -> None:
    at("a")
    first = double_of(spend, 3e5, 1e5)
    first(torch.ones(4))
    at("b")
    second = double_of(spend, 1e5, 3e5)
    second(torch.ones(4))
    assert (last(first), last(second)) == (("other", "raced"), ("other", "stored"))
    assert second.calls == ["other"]


def test_the_first_that_is_stored_stands(
    spend: Spend, at: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that have raced at once, as after a lease that was taken over: both go on with one winner."""
    at("a")
    late = double_of(spend, 1e5, 3e5)
    early = double_of(spend, 3e5, 1e5)
    raced = operation.Deciding.race

    def race(deciding: Any, incumbent: int | None) -> Any:
        found = raced(deciding, incumbent)
        monkeypatch.setattr(operation.Deciding, "race", raced)
        at("b")
        early(torch.ones(4))
        return found

    monkeypatch.setattr(operation.Deciding, "race", race)
    monkeypatch.setattr(operation, "tuning_turn", lambda *args, **words: contextlib.nullcontext())
    late(torch.ones(4))
    assert (last(early)[0], last(late)[0]) == ("other", "other")
    late.calls.clear()
    late(torch.ones(4))
    assert late.calls == ["other"]


def test_frozen_takes_what_the_store_has_and_nothing_else(spend: Spend, at: Callable[[str], None]) -> None:
    at("a")
    double_of(spend, 3e5, 1e5)(torch.ones(4))
    at("b")
    frozen = double_of(spend, 1e5, 3e5, tune="frozen")
    frozen(torch.ones(4))
    assert last(frozen) == ("other", "stored")
    with pytest.raises(CacheMissError, match=r"^choice .*no stored winner"):
        frozen(torch.ones(5))
    assert frozen.calls == ["other"]


def test_a_store_that_is_away_costs_a_race(spend: Spend, at: Callable[[str], None], tmp_path: Path) -> None:
    at("a")
    double_of(spend, 3e5, 1e5)(torch.ones(4))
    at("b")
    cache: Any = operation.with_store(WinnerCache())
    cache.store.client.is_away = True
    alone = double_of(spend, 3e5, 1e5)
    alone(torch.ones(4))
    assert last(alone) == ("other", "raced")


# files that packages ship


def ship(folder: Path) -> None:
    winners.write_file(folder, WinnerCache().entries())


def test_a_shipped_decision_is_used_frozen_too(spend: Spend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    double_of(spend, 3e5, 1e5)(torch.ones(4))
    ship(tmp_path / "package")
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "users"))
    monkeypatch.setenv("KERNTUNE_WINNERS", str(tmp_path / "package"))
    for mode in ("auto", "frozen"):
        users = double_of(spend, 1e5, 3e5, tune=mode)
        users(torch.ones(4))
        assert last(users) == ("other", "stored")
        assert users.calls == ["other"]


def test_a_shipped_decision_of_other_code_is_not_used(
    spend: Spend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double_of(spend, 3e5, 1e5)(torch.ones(4))
    ship(tmp_path / "package")
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "users"))
    monkeypatch.setenv("KERNTUNE_WINNERS", str(tmp_path / "package"))
    double = double_of(spend, 1e5, 3e5)
    one = double.operation.implementations[0].fn

    def other(x: torch.Tensor) -> torch.Tensor:
        spend(3e5)
        return 2 * x

    other.__qualname__ = double.operation.implementations[1].fn.__qualname__
    changed = kerntune.choice([one, other], key=["x"])(lambda x: None)
    changed(torch.ones(4))
    assert last(changed) == ("one", "raced")
