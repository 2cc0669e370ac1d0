"""Loading the plugin costs little: every pytest run of a project that has kerntune installed pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "triton", "numpy", "scipy", "tabulate", "pytest_kerntune.session")

PROBE = f"""
import sys
import pytest

class Probe:
    def pytest_sessionfinish(self):
        print("loaded:", [m for m in {HEAVY!r} if m in sys.modules])

arguments = ["-p", "NAME", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-q", "test_plain.py"]
sys.exit(pytest.main(arguments, [Probe()]))
"""


@pytest.mark.slow
def test_plain_run_imports_nothing_heavy(tmp_path, plugin_name, source_environ):
    (tmp_path / "test_plain.py").write_text(
        "import pytest\n@pytest.mark.autotune(tolerance=0.1, candidates={'add': [{'BLOCK': 64}]})\n"
        "def test_a(autotune):\n    assert autotune(lambda x: x, 5) == 5\n"
    )
    probe = PROBE.replace("NAME", plugin_name)
    command = [sys.executable, "-c", probe]
    run = subprocess.run(command, cwd=tmp_path, env=source_environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "loaded: []" in run.stdout
    assert "1 passed" in run.stdout
