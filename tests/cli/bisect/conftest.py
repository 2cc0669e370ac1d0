"""A repository with a merge."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.bisect.commits import Git


@pytest.fixture
def merged(tmp_path: Path) -> Git:
    """c1, then s1 and s2 on a side branch and c2 on main, then a merge and c3."""
    git = Git(tmp_path)
    git.commit("c1")
    git("checkout", "-q", "-b", "side")
    git.commit("s1")
    git.commit("s2")
    git("checkout", "-q", "main")
    git.commit("c2")
    git("merge", "-q", "--no-ff", "-m", "merge", "side")
    git("tag", "merge")
    git.commit("c3")
    return git
