"""Every baseline of a folder, decoded, with its key."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kerntune.base import codec
from kerntune.base.device import Target
from kerntune.base.stats import median
from kerntune.errors import BaselineError, UsageError
from kerntune.gate.baselines import (
    Baseline,
    BaselineStore,
    TimeBaseline,
    decode_static,
    decode_time,
)
from kerntune.gate.static_figures import LaunchStatic


@dataclass(frozen=True, order=True)
class BaselinePlace:
    """The key of a baseline. ``place`` is a device's name, or ``static, Triton 3.9``."""

    case: str
    target: str
    place: str
    fingerprint: str


@dataclass(frozen=True)
class Entry:
    """One file: what it holds, or the sentence that says why that can't be read. ``path`` starts in the folder."""

    path: PurePosixPath
    baseline: Baseline | None
    problem: str = ""


@dataclass(frozen=True)
class Pattern:
    """Which cases are selected. ``*`` and ``?`` are wildcards; brackets are not, node ids have them. A text without
    wildcards matches wherever it occurs."""

    text: str = ""

    def matches(self, baseline: Baseline) -> bool:
        """Whether the baseline's case is selected."""
        return self.selects(str(baseline.case))

    def selects(self, case: str) -> bool:
        """Whether a case of this name is selected."""
        if not re.search(r"[*?]", self.text):
            return self.text in case
        return re.fullmatch(re.escape(self.text).replace(r"\*", ".*").replace(r"\?", "."), case, re.DOTALL) is not None


def key_of(baseline: Baseline) -> BaselinePlace:
    """The key that no other baseline of a folder has."""
    return BaselinePlace(str(baseline.case), str(target_of(baseline)), place_of(baseline), baseline.fingerprint)


def target_of(baseline: Baseline) -> Target:
    """What it was compiled for."""
    return baseline.device.target if isinstance(baseline, TimeBaseline) else baseline.target


def place_of(baseline: Baseline) -> str:
    """The device, or the Triton series of static figures."""
    return baseline.device.name if isinstance(baseline, TimeBaseline) else f"static, Triton {baseline.triton}"


def triton_of(baseline: Baseline) -> str:
    """The Triton that compiled it, or its series for static figures."""
    return baseline.environment.triton if isinstance(baseline, TimeBaseline) else baseline.triton


def path_of(store: BaselineStore, baseline: Baseline) -> Path:
    """Where a folder keeps it."""
    if isinstance(baseline, TimeBaseline):
        return store.time_path(baseline.device, baseline.case, baseline.fingerprint)
    return store.static_path(baseline.target, baseline.triton, baseline.case, baseline.fingerprint)


def time_ns(baseline: Baseline) -> float | None:
    """The median of the stored sample; None for static figures."""
    return median(baseline.sample.times_ns) if isinstance(baseline, TimeBaseline) else None


def launches_of(baseline: Baseline) -> tuple[LaunchStatic, ...]:
    """The static figures of a baseline's launches, in order."""
    return baseline.static if isinstance(baseline, TimeBaseline) else baseline.launches


def load_folder(folder: Path) -> list[Entry]:
    """All files of a baseline folder, sorted by path; a folder that isn't there has none."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; name the folder of the baselines")
    return [_load(folder, p) for p in sorted(folder.glob("*/*/*/**/*.json")) if is_baseline(p.relative_to(folder))]


def is_baseline(path: Path | PurePosixPath) -> bool:
    """Whether a path inside the folder is a baseline's: ``<target>/<device or Triton>/<time or static>/...json``.
    Names with a dot in front are unfinished writes."""
    kind = path.parts[2] if len(path.parts) > 3 else ""
    return kind in ("time", "static") and path.suffix == ".json" and not path.name.startswith(".")


def decode(path: PurePosixPath, data: bytes, where: str) -> Entry:
    """A file's content as what its path says; ``where`` names the file in the problem."""
    try:
        found: Baseline = decode_time(data, where) if path.parts[2] == "time" else decode_static(data, where)
    except BaselineError as exc:
        return Entry(path, None, str(exc))
    return Entry(path, found)


def problems(entries: Iterable[Entry]) -> list[str]:
    """Why some files can't be read, a sentence each."""
    return [e.problem for e in entries if e.problem]


def _load(folder: Path, path: Path) -> Entry:
    inside = PurePosixPath(path.relative_to(folder).as_posix())
    try:
        data = codec.read_file(path, error=BaselineError)
    except BaselineError as exc:
        return Entry(inside, None, str(exc))
    if data is None:
        return Entry(inside, None, f"{path}: was removed meanwhile, or is a link to nothing")
    return decode(inside, data, str(path))
