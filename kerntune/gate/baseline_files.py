"""Baselines on disk: one small JSON a case, binaries and TTIR beside them by checksum.

A store gives each baseline its place, reads it within limits, and writes it in one piece. Nothing is read or written
outside of the store's folder, whatever a file or a link says.
"""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kerntune.base import codec
from kerntune.base.case_result import CaseId
from kerntune.base.device import DeviceSpec, Target, targets_of_folders
from kerntune.base.folders import sweep_once
from kerntune.base.recording import Recording, Stored
from kerntune.base.recording_check import case_problems, is_sha256
from kerntune.errors import BaselineError, StoreError
from kerntune.gate.baselines import (
    MAX_FOLDER,
    Argument,
    Baseline,
    Kept,
    StaticBaseline,
    TimeBaseline,
    decode_static,
    decode_time,
    lasting,
)
from kerntune.gate.static_figures import LaunchStatic

Decode = Callable[[bytes, str], Kept]

MAX_ARTIFACT = 1 << 26
"""Bytes that an artifact may unpack to where no baseline says less: 64 MiB. Cubins have kilobytes; a damaged or hostile
file must not fill the memory."""

MAX_PACKED = MAX_ARTIFACT + (1 << 20)
"""Bytes that an artifact's file may have: what can't be packed is a little longer for it."""

LEAST_BOUND, PER_CODE_BYTE = 1 << 20, 64
"""A kernel's binary and its TTIR may have 1 MiB, and 64 bytes more for each byte of its machine code. In the baselines
of this project's examples neither has more than 4.3 bytes for one."""


def artifact_bounds(baseline: Baseline) -> dict[str, int]:
    """The most bytes that each artifact of a baseline can have, by checksum, as far as the baseline says it."""
    if isinstance(baseline, StaticBaseline):
        return {x.ttir_sha256: _bound(x) for x in baseline.launches}
    recording = baseline.recording
    bounds = {s.content.sha256: s.nbytes for s in recording.storages if isinstance(s.content, Stored)}
    for launch, figures in zip(recording.launches, baseline.static, strict=False):
        binary = recording.binary_of(launch)
        for sha in (binary.sha256, binary.ttir_sha256):
            bounds[sha] = max(_bound(figures), bounds.get(sha, LEAST_BOUND))
    return bounds


def _bound(figures: LaunchStatic) -> int:
    return LEAST_BOUND + PER_CODE_BYTE * figures.metrics.code_bytes


class ArtifactFolder(Mapping[str, bytes]):
    """Bytes by SHA-256 in a folder of ``<sha>.xz`` files, checked when they are read.

    ``bounds`` has the most bytes that some of them can have; none may have more than :data:`MAX_ARTIFACT`.
    """

    def __init__(self, folder: Path, bounds: Mapping[str, int] | None = None, root: Path | None = None) -> None:
        self.folder = folder
        self._bounds = {} if bounds is None else bounds
        self._root = root or folder
        """The folder that no link may lead out of."""

    def __getitem__(self, sha256: str) -> bytes:
        path = self._path(sha256)
        packed = codec.read_file(inside(self._root, path), error=BaselineError, limit=MAX_PACKED)
        if packed is None:
            raise KeyError(sha256)
        try:
            return codec.unpack(packed, sha256, min(self._bounds.get(sha256, MAX_ARTIFACT), MAX_ARTIFACT))
        except ValueError as exc:
            raise BaselineError(f"{path}: {exc}; restore it or record the case anew") from exc

    def __contains__(self, sha256: object) -> bool:
        return isinstance(sha256, str) and is_sha256(sha256) and self._path(sha256).exists()

    def __iter__(self) -> Iterator[str]:
        return (p.stem for p in sorted(self.folder.glob("*.xz")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def put(self, sha256: str, data: bytes) -> None:
        """Store bytes under their checksum, once; a damaged file is written anew."""
        with suppress(BaselineError):
            if sha256 in self and self[sha256] == data:
                return
        path = inside(self._root, self._path(sha256))
        codec.write_atomic(path, codec.pack(data), error=BaselineError, durable=True)
        sweep_once(path.parent)

    def _path(self, sha256: str) -> Path:
        if not is_sha256(sha256):
            raise BaselineError(
                f"{self.folder}: {codec.shortened(sha256)!r} is no artifact's name; restore the file that names it"
            )
        return self.folder / f"{sha256}.xz"


def inside(folder: Path, path: Path) -> Path:
    """The path, if no link on it leads out of the folder; :class:`BaselineError` otherwise. What lies elsewhere is
    neither read nor written: baselines may come from a stranger's pull request."""
    try:
        leads = path.resolve()
        if leads.is_relative_to(folder.resolve()):
            return path
    except (OSError, ValueError, RuntimeError) as exc:  # a NUL in the name, links in a circle
        raise BaselineError(f"{codec.shown(path)}: is no path ({exc})") from exc
    raise BaselineError(f"{path}: can't be read or written: a link leads out of {folder}; put the file itself there")


class BaselineStore:
    """A baseline folder. Reads strictly, writes atomically, touches only the case it is given.

    Layout: ``<target>/<device>/time/``, ``<target>/triton-<x.y>/static/`` and ``<target>/artifacts/``.
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.folder = folder
        self._root = root or folder.parent
        self._bounds: dict[str, int] = {}
        """What the baselines that were read say of their artifacts' sizes."""

    def shown(self, path: Path) -> str:
        """A path for people and reports: relative to the project's root where it is inside it."""
        return path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) else str(path)

    def targets(self) -> list[Target]:
        """The targets that have baselines, sorted."""
        slugs = [p.name for p in self.folder.iterdir() if p.is_dir()] if self.folder.is_dir() else []
        return targets_of_folders(slugs)

    def artifacts(self, target: Target) -> ArtifactFolder:
        """The binaries and TTIR of a target."""
        return ArtifactFolder(self.folder / target.slug / "artifacts", self._bounds, self.folder)

    # one baseline

    def time_path(self, device: DeviceSpec, case: CaseId, fingerprint: str) -> Path:
        """Where the time baseline of a case on a device is, or would be."""
        return self.folder / device.target.slug / device.slug / "time" / case_file(case, fingerprint)

    def time(self, device: DeviceSpec, case: CaseId, fingerprint: str) -> TimeBaseline | None:
        """The time baseline of a case, None if there is none; BaselineError if it can't be read."""
        return self._own(self.time_path(device, case, fingerprint), decode_time, case, fingerprint)

    def static_path(self, target: Target, triton: str, case: CaseId, fingerprint: str) -> Path:
        """Where the static baseline of a case is, or would be. ``triton`` is a series such as ``3.9``."""
        return self.folder / target.slug / f"triton-{triton}" / "static" / case_file(case, fingerprint)

    def static(self, target: Target, triton: str, case: CaseId, fingerprint: str) -> StaticBaseline | None:
        """The static baseline of a case, None if there is none; BaselineError if it can't be read."""
        return self._own(self.static_path(target, triton, case, fingerprint), decode_static, case, fingerprint)

    def static_elsewhere(self, target: Target, triton: str, case: CaseId, fingerprint: str) -> StaticBaseline | None:
        """The static baseline of a case under the Triton series that is nearest to ``triton``, an older one first."""
        file, here = case_file(case, fingerprint), _series(triton)
        folders = [p.parents[file.count("/") + 1] for p in self.folder.glob(f"{target.slug}/triton-*/static/{file}")]
        others = {_series(p.name.removeprefix("triton-")): p.name.removeprefix("triton-") for p in folders}
        older, newer = [s for s in others if s < here], [s for s in others if s > here]
        if not older and not newer:
            return None
        return self.static(target, others[max(older) if older else min(newer)], case, fingerprint)

    def path_of(self, baseline: Baseline) -> Path:
        """Where a baseline is, or would be."""
        if isinstance(baseline, TimeBaseline):
            return self.time_path(baseline.device, baseline.case, baseline.fingerprint)
        return self.static_path(baseline.target, baseline.triton, baseline.case, baseline.fingerprint)

    def _own(self, path: Path, decode: Decode[Kept], case: CaseId, fingerprint: str) -> Kept | None:
        """A case's own baseline; :class:`BaselineError` for a file that was copied to another's place."""
        found = self._read(path, decode)
        if found is not None and (found.case, found.fingerprint) != (case, fingerprint):
            raise BaselineError(
                f"{path}: holds the baseline of {found.case}, not of {case}; remove it or record the case anew"
            )
        return found

    def read(self, path: Path) -> Baseline | None:
        """The baseline at a path, of the kind that its folder says; None if there is none."""
        timed = path.relative_to(self.folder).parts[2] == "time"
        return self._read(path, decode_time) if timed else self._read(path, decode_static)

    def _read(self, path: Path, decode: Decode[Kept]) -> Kept | None:
        data = codec.read_file(inside(self.folder, path), error=BaselineError)
        if data is None:
            return None
        found = decode(data, str(path))
        self._note_bounds(found)
        return found

    def put(self, baseline: Baseline, artifacts: Mapping[str, bytes], *, anew: bool = False) -> Path:
        """Write a case's baseline: its artifacts first, so that no baseline ever lacks them.

        A static one that says the same already, recorded at another time, is left alone unless ``anew``: a refresh that
        changes nothing leaves nothing to commit."""
        store, names = self.artifacts(baseline.target), needed(baseline)
        for sha in names:
            store.put(sha, artifacts[sha])
        path = self.path_of(baseline)
        if isinstance(baseline, StaticBaseline) and not anew and self.says(baseline):
            return path
        self.write(path, baseline)
        for sha in names:
            if sha not in store:  # swept by another job that couldn't know of this baseline
                store.put(sha, artifacts[sha])
        return path

    def write(self, path: Path, baseline: Baseline) -> None:
        """Write a baseline's own file, whole, and onto the disk before this returns. :class:`BaselineError` for a case
        whose name couldn't be read again."""
        case = CaseId(codec.encodable(baseline.case.nodeid), codec.encodable(baseline.case.call))
        if (problem := next(case_problems(case), "")) != "":
            raise BaselineError(f"{codec.shown(path)}: {problem}; give the test or the call another name")
        whole = inside(self.folder, path)
        codec.write_atomic(whole, codec.to_json(baseline), error=BaselineError, durable=True)
        sweep_once(whole.parent)

    def says(self, baseline: StaticBaseline) -> bool:
        """Whether the stored baseline of this case says the same, recorded at another time."""
        try:
            found = self._read(self.path_of(baseline), decode_static)
        except BaselineError:
            return False
        return found is not None and lasting(found) == lasting(baseline)

    # all of them

    def _note_bounds(self, baseline: Baseline) -> None:
        for sha, bound in artifact_bounds(baseline).items():
            self._bounds[sha] = max(bound, self._bounds.get(sha, bound))

    def time_files(self, device_slug: str = "*", target_slug: str = "*") -> list[Path]:
        """Paths of time baselines."""
        return sorted(self.folder.glob(f"{target_slug}/{device_slug}/time/**/*.json"))

    def static_files(self, target_slug: str = "*", triton: str = "*") -> list[Path]:
        """Paths of static baselines."""
        return sorted(self.folder.glob(f"{target_slug}/triton-{triton}/static/**/*.json"))

    def known_arguments(self, target: Target, case: CaseId) -> set[tuple[Argument, ...]]:
        """The arguments of a case's baselines on a target, of any device and Triton series that can be read."""
        file = Path(case_file(case, ""))
        name = f"{file.stem[:-DIGEST]}{'?' * DIGEST}.json"
        paths = self.folder.glob(f"{target.slug}/*/*/{file.parent / name}")
        return {baseline.arguments for _, baseline in self.readable(paths) if baseline.case == case}

    def of_test(self, target: Target, nodeid: str) -> Iterator[tuple[Path, Baseline]]:
        """The baselines of a test's calls on a target, of any device and Triton series, as far as they can be read."""
        folder = Path(case_file(CaseId(nodeid, ""), "")).parent
        paths = sorted(self.folder.glob(f"{target.slug}/*/*/{glob.escape(str(folder))}/*.json"))
        yield from ((path, baseline) for path, baseline in self.readable(paths) if baseline.case.nodeid == nodeid)

    def remove(self, path: Path) -> None:
        """Remove one baseline; its artifacts go with :meth:`sweep`."""
        self._change(path, Path.unlink)

    def sweep(self) -> int:
        """Remove artifacts that no baseline names; how many. Refuses while any baseline can't be read.

        Another job may be writing a baseline meanwhile, whose artifacts come first: what seems to be unused is moved
        away, and restored if a baseline names it by then. A job that writes its baseline later checks that all
        artifacts exist.
        """
        return sum(self._sweep(target) for target in self.targets())

    def _sweep(self, target: Target) -> int:
        folder = self.artifacts(target).folder
        unused = set(self.artifacts(target)) - set(self._used(target))
        for sha in unused:
            self._change(folder / f"{sha}.xz", Path.rename, folder / f".{sha}.unused")
        again = unused & set(self._used(target)) if unused else set()
        for sha in again:
            self._change(folder / f".{sha}.unused", Path.rename, folder / f"{sha}.xz")
        for path in folder.glob(".*.unused"):
            self.remove(path)
        return len(unused - again)

    def _change(self, path: Path, change: Callable[..., object], *to: Path) -> None:
        try:
            inside(self.folder, path.parent)
            change(path, *to)
        except OSError as exc:
            raise BaselineError(f"{path}: can't be removed ({exc.strerror})") from exc

    def _used(self, target: Target) -> Iterator[str]:
        for path in (*self.time_files(target_slug=target.slug), *self.static_files(target.slug)):
            found = self.read(path)
            yield from () if found is None else needed(found)

    def summaries(self, paths: Iterable[Path] | None = None) -> Iterator[tuple[Path, Baseline | StoreError]]:
        """The baselines of ``paths``, or of the whole folder, or why they can't be read."""
        for path in (*self.time_files(), *self.static_files()) if paths is None else paths:
            try:
                found = self.read(path)
            except StoreError as exc:
                yield path, exc
            else:
                if found is not None:
                    yield path, found

    def readable(self, paths: Iterable[Path] | None = None) -> Iterator[tuple[Path, Baseline]]:
        """Those of :meth:`summaries` that can be read."""
        yield from ((path, found) for path, found in self.summaries(paths) if not isinstance(found, StoreError))


def needed(baseline: Baseline) -> list[str]:
    """Checksums of the artifacts that a baseline needs, each once."""
    if isinstance(baseline, TimeBaseline):
        return artifact_names(baseline.recording)
    return list(dict.fromkeys(launch.ttir_sha256 for launch in baseline.launches))


def artifact_names(recording: Recording) -> list[str]:
    """Checksums of all that a recording needs to be replayed or compiled anew."""
    names = [sha for b in recording.binaries for sha in (b.sha256, b.ttir_sha256)]
    names += [s.content.sha256 for s in recording.storages if isinstance(s.content, Stored)]
    return list(dict.fromkeys(names))


MAX_NAME = 120
"""Longest readable part of a file name; most file systems end at 255 bytes."""

DIGEST = 8
"""Hex digits at the end of a file name."""


def case_file(case: CaseId, fingerprint: str) -> str:
    """A relative path: the test file's folders, then a sanitised name and a short hash of id and fingerprint."""
    file, _, rest = case.nodeid.partition("::")
    readable = re.sub(r"[^A-Za-z0-9._=-]+", "-", f"{rest}-{case.call}" if case.call else rest).strip("-.")[:MAX_NAME]
    digest = hashlib.sha256(f"{case.nodeid}\0{case.call}\0{fingerprint}".encode()).hexdigest()[:DIGEST]
    folders = [_folder(part) for part in file.split("/") if part not in ("", ".", "..")]
    return "/".join([*folders, f"{readable}-{digest}.json"])


def _folder(part: str) -> str:
    """A part of a test file's path as a folder's name; what is too long for one is cut and gets a hash."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", part)
    if len(name) <= MAX_FOLDER:
        return name
    return f"{name[:MAX_NAME]}-{hashlib.sha256(part.encode(errors='surrogateescape')).hexdigest()[:DIGEST]}"


def _series(triton: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", triton))
