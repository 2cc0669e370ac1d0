"""Where the plugin keeps what it knows of a test."""

from __future__ import annotations

import pytest

from pytest_kerntune.marker import Marker

MARKER = pytest.StashKey[Marker]()
"""On a test that has the marker or asks for the fixture."""

NODEID = pytest.StashKey[str]()
"""On the same tests: the node id as collected. xdist's ``--dist=loadgroup`` appends ``@group`` to it later."""
