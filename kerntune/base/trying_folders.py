"""Whether files can be written in a folder, tried so that nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def why_unwritable(folder: Path) -> str:
    """Why no file can be written in a folder, which need not exist yet; empty if one can. A folder and a file are made
    and removed: what permissions say isn't all that file systems refuse."""
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    made: list[Path] = []
    try:
        for place in reversed(missing):
            place.mkdir()
            made.append(place)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as exc:
        return f"{exc.strerror or exc}: {exc.filename or folder}"
    finally:
        for place in reversed(made):
            with contextlib.suppress(OSError):  # another process has put something there meanwhile
                place.rmdir()


def file_in_the_way(folder: Path) -> Path | None:
    """The file where a folder, or one of those above it, would have to be; None if there is none."""
    for place in (folder, *folder.parents):
        if place.is_dir():
            return None
        if place.exists():
            return place
    return None
