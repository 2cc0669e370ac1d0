"""What all commands that read a folder of baselines do alike: links out of it, damage, folders that aren't there."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from cli.command import Command
from cli.made import folder, static, timed, tree
from kerntune.cli.bisect.bisected_version import BisectedProject
from kerntune.cli.bisect.judging import VersionJudge
from kerntune.cli.stored import Entry, is_baseline, one_case, versions_of
from kerntune.errors import UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.report import RunReport, write_run

ROPE, ADD = "tests/test_rope.py::test_rope[128-fp16]", "tests/test_add.py::test_add"

READERS = [
    ("baselines", "show"),
    ("baselines", "verify"),
    ("diff", "baselines"),
    ("baselines", "prune", "--stale-from", "run.json"),
    ("baselines", "mv", ROPE, "tests/test_rope.py::test_new"),
    ("diff", "--static", "baselines"),
    ("diff", "--static", "triton-3.9"),
    ("anchor",),
    ("code", ROPE),
    ("dump", "test_rope", "--stored"),
    ("figures",),
]


@pytest.fixture
def store(kerntune: Command, tmp_path: Path) -> BaselineStore:
    """Two cases, of which nothing readable is left of one when its files are replaced."""
    write_run(tmp_path / "run.json", RunReport(()))
    return folder(tmp_path / "baselines", timed(ROPE), static(ROPE), static(ADD))


def of_rope(store: BaselineStore) -> list[Path]:
    return sorted(store.folder.rglob("test_rope*.json"))


@pytest.mark.parametrize(
    ("words", "outside"),
    [*((words, "a copy") for words in READERS), (READERS[0], "no baseline"), (READERS[1], "nothing")],
    ids=lambda x: x if isinstance(x, str) else " ".join(x),
)
def test_no_command_reads_through_a_link_out_of_the_folder(
    kerntune: Command, store: BaselineStore, tmp_path: Path, words: tuple[str, ...], outside: str
) -> None:
    for number, path in enumerate(of_rope(store)):
        there = tmp_path / "outside" / f"{number}.json"
        there.parent.mkdir(exist_ok=True)
        if outside != "nothing":
            there.write_bytes(path.read_bytes() if outside == "a copy" else b"root:x:0:0")
        path.unlink()
        path.symlink_to(there)
    before = tree(store.folder)
    ran = kerntune(*words)
    assert (ran.code, ran.clean) == (2 if ROPE in words or "test_rope" in words else 1, True), ran
    for path in of_rope(store):
        assert f"{path}: can't be read or written: a link leads out of {store.folder}" in ran.err
    assert "root:" not in ran.out + ran.err
    assert "test_rope" not in ran.out
    assert tree(store.folder) == before
    assert not (tmp_path / "anchors").exists()


def test_a_linked_folder_and_links_within_it_will_do(kerntune: Command, store: BaselineStore, tmp_path: Path) -> None:
    path = of_rope(store)[0]
    real = store.folder / "kept.json"
    path.rename(real)
    path.symlink_to(real)
    (tmp_path / "linked").symlink_to(store.folder)
    for name in ("baselines", "linked"):
        ran = kerntune("baselines", "verify", "--baselines", name)
        assert (ran.code, ran.err) == (0, "")
        assert "3 baselines" in ran.out


@pytest.mark.parametrize("kind", ["file", "artifacts"])
def test_a_kept_good_side_is_not_copied_through_a_link(store: BaselineStore, tmp_path: Path, kind: str) -> None:
    place = of_rope(store)[0] if kind == "file" else store.folder / "cuda-90" / "artifacts"
    place.rename(tmp_path / "outside")
    place.symlink_to(tmp_path / "outside")
    judge = VersionJudge(BisectedProject(None, tmp_path, ("tests",)), "", tmp_path / "scratch")
    with pytest.raises(UsageError, match="a link leads out of"):
        judge.reuse_good(store.folder)
    assert not (tmp_path / "scratch").exists()


# files that can't be read


NAMED = [
    ("code", "test_rope"),
    ("code", ROPE),
    ("code", "*rope*fp16*"),
    ("code", ROPE, "--target", "cuda:90"),
    ("baselines", "mv", ROPE, "tests/test_rope.py::test_new"),
    ("baselines", "mv", "tests/test_rope.py", "tests/test_new.py"),
    ("baselines", "mv", "*[128-*]", "*[256-*]"),
    ("dump", "test_rope", "--stored"),
    ("dump", ROPE, "--stored"),
    ("code", "test_other"),
    ("code", ADD, "--target", "cuda:80"),
    ("baselines", "mv", "tests/test_other.py", "t.py"),
    ("dump", "test_other"),
]


@pytest.mark.parametrize("words", NAMED, ids=" ".join)
def test_damaged_files_are_named_where_a_case_is_not_found(
    kerntune: Command, store: BaselineStore, words: tuple[str, ...]
) -> None:
    for path in of_rope(store):
        path.write_bytes(b"")
    ran = kerntune(*words)
    assert (ran.code, ran.out, ran.clean) == (2, "", True)
    for path in of_rope(store):
        assert f"can't be read: {path}: " in ran.err


@pytest.mark.parametrize(
    ("count", "shown"), [(1, None), (2, "01"), (10, "0123456789"), (11, "0123456789"), (12, "0123456789")]
)
def test_of_several_cases_the_first_ten_are_named(count: int, shown: str | None) -> None:
    entries = [Entry(PurePosixPath("x"), static(f"t.py::test_{n:x}").baseline) for n in range(count)]
    assert one_case(entries, "nothing") is None
    assert str(one_case(entries, "t.py::test_0")) == "t.py::test_0", "its whole name"
    if shown is None:
        assert str(one_case(entries, "t.py")) == "t.py::test_0"
        return
    with pytest.raises(UsageError) as told:
        one_case(entries, "t.py")
    named = "".join(f"\n  t.py::test_{n}" for n in shown) + "\n  ..." * (count > 10)
    assert str(told.value) == f"'t.py' means {count} cases; name one of them:{named}"


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("cuda-90/h200/time/a.json", True), ("cuda-90/h200/static/d/a.json", True), ("cuda-90/h200/time", False),
        ("cuda-90/h200/other/a.json", False), ("cuda-90/h200/time/.a.json", False), ("cuda-90/h200/time/a.xz", False),
        ("cuda-90/time/h200/a.json", False), ("x/time", False), ("a/b/time.json", False),
    ],
)  # fmt: skip
def test_which_files_are_baselines(path: str, is_one: bool) -> None:
    assert is_baseline(PurePosixPath(path)) is is_one


def test_versions_are_those_of_all_that_can_be_read() -> None:
    bad = Entry(PurePosixPath("x"), None, "damaged")
    assert versions_of([bad]) == "of no known version"
    made = [Entry(PurePosixPath("x"), one.baseline) for one in (timed(), static(triton="3.10"), static(triton="3.8"))]
    assert versions_of([bad, *made]) == "Triton 3.10 and 3.8 and 3.9.0, torch 2.13.0"
    assert versions_of(made[1:2]) == "Triton 3.10"


# folders that aren't there


@pytest.mark.parametrize(
    "words",
    [
        ("baselines", "show"),
        ("diff", "baselines"),
        ("baselines", "prune"),
        ("baselines", "mv", ROPE, "x.py::test"),
        ("diff", "--static", "baselines"),
        ("anchor",),
        ("code", ROPE),
        ("dump", ROPE),
        ("figures",),
        ("calibrate",),
        ("baselines", "verify"),
    ],
    ids=" ".join,
)
def test_a_folder_that_is_named_and_not_there_is_an_error(
    kerntune: Command, store: BaselineStore, tmp_path: Path, words: tuple[str, ...]
) -> None:
    before = tree(tmp_path)
    ran = kerntune(*words, "--baselines", "nosuch")
    assert (ran.code, ran.out) == (2, "")
    assert f"{tmp_path / 'nosuch'}: no such folder" in ran.err
    assert "--baselines=DIR" in ran.err
    assert tree(tmp_path) == before


def test_the_folder_of_the_ini_file_need_not_be_there_yet(kerntune: Command, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nkerntune_baselines = later\n")
    ran = kerntune("baselines", "show")
    assert (ran.code, ran.out) == (0, f"{tmp_path / 'later'}: no baselines; pytest --kerntune records them\n")


def test_an_anchor_that_is_named_and_not_there_is_an_error(kerntune: Command, store: BaselineStore) -> None:
    before = tree(store.folder)
    ran = kerntune("baselines", "mv", ROPE, "x.py::test", "--anchor", "nosuch")
    assert (ran.code, ran.out) == (2, "")
    assert "nosuch: no such folder; name the right one: --anchor=DIR" in ran.err
    assert tree(store.folder) == before
