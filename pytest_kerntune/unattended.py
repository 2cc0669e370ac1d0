"""Plugin of a run that another run starts (``-p``): the same tests, without storing anything about them, and without
prompts.

``--lf``, ``--stepwise`` and their like select by pytest's cache, which holds what it held when the other run read it:
they select here what they select there, wherever they were given (``addopts``, too). What this run's tests come to is
the other one's to remember.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

REMEMBERING = ("lfplugin", "nfplugin", "stepwiseplugin")
"""pytest's plugins that select tests, write what those came to into its cache at the end, and stop at a failure."""

ASKING = ("pdbinvoke", "pdbtrace")
"""pytest's plugins that start a debugger."""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    _leave_out(config, ASKING)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """xdist's controller selects nothing, and is who would remember."""
    if session.config.pluginmanager.hasplugin("dsession"):
        _leave_out(session.config, REMEMBERING)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    _leave_out(session.config, REMEMBERING)


def _leave_out(config: pytest.Config, names: Iterable[str]) -> None:
    for name in names:
        if config.pluginmanager.hasplugin(name):
            config.pluginmanager.unregister(name=name)
