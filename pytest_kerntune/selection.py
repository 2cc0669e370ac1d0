"""What a run would have seen: only there can a baseline's case be said to be gone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

NARROWING = (
    "keyword",
    "markexpr",
    "lf",
    "stepwise",
    "deselect",
    "ignore",
    "ignore_glob",
    "shard_id",  # pytest-shard
    "group",  # pytest-split
)
"""Destinations of options that leave tests out; some do so without a ``pytest_deselected`` call."""


def narrowed(config: pytest.Config) -> bool:
    """Whether options leave out tests under the paths that the run was given."""
    return any(getattr(config.option, name, None) for name in NARROWING)


def covered(config: pytest.Config, nodeid: str) -> bool:
    """Whether the run read the file of ``nodeid``, if it exists: it lies in a file or folder that was given, or that
    the ini file's ``testpaths`` gave. A single test (``file::test``) on the command line covers nothing."""
    file = config.rootpath / nodeid.partition("::")[0]
    base = config.invocation_params.dir
    return within(file, [Path(os.path.abspath(base / a)) for a in config.args if "::" not in a])


def within(path: Path, roots: Iterable[Path]) -> bool:
    """Whether a path is one of ``roots`` or lies under one."""
    return any(path == root or root in path.parents for root in roots)
