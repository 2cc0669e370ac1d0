"""The comparison of two revisions: its order, its ratios, and that the modules it measures exist."""

from __future__ import annotations

import inspect
import math
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.before_after import before_after, before_after_child
from kerntune.compiling import compile_worker

ROOT = Path(__file__).resolve().parents[2]


def rounds(factor: float, count: int = 10, drift: float = 0.0) -> list[dict[str, list[dict[str, float]]]]:
    """Rounds of a figure that takes ``factor`` times as long after; each measurement slows by ``drift``."""
    clock = iter(range(10_000))

    def measure(side: Any) -> dict[str, float]:
        step = next(clock)
        noise = 1 + 0.001 * math.sin(step * 12.9898)
        return {"wall": (factor if side == "after" else 1.0) * noise * math.exp(drift * step)}

    sides: Any = {"before": "before", "after": "after"}
    return [before_after.round_of(measure, sides) for _ in range(count)]


def test_a_round_measures_both_sides_twice_so_that_drift_cancels() -> None:
    seen: list[str] = []
    sides: Any = {"before": "A", "after": "B"}
    before_after.round_of(lambda side: seen.append(str(side)) or {"wall": 1.0}, sides)
    assert "".join(seen) == "ABBA"
    found = before_after.compared(rounds(1.01, drift=0.05), "wall")
    assert found["ratio"] == pytest.approx(1.01, abs=0.002)


@pytest.mark.parametrize(("factor", "within"), [(0.98, True), (1.0, True), (1.015, True), (1.025, False), (1.1, False)])
def test_only_an_interval_below_the_limit_is_within(factor: float, within: bool) -> None:
    found = before_after.compared(rounds(factor), "wall")
    assert found["interval"][0] < factor < found["interval"][1]
    assert found["within"] is within


def test_too_few_rounds_show_nothing() -> None:
    found = before_after.compared(rounds(0.5, count=2), "wall")
    assert found["interval"] == [None, None]
    assert not found["within"]


def test_every_kind_of_seconds_is_compared_and_no_count() -> None:
    times = {"wall": 2.0, "cpu": 1.0, "passed": 3.0}
    found = before_after.summary([{"before": [times, times], "after": [times, times]}])
    assert set(found) == {"rounds", "wall", "cpu"}


def test_what_an_installed_plugin_adds_is_told_in_seconds() -> None:
    """From each run and the one without it beside it: what both cost more on a slow machine isn't the plugin's."""
    sides = {
        side: [{"wall": 9.0, "cpu": bare + more + noise, "bare": bare} for noise in (-0.01, 0.01)]
        for side, bare, more in (("before", 2.0, 0.3), ("after", 3.0, 0.1))
    }
    found = before_after.summary([sides] * 4)["added"]
    assert found["before"][0] == pytest.approx(0.3)
    assert found["after"][0] == pytest.approx(0.1)
    assert found["after"][1] < 0.1 < found["after"][2]


@pytest.mark.parametrize("key", sorted({*before_after_child.MODULES, *before_after_child.IMPORTED}))
def test_measured_modules_have_a_name_in_this_checkout(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newer name is first, so that this fails when a module moves again, before it is measured."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names = before_after_child.MODULES.get(key) or before_after_child.IMPORTED[key]
    assert before_after_child.name_of(names) == names[0]


def test_every_group_of_the_child_is_measured() -> None:
    assert {"counts", *before_after.QUICK} == set(before_after_child.GROUPS)


def test_a_worker_is_started_with_what_it_takes() -> None:
    """Its arguments may change: the start would be an error, or wait for ever."""
    named = set(inspect.signature(compile_worker.main).parameters)
    needed = {n for n, p in inspect.signature(compile_worker.main).parameters.items() if p.default is p.empty}
    given = set(re.findall(r"(\w+)=", before_after_child.WORKER.partition("dict(")[2]))
    assert needed <= given <= named


class Remembering:
    """A checkout whose child is a function."""

    def __init__(self, side: str, seen: list[tuple[str, int | None]], ns: float) -> None:
        self._side, self._seen, self._ns = side, seen, ns

    def inside(self, group: str, core: int | None = None) -> dict[str, dict[str, float]]:
        self._seen.append((self._side, core))
        return {f"{group} a": {"wall": self._ns}, f"{group} b": {"wall": 2 * self._ns}}


def test_a_quick_round_has_a_process_a_side_in_turn() -> None:
    seen: list[tuple[str, int | None]] = []
    sides: Any = {"before": Remembering("before", seen, 1.0), "after": Remembering("after", seen, 3.0)}
    found = before_after.quick_rounds("group", sides, 4, 1)
    core = min(os.sched_getaffinity(0))
    first = ["before", "after", "after", "before"]
    assert seen == [(side, core) for side in first + first]
    assert set(found) == {"group a", "group b"}
    assert found["group b"] == [{"before": [{"wall": 2.0}], "after": [{"wall": 6.0}]}] * 4


@pytest.mark.slow
def test_each_process_has_a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment's size is drawn anew, and no hash seed is handed down."""
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    checkout = before_after.Checkout("HEAD", tmp_path, "before")
    found: list[dict[str, str]] = []

    def run(command: list[str], env: dict[str, str], **more: Any) -> SimpleNamespace:
        found.append(env)
        return SimpleNamespace(returncode=0, stdout="{}")

    monkeypatch.setattr(before_after.subprocess, "run", run)
    for _ in range(8):
        checkout.inside("dispatch")
    assert len({len(env["BEFORE_AFTER_PADDING"]) for env in found}) > 1
    assert all("PYTHONHASHSEED" not in env for env in found)


@pytest.mark.slow
def test_a_tar_of_git_archive_is_a_revision_where_there_is_no_repository(tmp_path: Path) -> None:
    commit, content = before_after.archived("HEAD")
    (tmp_path / "one.tar").write_bytes(content)
    assert before_after.archived(str(tmp_path / "one.tar")) == (commit, content)
    checkout = before_after.Checkout(str(tmp_path / "one.tar"), tmp_path, "before")
    assert (checkout.folder / "kerntune" / "__init__.py").is_file()


@pytest.mark.slow
def test_a_checkout_is_found_before_what_the_caller_has_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    checkout = before_after.Checkout("HEAD", tmp_path, "before")
    assert checkout.environment()["PYTHONPATH"] == f"{checkout.folder}:/elsewhere"
