"""``kerntune anchor``: today's time baselines become the anchor."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from git_project import git, tag

from cli.command import Command
from cli.made import SOFTMAX, folder, sha, static, timed, tree
from kerntune.gate.baseline_files import BaselineStore

OTHER = "tests/test_add.py::test_add"


@pytest.fixture
def baselines(kerntune: Command, tmp_path: Path) -> BaselineStore:
    return folder(tmp_path / "baselines", timed(), timed(OTHER, binary=b"\x7fELF of add"), static(ttir=b"alone"))


def anchored(tmp_path: Path, name: str = "anchors") -> dict[str, float]:
    store = BaselineStore(tmp_path / name)
    found = [store.read(p) for p in store.time_files()]
    return {str(b.case): b.sample.times_ns[0] for b in found if b is not None}


def test_baselines_are_copied_with_what_they_need(kerntune: Command, baselines: BaselineStore, tmp_path: Path) -> None:
    before = tree(baselines.folder)
    ran = kerntune("anchor")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"3 baselines anchored in {tmp_path / 'anchors'}; commit the folder\n"
    assert tree(baselines.folder) == before
    assert tree(tmp_path / "anchors") == before


def test_a_later_anchor_takes_the_place_of_the_first(
    kerntune: Command, baselines: BaselineStore, tmp_path: Path
) -> None:
    kerntune("anchor")
    (path,) = (p for p in baselines.time_files() if "test_add" in p.name)
    baselines.remove(path)
    folder(baselines.folder, timed(times=(9_000.0,), binary=b"\x7fELF anew"))
    ran = kerntune("anchor")
    assert ran.out.startswith("2 baselines anchored in ")
    assert "1 removed whose case is no more" in ran.out
    assert anchored(tmp_path) == {SOFTMAX: 9_000.0}
    names = {p.stem for p in (tmp_path / "anchors/cuda-90/artifacts").iterdir()}
    assert sha(b"\x7fELF anew") in names
    assert not names & {sha(b"\x7fELF of softmax"), sha(b"\x7fELF of add")}


def test_one_case_moves_alone(kerntune: Command, baselines: BaselineStore, tmp_path: Path) -> None:
    kerntune("anchor")
    folder(baselines.folder, timed(times=(9_000.0,)), timed(OTHER, times=(9_000.0,), binary=b"\x7fELF of add"))
    assert kerntune("anchor", "--case", "test_add").code == 0
    assert anchored(tmp_path) == {SOFTMAX: 12_400.0, OTHER: 9_000.0}


def test_nothing_moves_while_a_baseline_cant_be_read(
    kerntune: Command, baselines: BaselineStore, tmp_path: Path
) -> None:
    baselines.time_files()[0].write_text("{")
    kerntune("anchor").complains(1, "the anchor stays as it is")
    assert not (tmp_path / "anchors").exists()


def test_a_missing_artifact_is_named(kerntune: Command, baselines: BaselineStore, tmp_path: Path) -> None:
    (baselines.folder / "cuda-90" / "artifacts" / f"{sha(bytes(range(16)))}.xz").unlink()
    kerntune("anchor").complains(1, sha(bytes(range(16))), "can't be replayed later")
    assert not (tmp_path / "anchors").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--case", "nothing"), "has no baseline that matches 'nothing'"),
        (("--baselines", "empty"), "has no baseline; pytest --kerntune records them"),
        (("--anchor", "baselines"), "the anchor needs one of its own"),
    ],
)
def test_wrong_usage(
    kerntune: Command, baselines: BaselineStore, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "empty").mkdir()
    ran = kerntune("anchor", *words)
    assert (ran.code, ran.clean) == (2, True)
    assert says in ran.err


@pytest.mark.parametrize(("ini", "name"), [("release/1", "release/1"), ("off", "anchors"), ("", "anchors")])
def test_the_ini_file_names_the_folder(
    kerntune: Command, baselines: BaselineStore, tmp_path: Path, ini: str, name: str
) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nkerntune_anchor = {ini}\n")
    assert kerntune("anchor").code == 0
    assert len(anchored(tmp_path, name)) == 2


def test_a_revision_is_not_copied(kerntune: Command, baselines: BaselineStore, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nkerntune_anchor = v1\n")
    git(tmp_path, "init", "-q")
    tag(tmp_path, "v1")
    kerntune("anchor").complains(2, "kerntune_anchor = v1 is a git revision")
    assert kerntune("anchor", "--anchor", "kept").code == 0
    assert len(anchored(tmp_path, "kept")) == 2


def test_the_day_of_the_recording_stays(kerntune: Command, baselines: BaselineStore, tmp_path: Path) -> None:
    kerntune("anchor")
    (path,) = (p for p in BaselineStore(tmp_path / "anchors").time_files() if "test_add" in p.name)
    assert msgspec.json.decode(path.read_bytes())["recorded"] == "2026-01-02T03:04:05Z"
