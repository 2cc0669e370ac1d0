"""What the suite itself promises when it runs in CI."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_a_test_that_hangs_is_ended_and_named(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.hasplugin("timeout"), "pip install pytest-timeout"
    assert 0 < float(pytestconfig.getini("timeout")) <= 600


def test_ci_runs_what_the_makefile_says() -> None:
    assert "make test-all\n" in (Path(__file__).parent.parent / ".ci" / "run").read_text()
