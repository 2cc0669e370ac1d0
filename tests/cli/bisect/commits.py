"""A repository of commits."""

from __future__ import annotations

from pathlib import Path

from git_project import git


class Git:
    """A repository of empty commits, named by their messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self("init", "-q", "-b", "main")

    def __call__(self, *words: str) -> str:
        return git(self.folder, *words).strip()

    def commit(self, name: str) -> str:
        self("commit", "-q", "--allow-empty", "-m", name)
        self("tag", name)
        return self("rev-parse", "HEAD")
