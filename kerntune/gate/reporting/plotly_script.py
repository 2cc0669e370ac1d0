"""The JavaScript of plotly, taken from its Python package where that is installed."""

from __future__ import annotations

import importlib.util

from kerntune.errors import UsageError

EXTRA = 'pip install "kerntune[report]"'


def require_plotly(what: str) -> None:
    """:class:`UsageError` that says what to install, unless plotly and Jinja are there; ``what`` needs them."""
    missing = [name for name in ("plotly", "jinja2") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{what}: {' and '.join(missing)} draws the report, and is not installed: {EXTRA}")


def plotly_script() -> str:
    """4.8 MB of text, with its licence at the beginning (MIT)."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
