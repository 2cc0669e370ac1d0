"""Which entries answer the same question: found by one small file, however many entries there are."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from kerntune.base import codec
from kerntune.errors import CacheError

DIGITS = 3
"""Hex digits of a question's hash that name its file: 4,096 files, each with 25 lines at 100,000 entries."""

MAX_BUCKET = 1 << 20
"""Bytes that such a file may have: 1 MiB, enough for 32 million entries of 130 bytes. More is no index of ours."""


class QuestionIndex:
    """Files of lines ``<question> <entry>``, both SHA-256, in a folder of their own.

    The index only helps to find entries: a line whose entry is gone, or is of another question, does no harm, and an
    index that is lost or damaged is made anew from the entries. Lines are appended by one write each, which processes
    can do at once on a local disk; each begins with a line feed, so that half a line spoils no other.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def is_whole(self) -> bool:
        """Whether all entries are in it."""
        return self._mark.exists()

    def entries(self, question: str) -> list[str]:
        """The entries of a question, sorted; some may be gone."""
        found = re.findall(rb"^%s ([0-9a-f]{64})$" % question.encode(), self._read(question), re.MULTILINE)
        return sorted({line.decode() for line in found})

    def add(self, question: str, entry: str) -> None:
        """Note an entry. :class:`CacheError` if the folder can't be written."""
        line = f"\n{question} {entry}\n".encode()
        if line.strip() in self._read(question):
            return
        path = self._bucket(question)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                os.write(handle, line)
            finally:
                os.close(handle)
        except OSError as exc:
            raise CacheError(f"{path}: can't be written ({exc.strerror})") from exc

    def mark_whole(self) -> None:
        """Say that all entries are in it. :class:`CacheError` if the folder can't be written."""
        codec.write_atomic(self._mark, b"", error=CacheError)

    def build(self, entries: Iterable[tuple[str, str]]) -> bool:
        """Make it whole from ``entries``, pairs of question and entry; False if the folder can't be written."""
        try:
            for question, entry in entries:
                self.add(question, entry)
            self.mark_whole()
        except CacheError:
            return False
        return True

    def clear(self) -> None:
        """Remove it."""
        with contextlib.suppress(OSError):
            self._mark.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _mark(self) -> Path:
        return self.folder / "whole"

    def _bucket(self, question: str) -> Path:
        return self.folder / f"{question[:DIGITS]}.index"

    def _read(self, question: str) -> bytes:
        try:
            return codec.read_file(self._bucket(question), error=CacheError, limit=MAX_BUCKET) or b""
        except CacheError:
            self.clear()
            return b""
