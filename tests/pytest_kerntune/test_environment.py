"""Runs where the machine is not as it should be: locale, folders. On real kernels, compiled for real."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import inner
import pytest
from git_project import kernels

SOURCE = f"""
{kernels(128)}
def test_scale(autotune):
    autotune(scale, torch.ones(4096, device=autotune.device))
"""

ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture
def run(pytester, plugin_name, source_environ, monkeypatch):
    """Pytest in a process and a folder of its own, whose name isn't ASCII, with more environment variables."""
    folder = pytester.path / "prüf"
    folder.mkdir()
    (folder / "test_größe.py").write_text(SOURCE, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n")

    def run(*args, **environ):
        command = [sys.executable, "-m", "pytest", "-p", plugin_name, *inner.QUIET, "--kerntune"]
        command += ["--kerntune-target=cuda:90", "--kerntune-json=run.json", *args]
        found = {**source_environ, **environ}
        return subprocess.run(command, cwd=folder, env=found, capture_output=True, check=False)

    run.folder = folder
    return run


@pytest.mark.slow
def test_a_path_under_an_ascii_locale_is_the_same_case(run):
    """Recorded under one locale, found under the other. The kernel's own file has a name that Triton can take."""
    kernels = run.folder.parent / "plain"
    kernels.mkdir()
    source, test = SOURCE.split("def test_scale")
    (kernels / "kernels.py").write_text(source)
    (run.folder / "test_größe.py").write_text(f"import torch\nfrom kernels import scale\ndef test_scale{test}")
    (run.folder / "conftest.py").write_text(f"import sys\nsys.path.append({str(kernels)!r})\n")
    for environ, verdict in ((ASCII, b"1 NEW"), ({"PYTHONUTF8": "1"}, b"1 PASS"), (ASCII, b"1 PASS")):
        done = run(**environ)
        assert done.returncode == 0, done.stdout.decode(errors="replace")
        assert verdict in done.stdout
        assert '"test_größe.py::test_scale"' in (run.folder / "run.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_kernels_path_that_triton_can_not_take_is_the_locales_fault(run):
    done = run(**ASCII, TRITON_CACHE_DIR=str(run.folder.parent / "empty"))  # what is there needs no compiler
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert b"INTERNALERROR" not in done.stdout
    assert b"REGRESSED" not in done.stdout
    assert b"Triton can't take its path under an ASCII locale" in done.stdout
    assert b"What to do: set PYTHONUTF8=1" in done.stdout
    assert "test_größe.py" in (run.folder / "run.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_cache_that_can_not_be_written_is_the_machines_fault(run, quick_python):
    assert b"1 NEW" in run().stdout
    (run.folder / "file").touch()
    place = run.folder / "file" / "cache"
    done = run(TRITON_CACHE_DIR=str(place))
    said = done.stdout.decode()
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "REGRESSED" not in said
    assert "kernel scale_kernel (" in said
    assert f"this machine's doing and says nothing of the kernel: [Errno 20] Not a directory: '{place}'" in said
    assert f"What to do: make {place} one" in said


@pytest.mark.slow
def test_no_c_compiler_is_needed_without_a_gpu(run, tmp_path, quick_python):
    tools = tmp_path / "tools"
    tools.mkdir()
    done = run(PATH=str(tools), CC="", TRITON_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stdout.decode(errors="replace")
    assert b"1 NEW" in done.stdout


GPU = """
from kerntune.gpu.scripted import FakeBackend, Script

def pytest_kerntune_backend(config):
    return FakeBackend(Script(memory_bytes=MEMORY))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("keep_libraries")
def test_a_nearly_full_gpu_fails_what_finds_no_room_and_says_how_much_it_needs(project):
    project.pytester.makeconftest(GPU.replace("MEMORY", str(1 << 30)))
    large = SOURCE.replace("4096", "1 << 30").replace("test_scale", "test_large").partition("def test_large")[2]
    project.pytester.makepyfile(test_it=f"{SOURCE}\ndef test_large{large}")
    quiet = ("-W", "ignore:TRITON_DEFAULT_FP_FUSION", "--kerntune-cache-dir=cache")
    result = project.run(*quiet)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_large: *needs 4.0 GiB, the device has 1.0 GiB free*"])


KNOWS = """
import os, torch, triton, triton.language as tl

SIZES = [64] if "PYTEST_VERSION" in os.environ else [64, 128]

@triton.autotune([triton.Config({"BLOCK": size}) for size in SIZES], key=["n"])
@triton.jit
def knows(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
"""


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["-n1"]], ids=["one process", "xdist"])
def test_kernels_that_are_others_under_pytest_are_named(run, arguments, quick_python):
    (run.folder / "kernels.py").write_text(KNOWS)
    (run.folder / "test_größe.py").write_text(
        "import torch\nfrom kernels import knows\n\ndef test_a(autotune):\n"
        "    x = torch.ones(4096, device=autotune.device)\n    autotune(knows[(64,)], x, 4096)\n",
        encoding="utf-8",
    )
    said = run(*arguments).stdout.decode()
    line = "kernels.py asks whether it runs in a test (PYTEST_VERSION): what is gated of kernel knows may not be"
    assert said.count(line) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("keep_libraries")
@pytest.mark.parametrize(("built", "why"), [(False, "was built without CUDA"), (True, "can't use it")])
def test_a_gpu_that_torch_does_not_see_is_said(project, one_test, monkeypatch, tmp_path, built, why):
    monkeypatch.setattr("torch.backends.cuda.is_built", lambda: built)
    monkeypatch.setattr("pytest_kerntune.run_conditions.DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    project.engine(static=True)
    project.file(one_test())
    line = f"{tmp_path / 'nvidia0'} is there, but torch * {why}: * nothing is timed.*"
    project.run().stdout.no_fnmatch_line("*is there, but torch*")
    for name in ("nvidia0", "nvidiactl"):
        (tmp_path / name).touch()
    project.run().stdout.fnmatch_lines([f"kerntune: {line}"])
    project.run("-q").stdout.fnmatch_lines([line])
    project.run("--kerntune-target=cuda:90").stdout.no_fnmatch_line("*is there, but torch*")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    project.run().stdout.no_fnmatch_line("*is there, but torch*")


def test_cuda_is_not_started_before_conftests_have_chosen_a_gpu(pytester, plugin_name, monkeypatch, tmp_path):
    """torch asks NVML instead of CUDA where this variable is set."""
    asked = []
    monkeypatch.setattr(
        "kerntune.gpu.probe.has_cuda", lambda: asked.append(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")) or True
    )
    from pytest_kerntune import run_lifetime
    from pytest_kerntune.options import Options

    resolved = Options.__new__(Options)
    object.__setattr__(resolved, "targets", ())
    monkeypatch.setattr(Options, "settings", lambda self: SimpleNamespace(known_targets=lambda store: ["cuda:90"]))
    object.__setattr__(resolved, "baselines", tmp_path)
    assert not run_lifetime._without_gpu(resolved)
    assert asked == ["1"]
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ
