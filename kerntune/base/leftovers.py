"""Temporary files of single writes that killed processes have left beside the files that they were for."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from functools import lru_cache
from pathlib import Path

OLD_S = 86_400.0
"""A write takes milliseconds. What is a day old has no writer any more, on whatever machine: a shared folder says
nothing of the processes of others."""

SUFFIX = ".kerntune-unfinished"
"""Ends the name of every temporary file, so that no file of a user's or of another program is taken for one."""

_LEFT = re.compile(rf"\..+\.[0-9a-f]{{12}}{re.escape(SUFFIX)}", re.DOTALL)

MAX_PREFIX = 160
"""Bytes of a file's name that its temporary file has as well; most file systems end at 255."""


def temporary_name(name: str) -> str:
    """A new name beside a file's, for what is going to be renamed to it."""
    prefix = name.encode(errors="surrogateescape")[:MAX_PREFIX].decode(errors="ignore")
    return f".{prefix}.{secrets.token_hex(6)}{SUFFIX}"


@lru_cache(maxsize=4096)
def sweep_once(folder: Path) -> None:
    """Remove old ones from a folder that holds nothing but kerntune's files, once a process. Never fatal."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if _LEFT.fullmatch(name):
                _remove_if_old(folder / name)


def _remove_if_old(path: Path) -> None:
    with contextlib.suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime > OLD_S:
            path.unlink()
