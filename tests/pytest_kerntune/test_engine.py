"""The plugin on the real engine: real kernels, compiled for real, timed on the scripted GPU."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("keep_libraries")

CONFTEST = """
from kerntune.gpu.scripted import FakeBackend, Rule, Script

def pytest_kerntune_backend(config):
    return FakeBackend(Script([{rules}]))
"""

SOURCE = """
import torch, triton, triton.language as tl

@triton.autotune(configs=[triton.Config({{"BLOCK": b}}, num_warps=4) for b in ({blocks})], key=["n"])
@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * {factor}, mask=at < n)

def scale(x):
    y = torch.empty_like(x)
    scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y

@pytest.mark.autotune
@pytest.mark.parametrize("n", [{size}])
def test_scale(autotune, n):
    x = torch.ones(n, device=autotune.device)
    assert autotune(scale, x).shape == x.shape
"""

FAST = "Rule(time_ns=20_000.0)"
FAST_WITH_128 = "Rule(constexprs={'BLOCK': 128}, time_ns=20_000.0), Rule(time_ns=24_000.0)"


@pytest.fixture
def kernel_project(project):
    """Runs the kernel test on a GPU with given rules."""

    def run(*args, rules=FAST, blocks="64, 128", factor="2.0", size=4096, source=SOURCE):
        project.pytester.makeconftest(CONFTEST.format(rules=rules))
        text = source.format(blocks=blocks, factor=factor, size=size)
        project.pytester.makepyfile(test_it="import pytest\n" + text)
        quiet = ("-W", "ignore:TRITON_DEFAULT_FP_FUSION")  # Triton 3.9 announces another default
        return project.run(*quiet, "--kerntune-cache-dir=cache", *args)

    run.project = project
    return run


@pytest.mark.slow
def test_records_then_passes(kernel_project):
    first = kernel_project()
    first.assert_outcomes(passed=1)
    first.stdout.fnmatch_lines(["  scale_kernel: BLOCK=*", "  20.0 µs *NEW (recorded)"], consecutive=True)
    first.stdout.fnmatch_lines(["1 baseline recorded in *"])
    second = kernel_project("--kerntune-json=run.json")
    second.assert_outcomes(passed=1)
    second.stdout.fnmatch_lines(["1 PASS"])
    assert kernel_project.project.json()["counts"] == {"PASS": 1}


@pytest.mark.slow
def test_lost_winner_fails_with_size_and_cause(kernel_project):
    first = kernel_project(rules=FAST_WITH_128)
    first.stdout.fnmatch_lines(["  scale_kernel: BLOCK=128 *", "  20.0 µs *NEW (recorded)"], consecutive=True)
    result = kernel_project("--junitxml=j.xml", rules=FAST_WITH_128, blocks="64,")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["REGRESSED test_it.py::test_scale[[]4096]: 20.0 µs -> 24.0 µs (+20.* %, 99 % CI *config choice +20.*"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "kerntune_verdict" in (kernel_project.project.path / "j.xml").read_text()


@pytest.mark.slow
def test_gain_is_offered_and_recorded_on_request(kernel_project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    kernel_project(rules=FAST_WITH_128, blocks="64,")
    arguments = {"rules": FAST_WITH_128, "blocks": "64, 128"}
    kernel_project(**arguments).stdout.fnmatch_lines(["1 IMPROVED", "1 case improved; *--kerntune-update=improved"])
    kernel_project("--kerntune-update=improved", **arguments).stdout.fnmatch_lines(["*IMPROVED (recorded)"])
    kernel_project(**arguments).stdout.fnmatch_lines(["1 PASS"])


@pytest.mark.slow
def test_case_that_is_gone_is_stale(kernel_project):
    kernel_project()
    result = kernel_project(size=8192)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["STALE test_it.py::test_scale[[]4096]: *", "1 NEW, 1 STALE"])
    kernel_project("-k", "8192", size=8192).stdout.fnmatch_lines(["1 PASS"])


@pytest.mark.slow
def test_stale_cases_are_known_under_xdist(kernel_project, monkeypatch, source_environ, quick_python):
    pytest.importorskip("xdist")
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    kernel_project()
    kernel_project("-n1").stdout.fnmatch_lines(["1 PASS"])


def test_call_that_launches_nothing_is_incomplete(kernel_project, monkeypatch):
    source = "def test_a(autotune):\n    assert autotune(lambda: 5) == 5\n"
    kernel_project(source=source).stdout.fnmatch_lines(
        ["*KerntuneWarning: INCOMPLETE test_it.py::test_a: no Triton kernel*"]
    )
    monkeypatch.setenv("CI", "1")
    kernel_project(source=source).assert_outcomes(failed=1)


def test_read_only_baselines_fail_cleanly(kernel_project):
    (kernel_project.project.path / "baselines").write_text("a file where the folder should be")
    result = kernel_project()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_scale[[]4096]: *baselines*"])
    result.stdout.no_fnmatch_line("*Traceback*")


DECORATED = SOURCE.replace(
    """@triton.autotune(configs=[triton.Config({{"BLOCK": b}}, num_warps=4) for b in ({blocks})], key=["n"])""",
    """@kerntune.pointwise(sizes={{"x": "n"}}, blocks={{"x": {blocks}}})""",
).replace("import torch,", "import kerntune, torch,")

FASTER_512 = "Rule(constexprs={'BLOCK': 512}, time_ns=20_000.0), Rule(time_ns=24_000.0)"


@pytest.mark.slow
def test_a_heuristic_s_candidates_are_tuned_recorded_and_held(kernel_project):
    arguments = {"source": DECORATED, "blocks": '"BLOCK"', "size": "2**20, 2**20 - 4"}
    first = kernel_project(**arguments, rules=FASTER_512)
    first.assert_outcomes(passed=2)
    first.stdout.fnmatch_lines(
        ["  scale_kernel: BLOCK=512 num_warps=8 *", "  20.0 µs *NEW (recorded)"], consecutive=True
    )
    kernel_project(**arguments, rules=FASTER_512).stdout.fnmatch_lines(["2 PASS"])


def test_a_heuristic_s_wrong_word_stops_the_collection_and_says_why(kernel_project):
    source = DECORATED.replace("sizes=", "tune_hard=1, sizes=")
    result = kernel_project(source=source, blocks='"BLOCK"')
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*HintError: kernel scale_kernel: there is no option or hint tune_hard*"])


@pytest.mark.slow
@pytest.mark.parametrize("targets", ["cuda:90,hip:gfx942", "hip:gfx942,cuda:90"])
def test_a_heuristic_s_first_candidate_is_gated_without_a_gpu(kernel_project, targets, quick_python):
    kernel_project.project.pytester.makepyfile(
        test_it="import pytest\n" + DECORATED.format(blocks='"BLOCK"', factor="2.0", size=2**20)
    )
    command = ("-W", "ignore:TRITON_DEFAULT_FP_FUSION", f"--kerntune-target={targets}")
    kernel_project.project.pytester.makeconftest("")
    first = kernel_project.project.run(*command, "--kerntune-update=new")
    first.assert_outcomes(passed=1)
    kernel_project.project.run(*command).assert_outcomes(passed=1)
    stored = sorted(p.relative_to(kernel_project.project.path).parts[1] for p in
                    kernel_project.project.path.glob("baselines/*/triton-*/static/**/*.json"))  # fmt: skip
    assert stored == ["cuda-90", "hip-gfx942"]


LATE = (
    SOURCE
    + """
@pytest.fixture
def late(autotune):
    yield
    autotune(scale, torch.ones(64, device=autotune.device), name="late")

def test_late(late): pass
"""
)


@pytest.mark.slow
def test_a_call_in_a_fixtures_teardown_is_recorded(kernel_project):
    kernel_project("--kerntune-json=run.json", source=LATE).assert_outcomes(passed=2)
    assert kernel_project.project.json()["counts"] == {"NEW": 2}
    kernel_project("--kerntune-json=run.json", source=LATE).assert_outcomes(passed=2)
    assert kernel_project.project.json()["counts"] == {"PASS": 2}
