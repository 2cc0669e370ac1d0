"""Several targets: each sees what its own device would see launched, wherever the device was asked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from inner import usage_error

from pytest_kerntune.options import OPTIONS, resolve
from pytest_kerntune.other_runs import UNATTENDED, arguments

pytestmark = pytest.mark.usefixtures("keep_libraries")

TARGETS = ("cuda:90", "hip:gfx942")

SOURCE = """
import functools, torch, triton, triton.language as tl

BLOCK = 1024 if torch.version.hip is None else 512

@functools.lru_cache
def capability():
    return torch.cuda.get_device_capability()

@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

def copy(x, block):
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), block)
    return y

def test_inside(autotune):
    device = lambda: triton.runtime.driver.active.get_current_target()
    autotune(lambda x: copy(x, 1024 if device().backend == "cuda" else 512), torch.ones(4096, device="cuda"))

def test_import(autotune):
    autotune(copy, torch.ones(4096, device="cuda"), BLOCK)

def test_body(autotune):
    block = 1024 if capability() == (9, 0) else 512
    autotune(copy, torch.ones(4096, device="cuda"), block)

@pytest.mark.skipif(torch.version.hip is None, reason="for AMD")
def test_amd(autotune):
    autotune(copy, torch.ones(4096, device="cuda"), 2048)
    assert PASSES

def test_fails(autotune):
    assert autotune(copy, torch.ones(4096, device="cuda"), 256).shape == (4096,)
    assert torch.version.hip is None or PASSES
"""

EXPECTED = {
    ("test_inside", "cuda:90"): 4, ("test_inside", "hip:gfx942"): 8,
    ("test_import", "cuda:90"): 4, ("test_import", "hip:gfx942"): 8,
    ("test_body", "cuda:90"): 4, ("test_body", "hip:gfx942"): 8,
    ("test_amd", "hip:gfx942"): 2,
    ("test_fails", "cuda:90"): 16, ("test_fails", "hip:gfx942"): 16,
}  # fmt: skip
"""How many programs each target's device would be given."""


@pytest.fixture
def run(project, monkeypatch, source_environ):
    """Runs the tests for both targets, in the order given."""
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    project.pytester.makeconftest("")

    def run(*args, targets=TARGETS, passes="True"):
        source = SOURCE.replace("PASSES", passes)
        project.pytester.makepyfile(test_it="import pytest\n" + source)
        quiet = ("-W", "ignore:TRITON_DEFAULT_FP_FUSION", "--kerntune-json=run.json")
        return project.run(*quiet, f"--kerntune-target={','.join(targets)}", *args)

    run.project = project
    return run


def verdicts(run) -> dict[tuple[str, str], str]:
    results = run.project.json()["results"]
    return {(r["case"]["nodeid"].partition("::")[2], r["target"]): r["verdict"] for r in results}


@pytest.mark.slow
def test_each_target_is_asked_everything_itself(run, quick_python):
    result = run("--kerntune-summary=sum.md")
    result.assert_outcomes(passed=4, skipped=1)
    (heading,) = [x for x in (run.project.path / "sum.md").read_text().splitlines() if x.startswith("## ")]
    assert heading
    result.stdout.fnmatch_lines(["kerntune: in runs of their own: hip:gfx942", "9 NEW", "9 baselines recorded*"])
    found = run.project.json()
    launched = {
        (r["case"]["nodeid"].partition("::")[2], r["target"]): r["launches"][0]["grid"][0] for r in found["results"]
    }
    assert launched == EXPECTED
    assert len(found["baselines"]) == 9

    again = run(targets=TARGETS[::-1])
    again.assert_outcomes(passed=5)
    assert set(verdicts(run).values()) == {"PASS"}


@pytest.mark.slow
def test_what_only_the_further_target_finds_fails_the_run(run, quick_python):
    """On xdist's workers, which run neither the other runs nor the end of this one."""
    pytest.importorskip("xdist")
    result = run("-n1", "--kerntune-update=new", passes="False")
    result.assert_outcomes(failed=1, passed=3, skipped=1)
    fails = "INCOMPLETE test_it.py::{} (hip:gfx942): the test fails there: *assert*"
    result.stdout.fnmatch_lines([fails.format("test_fails"), "ERROR: " + fails.format("test_amd")])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.slow
def test_a_run_that_breaks_off_says_why(run):
    run.project.pytester.makeconftest("import torch\nassert torch.version.hip is None, 'AMD breaks'")
    usage_error(run(), "ERROR: the run for hip:gfx942 ended with code 4:*", "*AMD breaks*")


@pytest.mark.parametrize("option", ["--kerntune-against", "--kerntune-baselines-ref", "--kerntune-anchor"])
def test_a_wrong_revision_is_told_once_before_anything_runs(run, monkeypatch, option):
    monkeypatch.setattr("pytest_kerntune.session.run_extra_targets", lambda *args: pytest.fail("ran"))
    subprocess.run(["git", "init", "-q"], cwd=run.project.path, check=True)
    result = run(f"{option}=gone")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line]
    assert "gone: no such commit, branch or tag" in line


@pytest.mark.parametrize("option", ["--collect-only", "--fixtures"])
def test_nothing_runs_where_pytest_only_looks(run, monkeypatch, option):
    monkeypatch.setattr("pytest_kerntune.session.run_extra_targets", lambda *args: pytest.fail("ran"))
    assert run(option).ret == pytest.ExitCode.OK


WRITTEN = {"FILE", "FOLDER", "PLACE"}
"""What options that have a run write something take."""


def test_every_option_that_writes_is_known_as_such() -> None:
    """And so left to the run that reports the results of all targets."""
    writing = {o.flag for o in OPTIONS if o.metavar in WRITTEN or o.help.startswith(("Write ", "Append ", "Add "))}
    assert {o.flag for o in OPTIONS if o.output} == writing - {"--kerntune-update"}
    assert "--kerntune-summary" in writing


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.output], ids=lambda o: o.flag)
@pytest.mark.parametrize("where", ["command line", "ini file"])
def test_runs_for_further_targets_leave_outputs_to_this_one(pytester, plugin_name, option, where) -> None:
    says = f"{option.ini} = from-ini" if option.ini else f"addopts = {option.flag}=from-ini"
    pytester.makeini(f"[pytest]\n{says}\n" if where == "ini file" else "[pytest]\n")
    given = [f"{option.flag}=given"] if where == "command line" else []
    plugin = ["-p", plugin_name]
    field = option.dest.removeprefix("kerntune_")
    mine = resolve(pytester.parseconfig(*plugin, "--kerntune", *given))
    assert getattr(mine, field)
    again = arguments(pytester.parseconfig(*plugin, "--kerntune", *given), "hip:gfx942", Path("/into"))
    extra = resolve(pytester.parseconfig(*UNATTENDED, *again))
    assert not getattr(extra, field) or option.flag == "--kerntune-json"
    assert extra.json == Path("/into/run.json")
