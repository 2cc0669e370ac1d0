"""Commits that have the same in all files that a run has read: what the run found holds for them too."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from kerntune.cli.bisect.bisected_version import BisectedProject, BisectedVersion, TritonChoice
from kerntune.gate.git import git_output

RunFinding = TypeVar("RunFinding")


@dataclass(frozen=True)
class CommitFiles:
    """The files of a commit: the objects' names by their paths, and symbolic links with what they point to."""

    top: Path
    blobs: Mapping[str, str]
    links: tuple[str, ...] = ()

    def content(self, read: frozenset[str], replaced: frozenset[str]) -> str:
        """A digest of the names of all files, and of what those hold that are ``read``. Left out are ``replaced`` ones,
        which are the same in each checkout, and of Python comments and layout."""
        known = sorted(path for path in read - replaced if path in self.blobs)
        parts = [*sorted(self.blobs), "", *self.links, "", *(f"{path}:{self._meaning(path)}" for path in known)]
        return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()

    def _meaning(self, path: str) -> str:
        return meaning(self.top, self.blobs[path]) if path.endswith(".py") else self.blobs[path]


def files_of(top: Path, commit: str) -> CommitFiles | None:
    """The files of a commit; None where it has submodules, whose files aren't known here."""
    listed = git_output(top, "ls-tree", "-r", "-z", "--full-tree", commit)
    rows = [row.split("\t", 1) for row in os.fsdecode(listed or b"").split("\0") if row]
    found = {path: tuple(head.split()) for head, path in rows}
    if listed is None or any(kind != "blob" for _, kind, _ in found.values()):
        return None
    links = tuple(sorted(f"{path}:{blob}" for path, (mode, _, blob) in found.items() if mode == "120000"))
    return CommitFiles(top, {path: blob for path, (_, _, blob) in found.items()}, links)


@functools.lru_cache(maxsize=4096)
def meaning(top: Path, blob: str) -> str:
    """What a Python file does: a digest of its syntax tree, without lines; the object's own name if it has none."""
    text = git_output(top, "cat-file", "blob", blob)
    try:
        tree = ast.dump(ast.parse(text or b""))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return blob
    return hashlib.sha256(tree.encode(errors="surrogateescape")).hexdigest()


@dataclass(frozen=True)
class _Run(Generic[RunFinding]):
    """What a run of a commit has read, a digest of that, and what it found."""

    triton: TritonChoice
    read: frozenset[str]
    content: str
    found: RunFinding


class EqualCommits(Generic[RunFinding]):
    """What runs found, for commits that need no run of their own. A commit that adds, removes or renames a file of any
    kind needs one: another module may be imported then."""

    def __init__(self, project: BisectedProject) -> None:
        self._top, self._replaced = project.top, project.todays_files()
        self._runs: list[_Run[RunFinding]] = []
        self._files: dict[str, CommitFiles | None] = {}

    def learn(self, version: BisectedVersion, found: RunFinding, read: frozenset[str] | None) -> None:
        """Remember what a run found that has read these files; None if that is unknown."""
        content = None if read is None else self._content(version, read)
        if read is not None and content is not None:
            self._runs.append(_Run(version.triton, read, content, found))

    def known(self, version: BisectedVersion) -> RunFinding | None:
        """What was found for a commit with the same files; None if there is no such."""
        runs = (r for r in self._runs if r.triton == version.triton)
        return next((r.found for r in runs if self._content(version, r.read) == r.content), None)

    def different(self, versions: Sequence[BisectedVersion]) -> list[BisectedVersion]:
        """Those of which no other before is likely to do the same."""
        read: frozenset[str] = frozenset().union(*(r.read for r in self._runs))
        chosen: dict[tuple[TritonChoice, str], BisectedVersion] = {}
        for version in versions:
            chosen.setdefault((version.triton, self._content(version, read) or str(version)), version)
        return list(chosen.values())

    def _content(self, version: BisectedVersion, read: frozenset[str]) -> str | None:
        if version.commit not in self._files:
            known = files_of(self._top, version.commit) if self._top is not None and version.commit else None
            self._files[version.commit] = known
        files = self._files[version.commit]
        return None if files is None else files.content(read, self._replaced)
