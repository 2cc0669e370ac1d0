"""A torch that has moved a private part: a line of the run names it, and what doesn't need it works."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from inner import QUIET, USER_WARNINGS, find_plugin

MOVED = """
import importlib, os

def take_away(name):
    module, _, path = name.partition(":")
    owner = importlib.import_module(module)
    *outer, last = path.split(".")
    for step in outer:
        owner = getattr(owner, step)
    delattr(owner, last)

take_away(os.environ["MOVED"])
"""

TESTS = """
import pytest, torch, triton
import triton.language as tl

@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

def double(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y

def test_direct(autotune):
    autotune(double, torch.randn(1000, device=autotune.device))

def test_compiled(autotune):
    autotune(torch.compile(lambda x: x.sin() + 1), torch.randn(1000, device=autotune.device))
"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, run_copy: Run, source_environ: dict[str, str]) -> Run:
    """Runs pytest without a GPU, on a torch without ``moved``."""
    pytester.makepyfile(test_it=TESTS, moved=MOVED)

    def given(moved: str, *args: str) -> pytest.RunResult:
        source_environ.update(MOVED=moved, CUDA_VISIBLE_DEVICES="")
        source_environ["PYTHONPATH"] = f"{pytester.path}:{source_environ.get('PYTHONPATH', '')}"
        # ``moved`` first: what kerntune imports early is imported after it
        return run_copy("-p", "moved", "-p", find_plugin(), *QUIET, *USER_WARNINGS, *args)

    return given


@pytest.mark.parametrize("option", ["--kerntune-target=cuda:90", "--kerntune-interpret"])
def test_without_a_part_of_stand_ins_a_run_ends_with_a_line(run: Run, option: str) -> None:
    result = run("torch._C:_only_lift_cpu_tensors", *(["--kerntune"] if "target" in option else []), option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line]
    assert line.startswith("ERROR: torch ")
    assert "has no torch._C:_only_lift_cpu_tensors (kerntune/gpu/fake_cuda/session.py)" in line
    assert "runs on a GPU, and tuning in programs, go on. kerntune was run with torch 2.11 to " in line


@pytest.mark.slow
def test_without_a_part_of_the_compiler_kernels_launched_directly_are_judged(run: Run) -> None:
    part = "torch._inductor.runtime.triton_heuristics:CachingAutotuner._interpret_args_grid"
    result = run(part, "--kerntune", "--kerntune-target=cuda:90", "-rw")
    result.stdout.fnmatch_lines(["1 NEW, 1 INCOMPLETE"])
    why = f"has no {part}, which is used for: the grid of a launch: the gate of compiled functions is off"
    (said,) = [line for line in result.outlines if why in line]
    assert "INCOMPLETE test_it.py::test_compiled: it runs functions compiled by torch" in said
    assert said.endswith("kernels launched directly are judged")
    assert "AttributeError" not in result.stdout.str()
