"""The command that runs a module of this kerntune in another process, as ``python -m`` would.

``python -m`` searches the working folder before all others, ``PYTHONPATH`` included: in a checkout of another kerntune,
or beside a folder of that name, it would run that one.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[3])

_PROGRAM = (
    "import sys; root, module, count = sys.argv[1:4]; end = 4 + int(count); path = sys.argv[4:end]; "
    "sys.path[:] = [root, *path]; import kerntune; sys.path[:] = path; "
    "del sys.argv[1:end]; import runpy; runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def module_command(module: str, *words: str) -> list[str]:
    """A command that runs ``module`` of the kerntune that runs here, with this process's ``sys.path`` but for the
    working folder; ``words`` are its arguments."""
    path = [str(entry) for entry in sys.path if entry]
    return [sys.executable, "-c", _PROGRAM, _ROOT, module, str(len(path)), *path, *words]
