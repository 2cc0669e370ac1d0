"""A GPU that runs nothing any more, by a fault of the user's own kernel or because it is gone."""

from __future__ import annotations

import pytest

LOST = "since test_it.py::test_faults the GPU runs nothing any more in its process: kernel add on grid (4, 1, 1)*"

SOURCE = """
def test_before(autotune):
    autotune(kernel("NEW", rung="written"))

def test_faults(autotune):
    autotune(kernel("NEW", rung="written"), name="first")
    autotune(loses())

@pytest.mark.parametrize("n", range(3))
def test_after(autotune, n):
    autotune(kernel("NEW", rung="written"))

def test_needs_no_gpu():
    pass

def test_needs_the_gpu():
    raise RuntimeError("CUDA error: an illegal memory access was encountered")

def test_own_error():
    assert 1 == 2

@pytest.fixture
def tensor():
    raise RuntimeError("CUDA error: an illegal memory access was encountered")

def test_fixture_needs_the_gpu(tensor):
    pass
"""


def test_one_error_and_the_rest_is_inconclusive(project):
    project.file(SOURCE)
    result = project.run("--kerntune-json=run.json", "-rs")
    result.assert_outcomes(passed=2, failed=2, skipped=5)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.committed == ["test_before"]
    assert project.json()["counts"] == {"NEW": 2, "INCONCLUSIVE": 3}
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_faults: kernel add on grid (4, 1, 1): CUDA_ERROR",
            "*assert 1 == 2",
            "*3 INCONCLUSIVE, 2 NEW*",
            f"ERROR: {LOST}",
            f"SKIPPED *INCONCLUSIVE test_it.py::test_after[[]0]: not run: {LOST}",
        ]
    )
    result.stdout.fnmatch_lines([f"SKIPPED *{LOST}"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*RuntimeError*")


def test_strictly_the_rest_fails(project):
    project.file(SOURCE.partition("def test_needs_no_gpu")[0])
    result = project.run("--kerntune-strict")
    result.assert_outcomes(passed=1, failed=1, errors=3)
    result.stdout.fnmatch_lines([f"INCONCLUSIVE test_it.py::test_after[[]0]: not run: {LOST}"])


def test_a_fault_that_no_call_reports_is_found_at_the_end_of_its_test(project):
    project.file(
        "def test_faults(autotune):\n    autotune(loses(None))\n\ndef test_after(autotune):\n    autotune(kernel())\n"
    )
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=1, skipped=1)
    result.stdout.fnmatch_lines(["test_it.py::test_faults: the GPU runs nothing any more after this test: kernel *"])


def test_a_run_whose_fault_is_expected_fails_all_the_same(project):
    project.file(
        "@pytest.mark.xfail\ndef test_faults(autotune):\n    autotune(loses())\n\n"
        "def test_after(autotune):\n    autotune(kernel())\n"
    )
    result = project.run()
    result.assert_outcomes(xfailed=1, skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"ERROR: {LOST}"])


def test_a_test_without_autotune_may_be_the_cause(project):
    project.file(
        "def test_faults():\n    loses(RuntimeError, 'CUDA error: misaligned address')()\n\n"
        "def test_after(autotune):\n    autotune(kernel())\n"
    )
    result = project.run()
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines(["E *RuntimeError: CUDA error: misaligned address"])
    result.stdout.fnmatch_lines(["ERROR: since test_it.py::test_faults the GPU runs nothing any more *: CUDA error: *"])


def test_a_gpu_that_may_be_busy_without_end_is_not_waited_for(project):
    project.file("def test_a(autotune):\n    autotune(kernel())\n    pytest.fail('Timeout >1.0s')\n")
    project.run().assert_outcomes(failed=1)
    assert [x for x in project.log.splitlines() if x.startswith("lost?")] == ["lost? ask=False"]


@pytest.fixture
def distribute(project, monkeypatch, source_environ):
    """Runs the project on one worker, which imports kerntune from this source tree."""
    pytest.importorskip("xdist")
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    return lambda *args: project.run("-n1", *args)


@pytest.mark.slow
def test_under_xdist_a_new_worker_takes_the_rest(project, distribute):
    project.file(SOURCE.partition("def test_needs_the_gpu")[0])
    result = distribute("--kerntune-json=run.json")
    result.assert_outcomes(passed=5, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert sorted(project.committed) == [*(f"test_after[{n}]" for n in range(3)), "test_before"]
    assert list(project.json()["failed"]) == ["test_it.py::test_faults"]
    result.stdout.fnmatch_lines(["test_it.py::test_faults: kernel add on grid (4, 1, 1): CUDA_ERROR", f"ERROR: {LOST}"])
    result.stdout.no_fnmatch_line("*crashed while running*")
    assert project.log.count("close\n") == 3  # two workers and the controller


@pytest.mark.slow
def test_a_new_worker_that_finds_no_gpu_judges_nothing(project, distribute):
    project.file(SOURCE.partition("def test_needs_no_gpu")[0])
    project.pytester.makeconftest(
        "import os, scripted\n"
        "lost = any(name.startswith('lost') for name in os.listdir())\n"
        "scripted.install(static=lost)\n"
    )
    result = distribute("--kerntune-json=run.json")
    result.assert_outcomes(passed=1, failed=1, skipped=3)
    assert project.json()["counts"] == {"NEW": 2, "INCONCLUSIVE": 3}
    assert project.committed == ["test_before"]


ENGINE = """
from kerntune.errors import BackendError
from kerntune.gpu.scripted import FakeBackend, FakeGpu, Rule, Script

class Gpu(FakeGpu):
    lost = False

    def synchronize(self):
        if self.lost:
            raise BackendError("waiting for the device: CUDA_ERROR_ILLEGAL_ADDRESS (700)")
        super().synchronize()

def pytest_kerntune_backend(config):
    backend = FakeBackend(Script([Rule(time_ns=20_000.0)]))
    backend.gpu = config.gpu = Gpu(backend.spec, backend.gpu.script, backend.stand_ins)
    return backend
"""

KERNELS = """
import torch, triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=4)], key=["n"])
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

@triton.jit
def fixed(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

def launch(x):
    y = torch.empty_like(x)
    tuned[(16,)](x, y, x.numel())
    fixed[(7, 2)](y, x.numel(), BLOCK=128, num_warps=8)
    return y

def test_faults(autotune, pytestconfig):
    def faults(x):
        y = launch(x)
        pytestconfig.gpu.lost = True
        END
    autotune(faults, torch.ones(1024, device=autotune.device))

def test_reference_faults(autotune, pytestconfig):
    def faults():
        pytestconfig.gpu.lost = True
        END
    autotune(launch, torch.ones(1024, device=autotune.device), reference=faults)

def test_a_plain_error(autotune):
    def raises():
        raise ValueError("mine")
    autotune(raises)

def test_after(autotune):
    autotune(launch, torch.ones(1024, device=autotune.device))
"""

AFTER = (
    "the GPU runs nothing any more after one of: kernel tuned with BLOCK=64 num_warps=4 num_stages=3 on grid (16, 1, 1)"
    "; kernel fixed with BLOCK=128 num_warps=8 num_stages=3 on grid (7, 2, 1) (waiting for the device: "
    "CUDA_ERROR_ILLEGAL_ADDRESS (700)). *compute-sanitizer*"
)


@pytest.mark.usefixtures("keep_libraries")
@pytest.mark.parametrize("end", ["return None", "raise RuntimeError('CUDA error: an illegal memory access')"])
@pytest.mark.parametrize("test", ["test_faults", "test_reference_faults"])
def test_the_error_names_kernels_configs_and_grids(project, test, end):
    project.pytester.makeconftest(ENGINE)
    project.pytester.makepyfile(test_it=KERNELS.replace("END", end))
    quiet = ("-W", "ignore:TRITON_DEFAULT_FP_FUSION", "--kerntune-cache-dir=cache")
    result = project.run(*quiet, "-k", f"test_after or {test}")
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines([f"test_it.py::{test}: {AFTER}"])
    result.stdout.no_fnmatch_line("*RuntimeError*")


@pytest.mark.usefixtures("keep_libraries")
def test_an_error_on_a_gpu_that_answers_stays_what_it_is(project):
    project.pytester.makeconftest(ENGINE)
    project.pytester.makepyfile(test_it=KERNELS.replace("END", ""))
    quiet = ("-W", "ignore:TRITON_DEFAULT_FP_FUSION", "--kerntune-cache-dir=cache")
    result = project.run(*quiet, "-k", "test_after or test_a_plain_error")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["E *ValueError: mine"])
