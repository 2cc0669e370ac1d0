"""Calls, pending baselines, and what is written when a test has passed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from samples import CASE, FINGERPRINT, H100, artifacts_of, static_baseline, time_baseline

from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Outcome, Policy, TuneMode, Update, Verdict
from kerntune.errors import ReferenceMismatch
from kerntune.gate.api import compare_reference
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.call import Call, Checked, PendingBaseline, Settings

RESULT = CaseResult(CASE, FINGERPRINT, Verdict.NEW, Outcome.PASS, "NEW", "cuda:90")


@pytest.fixture
def store(tmp_path: Path) -> BaselineStore:
    return BaselineStore(tmp_path / "baselines")


def test_a_calls_case_is_its_test_and_name() -> None:
    call = Call(CASE.nodeid, CASE.call, print)
    assert call.case == CASE
    assert Call("t", "add", print).case != Call("t", "mul", print).case


def test_defaults_are_not_shared() -> None:
    first, second = Call("t", "0", print), Call("t", "0", print)
    first.kwargs["x"] = 1
    assert second.kwargs == {}
    assert (first.args, first.candidates, first.scope) == ((), {}, "kernels")


def test_settings_default_to_the_least_surprise(tmp_path: Path) -> None:
    settings = Settings(tmp_path, tmp_path / "baselines")
    assert (settings.update, settings.tune, settings.policy) == (Update.NONE, TuneMode.AUTO, Policy())
    assert (settings.targets, settings.cache_dir) == ((), None)
    assert not settings.code_changes, "it costs a compilation for each changed kernel"


@pytest.mark.parametrize("value", [Call("t", "0", print), Settings(Path(), Path()), Checked(1, RESULT)])
def test_values_are_frozen(value: Call | Settings | Checked) -> None:
    with pytest.raises(AttributeError):
        setattr(value, next(iter(type(value).__annotations__)), None)


def test_pending_time_baseline_is_written_with_its_artifacts(store: BaselineStore) -> None:
    path, _ = PendingBaseline(time_baseline(), artifacts_of(), True).commit(store)
    assert store.read(path) == time_baseline()
    assert dict(store.artifacts(H100.target)) == artifacts_of()


def test_pending_static_baseline_is_written_with_its_ttir(store: BaselineStore) -> None:
    path, _ = PendingBaseline(static_baseline(), artifacts_of(), True).commit(store)
    assert store.read(path) == static_baseline()
    assert set(store.artifacts(H100.target)) == {static_baseline().launches[0].ttir_sha256}


def test_commit_writes_and_marks(store: BaselineStore) -> None:
    checked = Checked("value", RESULT, PendingBaseline(time_baseline(), artifacts_of(), True), store)
    assert store.time_files() == [], "nothing is written before the test has passed"
    result = checked.commit()
    (path,) = store.time_files()
    assert result.recorded
    assert result.baseline_path == path.relative_to(store.folder.parent).as_posix()
    assert store.time(H100, CASE, FINGERPRINT) == time_baseline()
    assert not checked.result.recorded


def test_commit_leaves_alone_what_is_not_to_be_written(store: BaselineStore) -> None:
    checked = Checked("value", RESULT, PendingBaseline(time_baseline(), {}, False), store)
    assert checked.commit() == RESULT
    assert not store.folder.exists()


def test_commit_without_anything_pending_or_without_a_store(store: BaselineStore) -> None:
    assert Checked(None, RESULT, store=store).commit() == RESULT
    assert Checked(None, RESULT, PendingBaseline(time_baseline(), artifacts_of(), True)).commit() == RESULT


def test_an_obsolete_baseline_goes_with_the_commit(store: BaselineStore) -> None:
    path = store.put(time_baseline(), artifacts_of())
    Checked("value", RESULT, obsolete=path).commit()
    assert path.exists(), "no folder to remove it from"
    Checked("value", RESULT, store=store).commit()
    assert path.exists()
    Checked("value", RESULT, store=store, obsolete=path).commit()
    assert not path.exists()


def test_a_case_that_was_taken_over_stays_recorded(store: BaselineStore) -> None:
    pending = PendingBaseline(static_baseline(), artifacts_of(), True)
    pending.commit(store)
    for recorded in (True, False):
        result = msgspec.structs.replace(RESULT, recorded=recorded)
        assert Checked("value", result, pending, store).commit().recorded is recorded
    assert Checked("value", RESULT, pending._replace(anew=True), store).commit().recorded


# a result held against its reference: tolerances, nesting, arrays of numpy, and the messages about a difference


ONES = torch.ones(4)


def compare(actual: Any, expected: Any) -> None:
    compare_reference(actual, expected, rtol=None, atol=None, case="t.py::test")


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        pytest.param(ONES, np.ones(4), id="float64 of numpy"),
        pytest.param(ONES.bfloat16(), np.ones(4, np.float32), id="no bfloat16 in numpy"),
        pytest.param(torch.arange(4), np.arange(4)[::-1][::-1], id="integers"),
        pytest.param(torch.arange(4).flip(0), np.arange(4)[::-1], id="a view backwards"),
        pytest.param(torch.tensor(2.0), np.float64(2.0), id="a number"),
        pytest.param((ONES, {"y": ONES}), [np.ones(4), {"y": np.ones(4)}], id="nested"),
    ],
)
def test_numpy_s_arrays_are_references_too(actual: Any, expected: Any) -> None:
    compare(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected", "said"),
    [
        pytest.param(ONES, np.array([1, 1, 1, 2.0]), "1 / 4", id="another value"),
        pytest.param(ONES, np.ones(5), "shape", id="another shape"),
        pytest.param(ONES, np.ones(4, np.int64), "dtype", id="integers for floats"),
        pytest.param(ONES, ONES.double(), "dtype", id="tensors are compared by type"),
        pytest.param([ONES], [np.ones(4)] * 2, "length", id="one more"),
    ],
)
def test_what_differs_is_named(actual: Any, expected: Any, said: str) -> None:
    with pytest.raises(ReferenceMismatch, match=said):
        compare(actual, expected)


class Elsewhere(torch.Tensor):
    """A tensor of another device than the host."""

    device = torch.device("cuda", 0)  # type: ignore[assignment]


def test_a_reference_may_be_computed_on_another_device() -> None:
    actual = torch.ones(4).as_subclass(Elsewhere)
    compare(actual, ONES)
    compare((actual, {"y": ONES}), [ONES, {"y": actual}])
    with pytest.raises(ReferenceMismatch, match="1 / 4"):
        compare(actual, torch.tensor([1, 1, 1, 2.0]))


def agrees(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None) -> bool:
    try:
        compare_reference(actual, expected, rtol=rtol, atol=atol, case="t::0")
    except ReferenceMismatch:
        return False
    return True


@pytest.mark.parametrize(
    ("rtol", "atol", "off", "expected"),
    [
        (0.1, None, 0.05, True),  # torch's default for float32 is 1.3e-6
        (0.1, None, 0.2, False),
        (None, 0.1, 0.05, True),
        (None, 0.1, 0.2, False),
        (None, None, 0.05, False),
        (None, None, 1e-6, True),
        (0.0, None, 1e-6, False),
        (None, 0.0, 1e-6, False),
    ],
)
def test_a_lone_tolerance_counts_and_the_other_is_none(
    rtol: float | None, atol: float | None, off: float, expected: bool
) -> None:
    assert agrees(torch.tensor([1.0 + off]), torch.tensor([1.0]), rtol, atol) is expected


def test_a_relative_tolerance_alone_allows_nothing_at_zero() -> None:
    assert not agrees(torch.tensor([1e-9]), torch.tensor([0.0]), rtol=0.5)
    assert agrees(torch.tensor([1e-9]), torch.tensor([0.0]))


def test_an_absolute_tolerance_alone_does_not_grow_with_the_numbers() -> None:
    assert not agrees(torch.tensor([1e6 + 1.0]), torch.tensor([1e6]), atol=0.5)
    assert agrees(torch.tensor([1e6 + 1.0]), torch.tensor([1e6]))


def test_tuples_lists_and_dicts_are_compared_by_what_they_hold() -> None:
    x = torch.ones(2)
    assert agrees((x, [x]), [x, (x,)])
    assert agrees({"a": (x,)}, {"a": [x]})
    assert not agrees({"a": (x,)}, {"a": [x + 1]})
    assert agrees(torch.ones(2, requires_grad=True), x)


def test_a_difference_names_the_case_and_how_much() -> None:
    with pytest.raises(ReferenceMismatch, match=r"t::0: the result disagrees with its reference\. (.|\n)*1 / 2"):
        compare_reference(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]), rtol=None, atol=None, case="t::0")


@pytest.mark.parametrize(
    ("actual", "expected"), [(ONES, [np.ones(4)]), ([ONES], np.ones(4)), ([ONES] * 4, {"x": ONES})]
)
def test_a_container_and_a_tensor_disagree(actual: Any, expected: Any) -> None:
    with pytest.raises(
        ReferenceMismatch, match=r"^t\.py::test: the result disagrees with its reference\. No comparison"
    ):
        compare(actual, expected)
