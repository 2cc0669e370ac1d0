"""Calls, pending baselines, and what is written when a test has passed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
from samples import CASE, FINGERPRINT, H100, artifacts_of, static_baseline, time_baseline

from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Outcome, Policy, TuneMode, Update, Verdict
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


@pytest.mark.parametrize("value", [Call("t", "0", print), Settings(Path(), Path()), Checked(1, ())])
def test_values_are_frozen(value: Call | Settings | Checked) -> None:
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, None)


def test_pending_time_baseline_is_written_with_its_artifacts(store: BaselineStore) -> None:
    path, _ = PendingBaseline(time_baseline(), artifacts_of(), True).commit(store)
    assert store.read(path) == time_baseline()
    assert dict(store.artifacts(H100.target)) == artifacts_of()


def test_pending_static_baseline_is_written_with_its_ttir(store: BaselineStore) -> None:
    path, _ = PendingBaseline(static_baseline(), artifacts_of(), True).commit(store)
    assert store.read(path) == static_baseline()
    assert set(store.artifacts(H100.target)) == {static_baseline().launches[0].ttir_sha256}


def test_commit_writes_and_marks(store: BaselineStore) -> None:
    checked = Checked("value", (RESULT,), (PendingBaseline(time_baseline(), artifacts_of(), True),), store)
    assert store.time_files() == [], "nothing is written before the test has passed"
    (result,) = checked.commit()
    (path,) = store.time_files()
    assert result.recorded
    assert result.baseline_path == path.relative_to(store.folder.parent).as_posix()
    assert store.time(H100, CASE, FINGERPRINT) == time_baseline()
    assert not checked.results[0].recorded


def test_commit_leaves_alone_what_is_not_to_be_written(store: BaselineStore) -> None:
    checked = Checked("value", (RESULT,), (PendingBaseline(time_baseline(), {}, False),), store)
    assert checked.commit() == (RESULT,)
    assert not store.folder.exists()


def test_commit_by_target(store: BaselineStore) -> None:
    """Without a GPU there is a result per target, each with its own baseline or none."""
    pending = (PendingBaseline(static_baseline(), artifacts_of(), True), None)
    first, second = Checked(None, (RESULT, RESULT), pending, store).commit()
    assert first.recorded
    assert second == RESULT


def test_commit_without_anything_pending() -> None:
    assert Checked(None, (RESULT, RESULT)).commit() == (RESULT, RESULT)


def test_commit_without_a_store() -> None:
    assert Checked(None, (RESULT,), (PendingBaseline(time_baseline(), artifacts_of(), True),)).commit() == (RESULT,)


def test_results_and_pending_belong_together(store: BaselineStore) -> None:
    pending = (PendingBaseline(time_baseline(), artifacts_of(), False),)
    with pytest.raises(ValueError, match="zip"):
        Checked(None, (RESULT, RESULT), pending, store).commit()


def test_an_obsolete_baseline_goes_with_the_commit(store: BaselineStore) -> None:
    path = store.put(time_baseline(), artifacts_of())
    Checked("value", (), (), None, path).commit()
    assert path.exists(), "no folder to remove it from"
    Checked("value", (), (), store).commit()
    assert path.exists()
    Checked("value", (RESULT,), (), store, path).commit()
    assert not path.exists()


def test_a_case_that_was_taken_over_stays_recorded(store: BaselineStore) -> None:
    pending = PendingBaseline(static_baseline(), artifacts_of(), True)
    pending.commit(store)
    for recorded in (True, False):
        result = msgspec.structs.replace(RESULT, recorded=recorded)
        assert Checked("value", (result,), (pending,), store).commit()[0].recorded is recorded
    (found,) = Checked("value", (RESULT,), (dataclasses.replace(pending, anew=True),), store).commit()
    assert found.recorded
