"""Files of a store that can't be used: remembered on this machine, and left where they are."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from kerntune.base import codec
from kerntune.errors import StoreError

MAX_LIST = 1 << 20
"""Bytes that the list may have; a longer one begins anew."""


class RefusedFiles:
    """Names with checksums of what they held, in a list that all processes of this machine append to.

    With ``names_again``, for commands, files are looked at again, and ``lines`` has those of earlier processes as well.
    """

    def __init__(self, folder: Path, store: str, *, names_again: bool = False) -> None:
        self._path, self._store, self._names_again = folder / "refused", store, names_again
        self._known: set[str] | None = None
        self.lines: list[str] = []
        """What was refused, a line each: for the first time only unless ``names_again``."""

    def has(self, name: str, data: bytes) -> bool:
        """Whether the file was refused before with this content, and need not be looked at."""
        return not self._names_again and _line(name, data) in self._all()

    def add(self, name: str, data: bytes, why: str) -> None:
        """Remember a file, and say it."""
        line, text = _line(name, data), why if self._store in why else f"{self._store}: {why}"
        is_new = line not in self._all()
        if (is_new or self._names_again) and text not in self.lines:
            self.lines.append(text)
        if not is_new:
            return
        self._all().add(line)
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "a", encoding="ascii") as file:
                file.write(f"{line}\n")

    def _all(self) -> set[str]:
        if self._known is None:
            try:
                data = codec.read_file(self._path, limit=MAX_LIST) or b""
            except StoreError:
                data = b""
                with contextlib.suppress(OSError):
                    self._path.unlink()
            self._known = set(data.decode("ascii", "replace").split("\n"))
        return self._known


def _line(name: str, data: bytes) -> str:
    return hashlib.sha256(f"{name}\0{hashlib.sha256(data).hexdigest()}".encode()).hexdigest()
