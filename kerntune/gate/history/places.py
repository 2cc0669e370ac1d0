"""Where a history is stored: a folder, a branch of a git repository, or a folder behind a URL. A file a run.

Adding a run writes its file, with the commit and the branch that it comes from.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from kerntune.base.folders import scratch_folder
from kerntune.base.url_files import FolderFiles, UrlFiles, is_url, open_files, shown_url, without_password
from kerntune.errors import HistoryError, UsageError
from kerntune.gate.git import blobs, git_output, known_commit, run_git, top_of
from kerntune.gate.history.points import MAX_BYTES, SCHEMA, HistoryRun, encoded, points_of
from kerntune.gate.project import project_name
from kerntune.gate.report import Origin, RunReport

GIT = "git:"
"""Begins a place that is a branch: ``git:kerntune-history``."""

ATTEMPTS = 12
"""Pushes that are tried. Of many jobs that push at once one goes through; the others fetch and push again."""

FIRST_WAIT_S = 0.2
"""Seconds after the first push that was refused; the waits double and are drawn at random up to there, so that jobs
don't meet again."""

LONGEST_WAIT_S = 10.0

SUFFIX = ".json"

COMMIT_DIGITS = 8
"""Digits of a run's commit in the name of its file."""


def place_of(text: str, start: Path) -> Place:
    """The place that a user names: ``git:BRANCH`` of the repository around ``start``, a URL, or a folder."""
    if text.startswith(GIT):
        branch = text.removeprefix(GIT)
        if not branch or branch.startswith("-") or run_git(start, "check-ref-format", "--branch", branch).returncode:
            raise UsageError(f"{text}: {branch!r} is no name of a branch; give one, as git:kerntune-history")
        return Branch(top_of(start), branch)
    if is_url(text):
        return Remote(text)
    return Folder(Path(os.path.abspath(start / Path(text).expanduser())))


def file_name(run: HistoryRun, data: bytes) -> str:
    """A name that no other run has, and that the same run always has:
    ``2026/11/20261122T101500-c65088f0-8f3a2c1d.json``."""
    stamp = re.sub(r"[^0-9T]", "", run.created.partition("+")[0])[:15]
    commit = re.sub(r"[^0-9a-f]", "", run.commit)[:COMMIT_DIGITS] or "none"
    return f"{stamp[:4]}/{stamp[4:6]}/{stamp}-{commit}-{sha256(data).hexdigest()[:8]}{SUFFIX}"


def is_name(text: str) -> bool:
    """Whether a file of a history may be called so: printable, and no longer than a path may be. Git keeps names with
    line feeds and with bytes that are no text, and a place may be written by many."""
    return text.isprintable() and len(text) <= MAX_NAME


MAX_NAME = 1_000

AT_ONCE = 8
"""Files of a branch that are in memory at a time."""


class Branch:
    """A branch that holds nothing but the history. Neither the checkout nor its index is touched.

    It is fetched from and pushed to ``origin``; in a repository without remotes it is a local branch.
    """

    def __init__(self, top: Path, branch: str) -> None:
        self._top, self._branch = top, branch
        self._remote = "origin" if "origin" in self._git("remote").decode().split() else ""
        self._local = f"refs/kerntune/{branch}" if self._remote else f"refs/heads/{branch}"

    @property
    def name(self) -> str:
        return f"{GIT}{self._branch} of {self._top}"

    def absent(self) -> str:
        self._fetch()
        where = f"{self._remote} of {self._top}" if self._remote else str(self._top)
        return "" if self._tip() else f"there is no branch {self._branch} in {where}"

    def names(self) -> list[str]:
        self._fetch()
        if not self._tip():
            return []
        listed = self._git("ls-tree", "-r", "-z", "--name-only", self._local).decode(errors="surrogateescape")
        return sorted(name for name in listed.split("\0") if name.endswith(SUFFIX))

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """The content of files, :data:`AT_ONCE` at a time; one that is too long comes as so many zeros that its reader
        sees that."""
        wanted, fits, held = list(names), list[str](), 0
        for name, size in zip(wanted, self._sizes(wanted), strict=True):
            if size is not None and size > MAX_BYTES:  # none: removed meanwhile
                yield name, bytes(MAX_BYTES + 1)
            elif size is not None:
                if len(fits) == AT_ONCE or held + size > MAX_BYTES:
                    yield from self._contents(fits)
                    fits, held = [], 0
                fits.append(name)
                held += size
        yield from self._contents(fits)

    def _contents(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        asked = {f"{self._local}:{name}": name for name in names}
        yield from ((asked[blob], data) for blob, data in blobs(self._top, list(asked)))

    def _sizes(self, names: Sequence[str]) -> list[int | None]:
        """How many bytes each has; None for one that is no file."""
        asked = "".join(f"{self._local}:{n}\n" for n in names).encode(errors="surrogateescape")
        out = self._git("cat-file", "--batch-check=%(objecttype) %(objectsize)", given=asked)
        words = [line.split() for line in out.decode(errors="replace").splitlines()]
        return [int(word[1]) if len(word) == 2 and word[0] == "blob" else None for word in words]

    def add(self, name: str, data: bytes) -> None:
        blob = self._git("hash-object", "-w", "--stdin", given=data).decode().strip()
        self._change(("--add", "--cacheinfo", f"100644,{blob},{name}"), f"Run {PurePosixPath(name).stem}", "added")

    def remove(self, name: str) -> None:
        self._change(("--force-remove", "--", name), f"Forget {PurePosixPath(name).stem}", "removed")

    def _change(self, update: Sequence[str], message: str, done: str) -> None:
        """Commit one change of the branch's files, ``git update-index``'s arguments, on whatever others commit."""
        wait = FIRST_WAIT_S
        for _ in range(ATTEMPTS):
            self._fetch()
            tip = self._tip()
            refused = self._publish(self._commit(update, message, tip), tip)
            if refused is None:
                return
            time.sleep(wait * secrets.SystemRandom().uniform(0.5, 1.0))
            wait = min(2 * wait, LONGEST_WAIT_S)
        raise HistoryError(f"{self.name}: {message!r} could not be {done} in {ATTEMPTS} attempts: {refused}")

    def _tip(self) -> str:
        return known_commit(self._top, self._local)

    def _fetch(self) -> None:
        if not self._remote:
            return
        done = run_git(self._top, "ls-remote", "--exit-code", self._remote, f"refs/heads/{self._branch}")
        if done.returncode == 2:  # the remote answers, and has no such branch
            return
        self._git("fetch", "--quiet", "--no-tags", self._remote, f"+refs/heads/{self._branch}:{self._local}")

    def _commit(self, update: Sequence[str], message: str, tip: str) -> str:
        with scratch_folder("history") as folder:
            env = {**os.environ, "GIT_INDEX_FILE": str(folder / "index")}
            if run_git(self._top, "var", "GIT_COMMITTER_IDENT").returncode:  # CI has no user.name, mostly
                env |= {f"GIT_{role}_{x}": text for role in ("AUTHOR", "COMMITTER") for x, text in _NOBODY.items()}
            if tip:
                self._git("read-tree", tip, env=env)
            self._git("update-index", *update, env=env)
            tree = self._git("write-tree", env=env).decode().strip()
            parents = ["-p", tip] if tip else []
            return self._git("commit-tree", tree, *parents, "-m", message, env=env).decode().strip()

    def _publish(self, commit: str, tip: str) -> str | None:
        """What stood in the way, None if nothing did: only another's addition may, everything else is an error."""
        push = ("push", "--quiet", "--no-verify", self._remote, f"{commit}:refs/heads/{self._branch}")
        done = run_git(self._top, *(push if self._remote else ("update-ref", self._local, commit, tip or "0" * 40)))
        if done.returncode == 0:
            return None
        why = done.stderr.decode(errors="replace").strip()
        if any(word in why for word in _LOST_RACE):
            return why
        raise HistoryError(f"{self.name}: git could not change the history: {why}")

    def _git(self, *args: str, env: Mapping[str, str] | None = None, given: bytes = b"") -> bytes:
        done = run_git(self._top, *args, env=env, given=given)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip()
            raise HistoryError(f"{GIT}{self._branch}: git {args[0]} failed in {self._top}: {why}")
        return done.stdout


_NOBODY = {"NAME": "kerntune", "EMAIL": "kerntune@localhost"}

_LOST_RACE = (
    "non-fast-forward",
    "fetch first",
    "cannot lock ref",
    "failed to update ref",
    "stale info",
    "reference already",
)
"""What git says of a branch that has moved on since it was fetched."""


class Remote:
    """A folder behind a URL (:mod:`kerntune.base.url_files`)."""

    def __init__(self, url: str, files: UrlFiles | None = None) -> None:
        self._url = url
        self._files: UrlFiles = files or self._done(lambda: open_files(url))

    @property
    def name(self) -> str:
        """As users give it."""
        return shown_url(self._url)

    def absent(self) -> str:
        """Why nothing can ever have been added; empty if something may have been."""
        return ""  # services know no folders, but files whose names begin alike

    def names(self) -> list[str]:
        """Of all runs; empty where nothing was ever added."""
        found: list[str] = self._done(self._files.names)
        return [name for name in found if name.endswith(SUFFIX)]

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """The content of files."""
        for name in names:
            data = self._done(lambda name=name: self._files.read(name, MAX_BYTES))
            if data is not None:  # else removed meanwhile
                yield name, data

    def add(self, name: str, data: bytes) -> None:
        """Write a file; :class:`~kerntune.errors.HistoryError` says why it can't be."""
        self._done(lambda: self._files.replace(name, data))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there; :class:`~kerntune.errors.HistoryError` says why it can't be."""
        self._done(lambda: self._files.remove(name))

    def _done(self, action: Any) -> Any:
        try:
            return action()
        except UsageError:
            raise
        except Exception as exc:  # each file system raises its own
            raise HistoryError(f"{self.name}: {type(exc).__name__}: {without_password(str(exc), self._url)}") from exc


class Folder(Remote):
    """A folder of this machine, or one that several mount."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), FolderFiles(folder))
        self._folder = folder

    @property
    def name(self) -> str:
        return str(self._folder)

    def absent(self) -> str:
        return "" if self._folder.is_dir() else f"there is no folder {self._folder}"


Place = Branch | Remote
"""Where files lie by name. A file is written once and never changes; it can be removed."""

BRANCH_VARIABLES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_BRANCH", "BUILDKITE_BRANCH", "GIT_BRANCH")
"""Where CI says which branch it runs: its checkout has none, mostly (GitHub Actions, GitLab, Buildkite, Jenkins)."""


def add_run(place: Place, run: HistoryRun) -> str:
    """Add a run; the name of its file, or an empty text if it has no points."""
    if not run.points:
        return ""
    data = encoded(run)
    name = file_name(run, data)
    place.add(name, data)
    return name


def history_run(report: RunReport) -> HistoryRun:
    """A run as a history has it, which is of one project."""
    origin = msgspec.structs.asdict(report.place)
    return HistoryRun(
        schema=SCHEMA,
        created=report.created,
        points=points_of(report.results),
        versions=dict(report.versions),
        **{name: value for name, value in origin.items() if name in HistoryRun.__struct_fields__},
    )


def origin_of(root: Path, environ: Mapping[str, str]) -> Origin:
    """Where a run of the tests in ``root`` takes place."""
    commit, committed = (_git(root, "log", "-1", "--format=%H %cI") + " ").split(" ", 1)
    server, name = environ.get("GITHUB_SERVER_URL", ""), environ.get("GITHUB_REPOSITORY", "")
    remote = f"{server}/{name}" if server and name else _git(root, "remote", "get-url", "origin")
    found = REMOTE.fullmatch(remote)
    here = _git(root, "symbolic-ref", "--short", "--quiet", "HEAD")
    return Origin(
        commit=commit,
        committed=_in_utc(committed.strip()),
        branch=next(filter(None, map(environ.get, BRANCH_VARIABLES)), None) or here,
        dirty=bool(_git(root, "status", "--porcelain", "--untracked-files=no")),
        host=platform.node(),
        project=project_name(root) or root.name,
        url=(f"https://{found[1]}/{found[2]}" if found is not None else ""),
    )


REMOTE = re.compile(
    r"(?:https://|ssh://)?(?:[^@/\s]+@)?([\w.-]+\.[a-z]+)(?::\d+)?[:/]([\w./~-]+?)(?:\.git)?/?", re.ASCII
)
"""What ``git remote get-url`` names: ``git@host:owner/name.git``, ``https://host/owner/name``. A user or a token before
the host is no part of the address."""


def _in_utc(text: str) -> str:
    if not text:
        return ""
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment.astimezone(datetime.timezone.utc).isoformat(timespec="seconds")


def _git(root: Path, *args: str) -> str:
    """What git prints; empty if it fails or isn't there: a history is kept outside of repositories, too."""
    try:
        printed = git_output(root, *args) or b""
    except UsageError:
        return ""
    return printed.decode(errors="replace").strip()
