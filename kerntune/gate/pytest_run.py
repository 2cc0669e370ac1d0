"""``kerntune baselines refresh``: ``pytest --kerntune --kerntune-update=all``, in this process."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

PLUGIN = "pytest_kerntune.plugin"
IMPORTED = "Module already imported so cannot be rewritten"


def run(args: Sequence[str]) -> int:
    """Run pytest with ``args`` after the two options, so that they can say another update; pytest's exit code."""
    import pytest

    return int(pytest.main([*plugin_args(), "--kerntune", "--kerntune-update=all", *args]))


def plugin_args() -> list[str]:
    """What loads the plugin, wherever kerntune was started from. An installed plugin goes by the name of its entry
    point: pytest takes no module under two names. pytest warns that this process has imported it, which would end a
    project's run whose ini file makes warnings errors."""
    installed = importlib.metadata.entry_points(group="pytest11", name="kerntune")
    return ["-p", "kerntune" if list(installed) else PLUGIN, "-W", f"ignore:{IMPORTED}"]
