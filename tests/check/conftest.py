"""A project in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from check.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
