"""Stand-ins are in place before initial conftests are imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import Copies
from inner import QUIET

CONFTEST = """
import torch
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAME = torch.cuda.get_device_name() if DEVICE == "cuda" else ""
"""

TESTS = """
import pytest, torch
from conftest import DEVICE, NAME

@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_seen():
    assert torch.zeros(1 << 40, device=DEVICE).is_cuda and NAME

def test_none():
    assert DEVICE == "cpu"
"""

FAKE = """
from kerntune.gpu.scripted import FakeBackend

def pytest_kerntune_backend(config):
    return FakeBackend()
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def arguments(tmp_path: Path, plugin_name: str) -> Callable[..., list[str]]:
    """What Python takes to run pytest on the files above, which are there then."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)

    def given(*args: str, **variables: str) -> list[str]:
        plugin = [] if "PYTEST_PLUGINS" in variables else ["-p", plugin_name]
        return ["-m", "pytest", *plugin, *QUIET, *args]

    return given


@pytest.fixture
def environ(source_environ: dict[str, str]) -> dict[str, str]:
    """Without any GPU that this machine has."""
    return source_environ | {"CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def run(tmp_path: Path, copies: Copies, arguments: Callable[..., list[str]], environ: dict[str, str]) -> Run:
    """pytest in a process of its own: torch can't be imported twice."""
    return lambda *args, **variables: copies.run(*arguments(*args, **variables), cwd=tmp_path, env=environ | variables)


@pytest.fixture
def run_anew(tmp_path: Path, arguments: Callable[..., list[str]], environ: dict[str, str]) -> Run:
    """The same with nothing imported before: torch is imported by the plugin or a conftest."""
    return lambda *args: subprocess.run(
        [sys.executable, *arguments(*args)], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_conftests_see_the_target(run_anew: Run) -> None:
    done = run_anew("--kerntune", "--kerntune-target=cuda:90")
    assert "1 failed, 1 passed" in done.stdout.splitlines()[-1]
    assert "FAILED test_it.py::test_none" in done.stdout


@pytest.mark.slow
def test_targets_of_the_ini_file_and_of_the_baselines_count(run: Run, tmp_path: Path) -> None:
    (tmp_path / "baselines" / "cuda-90").mkdir(parents=True)
    done = run("--kerntune", "-k", "seen")
    assert "1 passed" in done.stdout.splitlines()[-1]
    (tmp_path / "baselines" / "cuda-90").rmdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nkerntune = true\nkerntune_target = cuda:80\n")
    done = run("-k", "seen")
    assert "1 passed" in done.stdout.splitlines()[-1]
    assert "compiling for cuda:80" in done.stdout


def test_without_kerntune_nothing_is_in_place(run: Run) -> None:
    done = run("-rs")
    assert "1 passed, 1 skipped" in done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_the_backend_of_a_conftest_wins(run: Run, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST + FAKE)
    done = run("--kerntune", "--kerntune-target=cuda:90", "--collect-only")
    assert done.returncode == 0, done.stdout + done.stderr  # it needs stand-ins of its own: only one may have any
    assert "kerntune: Fake GPU" in done.stdout


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--kerntune-target=hopper", "ERROR: --kerntune-target: unknown target 'hopper'"),
        ("--kerntune-target=cuda:91", "ERROR: "),
        ("--kerntune-tolerance=-1", "ERROR: --kerntune-tolerance: '-1' is no tolerance"),
        ("-okerntune_numerics=ulp", "ERROR: ini key kerntune_numerics: 'ulp' is none of report, bitwise, ulp:2 "),
        ("-q", "ERROR: there is no GPU here, and baselines knows no target"),
    ],
)
def test_usage_errors(run: Run, option: str, says: str) -> None:
    done = run("--kerntune", option)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.startswith(says)
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_conftests_of_xdists_workers_see_it_too(run: Run, plugin_name: str) -> None:
    """Workers load what ``-p`` names after their conftests; an installed plugin, or this variable's, before."""
    pytest.importorskip("xdist")
    early = {} if plugin_name == "kerntune" else {"PYTEST_PLUGINS": "pytest_kerntune.plugin"}
    done = run("--kerntune", "--kerntune-target=cuda:90", "-n1", "-k", "seen", **early)
    assert "1 passed" in done.stdout.splitlines()[-1], done.stdout
