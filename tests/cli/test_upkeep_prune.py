"""``kerntune baselines prune`` removes what is gone, and nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cli.made import H200, folder, sha, static, timed, tree
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Outcome, Verdict
from kerntune.gate.report import RunReport, write_run

TESTS = """
import pytest

class TestNorm:
    def test_rms(self):
        raise AssertionError("never run")

@pytest.mark.parametrize("n", [1, 2])
def test_add(n):
    pass

@pytest.mark.skip
def test_skipped():
    pass
"""

ALIVE = ("test_here.py::test_add[1]", "test_here.py::TestNorm::test_rms", "test_here.py::test_skipped")
GONE = ("test_here.py::test_add[3]", "test_here.py::TestNorm::test_layer", "test_gone.py::test_any")


@pytest.fixture
def project(inner) -> Path:
    """A project with a test file."""
    (inner / "pytest.ini").write_text("[pytest]\ntestpaths = elsewhere\naddopts = -p no:cacheprovider\n")
    (inner / "test_here.py").write_text(TESTS)
    return inner


def cases(path: Path) -> set[str]:
    from kerntune.cli.stored import load_folder

    return {str(e.baseline.case) for e in load_folder(path / "baselines") if e.baseline}


def test_only_what_is_gone(kerntune, project):
    store = folder(
        project / "baselines", *map(timed, ALIVE + GONE), static("test_gone.py::x", ttir=b"gone"), static(ALIVE[0])
    )
    before = tree(store.folder)
    ran = kerntune("baselines", "prune")
    assert ran.code == 0, ran.err
    assert cases(project) == set(ALIVE)
    after = tree(store.folder)
    assert after == {k: before[k] for k in after}
    assert set(before) - set(after) == {
        k for k in before if any(x in k for x in ("add-3", "test_layer", "_gone", sha(b"gone")))
    }
    assert ran.out.count("removed cuda-90/") == 4
    assert "test_gone.py is gone" in ran.out
    assert "its test is not in test_here.py any more" in ran.out
    assert "removed 4 baselines, 4 stay; 1 artifact" in ran.out
    assert kerntune("baselines", "verify").code == 0


@pytest.mark.parametrize("place", [".", "tests", "tests/deep"])
def test_a_project_with_conftests(kerntune, project, place):
    for where in {project / place, project / "tests"}:
        where.mkdir(parents=True, exist_ok=True)
        (where / "conftest.py").write_text("import pytest\n@pytest.fixture\ndef thing(): return 1\n")
    (project / place / "test_there.py").write_text("def test_x(thing): pass\n")
    file = (Path(place) / "test_there.py").as_posix()
    kept = f"{file}::test_x"
    folder(project / "baselines", timed(kept), timed(f"{file}::test_gone"), *map(timed, ALIVE))
    ran = kerntune("baselines", "prune")
    assert ran.code == 0, ran.err
    assert cases(project) == {kept, *ALIVE}


def test_a_second_time_finds_nothing(kerntune, project):
    folder(project / "baselines", *map(timed, ALIVE + GONE))
    kerntune("baselines", "prune")
    before = tree(project / "baselines")
    assert "removed 0 baselines, 3 stay; 0 artifacts" in kerntune("baselines", "prune").out
    assert tree(project / "baselines") == before


def test_a_name_that_no_file_can_have_is_gone(kerntune, project):
    folder(project / "baselines", timed(f"{'t' * 300}.py::test_x"), *map(timed, ALIVE))
    ran = kerntune("baselines", "prune")
    assert ran.code == 0
    assert cases(project) == set(ALIVE)


def test_dry_run_says_the_same_and_removes_nothing(kerntune, project):
    folder(project / "baselines", *map(timed, ALIVE + GONE), static("test_gone.py::x", ttir=b"gone"))
    before = tree(project / "baselines")
    dry = kerntune("baselines", "prune", "--dry-run")
    assert dry.code == 0
    assert tree(project / "baselines") == before
    assert dry.out.replace("would remove", "removed") == kerntune("baselines", "prune").out


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("raises", "raise RuntimeError('at import')"),
        ("skips", "import pytest; pytest.skip('no GPU', allow_module_level=True)"),
        ("syntax", "def"),
    ],
)
def test_a_file_that_can_not_be_read_keeps_its_baselines(kerntune, project, name, source):
    (project / f"test_{name}.py").write_text(source)
    kept = (f"test_{name}.py::test_any", *ALIVE)
    folder(project / "baselines", *map(timed, (*kept, *GONE)))
    assert kerntune("baselines", "prune").code == 0
    assert cases(project) == set(kept)


@pytest.mark.parametrize("addopts", ["-x", "-k nothing", "-m gpu", "--lf", "--deselect test_here.py", "--co -qq"])
def test_options_of_the_ini_file_hide_no_test(kerntune, project, addopts):
    (project / "pytest.ini").write_text(f"[pytest]\naddopts = {addopts}\nmarkers = gpu\n")
    (project / "test_broken.py").write_text("raise RuntimeError")
    if addopts == "--lf":
        cache = project / ".pytest_cache" / "v" / "cache"
        cache.mkdir(parents=True)
        (cache / "lastfailed").write_text('{"test_here.py::test_add[1]": true}')
    kept = ("test_broken.py::test_any", *ALIVE)
    folder(project / "baselines", *map(timed, (*kept, *GONE)))
    ran = kerntune("baselines", "prune")
    assert ran.code == 0, ran.err
    assert cases(project) == set(kept)


def test_from_a_folder_inside_the_project(kerntune, project, monkeypatch):
    folder(project / "baselines", *map(timed, ALIVE + GONE))
    (project / "deep").mkdir()
    monkeypatch.chdir(project / "deep")
    assert kerntune("baselines", "prune").code == 0
    assert cases(project) == set(ALIVE)


def test_another_project_s_folder_is_left_alone(kerntune, project):
    folder(project / "elsewhere", timed("other/test_x.py::test_x"))
    before = tree(project / "elsewhere")
    kerntune("baselines", "prune", "--baselines", "elsewhere").complains(
        2, "none of its test files (other/test_x.py...)"
    )
    folder(project / "more", *(timed(f"other/test_{name}.py::test_x") for name in "dabc"))
    named = "none of its test files (other/test_a.py, other/test_b.py, other/test_c.py...) is in"
    kerntune("baselines", "prune", "--baselines", "more").complains(2, named)
    assert tree(project / "elsewhere") == before


def test_pytest_that_can_not_start_removes_nothing(kerntune, project):
    (project / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    folder(project / "baselines", *map(timed, ALIVE + GONE))
    before = tree(project / "baselines")
    ran = kerntune("baselines", "prune")
    assert ran.code == 1
    assert "could not collect the tests (exit code 4)" in ran.err
    assert "--no-such-option" in ran.err
    assert ran.clean
    assert tree(project / "baselines") == before


def test_nothing_stored(kerntune, project):
    ran = kerntune("baselines", "prune")
    assert ran.code == 0
    assert "removed 0 baselines, 0 stay" in ran.out


def test_a_damaged_baseline_keeps_all_artifacts(kerntune, project):
    store = folder(project / "baselines", timed(ALIVE[0]), timed("test_gone.py::x", binary=b"gone"), timed(ALIVE[1]))
    damaged = next(store.folder.rglob("*test_rms*.json"))
    damaged.write_text("{")
    artifacts = set(store.artifacts(H200.target))
    kerntune("baselines", "prune").complains(1, str(damaged), "no artifact is removed")
    assert damaged.exists()
    assert cases(project) == {ALIVE[0]}
    assert set(store.artifacts(H200.target)) == artifacts


def stale_run(path: Path, *cases: tuple[object, Verdict, Path | str]) -> None:
    results = tuple(
        CaseResult(b.case, b.fingerprint, v, Outcome.WARN, v.value, "cuda:90", baseline_path=str(p))
        for b, v, p in cases
    )
    write_run(path, RunReport(results))


def test_what_a_run_found_stale(kerntune, project):
    """The run's paths are of its own machine; no test is collected."""
    (project / "test_here.py").unlink()
    kept, old = timed("test_here.py::test_add[1]"), timed("test_here.py::test_add[1]", n=8192)
    same_case = static("test_here.py::test_add[1]", n=8192)
    store = folder(project / "baselines", kept, old, same_case)
    inside = store.time_path(H200, old.baseline.case, old.baseline.fingerprint).relative_to(store.folder)
    other_device = msgspec.structs.replace(H200, name="NVIDIA H100")
    other = msgspec.structs.replace(old.baseline, device=other_device)
    store.put(other, old.artifacts)
    stale_run(
        project / "run.json",
        (old.baseline, Verdict.STALE, Path("/ci/build/baselines") / inside),
        (kept.baseline, Verdict.PASS, "/ci/build/baselines/x.json"),
    )
    before = tree(store.folder)
    ran = kerntune("baselines", "prune", "--stale-from", "run.json")
    assert ran.code == 0, ran.err
    assert set(before) - set(tree(store.folder)) == {inside.as_posix()}
    assert "removed 1 baseline, 3 stay; 0 artifacts" in ran.out
    assert "the run found it stale" in ran.out


def test_a_case_that_ran_in_the_same_run_is_not_stale(kerntune, project):
    store = folder(project / "baselines", timed(ALIVE[0]))
    [path] = store.time_files()
    stale_run(
        project / "run.json",
        (timed(ALIVE[0]).baseline, Verdict.STALE, path),
        (timed(ALIVE[0]).baseline, Verdict.PASS, path),
    )
    assert "removed 0 baselines" in kerntune("baselines", "prune", "--stale-from", "run.json").out


def test_a_damaged_run_removes_nothing(kerntune, project):
    folder(project / "baselines", *map(timed, GONE))
    before = tree(project / "baselines")
    (project / "run.json").write_text("{")
    kerntune("baselines", "prune", "--stale-from", "run.json").complains(2, "run.json")
    assert tree(project / "baselines") == before
