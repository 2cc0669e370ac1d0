"""What one test tells the end of the run: it travels on the test's report, from xdist's workers too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kerntune.base.case_result import CaseResult, UncheckedValue
from kerntune.base.codec import finite
from kerntune.base.strict import SparseStruct
from pytest_kerntune.marker import nodeid_of

if TYPE_CHECKING:
    from pytest_kerntune.fixture import Record

ATTRIBUTE = "kerntune_payload"
"""Attribute of a :class:`pytest.TestReport`: reports carry extra attributes through xdist and report logs as they are,
if these are text."""

UNCHECKED = "kerntune_unchecked"
"""The same of what a phase of any test, kerntune's business or not, has compared without values."""


class Payload(SparseStruct, frozen=True):
    """The results of one test. ``finished``: its body ran to the end, so calls that it did not make are gone.
    ``benchmarked``: it uses pytest-benchmark's fixture, too; ``group`` is that of its marker."""

    nodeid: str
    results: tuple[CaseResult, ...] = ()
    finished: bool = False
    static_only: str = ""
    params: dict[str, str] = {}
    baselines: dict[str, msgspec.Raw] = {}
    benchmarked: bool = False
    group: str | None = None
    lost: str = ""
    """Why the GPU answers no more since this test; the process that ran it can't go on."""


def carried(record: Record) -> dict[str, msgspec.Raw]:
    """What ``kerntune baselines apply`` needs of a test's cases, as JSON. A body that broke off leaves none: as with
    baselines, what it measured is not to be trusted."""
    if not record.finished and not record.static_only:
        return {}
    from kerntune.gate.bundle import encoded_bundles

    return encoded_bundles(c.pending for c in record.checks)


def payload_from(item: pytest.Item, record: Record, *, carry: bool) -> Payload:
    """What a test has to tell at its end; ``carry``: its baselines too."""
    callspec, benchmark = getattr(item, "callspec", None), item.get_closest_marker("benchmark")
    return Payload(
        nodeid_of(item),
        tuple(record.results),
        record.finished,
        record.static_only,
        {k: str(v) for k, v in callspec.params.items()} if callspec is not None else {},
        carried(record) if carry else {},
        "benchmark" in getattr(item, "fixturenames", ()),
        benchmark.kwargs.get("group") if benchmark is not None else None,
        record.lost_device,
    )


def attach(report: pytest.TestReport, payload: Payload) -> None:
    """Put a payload on a report."""
    setattr(report, ATTRIBUTE, msgspec.json.encode(finite(payload)).decode())


def payload_of(report: pytest.TestReport) -> Payload | None:
    """The payload of a report, if it has one."""
    text = getattr(report, ATTRIBUTE, None)
    return None if text is None else msgspec.json.decode(text, type=Payload)


def attach_unchecked(report: pytest.TestReport, nodeid: str, values: tuple[UncheckedValue, ...]) -> None:
    """Put on a test's report what passed without values."""
    if values:
        setattr(report, UNCHECKED, msgspec.json.encode((nodeid, values)).decode())


class Collected:
    """The payloads of a run by test; a test that is run again replaces what it said before."""

    def __init__(self) -> None:
        self._tests: dict[str, Payload] = {}
        self._static_only: dict[str, str] = {}
        self._baselines: dict[str, Any] = {}
        self._unchecked: dict[str, dict[UncheckedValue, None]] = {}
        self._said: dict[str, object] = {}

    def note_unchecked(self, report: pytest.TestReport) -> None:
        """Keep what a report says of values that nothing checked; the same place of a test counts once."""
        text = getattr(report, UNCHECKED, None)
        if text is not None:
            nodeid, values = msgspec.json.decode(text, type=tuple[str, tuple[UncheckedValue, ...]])
            self._unchecked.setdefault(nodeid, {}).update(dict.fromkeys(values))

    @property
    def unchecked(self) -> dict[str, tuple[UncheckedValue, ...]]:
        """By test what it compared without values."""
        return {nodeid: tuple(values) for nodeid, values in self._unchecked.items()}

    def add(self, payload: Payload) -> None:
        """Keep a test's payload."""
        self._tests[payload.nodeid] = payload
        self._said[payload.nodeid] = _said(payload)

    def join(self, nodeid: str, results: tuple[CaseResult, ...]) -> None:
        """Add what another run found of a test, or of one that this run hasn't."""
        if results:
            known = self._tests.get(nodeid, Payload(nodeid))
            self._tests[nodeid] = known.but(results=(*known.results, *results))
            self._said[nodeid] = _said(self._tests[nodeid])

    def altered(self) -> list[str]:
        """The tests whose results say something else than they did when they came."""
        return [nodeid for nodeid, payload in self._tests.items() if _said(payload) != self._said.get(nodeid)]

    def carry(self, static_only: Mapping[str, str], baselines: Mapping[str, Any]) -> None:
        """Add what other runs leave for the end and for the run's JSON."""
        self._static_only.update(static_only)
        self._baselines.update(baselines)

    @property
    def results(self) -> tuple[CaseResult, ...]:
        """All results in the order of their tests."""
        return tuple(r for p in self._tests.values() for r in p.results)

    @property
    def static_only(self) -> dict[str, str]:
        """Tests that ended early for want of a GPU, and why."""
        return self._static_only | {p.nodeid: p.static_only for p in self._tests.values() if p.static_only}

    @property
    def tests(self) -> frozenset[str]:
        """The node ids of the tests that are kerntune's business, skipped ones too."""
        return frozenset(self._tests)

    def saw(self, stale: CaseResult) -> bool:
        """Whether this run shows that a result is not stale: the case was checked with that fingerprint (by a worker,
        so that the controller's engine doesn't know), launched nothing, or its test did not get as far as its call."""
        test = self._tests.get(stale.case.nodeid)
        if test is None:
            return False
        checked = any(r.case == stale.case and r.fingerprint in ("", stale.fingerprint) for r in test.results)
        return checked or not test.finished

    @property
    def baselines(self) -> dict[str, Any]:
        """The bundles of all tests, for the run's JSON."""
        found = {name: raw for p in self._tests.values() for name, raw in p.baselines.items()}
        return self._baselines | found

    def payload(self, nodeid: str) -> Payload:
        """What a test reported; nothing for one that did not run."""
        return self._tests.get(nodeid, Payload(nodeid))


def _said(payload: Payload) -> object:
    return tuple((r.case, r.target, r.verdict, r.outcome) for r in payload.results)
