"""``kerntune baselines refresh`` is pytest with two options: here on real kernels and the scripted GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli.made import folder, timed, tree
from kerntune.base.stats import median
from kerntune.cli.stored import load_folder
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import TimeBaseline

CONFTEST = """
from kerntune.gpu.scripted import FakeBackend, Rule, Script

def pytest_kerntune_backend(config):
    return FakeBackend(Script([Rule(time_ns={time_ns})]))
"""

TESTS = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y

@pytest.mark.autotune
@pytest.mark.parametrize("n", [1024, 4096])
def test_scale(autotune, n):
    autotune(scale, torch.ones(n, device=autotune.device))

def test_broken(request):
    assert not request.config.getoption("kerntune_json"), "broken on request"
"""

INI = """
[pytest]
addopts = -p no:cacheprovider
kerntune_cache_dir = cache
filterwarnings = ignore
"""


@pytest.fixture
def project(inner, monkeypatch) -> Path:
    monkeypatch.delenv("CI", raising=False)
    (inner / "pytest.ini").write_text(INI)
    (inner / "test_it.py").write_text(TESTS)
    gpu(inner, 20_000.0)
    return inner


def gpu(project: Path, time_ns: float) -> None:
    """How long a launch takes from now on."""
    (project / "conftest.py").write_text(CONFTEST.format(time_ns=time_ns))


def times(project: Path) -> dict[str, float]:
    """The stored median of each case, rounded to microseconds."""
    found = [e.baseline for e in load_folder(project / "baselines")]
    return {str(b.case): round(median(b.sample.times_ns) / 1000) for b in found if isinstance(b, TimeBaseline)}


@pytest.mark.slow
def test_records_what_runs_and_touches_nothing_else(kerntune, project):
    store = folder(project / "baselines", timed("test_other.py::test_other"))
    before = tree(store.folder)
    ran = kerntune("baselines", "refresh")
    assert ran.code == 0, ran.out
    assert "2 baselines recorded" in ran.out
    assert times(project) == {
        "test_it.py::test_scale[1024]": 20,
        "test_it.py::test_scale[4096]": 20,
        "test_other.py::test_other": 12,
    }
    after = tree(store.folder)
    assert {k: after[k] for k in before} == before
    assert kerntune("baselines", "verify").code == 0


@pytest.mark.slow
def test_a_selection_is_refreshed_alone(kerntune, project):
    kerntune("baselines", "refresh")
    gpu(project, 30_000.0)
    ran = kerntune("baselines", "refresh", "-k", "4096", "test_it.py")
    assert ran.code == 0, ran.out
    assert times(project) == {"test_it.py::test_scale[1024]": 20, "test_it.py::test_scale[4096]": 30}


@pytest.mark.slow
def test_what_follows_can_ask_for_another_update(kerntune, project):
    kerntune("baselines", "refresh", "-k", "1024")
    gpu(project, 30_000.0)
    ran = kerntune("baselines", "refresh", "--kerntune-update=new")
    assert ran.code == 0, ran.out
    assert times(project) == {"test_it.py::test_scale[1024]": 20, "test_it.py::test_scale[4096]": 30}


@pytest.mark.parametrize(
    ("args", "code"),
    [(["--kerntune-json=run.json"], 1), (["--no-such-option"], 4), (["-k", "nothing_of_this_name"], 5)],
    ids=["failed", "usage", "empty"],
)
def test_pytest_s_exit_code_is_passed_on(kerntune, project, args, code):
    assert kerntune("baselines", "refresh", *args).code == code


def test_without_arguments_it_runs_all(kerntune, project):
    ran = kerntune("baselines", "refresh")
    assert "3 passed" in ran.out


@pytest.mark.slow
def test_a_project_whose_warnings_are_errors(kerntune, project):
    (project / "pytest.ini").write_text(INI.replace("filterwarnings = ignore", "filterwarnings = error"))
    ran = kerntune("baselines", "refresh")
    assert ran.code == 0, ran.err
    assert "2 baselines recorded" in ran.out
    assert kerntune("baselines", "prune").code == 0


@pytest.mark.slow
def test_a_folder_that_can_not_be_written(kerntune, project):
    (project / "baselines").write_text("a file where the folder should be")
    ran = kerntune("baselines", "refresh")
    assert ran.code == 1
    assert f"{project / 'baselines'}" in ran.out
    assert "can't be written (Not a directory)" in ran.out
    assert ran.clean


@pytest.mark.slow
def test_what_was_recorded_can_be_pruned_away(kerntune, project):
    kerntune("baselines", "refresh")
    (project / "test_it.py").write_text(TESTS.replace("[1024, 4096]", "[1024]"))
    del sys.modules["test_it"]  # another call of the command would be another process
    ran = kerntune("baselines", "prune")
    assert ran.code == 0, ran.err
    assert times(project) == {"test_it.py::test_scale[1024]": 20}
    assert kerntune("baselines", "verify").code == 0


def test_show_reads_what_was_recorded(kerntune, project):
    kerntune("baselines", "refresh", "-k", "1024")
    [row] = json.loads(kerntune("baselines", "show", "--json").out)["baselines"]
    assert row["launches"][0]["kernel"] == "scale_kernel"
    assert row["place"] == "Fake GPU"
    assert BaselineStore(project / "baselines").targets()
