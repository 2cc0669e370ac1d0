"""A pytest run on stand-ins: ends are distinguished from failures, and conftests find the device at import."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import run_python

CONFTEST = """
import pytest, torch
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

@pytest.fixture(scope="session")
def device():
    return DEVICE

@pytest.fixture
def x(device):
    made = torch.randn(1 << 36, device=device)
    yield made
    torch.cuda.synchronize()
"""

TESTS = """
import pytest, torch
import kernels as K

@pytest.mark.parametrize("n", [1, 100])
def test_passes(x, n):
    torch.testing.assert_close(K.add(x[:n], x[:n]), 2 * x[:n])

def test_ends(x):
    assert x.sum().item() >= 0

def test_fails(x):
    torch.testing.assert_close(K.add(x, x), x[1:])

def test_fails_too(x):
    assert x.shape == (3,)
"""


@pytest.mark.slow
def test_outcomes(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_user.py").write_text(TESTS)
    done = run_python("-m", "pytest", "-p", "standin_plugin", "-p", "no:cacheprovider", "-rA", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert "2 failed, 2 passed, 1 skipped" in lines[-1]
    assert any("SKIPPED" in line and "ended: needs the value of a stand-in" in line for line in lines)
    failed = {line.split("::")[1].split()[0] for line in lines if line.startswith("FAILED")}
    assert failed == {"test_fails", "test_fails_too"}
