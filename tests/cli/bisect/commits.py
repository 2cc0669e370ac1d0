"""A repository of commits."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Git:
    """A repository of empty commits, named by their messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self("init", "-q", "-b", "main")

    def __call__(self, *words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *words], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, name: str) -> str:
        self("commit", "-q", "--allow-empty", "-m", name)
        self("tag", name)
        return self("rev-parse", "HEAD")
