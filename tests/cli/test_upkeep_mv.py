"""``kerntune baselines mv``: baselines follow their tests, unchanged in all but the name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cli.command import Command
from cli.made import folder, static, timed, tree
from kerntune.base.case_result import CaseId
from kerntune.base.stats import Estimate
from kerntune.cli.stored import load_folder
from kerntune.cli.upkeep import Renaming
from kerntune.errors import UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Calibration, SinceAnchor, StaticBaseline, TimeBaseline
from kerntune.gate.call import PendingBaseline

A = "tests/test_a.py::test_x[1]"
B = "tests/test_b.py::test_y[1]"


def stored(path: Path) -> dict[tuple[str, str, str], TimeBaseline | StaticBaseline]:
    """By kind, case and series."""
    found = [e.baseline for e in load_folder(path) if e.baseline is not None]
    return {(type(b).__name__, str(b.case), getattr(b, "triton", "")): b for b in found}


def with_history(pending: PendingBaseline) -> PendingBaseline:
    assert isinstance(pending.baseline, TimeBaseline)
    calibration = Calibration(4, 24, 0.001, 0.0, 0.002, state_range=0.003, throttle=("0x4",))
    since = SinceAnchor("0" * 16, Estimate(0.01, 0.0, 0.02, 0.999))
    baseline = msgspec.structs.replace(pending.baseline, calibration=calibration, since=since)
    return PendingBaseline(baseline, pending.artifacts, True)


def test_all_that_is_remembered_goes_along(kerntune: Command, tmp_path: Path) -> None:
    given = (with_history(timed(A)), static(A), static(A, triton="3.8"), timed(A, "forward"), timed("tests/o.py::test"))
    folder(tmp_path / "baselines", *given)
    folder(tmp_path / "anchors", timed(A, times=(9_000.0,)), static(A))
    before, anchored = stored(tmp_path / "baselines"), stored(tmp_path / "anchors")
    artifacts = {k: v for k, v in tree(tmp_path).items() if "artifacts" in k}
    ran = kerntune("baselines", "mv", A, B)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "moved 6 baselines of 2 cases"
    for path, then in ((tmp_path / "baselines", before), (tmp_path / "anchors", anchored)):
        now = stored(path)
        assert {key: msgspec.structs.replace(b, case=None) for key, b in now.items()} == {
            (kind, case.replace(A, B), series): msgspec.structs.replace(b, case=None)
            for (kind, case, series), b in then.items()
        }
    assert {k: v for k, v in tree(tmp_path).items() if "artifacts" in k} == artifacts
    assert kerntune("baselines", "verify").code == 0
    store = BaselineStore(tmp_path / "baselines")
    for path, found in store.summaries():
        assert isinstance(found, (TimeBaseline, StaticBaseline))
        assert "test_b.py" in str(path) or "o.py" in str(path)
    assert kerntune("baselines", "mv", B, A).code == 0
    assert stored(tmp_path / "baselines") == before


@pytest.mark.parametrize(
    ("old", "new", "case", "expected"),
    [
        ("tests/test_a.py", "tests/more/test_c.py", (A, "0"), ("tests/more/test_c.py::test_x[1]", "0")),
        ("tests", "checks", (A, "0"), ("checks/test_a.py::test_x[1]", "0")),
        ("tests/", "checks", (A, "0"), ("checks/test_a.py::test_x[1]", "0")),
        ("tests/test_a.py::test_x", "tests/test_a.py::test_z", (A, "0"), ("tests/test_a.py::test_z[1]", "0")),
        ("tests/test_a.py::test", "tests/test_a.py::test_z", (A, "0"), None),
        ("tests/test_a", "tests/test_b", (A, "0"), None),
        ("test_a.py", "test_b.py", (A, "0"), None),
        (A, B, (A, "back"), (B, "back")),
        (f"{A}::back", f"{A}::backward", (A, "back"), (A, "backward")),
        (f"{A}::back", f"{A}::backward", (A, "0"), None),
        ("*[1]", "*[one]", (A, "0"), ("tests/test_a.py::test_x[one]", "0")),
        ("tests/*::test_x[*]", "t/*::test_y[*-0]", (A, "0"), ("t/test_a.py::test_y[1-0]", "0")),
        ("*::back", "*::backward", (A, "back"), (A, "backward")),
        ("*test_x", "*test_z", (A, "0"), None),
        ("a.py::TestA", "a.py::TestB", ("a.py::TestA::test_m", "0"), ("a.py::TestB::test_m", "0")),
    ],
)
def test_which_cases_are_meant(old: str, new: str, case: tuple[str, str], expected: tuple[str, str] | None) -> None:
    assert Renaming(old, new).of(CaseId(*case)) == (None if expected is None else CaseId(*expected))


@pytest.mark.parametrize(("old", "new"), [("a*", "b"), ("a", "b*"), ("*a*", "*")])
def test_wildcards_are_as_many_on_both_sides(old: str, new: str) -> None:
    with pytest.raises(UsageError, match="stands for what"):
        Renaming(old, new)


@pytest.mark.parametrize("name", [A, "tests", "tests/", "*[1]", "gone.py"])
def test_the_same_name_twice_is_said_to_be_that(kerntune: Command, tmp_path: Path, name: str) -> None:
    folder(tmp_path / "baselines", static(A))
    before = tree(tmp_path)
    ran = kerntune("baselines", "mv", name, name.rstrip("/"))
    assert (ran.code, ran.out) == (2, "")
    assert f"{name!r} and {name.rstrip('/')!r} are the same name: nothing is moved" in ran.err
    assert tree(tmp_path) == before


def test_a_baseline_of_other_kernels_is_not_lost(kerntune: Command, tmp_path: Path) -> None:
    other = static(B)
    assert isinstance(other.baseline, StaticBaseline)
    launches = tuple(msgspec.structs.replace(x, source="6" * 64) for x in other.baseline.launches)
    folder(tmp_path / "baselines", static(A), timed(A))
    folder(
        tmp_path / "baselines",
        PendingBaseline(msgspec.structs.replace(other.baseline, launches=launches), other.artifacts, True),
    )
    before = tree(tmp_path)
    kerntune("baselines", "mv", A, B).complains(2, "has a baseline of other kernels already", "--replace")
    assert tree(tmp_path) == before
    assert kerntune("baselines", "mv", A, B, "--replace").code == 0
    assert {case for _, case, _ in stored(tmp_path / "baselines")} == {B}


def test_what_was_recorded_under_the_new_name_gives_way(kerntune: Command, tmp_path: Path) -> None:
    """A run after the rename has recorded it: the older one has the history."""
    folder(tmp_path / "baselines", with_history(timed(A)), timed(B, times=(1.0,)))
    ran = kerntune("baselines", "mv", A, B)
    assert ran.code == 0, ran.err
    assert "in the place of what was recorded 2026" in ran.out
    (found,) = stored(tmp_path / "baselines").values()
    assert isinstance(found, TimeBaseline)
    assert found.calibration is not None
    assert found.sample.times_ns[0] == 12_400.0


def test_two_cases_of_one_new_name_are_refused(kerntune: Command, tmp_path: Path) -> None:
    folder(tmp_path / "baselines", timed("v/t.py::a"), timed("vv/t.py::a"), timed("v/vt.py::a"))
    before = tree(tmp_path)
    ran = kerntune("baselines", "mv", "*/*t.py::a", "**t.py::a")
    assert (ran.code, "several cases would be called vvt.py::a" in ran.err) == (2, True)
    assert tree(tmp_path) == before


def test_a_chain_of_names(kerntune: Command, tmp_path: Path) -> None:
    """Each takes the place that another leaves."""
    folder(tmp_path / "baselines", *(timed(f"t.py::a{'x' * n}", times=(n + 1.0,)) for n in range(3)))
    assert kerntune("baselines", "mv", "t.py::a*", "t.py::ax*").code == 0
    found = stored(tmp_path / "baselines")
    times = {case: b.sample.times_ns for (_, case, _), b in found.items() if isinstance(b, TimeBaseline)}
    assert times == {"t.py::ax": (1.0,), "t.py::axx": (2.0,), "t.py::axxx": (3.0,)}


def test_a_dry_run_says_the_same(kerntune: Command, tmp_path: Path) -> None:
    folder(tmp_path / "baselines", timed(A), static(A))
    before = tree(tmp_path)
    dry = kerntune("baselines", "mv", A, B, "--dry-run")
    assert tree(tmp_path) == before
    assert dry.out.replace("would move", "moved") == kerntune("baselines", "mv", A, B).out


def test_nothing_of_that_name(kerntune: Command, tmp_path: Path) -> None:
    folder(tmp_path / "baselines", timed(A))
    ran = kerntune("baselines", "mv", "tests/test_gone.py", B)
    assert (ran.code, "no case is called" in ran.err) == (2, True)


def test_what_can_not_be_read_stays_and_is_told(kerntune: Command, tmp_path: Path) -> None:
    store = folder(tmp_path / "baselines", timed(A), static(A))
    (path,) = store.static_files()
    path.write_text("{")
    kerntune("baselines", "mv", A, B).complains(1, "not readable as JSON")
    assert path.read_text() == "{"
    assert {case for _, case, _ in stored(tmp_path / "baselines")} == {B}


@pytest.mark.parametrize("new", ["test_b.py", "test_b", "tests::back"])
def test_a_call_s_new_name_is_a_call_s(new: str) -> None:
    with pytest.raises(UsageError, match="is the call 'back' of a test; say its new name as FILE::TEST::CALL"):
        Renaming(f"{A}::back", new).of(CaseId(A, "back"))
