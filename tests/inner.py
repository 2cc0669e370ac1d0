"""Options and ends of pytest runs inside of tests, in this process or another one."""

import functools
import importlib.metadata
import sys
from collections.abc import Iterable
from typing import Any

import pytest

NO_SUMMARY = ("-p", "no:hypothesispytest")
"""It imports all of hypothesis for its summary."""

NO_GARBAGE = ("-p", "no:unraisableexception")
"""It collects garbage at a run's end, among all that torch is made of. The outer run does so, too."""

NO_SERVER = ("-p", "no:rerunfailures")
"""Beside xdist it opens a port in each run, and a thread that outlives the run: 500 in a worker of the whole suite."""

NO_OTHERS = ("-p", "no:benchmark", "-p", "no:timeout", "-p", "no:anyio", "-p", "no:pytest_cov")
"""Installed beside kerntune: to register them, and to ask git what is benchmarked, took a tenth of each short run. A
test that needs one names it again: ``-p benchmark``."""

NO_UNUSED = ("-p", "no:logging", "-p", "no:pastebin", "-p", "no:doctest", "-p", "no:legacypath", "-p", "no:subtests")
"""pytest's own that none of these runs is about: a tenth of what is registered in each."""

QUICK = (*NO_SUMMARY, *NO_GARBAGE, *NO_SERVER, *NO_OTHERS, *NO_UNUSED)
"""Without what costs each of these runs a second, or leaves something."""

QUIET = ("-p", "no:cacheprovider", *QUICK)

USER_WARNINGS = ("-W", "default::UserWarning")
"""The outer run makes warnings errors."""

SAME_PROCESS = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
"""An inner run in this process finds kerntune imported, which the installed plugin would want rewritten."""


_distributions = importlib.metadata.distributions


class KnownDistribution(importlib.metadata.PathDistribution):
    """An installed distribution whose files are read once. Each pytest run reads those of all distributions five times:
    for its plugins, for modules to rewrite, for its header."""

    entry_points = functools.cached_property(importlib.metadata.Distribution.entry_points.fget)
    files = functools.cached_property(importlib.metadata.Distribution.files.fget)
    metadata = functools.cached_property(importlib.metadata.Distribution.metadata.fget)


def known_distributions(**words: Any) -> Iterable[importlib.metadata.Distribution]:
    """What ``importlib.metadata.distributions`` finds."""
    return _distributions(**words) if words else _known(tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _known(path: tuple[str, ...]) -> list[importlib.metadata.Distribution]:
    found = list(_distributions(path=list(path)))
    for one in found:
        if type(one) is importlib.metadata.PathDistribution:
            one.__class__ = KnownDistribution
    return found


def find_plugin() -> str:
    """What ``-p`` takes: the entry point if kerntune is installed, since one module can't be registered under two
    names."""
    installed = importlib.metadata.entry_points(group="pytest11", name="kerntune")
    return "kerntune" if list(installed) else "pytest_kerntune.plugin"


def usage_error(result: pytest.RunResult, *says: str) -> None:
    """It ended as one, with these lines and no traceback."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(says)
    result.stderr.no_fnmatch_line("*Traceback*")
