"""What a git revision holds, laid out in a folder. The user's own checkout and index are not touched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kerntune.base.folders import PREFIX, scratch_folder
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
    found = known_commit(top, revision)
    if not found:
        raise UsageError(
            f"{revision}: no such commit, branch or tag in {top}; in CI, fetch it first (a shallow clone lacks it)"
        )
    return found


def known_commit(where: Path, name: str) -> str:
    """The full name of the commit that is called so in the repository around ``where``; empty if git knows none."""
    found = git_output(where, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return (found or b"").decode().strip()


def extract(revision: str, folder: Path, into: Path, root: Path | None = None) -> Path:
    """Write the files of ``folder`` as ``revision`` has them under ``into``; where the folder is there.

    An index of its own is used, so checkout filters apply (Git LFS) and nothing staged is lost. A revision without the
    folder gives an empty one. Nothing of the working tree has a say: its links aren't followed inside of the repository
    around ``root``, and its ``.gitattributes`` aren't read.
    """
    top, inside = place_of(folder, folder if root is None else root)
    commit = commit_of(top, revision)
    with scratch_folder("index") as scratch:
        (scratch / "tree").mkdir()
        env = {
            **os.environ,
            "GIT_DIR": _must(top, "rev-parse", "--absolute-git-dir").decode().strip(),
            "GIT_WORK_TREE": str(scratch / "tree"),  # empty: attributes come from the index
            "GIT_INDEX_FILE": str(scratch / "index"),
            "GIT_LITERAL_PATHSPECS": "1",
        }
        _must(top, "read-tree", commit, env=env)
        names = _must(top, "ls-files", "-z", "--", inside, env=env)
        words = ("checkout-index", "-q", "-z", "--stdin", f"--prefix={into.resolve()}/")
        _must(scratch / "tree", *words, env=env, given=names)
    found = into / inside
    found.mkdir(parents=True, exist_ok=True)
    return found


def place_of(path: Path, root: Path) -> tuple[Path, str]:
    """The repository that ``path`` is in, and its name there: that around ``root``, if it is in it by its name, else
    that which it leads to."""
    top = top_of(root.resolve())
    inside = name_in(top, path)
    if inside is not None:
        return top, inside
    leads = Path(os.path.abspath(path)).resolve()
    other = top_of(leads)
    return other, leads.relative_to(other).as_posix()


def name_in(top: Path, path: Path) -> str | None:
    """A path as git names it in the repository at ``top``; None for one that isn't in it by its name. Links within the
    repository aren't followed: a change could have made them."""
    given = Path(os.path.abspath(path))
    parent = next((p for p in reversed((given, *given.parents)) if p.resolve() == top), None)
    return None if parent is None else given.relative_to(parent).as_posix()


def file_at(top: Path, commit: str, name: str) -> bytes | None:
    """A file of a commit, by its name within the repository; None if it has none."""
    return git_output(top, "cat-file", "blob", f"{commit}:{name}")


def blobs(top: Path, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The content of each blob (``commit:path``) with its name; those that git doesn't have are left out. No name may
    have a line feed. ``git cat-file --batch`` answers ``<id> blob <size>``, the bytes and a line feed."""
    asked = "".join(f"{name}\n" for name in names).encode(errors="surrogateescape")
    rest = memoryview(_must(top, "cat-file", "--batch", given=asked) if names else b"")
    for name in names:
        head = bytes(rest[:LONGEST_HEAD]).partition(b"\n")[0]
        rest = rest[len(head) + 1 :]
        words = head.split()
        if len(words) == 3 and words[2].isdigit():  # not of what is missing, or a submodule
            size = int(words[2])
            yield name, bytes(rest[:size])
            rest = rest[size + 1 :]


LONGEST_HEAD = 8192
"""Bytes before which the line ends that says a blob's size, or repeats the name of one that is missing."""


def names_at(top: Path, commit: str, folder: str, *, folders: bool = False) -> list[str] | None:
    """What is in a folder of a commit, or only its ``folders``; None if it has no such folder."""
    only = ("-d",) if folders else ()
    found = git_output(top, "ls-tree", *only, "-z", "--name-only", f"{commit}:{'' if folder == '.' else folder}")
    return None if found is None else [x.decode(errors="surrogateescape") for x in found.split(b"\0") if x]


@contextmanager
def worktree(revision: str, place: Path) -> Iterator[Path]:
    """A checkout of ``revision`` of the repository around ``place``, in a temporary folder, for a while."""
    top = top_of(place)
    commit = commit_of(top, revision)
    with scratch_folder(BASE) as scratch:  # by which folders of killed runs are swept
        listed = (git_output(top, "worktree", "list", "--porcelain") or b"").decode(errors="surrogateescape")
        named = [x.removeprefix("worktree ") for x in listed.splitlines() if x.startswith("worktree ")]
        for path in map(Path, named):
            # those of killed runs alone: `git worktree prune` would forget the user's own on a disk that isn't mounted
            if path.parent.name.startswith(f"{PREFIX}{BASE}-") and not path.exists():
                git_output(top, "worktree", "remove", "--force", str(path))
        root = scratch.resolve() / top.name
        _must(top, "worktree", "add", "--quiet", "--detach", str(root), commit)
        try:
            yield root
        finally:
            git_output(top, "worktree", "remove", "--force", str(root))


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


def own_environment() -> dict[str, str]:
    """This process's environment for another run of the same tests: Python finds this kerntune first."""
    env = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST" and not k.startswith("PYTEST_XDIST")}
    return {**env, "PYTHONPATH": os.pathsep.join([own_path(), *python_path()])}


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


def _must(top: Path, *args: str, env: Mapping[str, str] | None = None, given: bytes = b"") -> bytes:
    done = run_git(top, *args, env=env, given=given)
    if done.returncode:
        raise UsageError(f"git {args[0]} failed in {top}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def git_output(where: Path, *args: str, given: bytes = b"") -> bytes | None:
    """What git prints in the folder ``where``; None if it fails."""
    done = run_git(where, *args, given=given)
    return done.stdout if done.returncode == 0 else None


def listed_names(where: Path, *args: str) -> list[str]:
    """The names that git prints with a zero byte after each (``-z``); none if it fails."""
    printed = (git_output(where, *args) or b"").decode(errors="surrogateescape")
    return [name for name in printed.split("\0") if name]


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
