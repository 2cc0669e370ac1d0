"""What the plugin knows of a test, however and whenever it came to be known."""

from __future__ import annotations

import pytest

from pytest_kerntune import marker

NODEID = pytest.StashKey[str]()
"""On every collected test: the node id as collected. xdist's ``--dist=loadgroup`` appends ``@group`` to it later."""

ASKED = pytest.StashKey[bool]()
"""On a test that has been given the fixture, ``request.getfixturevalue("autotune")`` included."""


def nodeid_of(item: pytest.Item) -> str:
    """The test's node id, of which its baselines' names are made."""
    return item.stash.get(NODEID, item.nodeid)


def concerns(item: pytest.Item) -> bool:
    """Whether a test has the marker or uses the fixture. Either can become true while it runs: a hook or a fixture adds
    the marker, the body asks for the fixture."""
    named = marker.NAME in getattr(item, "fixturenames", ())
    return named or item.stash.get(ASKED, False) or item.get_closest_marker(marker.NAME) is not None
