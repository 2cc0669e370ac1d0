"""``pytest_kerntune_backend``: a conftest chooses the backend."""

from __future__ import annotations


def test_default_is_none(project, one_test):
    project.file(one_test())
    project.run()
    assert "open backend=None" in project.log


def test_first_answer_counts(project, one_test):
    project.pytester.makeconftest(
        """
import scripted
scripted.install()

def pytest_kerntune_backend(config):
    return "mine" if config.getoption("kerntune") else None
"""
    )
    project.file(one_test())
    project.run().assert_outcomes(passed=1)
    assert "open backend='mine'" in project.log
