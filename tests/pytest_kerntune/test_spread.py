"""xdist's workers on the GPUs of a host, and turns of those that share one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from inner import usage_error

from pytest_kerntune.concurrency import Spread

pytest.importorskip("xdist")

CONFTEST = """
import os
import pathlib

import scripted

scripted.install()
scripted.Session.gpus = {count}
me = os.environ.get("PYTEST_XDIST_WORKER", "alone")
with pathlib.Path("seen.log").open("a") as file:
    file.write(me + " " + os.environ.get("CUDA_VISIBLE_DEVICES", "all") + "\\n")
{more}
"""

SOURCE = """
@pytest.mark.parametrize("n", range({tests}))
def test_a(autotune, n):
    autotune(kernel("PASS"))

def test_plain():
    pass

@pytest.mark.gpu
def test_marked():
    pass
"""

GIVES = """
def pytest_xdist_setupnodes(specs):
    for spec in specs:
        spec.env["CUDA_VISIBLE_DEVICES"] = "7"
"""


@pytest.fixture
def spread(project, monkeypatch, source_environ):
    """Runs on so many workers of a host with so many GPUs; what each saw at its start, and the engine's log."""
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # this test may run in a worker itself

    def run(*args: str, gpus: int, tests: int = 4, more: str = "", ini: str = "") -> dict[str, str]:
        project.pytester.makeconftest(CONFTEST.format(count=gpus, more=more))
        project.pytester.makeini(f"[pytest]\nmarkers = gpu\n{ini}")
        project.file(SOURCE.format(tests=tests))
        result = project.run(*args)
        result.assert_outcomes(passed=tests + 2)
        seen = dict(line.split(" ", 1) for line in (project.path / "seen.log").read_text().splitlines())
        seen.pop("alone", None)
        return seen

    return run


@pytest.mark.slow
def test_workers_begin_with_different_gpus_before_anything_is_imported(project, spread, monkeypatch):
    project.python = None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5f")
    assert spread("-n3", gpus=2) == {"gw0": "4,GPU-5f", "gw1": "GPU-5f,4", "gw2": "4,GPU-5f"}


@pytest.mark.slow
def test_without_a_list_all_are_numbered(spread):
    assert spread("-n2", gpus=3) == {"gw0": "all", "gw1": "1,2,0"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "more", "expected"),
    [
        ({"ini": "kerntune_spread = off"}, "", {"gw0": "all", "gw1": "all"}),
        ({}, GIVES, {"gw0": "7", "gw1": "7"}),
    ],
)
def test_a_project_s_own_mapping_stays(spread, words, more, expected):
    assert spread("-n2", gpus=2, more=more, **words) == expected


@pytest.mark.slow
def test_a_list_on_the_command_line_stays(spread):
    found = spread("--tx=popen//env:CUDA_VISIBLE_DEVICES=3", "--tx=popen", "--tx=popen", "--dist=load", gpus=2)
    assert found == {"gw0": "3", "gw1": "all", "gw2": "1,0"}


@pytest.mark.parametrize(
    ("count", "environ", "expected"),
    [
        (3, {}, {"HIP_VISIBLE_DEVICES": "1,2,0"}),
        (3, {"ROCR_VISIBLE_DEVICES": "4,5,6"}, {"ROCR_VISIBLE_DEVICES": "5,6,4"}),
        (2, {"HIP_VISIBLE_DEVICES": "1,0", "ROCR_VISIBLE_DEVICES": "4,5"}, {"HIP_VISIBLE_DEVICES": "0,1"}),
    ],
)
def test_amd_gpus_are_given_out_and_nobody_waits(monkeypatch, count, environ, expected):
    """Nothing is measured there."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: count, raising=False)
    specs = [SimpleNamespace(popen=True, env={}, id=f"gw{n}") for n in range(4)]
    spread = Spread(wanted=True)
    spread.turn(specs, 0)
    assert [spec.env for spec in specs[:2]] == [{}, expected]
    assert not any(spread._crowded.values())


def test_without_xdist_nothing_is_set(project, spread):
    assert spread(gpus=2) == {}
    assert (project.path / "seen.log").read_text() == "alone all\n"
    assert "turn" not in project.log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpus", "ini", "taken"),
    [
        (2, "", 0),
        (1, "", 6),
        (1, "kerntune_turns = marked", 5),
        (1, "kerntune_turns = off", 0),
    ],
)
def test_tests_wait_for_another_worker_s_measuring_where_both_share_a_gpu(project, spread, gpus, ini, taken):
    """Two workers; four tests use autotune, one is marked."""
    spread("-n2", gpus=gpus, ini=ini)
    assert project.log.count("in turn\n") == taken


def test_a_wrong_word_is_refused(project):
    project.pytester.makeini("[pytest]\nkerntune_turns = some\n")
    usage_error(project.run(), "*ini key kerntune_turns: 'some' is none of all, marked, off*")


# on the real engine

HOST = """
import tempfile
import kerntune.gpu.device_lock as device_lock
from kerntune.gpu.scripted import Rule, Script, scripted_host

tempfile.tempdir = {folder!r}
device_lock.device_node = lambda uuid: None

def pytest_kerntune_backend(config):
    return scripted_host(2, Script([Rule(time_ns=20_000.0)]))
"""

KERNEL = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

@pytest.mark.parametrize("n", [1024, 2048])
def test_double(autotune, n):
    assert torch.cuda.device_count() == 2
    x = torch.ones(n, device=autotune.device)
    y = torch.empty_like(x)
    autotune(double_kernel[(n // 128,)], x, y, n, BLOCK=128)
"""


@pytest.mark.slow
def test_each_worker_measures_on_its_own_gpu_and_all_share_a_folder(project, monkeypatch, source_environ, tmp_path):
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    project.pytester.makeconftest(HOST.format(folder=str(tmp_path)))
    project.pytester.makepyfile(test_it=KERNEL)
    result = project.run("-n2", "--dist=load", "-W", "ignore:TRITON_DEFAULT_FP_FUSION", "--kerntune-json=run.json")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["case*GPU*time*verdict*", "*NEW (recorded)*"])
    results = project.json()["results"]
    assert len({r["gpu"] for r in results}) == 2
    assert all(f" {r['gpu_name']} " in result.stdout.str() for r in results)
    assert len({path.parent for path in (project.path / "baselines").rglob("*.json")}) == 1
