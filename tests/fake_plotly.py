"""A stand-in for plotly's package, whose script draws nothing: the real one is 4.8 MB and not installed everywhere."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types

import pytest

SCRIPT = 'window.Plotly = { react() {}, purge() {} }; "a stand-in";'


def install_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put it where ``import plotly`` finds it, for one test."""
    package, offline = types.ModuleType("plotly"), types.ModuleType("plotly.offline")
    for module in (package, offline):
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    package.__path__ = []  # type: ignore[attr-defined]
    package.offline = offline  # type: ignore[attr-defined]
    offline.get_plotlyjs = lambda: SCRIPT  # type: ignore[attr-defined]


def hide_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "plotly" else find(name, *a))
