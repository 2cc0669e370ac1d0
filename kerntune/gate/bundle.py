"""A baseline in one piece: what a run's JSON carries to the machine that commits it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kerntune.base import codec
from kerntune.base.strict import SparseStruct
from kerntune.errors import BaselineError
from kerntune.gate.baseline_files import MAX_ARTIFACT, artifact_bounds, needed
from kerntune.gate.baselines import (
    STATIC_SCHEMA,
    TIME_SCHEMA,
    Baseline,
    StaticBaseline,
    TimeBaseline,
    fingerprint_of,
    problems_of,
)

if TYPE_CHECKING:
    from kerntune.gate.call import PendingBaseline

SCHEMA = "kerntune.bundle/1"

MAX_BUNDLE = 1 << 25
"""Bytes that a bundle may have as JSON: 32 MiB. A case of two launches has 10 KB."""


class Bundle(SparseStruct, frozen=True):
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
    def baseline(self) -> Baseline:
        """The one that it has."""
        found = self.time or self.static
        assert found is not None
        return found

    @property
    def place(self) -> str:
        """The device, or the target of a static baseline, for people."""
        target = self.baseline.target
        return f"{self.time.device.name}, {target}" if self.time is not None else f"{target}, static"


def bundle_of(pending: PendingBaseline) -> Bundle | None:
    """What a run measured, in one piece; None if it doesn't hold all its artifacts."""
    baseline, names = pending.baseline, needed(pending.baseline)
    if any(name not in pending.artifacts for name in names):
        return None
    packed = {name: codec.pack(pending.artifacts[name]) for name in names}
    if isinstance(baseline, TimeBaseline):
        return Bundle(SCHEMA, packed, time=baseline)
    return Bundle(SCHEMA, packed, static=baseline)


def encoded_bundles(pendings: Iterable[PendingBaseline | None]) -> dict[str, msgspec.Raw]:
    """The bundles of a test's cases as JSON for its run's file, by case and target; those that can't be carried
    along are left out."""
    bundles = [found for p in pendings if p is not None and (found := bundle_of(p)) is not None]
    return {f"{b.baseline.case} ({b.baseline.target})": msgspec.Raw(msgspec.json.encode(b)) for b in bundles}


def decode_bundle(value: Any, where: str) -> Bundle:
    """A bundle from a run's JSON; ``where`` names file and case in the :class:`BaselineError` for anything odd."""
    data = bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    if len(data) > MAX_BUNDLE:
        raise BaselineError(f"{where}: has {len(data)} bytes, and may have {MAX_BUNDLE}; run it anew")
    return codec.from_json(data, Bundle, SCHEMA, where=where, error=BaselineError)


def check_identity(bundle: Bundle, where: str) -> None:
    """Refuse a baseline that isn't what it says it is, or whose target would lead out of the folder."""
    baseline = bundle.baseline
    schema = TIME_SCHEMA if bundle.time is not None else STATIC_SCHEMA
    if baseline.schema != schema:
        raise BaselineError(f"{where}: has schema {baseline.schema!r}, this kerntune reads {schema!r}; run it anew")
    if fingerprint_of(baseline.arguments) != baseline.fingerprint:
        raise BaselineError(f"{where}: its fingerprint is not that of its arguments; the file was changed, run it anew")
    if (problem := next(problems_of(baseline), "")) != "":
        raise BaselineError(f"{where}: {problem}; run it anew")


def unpacked(bundle: Bundle, where: str) -> Mapping[str, bytes]:
    """All artifacts of a bundle, none missing and none beside, each held against its checksum."""
    wanted, found = set(needed(bundle.baseline)), set(bundle.artifacts)
    if found != wanted:
        what = f"lacks {_few(wanted - found)}" if wanted - found else f"has {_few(found - wanted)} that nothing names"
        raise BaselineError(f"{where}: {what}; the file was changed, run it anew")
    bounds, contents = artifact_bounds(bundle.baseline), dict[str, bytes]()
    for name, packed in bundle.artifacts.items():
        limit = min(bounds.get(name, MAX_ARTIFACT), MAX_ARTIFACT)
        try:
            contents[name] = codec.unpack(packed, name, limit)
        except ValueError as exc:
            raise BaselineError(f"{where}: artifact {name[:12]} {exc}; run it anew") from exc
    return contents


def _few(names: Iterable[str]) -> str:
    first, *rest = sorted(names)
    return f"artifact {first[:12]}" + (f" and {len(rest)} more" if rest else "")
