"""``kerntune baselines verify``."""

from __future__ import annotations

import lzma

import pytest

from cli.made import SOFTMAX, folder, sha, static, timed, tree


@pytest.fixture
def store(tmp_path):
    return folder(tmp_path / "baselines", timed(), timed("t.py::test_add", binary=b"add"), static())


def test_a_whole_folder(kerntune, store):
    before = tree(store.folder)
    ran = kerntune("baselines", "verify")
    assert ran.code == 0
    assert "3 baselines, 4 artifacts, all whole" in ran.out
    assert ran.err == ""
    assert tree(store.folder) == before


@pytest.mark.parametrize("given", [(), ("--baselines=baslines",)], ids=["default", "misspelt"])
def test_a_folder_that_is_not_there_is_not_whole(kerntune, given):
    ran = kerntune("baselines", "verify", *given)
    assert (ran.code, ran.out) == (2, "")
    assert "no such folder, so nothing was verified" in ran.err


def test_an_empty_folder_is_whole(kerntune, tmp_path):
    (tmp_path / "empty").mkdir()
    ran = kerntune("baselines", "verify", f"--baselines={tmp_path / 'empty'}")
    assert ran.code == 0
    assert "0 baselines" in ran.out


def test_a_missing_artifact_is_named_with_the_baseline_that_needs_it(kerntune, store):
    (store.folder / "cuda-90" / "artifacts" / f"{sha(b'add')}.xz").unlink()
    ran = kerntune("baselines", "verify")
    assert ran.code == 1
    [line] = ran.err.splitlines()
    assert "test_add" in line
    assert f"the folder lacks artifact {sha(b'add')}" in line
    assert "1 problem" in ran.out


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (lzma.compress(b"other"), "another checksum"),
        (lzma.compress(b"add")[:-4], "damaged"),
        (b"", "damaged"),
        (b"add", "damaged"),
    ],
    ids=["other", "cut", "empty", "plain"],
)
def test_a_damaged_artifact_is_named(kerntune, store, data, says):
    path = store.folder / "cuda-90" / "artifacts" / f"{sha(b'add')}.xz"
    path.write_bytes(data)
    kerntune("baselines", "verify").complains(1, str(path), says)


def test_an_artifact_of_several_baselines_is_a_finding_for_each(kerntune, store):
    (store.folder / "cuda-90" / "artifacts" / f"{sha(b'module { softmax }')}.xz").unlink()
    assert len(kerntune("baselines", "verify").err.splitlines()) == 3


def test_damaged_files_do_not_hide_one_another(kerntune, store):
    for path in store.folder.rglob("test_softmax*.json"):
        path.write_bytes(path.read_bytes()[:-50])
    ran = kerntune("baselines", "verify")
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 2
    assert ran.clean


def test_a_file_where_no_one_looks_for_it(kerntune, store):
    path = next(p for p in store.folder.rglob("test_softmax*.json") if "time" in p.parts)
    path.rename(path.with_name("renamed.json"))
    kerntune("baselines", "verify").complains(1, f"renamed.json: holds {SOFTMAX}, which is looked for in {path}")


def test_unfinished_writes_are_no_baselines(kerntune, store):
    path = next(store.folder.rglob("test_add*.json"))
    path.with_name(f".{path.name}.x3a").write_text("{")
    path.with_name(".hidden.json").write_text("{")
    assert kerntune("baselines", "verify").code == 0
