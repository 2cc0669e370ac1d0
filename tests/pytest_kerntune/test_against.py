"""``--kerntune-baselines-ref`` and ``--kerntune-against``: reference baselines from git, on the real engine."""

from __future__ import annotations

import shutil
from functools import partial

import git_project
import pytest
from inner import QUIET

pytestmark = pytest.mark.usefixtures("keep_libraries")

CONFTEST = """
from kerntune.gpu.scripted import FakeBackend, Rule, Script

def pytest_kerntune_backend(config):
    return FakeBackend(Script([Rule(constexprs={'BLOCK': 128}, time_ns=20_000.0), Rule(time_ns=24_000.0)]))
"""

INI = f"[pytest]\naddopts = {' '.join(QUIET)}\n"
"""For the base's own run, which is a process of its own."""

TESTS = """
import pytest, torch
from kernels import scale

@pytest.mark.autotune
@pytest.mark.parametrize("n", [4096])
def test_scale(autotune, n):
    x = torch.ones(n, device=autotune.device)
    assert autotune(scale, x).shape == x.shape
"""


@pytest.fixture
def repository(project, monkeypatch):
    """A project in git whose kernel has the fast block; ``kernels(64)`` makes it slower."""
    monkeypatch.syspath_prepend(project.path)

    def kernels(size):
        (project.path / "kernels.py").write_text(git_project.kernels(size))

    project.pytester.makeconftest(CONFTEST)
    (project.path / "test_it.py").write_text(TESTS)
    project.pytester.makeini(INI)
    (project.path / ".gitignore").write_text("*.log\n__pycache__\ncache\n")
    kernels(128)
    project.kernels = kernels
    project.git, project.commit = partial(git_project.git, project.path), partial(git_project.tag, project.path)
    project.git("init", "-q", "-b", "main")
    project.run = lambda *args: project.plain("--kerntune", f"--kerntune-cache-dir={project.path / 'cache'}", *args)
    return project


def files(project):
    return {p: p.read_bytes() for p in (project.path / "baselines").rglob("*") if p.is_file()}


# --kerntune-baselines-ref


@pytest.mark.slow
def test_a_change_cant_move_its_own_yardstick(repository):
    repository.run()
    repository.commit("base")
    repository.kernels(64)
    repository.run("--kerntune-update=all").stdout.fnmatch_lines(["*REGRESSED*"])
    repository.run().assert_outcomes(passed=1)
    before = files(repository)
    result = repository.run("--kerntune-baselines-ref=base")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "kerntune: baselines */baselines as of base",
            "REGRESSED *20.0 µs -> 24.0 µs*attributed: launch options *20.0 %*",
        ]
    )
    assert files(repository) == before
    repository.run("--kerntune-baselines-ref=base", "--kerntune-update=all").assert_outcomes(passed=1)


# --kerntune-anchor


@pytest.fixture
def crept(repository):
    """A step of 20 % that was accepted: the anchor and the tag ``base`` are of before."""
    repository.run()
    shutil.copytree(repository.path / "baselines", repository.path / "anchors")
    repository.commit("base")
    repository.kernels(64)
    repository.run("--kerntune-update=all")
    return repository


@pytest.mark.slow
def test_an_accepted_step_is_seen_by_the_anchor(crept):
    result = crept.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["kerntune: anchor anchors", "REGRESSED *+20.0 % since the anchor of *5.0 % allowed*"])
    crept.run("--kerntune-anchor=off").assert_outcomes(passed=1)
    crept.run("--kerntune-anchor=base").assert_outcomes(failed=1)


@pytest.mark.slow
def test_a_change_cant_move_its_anchor_either(crept):
    crept.commit("accepted")
    shutil.rmtree(crept.path / "anchors")
    shutil.copytree(crept.path / "baselines", crept.path / "anchors")
    crept.run().assert_outcomes(passed=1)
    result = crept.run("--kerntune-baselines-ref=accepted")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["REGRESSED *+20.0 % since the anchor of *"])


@pytest.mark.slow
def test_an_equal_base_is_not_all_that_counts(crept, quick_python):
    """The base's own run uses no anchor; the head's does."""
    crept.commit("accepted")
    result = crept.run("--kerntune-against=accepted", "--kerntune-json=run.json")
    result.assert_outcomes(failed=1)
    (found,) = crept.json()["results"]
    assert (found["rung"], found["since"]["verdict"]) == ("identity", "REGRESSED")


# --kerntune-against


@pytest.mark.slow
def test_base_and_head_are_compiled_today_and_replayed(repository):
    repository.commit("base")
    repository.kernels(64)
    result = repository.run("--kerntune-against=base")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "kerntune: held against base, compiled and replayed today",
            "REGRESSED test_it.py::test_scale*20.0 µs -> 24.0 µs*attributed: launch options and grid +20.0 %*",
        ]
    )
    assert not (repository.path / "baselines").exists(), "nothing is written"
    assert len(repository.git("worktree", "list").splitlines()) == 1


@pytest.mark.slow
def test_the_base_is_compiled_for_what_the_head_is(repository, quick_python):
    """Without a GPU the head's targets may come from its baselines, which the base's run doesn't look at."""
    repository.commit("base")
    (repository.path / "conftest.py").unlink()
    repository.commit("without")
    repository.kernels(64)
    repository.pytester.makeconftest(
        "from kerntune.gpu.fake_cuda.static_backend import StaticBackend\nfrom kerntune.base.device import Target\n\n"
        "def pytest_kerntune_backend(config):\n    return StaticBackend(Target.parse('cuda:90'))\n"
    )
    result = repository.run("--kerntune-against=without", "--kerntune-json=run.json")
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), result.stderr.str()
    (found,) = repository.json()["results"]
    assert found["target"] == "cuda:90"
    assert found["verdict"] != "NEW"


@pytest.mark.slow
def test_results_are_compared_with_the_base_s(repository):
    """Equally fast, and two elements differ."""
    repository.pytester.makeconftest(
        "from kerntune.gpu.scripted import FakeBackend, Rule, Script\n\n"
        "def pytest_kerntune_backend(config):\n"
        "    changed = Rule(constexprs={'BLOCK': 64}, flips=((40, 1), (400, 2)))\n"
        "    return FakeBackend(Script([changed]))\n"
    )
    repository.commit("base")
    repository.kernels(64)
    result = repository.run("--kerntune-against=base", "-o", "kerntune_numerics=bitwise", "--kerntune-json=run.json")
    result.assert_outcomes(failed=1)
    (found,) = repository.json()["results"]
    assert [x.partition(",")[0] for x in found["findings"]] == ["results changed: y: 2 of 4"]
    assert found["findings"][0].endswith("bitwise is gated")


@pytest.mark.slow
def test_an_equal_head_passes(repository, quick_python):
    repository.commit("base")
    result = repository.run("--kerntune-against=base", "--kerntune-json=run.json", "-k", "scale")
    result.assert_outcomes(passed=1)
    assert [r["rung"] for r in repository.json()["results"]] == ["identity"]


@pytest.mark.slow
def test_a_new_test_has_no_base_and_passes_in_ci_too(repository, monkeypatch, quick_python):
    repository.commit("base")
    (repository.path / "test_new.py").write_text(TESTS)
    monkeypatch.setenv("CI", "true")
    result = repository.run("--kerntune-against=base")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*1 NEW*"])
    result = repository.run("--kerntune-against=base", "test_new.py")
    result.assert_outcomes(passed=1)


@pytest.mark.slow
def test_addopts_that_say_against_do_not_make_the_base_say_it_too(repository, quick_python):
    repository.pytester.makeini(f"{INI.rstrip()} --kerntune-against=base\n")
    repository.commit("base")
    repository.run().assert_outcomes(passed=1)
    repository.kernels(64)
    repository.run().assert_outcomes(failed=1)


@pytest.mark.slow
def test_workers_share_one_base(repository, quick_python):
    pytest.importorskip("xdist")
    (repository.path / "test_new.py").write_text(TESTS)
    repository.commit("base")
    repository.kernels(64)
    repository.run("--kerntune-against=base", "-n", "2").assert_outcomes(failed=2)
