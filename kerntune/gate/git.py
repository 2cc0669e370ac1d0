"""What a git revision holds, laid out in a folder. The user's own checkout and index are not touched."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kerntune.base.temporary_folders import PREFIX, TemporaryFolder, scratch_folder
from kerntune.errors import UsageError


def top_of(place: Path) -> Path:
    """The root of the repository around ``place`` (which need not exist yet); :class:`UsageError` if there is none."""
    inside = next(p for p in (place, *place.parents) if p.is_dir())
    found = git_output(inside, "rev-parse", "--show-toplevel")
    if found is None:
        raise UsageError(f"{inside} is in no git repository")
    return Path(found.decode().strip()).resolve()


def commit_of(top: Path, revision: str) -> str:
    """The full name of a revision's commit; :class:`UsageError` if git knows none, as in a shallow clone."""
    found = git_output(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if found is None:
        raise UsageError(
            f"{revision}: no such commit, branch or tag in {top}; in CI, fetch it first (a shallow clone lacks it)"
        )
    return found.decode().strip()


def extract(revision: str, folder: Path, into: Path) -> Path:
    """Write the files of ``folder`` as ``revision`` has them under ``into``; where the folder is there.

    An index of its own is used, so checkout filters apply (Git LFS) and nothing staged is lost. A revision without the
    folder gives an empty one.
    """
    top = top_of(folder.resolve())
    inside = folder.resolve().relative_to(top).as_posix()
    commit = commit_of(top, revision)
    with scratch_folder("index") as scratch:
        env = {**os.environ, "GIT_INDEX_FILE": str(scratch / "index")}
        _must(top, env, "read-tree", commit)
        names = _must(top, env, "ls-files", "-z", "--", inside)
        _must(top, env, "checkout-index", "-q", "-z", "--stdin", f"--prefix={into.resolve()}/", given=names)
    found = into / inside
    found.mkdir(parents=True, exist_ok=True)
    return found


@contextlib.contextmanager
def worktree(revision: str, place: Path) -> Iterator[Path]:
    """A checkout of ``revision`` of the repository around ``place``, in a temporary folder, for a while."""
    top = top_of(place)
    commit = commit_of(top, revision)
    scratch = TemporaryFolder(BASE)
    _forget_lost(top)
    try:
        root = scratch.folder.resolve() / top.name
        _must(top, None, "worktree", "add", "--quiet", "--detach", str(root), commit)
        try:
            yield root
        finally:
            git_output(top, "worktree", "remove", "--force", str(root))
    finally:
        scratch.remove()


def worktree_environment(
    tree: Path, top: Path, project: Path | None = None, first: Sequence[str] = ()
) -> dict[str, str]:
    """The environment of a run in a :func:`worktree` of the repository at ``top``. Python looks in the folders
    ``first``, and then in the worktree's own code (``project``, where that isn't its root, and ``src``), before an
    installed or editable one of this checkout. Entries of ``PYTHONPATH`` inside of the repository are the worktree's.
    """
    project = tree if project is None else project
    moved = [_moved(entry, top, tree) for entry in python_path()]
    return run_environment([*first, str(project), str(project / "src"), *moved])


def run_environment(paths: Sequence[str]) -> dict[str, str]:
    """This process's environment for another run of pytest: Python looks in ``paths``, and then for this kerntune."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return {**env, "PYTHONPATH": os.pathsep.join([*paths, own_path()])}


def own_path() -> str:
    """The folder that this kerntune is imported from."""
    return str(Path(__file__).resolve().parents[2])


def python_path(env: Mapping[str, str] = os.environ) -> list[str]:
    """The entries of ``PYTHONPATH``."""
    return [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _moved(entry: str, top: Path, tree: Path) -> str:
    found = Path(entry).resolve()
    return str(tree / found.relative_to(top)) if found.is_relative_to(top) else entry


BASE = "base"
"""The kind of scratch folder that holds a worktree."""


def _forget_lost(top: Path) -> None:
    """Take back the registrations of worktrees that killed runs have left, and only these: ``git worktree prune`` would
    forget the user's own on a disk that isn't mounted now."""
    lines = (git_output(top, "worktree", "list", "--porcelain") or b"").decode(errors="surrogateescape").splitlines()
    for path in (Path(x.removeprefix("worktree ")) for x in lines if x.startswith("worktree ")):
        if path.parent.name.startswith(f"{PREFIX}{BASE}-") and not path.exists():
            git_output(top, "worktree", "remove", "--force", str(path))


def _must(top: Path, env: Mapping[str, str] | None, *args: str, given: bytes = b"") -> bytes:
    done = run_git(top, *args, env=env, given=given)
    if done.returncode:
        raise UsageError(f"git {args[0]} failed in {top}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def git_output(where: Path, *args: str, given: bytes = b"") -> bytes | None:
    """What git prints in the folder ``where``; None if it fails."""
    done = run_git(where, *args, given=given)
    return done.stdout if done.returncode == 0 else None


def run_git(
    where: Path, *args: str, env: Mapping[str, str] | None = None, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run git in the folder ``where``, with ``given`` as its input; it never prompts for a password, and its messages
    are in English. :class:`UsageError` if there is no git."""
    quiet = {**(os.environ if env is None else env), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    command = ["git", "-C", str(where), *args]
    try:
        return subprocess.run(command, input=given, capture_output=True, env=quiet, check=False)
    except FileNotFoundError:
        raise UsageError("git is not installed, so no revision or branch can be read; install it") from None
