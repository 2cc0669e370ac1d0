"""A baseline in one piece: what a run's JSON carries to the machine that commits it."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kerntune.base import codec
from kerntune.base.case_result import CaseId
from kerntune.base.device import Target
from kerntune.errors import BaselineError, UsageError
from kerntune.gate.baseline_files import MAX_ARTIFACT, BaselineStore, artifact_bounds, artifact_names
from kerntune.gate.baselines import (
    STATIC_SCHEMA,
    TIME_SCHEMA,
    StaticBaseline,
    TimeBaseline,
    fingerprint_of,
    static_problems,
    time_problems,
)

if TYPE_CHECKING:
    from kerntune.gate.call import PendingBaseline

SCHEMA = "kerntune.bundle/1"

MAX_BUNDLE = 1 << 25
"""Bytes that a bundle may have as JSON: 32 MiB. A case of two launches has 10 KB."""

PRESET = 6
"""xz's own default. On a binary of 5 KB it took 2 ms where preset 9 took 52 ms (it clears 64 MiB first), for the
same size; a run packs every case."""


class Bundle(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A case's time baseline or its static one (exactly one of them), and its artifacts by SHA-256.

    An artifact is xz-compressed; in JSON it is base64 text. Nothing in a bundle is code that kerntune executes while
    it is applied.
    """

    schema: str
    artifacts: dict[str, bytes]
    time: TimeBaseline | None = None
    static: StaticBaseline | None = None

    def __post_init__(self) -> None:
        if (self.time is None) == (self.static is None):
            raise ValueError("a bundle has either a time or a static baseline")

    @property
    def baseline(self) -> TimeBaseline | StaticBaseline:
        """The one that it has."""
        if self.time is not None:
            return self.time
        assert self.static is not None
        return self.static

    @property
    def case(self) -> CaseId:
        """The case that it is of."""
        return self.baseline.case

    @property
    def target(self) -> Target:
        """What the case was compiled for."""
        return self.time.device.target if self.time is not None else _static(self).target

    @property
    def place(self) -> str:
        """The device, or the target of a static baseline, for people."""
        return f"{self.time.device.name}, {self.target}" if self.time is not None else f"{self.target}, static"

    def names(self) -> list[str]:
        """Checksums of the artifacts that the baseline needs."""
        return needed(self.baseline)

    def path(self, store: BaselineStore) -> Path:
        """Where the baseline is in a folder, or would be."""
        if self.time is not None:
            return store.time_path(self.time.device, self.case, self.time.fingerprint)
        static = _static(self)
        return store.static_path(static.target, static.triton, self.case, static.fingerprint)


def needed(baseline: TimeBaseline | StaticBaseline) -> list[str]:
    """Checksums of the artifacts that a baseline needs, each once."""
    if isinstance(baseline, TimeBaseline):
        return artifact_names(baseline.recording)
    return list(dict.fromkeys(launch.ttir_sha256 for launch in baseline.launches))


def is_complete(pending: PendingBaseline) -> bool:
    """Whether what a run measured came with all its artifacts, so that it can be stored."""
    return all(name in pending.artifacts for name in needed(pending.baseline))


def bundle_of(pending: PendingBaseline) -> Bundle:
    """What a run measured, in one piece; :class:`BaselineError` if it doesn't hold all its artifacts."""
    baseline, names = pending.baseline, needed(pending.baseline)
    missing = [name for name in names if name not in pending.artifacts]
    if missing:
        raise BaselineError(f"{baseline.case}: measured without keeping {_few(missing)}, so it can't be carried along")
    packed = {name: lzma.compress(pending.artifacts[name], preset=PRESET) for name in names}
    if isinstance(baseline, TimeBaseline):
        return Bundle(SCHEMA, packed, time=baseline)
    return Bundle(SCHEMA, packed, static=baseline)


def encoded_bundles(pendings: Iterable[PendingBaseline | None]) -> dict[str, msgspec.Raw]:
    """The bundles of a test's cases as JSON for its run's file, by case and target; those that can't be carried
    along (see :func:`is_complete`) are left out."""
    bundles = [bundle_of(p) for p in pendings if p is not None and is_complete(p)]
    return {f"{b.case} ({b.target})": msgspec.Raw(msgspec.json.encode(b)) for b in bundles}


def decode_bundle(value: Any, where: str) -> Bundle:
    """A bundle from a run's JSON; ``where`` names file and case in the :class:`BaselineError` for anything odd."""
    data = bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    if len(data) > MAX_BUNDLE:
        raise BaselineError(f"{where}: has {len(data)} bytes, and may have {MAX_BUNDLE}; run it anew")
    return codec.from_json(data, Bundle, SCHEMA, where=where, error=BaselineError)


def apply_bundle(bundle: Bundle, store: BaselineStore, *, where: str = "bundle") -> Path:
    """Write the bundle's baseline, in place of the case's old one; the path it went to.

    Everything is checked first: on :class:`BaselineError` nothing was written.
    """
    check_identity(bundle, where)
    artifacts = unpacked(bundle, where)
    if bundle.time is not None:
        return store.put_time(bundle.time, artifacts)
    return store.put_static(_static(bundle), artifacts)


def check_identity(bundle: Bundle, where: str) -> None:
    """Refuse a baseline that isn't what it says it is, or whose target would lead out of the folder."""
    baseline = bundle.baseline
    schema = TIME_SCHEMA if bundle.time is not None else STATIC_SCHEMA
    if baseline.schema != schema:
        raise BaselineError(f"{where}: has schema {baseline.schema!r}, this kerntune reads {schema!r}; run it anew")
    if fingerprint_of(baseline.arguments) != baseline.fingerprint:
        raise BaselineError(f"{where}: its fingerprint is not that of its arguments; the file was changed, run it anew")
    _check_target(bundle.target, where)
    problems = time_problems(bundle.time) if bundle.time is not None else static_problems(_static(bundle))
    if (problem := next(problems, "")) != "":
        raise BaselineError(f"{where}: {problem}; run it anew")


def unpacked(bundle: Bundle, where: str) -> Mapping[str, bytes]:
    """All artifacts of a bundle, none missing and none beside, each held against its checksum."""
    wanted, found = set(bundle.names()), set(bundle.artifacts)
    if found != wanted:
        what = f"lacks {_few(wanted - found)}" if wanted - found else f"has {_few(found - wanted)} that nothing names"
        raise BaselineError(f"{where}: {what}; the file was changed, run it anew")
    bounds = artifact_bounds(bundle.baseline)
    limits = {name: min(bounds.get(name, MAX_ARTIFACT), MAX_ARTIFACT) for name in wanted}
    return {name: _unpack(name, data, limits[name], where) for name, data in bundle.artifacts.items()}


def _unpack(name: str, packed: bytes, limit: int, where: str) -> bytes:
    try:
        return codec.unpack(packed, name, limit)
    except ValueError as exc:
        raise BaselineError(f"{where}: artifact {name[:12]} {exc}; run it anew") from exc


def _check_target(target: Target, where: str) -> None:
    """A target becomes a folder's name."""
    try:
        known = Target.parse(str(target))
    except UsageError as exc:
        raise BaselineError(f"{where}: {exc}") from None
    if known != target:
        raise BaselineError(f"{where}: {target} has {known.warp_size} threads a warp, not {target.warp_size}")


def _static(bundle: Bundle) -> StaticBaseline:
    assert bundle.static is not None
    return bundle.static


def _few(names: Iterable[str]) -> str:
    first, *rest = sorted(names)
    return f"artifact {first[:12]}" + (f" and {len(rest)} more" if rest else "")
