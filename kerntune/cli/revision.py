"""The baselines of a folder as a git revision has them. Nothing is checked out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from kerntune.cli.stored import Entry, decode, is_baseline
from kerntune.errors import UsageError
from kerntune.gate.git import git_output


def load_revision(revision: str, folder: Path) -> list[Entry]:
    """All files of ``folder`` in a commit, branch or tag; :class:`UsageError` if git knows none of that name."""
    place = next(p for p in (folder, *folder.parents) if p.is_dir())
    top = _line(git_output(place, "rev-parse", "--show-toplevel"))
    commit = _line(git_output(place, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"))
    if not top or not commit:
        raise UsageError(
            f"{revision}: is no folder, and {'no git revision' if top else 'there is no git repository'} in {place}; "
            "name two folders of baselines, or two commits, branches or tags"
        )
    root = Path(top)
    inside = PurePosixPath(folder.resolve().relative_to(root.resolve()).as_posix())
    return [decode(path, data, f"{revision}:{inside / path}") for path, data in _files(root, commit, inside)]


def _files(root: Path, commit: str, inside: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
    within = [] if inside == PurePosixPath() else [f"{inside}/"]
    listed = git_output(root, "ls-tree", "-r", "-z", "--full-tree", "--name-only", commit, "--", *within) or b""
    names = [n for n in listed.decode(errors="surrogateescape").split("\0") if n]
    paths = sorted(p for n in names if is_baseline(p := PurePosixPath(n).relative_to(inside)))
    yield from zip(paths, _contents(root, [f"{commit}:{inside / p}" for p in paths]), strict=True)


def _contents(root: Path, objects: list[str]) -> Iterator[bytes]:
    """The bytes of each object: ``git cat-file --batch`` answers ``<name> blob <size>``, the bytes and a newline."""
    asked = "".join(f"{name}\n" for name in objects).encode(errors="surrogateescape")
    rest = git_output(root, "cat-file", "--batch", given=asked) or b""
    for _ in objects:
        head, _, rest = rest.partition(b"\n")
        size = int(head.rsplit(b" ", 1)[1])
        yield rest[:size]
        rest = rest[size + 1 :]


def _line(output: bytes | None) -> str:
    return (output or b"").decode(errors="surrogateescape").strip()
