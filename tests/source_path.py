"""``PYTHONPATH`` for programs that tests start."""

from __future__ import annotations

import os


def source_path(*folders: object) -> str:
    """These folders before what this process was given: packages may be found there alone."""
    return os.pathsep.join(filter(None, [*map(str, folders), os.environ.get("PYTHONPATH", "")]))
