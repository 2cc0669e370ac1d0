"""Where the plugin keeps what it knows: on the config and on the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_kerntune.marker import Marker

if TYPE_CHECKING:
    from pytest_kerntune.session import Gate

GATE: pytest.StashKey[Gate] = pytest.StashKey()
"""On the config, under ``--kerntune`` only."""

MARKER = pytest.StashKey[Marker]()
"""On a test that has the marker or asks for the fixture."""

NODEID = pytest.StashKey[str]()
"""On the same tests: the node id as collected. xdist's ``--dist=loadgroup`` appends ``@group`` to it later."""
