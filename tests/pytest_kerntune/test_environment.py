"""Runs where the machine is not as it should be: locale, folders. On real kernels, compiled for real."""

from __future__ import annotations

import subprocess
import sys

import inner
import pytest

pytest_plugins = ["pytester"]

SOURCE = """
import torch, triton, triton.language as tl

@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y

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


def test_a_kernels_path_that_triton_can_not_take_is_the_locales_fault(run):
    done = run(**ASCII, TRITON_CACHE_DIR=str(run.folder.parent / "empty"))  # what is there needs no compiler
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert b"INTERNALERROR" not in done.stdout
    assert b"REGRESSED" not in done.stdout
    assert b"Triton can't take its path under an ASCII locale" in done.stdout
    assert b"What to do: set PYTHONUTF8=1" in done.stdout
    assert "test_größe.py" in (run.folder / "run.json").read_text(encoding="utf-8")


def test_a_cache_that_can_not_be_written_is_the_machines_fault(run):
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
