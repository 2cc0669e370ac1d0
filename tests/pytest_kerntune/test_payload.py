"""What tests tell the end of a run, and what that comes to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kerntune.base.case_result import CaseId, CaseResult, UncheckedValue
from kerntune.base.policy import Outcome, Verdict
from pytest_kerntune.payload import Collected, Payload, attach, attach_unchecked, carried, payload_from, payload_of


def result(nodeid: str = "a", call: str = "0", fingerprint: str = "f", **changes: Any) -> CaseResult:
    made = CaseResult(CaseId(nodeid, call), fingerprint, Verdict.PASS, Outcome.PASS, "", "cuda:90")
    return msgspec.structs.replace(made, **changes)


def report() -> Any:
    return SimpleNamespace()


def test_a_payload_travels_as_text() -> None:
    payload = Payload("a", (result(current_ns=5.0),), True, "why", {"n": "1"}, {}, True, "group", "lost")
    attach(carrier := report(), payload)
    assert all(isinstance(value, str) for value in vars(carrier).values())
    assert payload_of(carrier) == payload
    assert payload_of(report()) is None
    defaults = Payload("a")
    assert (defaults.finished, defaults.benchmarked, defaults.group, defaults.lost) == (False, False, None, "")


@pytest.mark.parametrize("carry", [True, False])
def test_what_a_test_tells(monkeypatch: pytest.MonkeyPatch, carry: bool) -> None:
    monkeypatch.setattr("pytest_kerntune.payload.carried", lambda record: {"b": msgspec.Raw(b"1")})
    marker = SimpleNamespace(kwargs={"group": "softmax"})
    item: Any = SimpleNamespace(
        nodeid="t.py::test_a[3]", stash={}, callspec=SimpleNamespace(params={"n": 3}),
        fixturenames=["autotune", "benchmark"],
        get_closest_marker=lambda name: marker if name == "benchmark" else None,
    )  # fmt: skip
    record: Any = SimpleNamespace(results=[result()], finished=True, static_only="", lost_device="gone")
    found = payload_from(item, record, carry=carry)
    assert found == Payload(
        "t.py::test_a[3]", (result(),), True, "", {"n": "3"}, {"b": msgspec.Raw(b"1")} if carry else {}, True,
        "softmax", "gone",
    )  # fmt: skip
    plain: Any = SimpleNamespace(nodeid="t.py::test_a", stash={}, get_closest_marker=lambda name: None)
    found = payload_from(plain, record, carry=False)
    assert (found.params, found.benchmarked, found.group) == ({}, False, None)


@pytest.mark.parametrize(
    ("finished", "static_only", "carries"), [(True, "", True), (False, "", False), (False, "why", True)]
)
def test_a_body_that_broke_off_carries_no_baselines(
    monkeypatch: pytest.MonkeyPatch, finished: bool, static_only: str, carries: bool
) -> None:
    monkeypatch.setattr(
        "kerntune.gate.bundle.encoded_bundles", lambda pending: {str(p): msgspec.Raw(b"1") for p in pending}
    )
    checks = [SimpleNamespace(pending="x"), SimpleNamespace(pending="y")]
    record: Any = SimpleNamespace(finished=finished, static_only=static_only, checks=checks)
    assert list(carried(record)) == (["x", "y"] if carries else [])


def test_what_was_collected() -> None:
    found = Collected()
    found.add(Payload("a", (result("a"),), static_only="no GPU", baselines={"x": msgspec.Raw(b"1")}))
    found.add(Payload("b", finished=True))
    found.join("a", (result("a", target="cuda:80"),))
    found.join("c", (result("c"),))
    found.join("d", ())
    found.carry({"e": "elsewhere", "a": "less"}, {"x": 0, "y": 2})
    assert [(r.case.nodeid, r.target) for r in found.results] == [("a", "cuda:90"), ("a", "cuda:80"), ("c", "cuda:90")]
    assert found.tests == {"a", "b", "c"}
    assert found.static_only == {"e": "elsewhere", "a": "no GPU"}
    assert found.baselines == {"x": msgspec.Raw(b"1"), "y": 2}
    assert found.payload("b").finished
    assert found.payload("z") == Payload("z")
    found.add(Payload("a"))
    assert [r.case.nodeid for r in found.results] == ["c"], "a test that is run again replaces what it said"


def test_results_that_were_altered_since_are_named() -> None:
    found = Collected()
    found.add(Payload("a", (result("a"),)))
    found.add(Payload("b", (result("b"),)))
    found.join("b", (result("b", target="cuda:80"),))
    assert found.altered() == []
    found._tests["b"] = Payload("b", (result("b", outcome=Outcome.FAIL),))
    assert found.altered() == ["b"]


@pytest.mark.parametrize(
    ("payload", "seen"),
    [
        (Payload("a", (result(),), True), True),
        (Payload("a", (result(fingerprint=""),), True), True),
        (Payload("a", (result(fingerprint="g"),), True), False),
        (Payload("a", (result(call="1"),), True), False),
        (Payload("a", (), True), False),
        (Payload("a", (), False), True),
        (Payload("b"), False),
    ],
    ids=["checked", "launched nothing", "another fingerprint", "another call", "no call", "broke off", "another test"],
)
def test_what_a_run_has_seen_is_not_stale(payload: Payload, seen: bool) -> None:
    found = Collected()
    found.add(payload)
    assert found.saw(result()) is seen


def test_values_that_nothing_checked_count_once_a_place() -> None:
    found, values = Collected(), tuple(UncheckedValue(*place) for place in (("t.py:3", "x"), ("t.py:4", "y")))
    for told in (values[:1], values, ()):
        attach_unchecked(carrier := report(), "a", told)
        assert bool(vars(carrier)) == bool(told)
        found.note_unchecked(carrier)
    assert found.unchecked == {"a": values}
