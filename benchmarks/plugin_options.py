"""The options that load kerntune's plugin in pytest: none where kerntune is installed."""

from __future__ import annotations

import importlib.metadata


def plugin_options() -> list[str]:
    """The options that load the plugin; none if pytest finds it itself."""
    installed = any(e.value.startswith("pytest_kerntune") for e in importlib.metadata.entry_points(group="pytest11"))
    return [] if installed else ["-p", "pytest_kerntune.plugin"]
